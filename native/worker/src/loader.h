// SPDX-License-Identifier: Apache-2.0
// The one thread that loads and unloads modules, and makes the other driver
// calls that stop everybody while a stream waits for a flag (see Gate).
// Sessions go on meanwhile.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "device.h"
#include "gate.h"

namespace tessera::worker {

class BlasHandle;
using ImageBytes = std::shared_ptr<const std::vector<char>>;  // NUL-terminated

struct Module {
  ts_image_hash hash{};
  ImageBytes bytes;
  CUmodule handle = nullptr;
};

/// A kernel, or a host library, that a session asked for; the session reads the result once `done`.
struct LoadRequest {
  ts_image_hash hash{};
  ImageBytes bytes;
  std::string name;
  uint32_t parameter_size = 0;
  int32_t max_dynamic_shared = -1, shared_carveout = -1;
  std::string library, environment;  ///< a library's path, instead of an image; see ts_library
  uint32_t library_kind = 0;
  std::function<void()> wake;  ///< called, by the loader's thread, after `done` is set

  std::atomic<bool> done{false};
  CUresult status = CUDA_SUCCESS;
  std::string text;
  std::shared_ptr<Module> module;  ///< keeps the function alive
  CUfunction function = nullptr;
  uint32_t driver_parameter_size = 0;  ///< as the driver has it; 0 when it cannot say
  int local_bytes = 0;                 ///< local memory per thread
  std::shared_ptr<BlasHandle> blas;    ///< of a library
};

class Loader {
 public:
  /// How long a load waits for a moment at which no stream waits for a flag.
  explicit Loader(const Device& device, Gate& gate, std::chrono::milliseconds patience);
  /// Finishes what it has begun, unloads every module.
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  void submit(std::shared_ptr<LoadRequest> request);
  /// Runs `task` in the loader's thread at a moment at which it stops nobody; before destruction at the latest.
  void defer(std::function<void()> task);
  /// Modules that are loaded now.
  size_t modules() const { return n_modules_.load(); }

 private:
  static constexpr size_t kUnusedKept = 32;

  void run();
  void serve(LoadRequest& request);
  void load(LoadRequest& request);
  std::shared_ptr<Module> find_module(const LoadRequest& request) const;
  void open_library(LoadRequest& request);
  std::shared_ptr<Module> load_module(const LoadRequest& request);
  void find_function(LoadRequest& request);
  void unload_unused(size_t keep);
  void run_deferred(bool even_if_it_waits);
  bool wait_clear(const Closing& closing, std::chrono::milliseconds patience);

  const Device& device_;
  Gate& gate_;
  std::chrono::milliseconds patience_;
  std::vector<std::shared_ptr<Module>> modules_;  // of the loader's thread
  std::atomic<size_t> n_modules_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<LoadRequest>> queue_;
  std::deque<std::function<void()>> deferred_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace tessera::worker
