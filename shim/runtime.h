// SPDX-License-Identifier: Apache-2.0
// What the shim is doing in this process: nothing yet, passing calls through, or
// active. Nothing happens at load. The first driver call finds the driver; the
// first one after a successful cuInit tries to reach the controller, once.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "tessera/protocol/settings.h"

namespace tessera::shim {

enum class Mode : uint32_t {
  kUnstarted,  // the program has not initialised the driver
  kStarting,   // one thread is talking to the controller; everyone passes through
  kPassing,    // disabled, no controller, or a forked child
  kActive
};

class Runtime {
 public:
  /// Whether calls are tracked and may be redirected. One load on the hot path.
  /// False while another thread starts up: memory and modules of such calls are
  /// simply not Tessera's.
  bool active() {
    const Mode mode = mode_.load(std::memory_order_acquire);
    return mode == Mode::kActive || (mode == Mode::kUnstarted && start());
  }
  Mode mode() const { return mode_.load(std::memory_order_acquire); }

  /// The settings, read from the environment at first use.
  const Settings& settings();
  bool disabled();

  /// From now on every call passes through: the session cannot go on. Returns at
  /// once; what is remote must be home already. Logs `reason` once.
  void stop(const char* reason);

  /// A function was handed out that this build does not know, or a library was
  /// bound past the shim. Either could work on the device unseen, so once this is
  /// true nothing may become remote. It can turn true at any time.
  bool unknown_function_seen() const { return unknown_seen_.load(std::memory_order_acquire); }
  void saw_unknown_function(const char* name);
  /// The program made a green context. Its streams have another context than memory and kernels that they share with
  /// the rest of the program, and limits that a worker would not keep: nothing becomes remote any more.
  void saw_green_context();
  /// Why that is so, once it is, for the controller; null before. Lives as long as the process.
  const char* all_home_reason() const { return all_home_reason_.load(std::memory_order_acquire); }
  /// A library was bound so that its calls pass the shim by, should it make any.
  /// Remembered in silence until the program turns out to use the driver.
  void saw_deep_binding(const char* file);

  /// cuInit succeeded: starts the session, or waits until the thread that does so is done.
  void after_init();

 private:
  bool start();
  void begin_session();
  void say_deep_binding();
  void keep_all_home(const char* format, const char* what);
  static void forked();

  std::atomic<Mode> mode_{Mode::kUnstarted};
  std::atomic<bool> unknown_seen_{false};
  std::atomic<const Settings*> settings_{nullptr};
  std::atomic<const char*> deep_binding_{nullptr};  // file of the first one
  std::atomic<const char*> all_home_reason_{nullptr};
};

namespace detail {
extern Runtime runtime_instance;
}
inline Runtime& runtime() { return detail::runtime_instance; }

/// How long any one message to the controller or a worker may take (TESSERA_TIMEOUT_MS).
std::chrono::milliseconds message_timeout();

}  // namespace tessera::shim
