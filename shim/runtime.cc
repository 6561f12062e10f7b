// SPDX-License-Identifier: Apache-2.0
#include "runtime.h"

#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <memory>

#include "driver.h"
#include "log.h"
#include "seams.h"

namespace tessera::shim {
namespace {

constexpr long kPollNanoseconds = 1000000;

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
  Mode starting = Mode::kStarting;
  mode_.compare_exchange_strong(starting, reached ? Mode::kActive : Mode::kPassing, std::memory_order_acq_rel);
}

void Runtime::after_init() {
  if (mode() == Mode::kUnstarted) begin_session();
  // What this thread does next is to be tracked. The wait ends: starting up has its own time limits.
  while (mode() == Mode::kStarting) {
    const timespec pause{0, kPollNanoseconds};
    ::nanosleep(&pause, nullptr);
  }
}

void Runtime::stop(const char* reason) {
  if (mode_.exchange(Mode::kPassing, std::memory_order_acq_rel) != Mode::kPassing) {
    log_line(LogLevel::kWarn, "%s: this program goes on as without Tessera", reason);
  }
}

void Runtime::saw_unknown_function(const char* name) {
  if (unknown_seen_.exchange(true, std::memory_order_acq_rel)) return;
  log_line(LogLevel::kWarn,
           "the program uses %s, which this build does not know: every kernel stays home (a newer Tessera may know it)",
           name);
}

void Runtime::forked() {
  // The device contexts did not come along, and the sockets are the parent's.
  runtime().mode_.store(Mode::kPassing, std::memory_order_release);
}

}  // namespace tessera::shim

using namespace tessera::shim;

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuInit(unsigned int flags) {
  const CUresult result = driver().cuInit(flags);
  if (result == CUDA_SUCCESS) runtime().after_init();
  return result;
}
