// SPDX-License-Identifier: Apache-2.0
#include "loader.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "blas_handle.h"
#include "image.h"
#include "log.h"

namespace tessera::worker {
namespace {

constexpr std::chrono::milliseconds kDeferredPatience{100};

bool is_about_architecture(CUresult code) {
  return code == CUDA_ERROR_NO_BINARY_FOR_GPU || code == CUDA_ERROR_INVALID_PTX ||
         code == CUDA_ERROR_UNSUPPORTED_PTX_VERSION || code == CUDA_ERROR_INVALID_IMAGE ||
         code == CUDA_ERROR_INVALID_SOURCE;
}

/// The driver's log, on one line.
std::string one_line(const char* log) {
  std::string text(log);
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text.substr(0, text.find_last_not_of(' ') + 1);
}

/// The parameter bytes that the driver wants for a function; 0 when it cannot say.
uint32_t parameter_bytes(const Driver& driver, CUfunction function) {
  if (!driver.has_parameter_info) return 0;
  uint32_t end = 0;
  size_t offset = 0, size = 0;
  for (size_t i = 0; driver.cuFuncGetParamInfo(function, i, &offset, &size) == CUDA_SUCCESS; ++i) {
    end = std::max(end, static_cast<uint32_t>(offset + size));
  }
  return end;
}

}  // namespace

Loader::Loader(const Device& device, Gate& gate, std::chrono::milliseconds patience)
    : device_(device), gate_(gate), patience_(patience), thread_([this] { run(); }) {}

Loader::~Loader() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Loader::submit(std::shared_ptr<LoadRequest> request) {
  const std::lock_guard lock(mutex_);
  queue_.push_back(std::move(request));
  changed_.notify_all();
}

void Loader::defer(std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  deferred_.push_back(std::move(task));
  changed_.notify_all();
}

void Loader::run() {
  try {
    device_.make_current();
  } catch (const DriverError& error) {
    log(LogLevel::kError, error.what());  // every load will fail and say so
  }
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (!queue_.empty()) {
      const std::shared_ptr<LoadRequest> request = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      serve(*request);
      lock.lock();
    } else if (!deferred_.empty()) {
      lock.unlock();
      run_deferred(false);
      lock.lock();
      // Not at once again: whoever holds the device up may do so for long.
      if (!deferred_.empty() && queue_.empty() && !stopping_) changed_.wait_for(lock, kDeferredPatience);
    } else {
      changed_.wait(lock);
    }
  }
  lock.unlock();
  run_deferred(true);
  unload_unused(0);
}

void Loader::serve(LoadRequest& request) {
  try {
    load(request);
  } catch (const DriverError& error) {
    request.status = error.code();
    request.text = error.what();
    log(LogLevel::kInfo, "cannot load " + request.name + ": " + request.text);
  }
  request.done.store(true);
  request.wake();
}

void Loader::load(LoadRequest& request) {
  if (!request.library.empty()) return open_library(request);
  request.module = find_module(request);
  if (request.module == nullptr) request.module = load_module(request);
  find_function(request);
}

std::shared_ptr<Module> Loader::find_module(const LoadRequest& request) const {
  for (const std::shared_ptr<Module>& module : modules_) {
    // The hash is the program's word; that the bytes are the same is what counts.
    if (module->hash.low == request.hash.low && module->hash.high == request.hash.high &&
        *module->bytes == *request.bytes) {
      return module;
    }
  }
  return nullptr;
}

/// Its handle allocates memory, and its kernels are loaded.
void Loader::open_library(LoadRequest& request) {
  const Closing closing(gate_);
  if (!wait_clear(closing, patience_)) {
    throw DriverError(CUDA_ERROR_NOT_READY, "the library cannot be opened while streams wait for their programs");
  }
  request.blas = std::make_shared<BlasHandle>(device_, request.library, request.library_kind, request.environment);
}

