// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "device.h"
#include "log.h"
#include "options.h"
#include "server.h"
#include "tessera/protocol/settings.h"
#include "trial_process.h"

namespace {

using namespace tessera;
using namespace tessera::worker;

enum ExitCode { kOk = 0, kCannotStart = 1, kBadUsage = 2, kPoisoned = 3 };

/// SIGTERM and SIGINT arrive as bytes; every thread started later inherits the mask.
int block_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/// Chunks come as descriptors, one for each 32 MiB or so.
void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

/// What the driver reads when it starts. A module loaded lazily would be loaded by its first launch, in a session's
/// thread, which stops every other one; few connections make unrelated streams wait for each other.
void prepare_driver_environment() {
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  unsetenv("CUBLAS_WORKSPACE_CONFIG");  // programs say how large their workspaces are
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
}

uint64_t budget_of(const Options& options, const Device& device) {
  const uint64_t bytes =
      options.memory_mib != 0 ? static_cast<uint64_t>(options.memory_mib) << 20 : device.free_memory() / 10 * 9;
  return bytes / TS_GRANULE * TS_GRANULE;
}

ExitCode run(const Options& options, const Settings& settings) {
  const int signals = block_signals();
  raise_descriptor_limit();
  prepare_driver_environment();
  const Driver driver = Driver::open(settings.driver);
  // Before the device, which takes a second: two workers on one path find out at once.
  transport::Listener listener = transport::Listener::bind(options.socket);
  Device device(driver, options.device);
  StatusPage status(device.description(), budget_of(options, device));
  Timing timing;
  timing.spin = std::chrono::microseconds(settings.integer(settings.worker_spin_us, timing.spin.count()));
  timing.timeout = std::chrono::milliseconds(settings.integer(settings.timeout_ms, timing.timeout.count()));
  timing.patience = std::min(timing.patience, timing.timeout / 2);
  Worker worker(device, status, options, timing);
  Server::End end;
  {
    Server server(worker, std::move(listener), signals);
    std::puts("ready");
    std::fflush(stdout);
    end = server.run();
    // Broken or with live sessions nothing can be taken apart: streams never end. The kernel frees all.
    if (end == Server::End::kPoisoned) {
      log(LogLevel::kError, std::string("ends: ") + worker.poison_error().what());
      std::_Exit(kPoisoned);
    }
    if (server.has_sessions()) std::_Exit(kOk);
  }
  return kOk;
}

}  // namespace

int main(int argc, char** argv) {
  const Settings settings = Settings::from_environment();
  start_log(settings.log_level(), "tessera-worker");
  try {
    const Options options = parse_options(argc, argv, settings.integer(settings.worker_memory_mib, 0));
    if (options.help) {
      std::fputs(kUsage, stdout);
      return kOk;
    }
    start_log(settings.log_level(), "tessera-worker " + std::to_string(options.index));
    if (options.trial >= 0) {
      serve_trials(options, settings);
      return kOk;
    }
    return run(options, settings);
  } catch (const UsageError& error) {
    std::fprintf(stderr, "tessera-worker: %s\n\n%s", error.what(), kUsage);
    return kBadUsage;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tessera-worker: %s\n", error.what());
    return kCannotStart;
  }
}
