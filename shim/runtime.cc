// SPDX-License-Identifier: Apache-2.0
#include "runtime.h"

#include <pthread.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>

#include "driver.h"
#include "log.h"
#include "seams.h"

namespace tessera::shim {
namespace {

constexpr long kMillisecond = 1000000;  // nanoseconds
constexpr int64_t kDefaultTimeoutMs = 5000;
constexpr size_t kReasonBytes = 256;  // as much as ts_all_home holds

}  // namespace

namespace detail {
constinit Runtime runtime_instance;
}

const Settings& Runtime::settings() {
  if (const Settings* ready = settings_.load(std::memory_order_acquire)) return *ready;
  auto made = std::make_unique<const Settings>(Settings::from_environment());
  const Settings* expected = nullptr;
  if (!settings_.compare_exchange_strong(expected, made.get(), std::memory_order_acq_rel)) return *expected;
  set_log_level(made->log_level());
  return *made.release();  // lives as long as the process: calls may come after its exit handlers
}

bool Runtime::disabled() { return settings().flag(settings().disable); }

bool Runtime::start() {
  // Before cuInit there is nothing to track, and no device to tell the controller of.
  int devices = 0;
  if (driver().cuDeviceGetCount(&devices) != CUDA_SUCCESS) return false;
  begin_session();
  return mode() == Mode::kActive;
}

void Runtime::begin_session() {
  Mode expected = Mode::kUnstarted;
  if (!mode_.compare_exchange_strong(expected, Mode::kStarting, std::memory_order_acq_rel)) return;
  if (disabled()) {
    mode_.store(Mode::kPassing, std::memory_order_release);
    return;
  }
  pin_driver();
  ::pthread_atfork(nullptr, nullptr, &Runtime::forked);
  const bool reached = session_start();
  if (!reached) {
    log_line(LogLevel::kWarn,
             "no controller answers: this program runs as without Tessera (start one with: tessera-ctl up)");
  }
  if (reached) say_deep_binding();
  Mode starting = Mode::kStarting;
  mode_.compare_exchange_strong(starting, reached ? Mode::kActive : Mode::kPassing, std::memory_order_acq_rel);
}

void Runtime::after_init() {
  if (mode() == Mode::kUnstarted) begin_session();
  // What this thread does next is to be tracked, if that can be had in bounded time.
  const int64_t polls = message_timeout().count();
  for (int64_t i = 0; i < polls && mode() == Mode::kStarting; ++i) {
    const timespec pause{0, kMillisecond};
    ::nanosleep(&pause, nullptr);
  }
}

void Runtime::stop(const char* reason) {
  if (mode_.exchange(Mode::kPassing, std::memory_order_acq_rel) != Mode::kPassing) {
    log_line(LogLevel::kWarn, "%s: this program goes on as without Tessera", reason);
  }
}

void Runtime::keep_all_home(const char* format, const char* what) {
  unknown_seen_.store(true, std::memory_order_release);
  char text[kReasonBytes];
  std::snprintf(text, sizeof text, format, what);
  const char* expected = nullptr;
  char* copy = ::strdup(text);
  // The first reason is kept. Without memory for it there is still the line in the log.
  if (copy != nullptr && !all_home_reason_.compare_exchange_strong(expected, copy, std::memory_order_acq_rel)) {
    std::free(copy);
  }
}

void Runtime::saw_unknown_function(const char* name) {
  if (unknown_seen_.exchange(true, std::memory_order_acq_rel)) return;
  keep_all_home("the program uses %s, which this build does not know", name);
  log_line(LogLevel::kWarn,
           "the program uses %s, which this build does not know: every kernel stays home (a newer Tessera may know it)",
           name);
}

void Runtime::saw_green_context() {
  if (unknown_seen_.exchange(true, std::memory_order_acq_rel)) return;
  keep_all_home("the program uses %s", "green contexts");
  log_line(LogLevel::kWarn, "the program uses green contexts: every kernel stays home");
}

void Runtime::saw_deep_binding(const char* file) {
  const char* expected = nullptr;
  const char* copy = ::strdup(file);
  if (copy == nullptr || !deep_binding_.compare_exchange_strong(expected, copy, std::memory_order_acq_rel)) {
    std::free(const_cast<char*>(copy));
    return;
  }
  keep_all_home("%s was loaded with RTLD_DEEPBIND and may use the driver unseen", copy);
  if (mode() == Mode::kActive) say_deep_binding();
}

void Runtime::say_deep_binding() {
  if (const char* file = deep_binding_.load(std::memory_order_acquire)) {
    log_line(LogLevel::kWarn, "%s was loaded with RTLD_DEEPBIND and may use the driver unseen: every kernel stays home",
             file);
  }
}

std::chrono::milliseconds message_timeout() {
  return std::chrono::milliseconds(runtime().settings().integer(runtime().settings().timeout_ms, kDefaultTimeoutMs));
}

void Runtime::forked() {
  // The device contexts did not come along, and the sockets are the parent's.
  runtime().mode_.store(Mode::kPassing, std::memory_order_release);
  process_forked();
}

}  // namespace tessera::shim

using namespace tessera::shim;

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuInit(unsigned int flags) {
  const CUresult result = driver().cuInit(flags);
  if (result == CUDA_SUCCESS) runtime().after_init();
  return result;
}