std::shared_ptr<Module> Loader::load_module(const LoadRequest& request) {
  if (const std::string objection = image_objection({request.bytes->data(), request.bytes->size() - 1});
      !objection.empty()) {
    throw DriverError(CUDA_ERROR_INVALID_IMAGE, objection);
  }
  const Closing closing(gate_);
  if (!wait_clear(closing, patience_)) {
    throw DriverError(CUDA_ERROR_NOT_READY,
                      "the module cannot be loaded while streams wait for their programs; ask again later");
  }
  unload_unused(kUnusedKept);
  std::array<char, 4096> log_text{};
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  // The driver takes integers in these pointers.
  void* values[] = {log_text.data(),
                    reinterpret_cast<void*>(log_text.size() - 1)};  // NOLINT(performance-no-int-to-ptr)
  auto module = std::make_shared<Module>(Module{request.hash, request.bytes, nullptr});
  const CUresult code = device_.driver().cuModuleLoadDataEx(&module->handle, request.bytes->data(), 2, options, values);
  if (code != CUDA_SUCCESS) {
    std::string text;
    const std::string wanted = image_architectures({request.bytes->data(), request.bytes->size() - 1});
    if (is_about_architecture(code) && !wanted.empty()) {
      text = "the module wants " + wanted + ", this device is sm_" +
             std::to_string(device_.description().compute_capability) + ": ";
    }
    text += device_.driver().error_name(code);
    if (log_text[0] != '\0') text += ": " + one_line(log_text.data());
    throw DriverError(code, text);
  }
  modules_.push_back(module);
  n_modules_ = modules_.size();
  return module;
}

void Loader::find_function(LoadRequest& request) {
  const Driver& driver = device_.driver();
  driver.check(driver.cuModuleGetFunction(&request.function, request.module->handle, request.name.c_str()),
               ("the module has no kernel " + request.name).c_str());
  const uint32_t wanted = request.driver_parameter_size = parameter_bytes(driver, request.function);
  if (wanted > request.parameter_size) {
    throw DriverError(CUDA_ERROR_INVALID_VALUE, request.name + " takes " + std::to_string(wanted) +
                                                    " parameter bytes, the program has " +
                                                    std::to_string(request.parameter_size));
  }
  int dynamic = 0;
  driver.check(driver.cuFuncGetAttribute(&request.local_bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, request.function),
               "cuFuncGetAttribute");
  driver.check(driver.cuFuncGetAttribute(&dynamic, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, request.function),
               "cuFuncGetAttribute");
  // Programs share the function, and the attribute is only a limit: the largest wish holds.
  if (request.max_dynamic_shared > dynamic) {
    driver.check(driver.cuFuncSetAttribute(request.function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                           request.max_dynamic_shared),
                 "setting the kernel's dynamic shared memory");
  }
  if (request.shared_carveout >= 0) {
    driver.check(driver.cuFuncSetAttribute(request.function, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
                                           request.shared_carveout),
                 "setting the kernel's shared memory carveout");
  }
}

void Loader::unload_unused(size_t keep) {
  size_t unused = static_cast<size_t>(
      std::count_if(modules_.begin(), modules_.end(), [](const auto& module) { return module.use_count() == 1; }));
  std::erase_if(modules_, [&](const std::shared_ptr<Module>& module) {  // the oldest first
    if (unused <= keep || module.use_count() != 1) return false;
    --unused;
    device_.driver().note(device_.driver().cuModuleUnload(module->handle), "cuModuleUnload");
    return true;
  });
  n_modules_ = modules_.size();
}

void Loader::run_deferred(bool even_if_it_waits) {
  const Closing closing(gate_);
  if (!even_if_it_waits && !wait_clear(closing, kDeferredPatience)) return;
  std::deque<std::function<void()>> tasks;
  {
    const std::lock_guard lock(mutex_);
    tasks.swap(deferred_);
  }
  for (const auto& task : tasks) task();
}

bool Loader::wait_clear(const Closing& closing, std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (!closing.clear()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return true;
}

}  // namespace tessera::worker
