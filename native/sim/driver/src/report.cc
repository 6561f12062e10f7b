// SPDX-License-Identifier: Apache-2.0
#include "report.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>

namespace tessera::sim {

namespace {

struct Counts {
  std::mutex mutex;
  std::map<std::string, unsigned long> by_name;
};

Counts& counts() {
  static auto* const one = new Counts;
  return *one;
}

void count(const char* what) {
  Counts& all = counts();
  const std::lock_guard lock(all.mutex);
  ++all.by_name[what];
}

__attribute__((destructor)) void report_at_exit() {
  const char* wanted = std::getenv("TESSERA_SIM_REPORT");
  if (wanted == nullptr || *wanted == '\0' || *wanted == '0') return;
  Counts& all = counts();
  const std::lock_guard lock(all.mutex);
  std::string text = "tessera-sim: process " + std::to_string(getpid()) + ": ";
  text += all.by_name.empty() ? "no call was answered with CUDA_ERROR_NOT_SUPPORTED\n"
                              : "calls answered with CUDA_ERROR_NOT_SUPPORTED:\n";
  for (const auto& [name, times] : all.by_name) text += "  " + std::to_string(times) + " x " + name + "\n";
  std::fputs(text.c_str(), stderr);
}

}  // namespace

CUresult unsupported(unsigned stub) {
  count(stub < kStubCount ? kStubNames[stub] : "unknown");
  return CUDA_ERROR_NOT_SUPPORTED;
}

void fail_unsupported(const char* what) {
  count(what);
  fail(CUDA_ERROR_NOT_SUPPORTED);
}

void diagnose(const std::string& line) {
  const std::string text = "tessera-sim: " + line + "\n";
  std::fputs(text.c_str(), stderr);
}

}  // namespace tessera::sim
