// SPDX-License-Identifier: Apache-2.0
#include "registry.h"

#include <algorithm>
#include <utility>

#include "driver.h"
#include "seams.h"

namespace tessera::shim {

constinit HandleTable<FunctionEntry> detail::functions;

namespace {

enum : uint8_t { kNotPrepared, kPrepared, kCannotPrepare };

using detail::functions;  // outside the registry: the hot path goes straight to it

/// Entries whose module is not known to the registry stand under this one.
ModuleEntry& nowhere() {
  static ModuleEntry& entry = *new ModuleEntry();
  return entry;
}

void announce(const std::vector<FunctionEntry*>& retired) {
  for (FunctionEntry* function : retired) function_retired(*function);
}

}  // namespace

Registry& registry() {
  static Registry& instance = *new Registry();  // calls may come after the process's exit handlers
  return instance;
}

CUcontext ModuleEntry::context() const {
  const std::lock_guard lock(registry().mutex_);
  return context_;
}

std::shared_ptr<const Image> ModuleEntry::image() const {
  const std::lock_guard lock(registry().mutex_);
  return library_ != nullptr ? library_->image_ : image_;
}

FunctionEntry* resolve_function(CUfunction handle) { return registry().resolve(handle); }

void forget_context(CUcontext context) { registry().remove_context(context); }

bool FunctionEntry::ask_driver(std::string& found_name, std::vector<Parameter>& found) const {
  const auto function = static_cast<CUfunction>(const_cast<void*>(handle_));
  const auto kernel = static_cast<CUkernel>(const_cast<void*>(handle_));
  const char* text = nullptr;
  const CUresult named = is_kernel_ ? driver().cuKernelGetName(&text, kernel) : driver().cuFuncGetName(&text, function);
  if (named == CUDA_SUCCESS && text != nullptr) found_name = text;
  if (found_name.empty()) return false;
  for (size_t index = 0;; ++index) {
    size_t offset = 0, size = 0;
    const CUresult result = is_kernel_ ? driver().cuKernelGetParamInfo(kernel, index, &offset, &size)
                                       : driver().cuFuncGetParamInfo(function, index, &offset, &size);
    // The driver's way to say that there are no more.
    if (result == CUDA_ERROR_INVALID_VALUE) return true;
    if (result != CUDA_SUCCESS) return false;
    found.push_back({static_cast<uint32_t>(offset), static_cast<uint32_t>(size)});
  }
}

CUresult FunctionEntry::attribute(CUfunction_attribute which, int* value) const {
  if (!is_kernel_)
    return driver().cuFuncGetAttribute(value, which, static_cast<CUfunction>(const_cast<void*>(handle_)));
  CUdevice device = 0;
  const CUresult current = driver().cuCtxGetDevice(&device);
  if (current != CUDA_SUCCESS) return current;
  return driver().cuKernelGetAttribute(value, which, static_cast<CUkernel>(const_cast<void*>(handle_)), device);
}

bool FunctionEntry::prepare() {
  const uint8_t state = prepared_.load(std::memory_order_acquire);
  if (state != kNotPrepared) return state == kPrepared;
  std::string found_name;
  {
    const std::lock_guard lock(registry().mutex_);
    found_name = name;
  }
  std::vector<Parameter> found;
  const bool known = ask_driver(found_name, found);
  const std::lock_guard lock(registry().mutex_);
  if (prepared_.load(std::memory_order_relaxed) != kNotPrepared)
    return prepared_.load(std::memory_order_relaxed) == kPrepared;
  if (known) {
    name = std::move(found_name);
    parameters = std::move(found);
    for (const Parameter& parameter : parameters) {
      parameter_size = std::max(parameter_size, parameter.offset + parameter.size);
    }
  }
  prepared_.store(known ? kPrepared : kCannotPrepare, std::memory_order_release);
  return known;
}

void Registry::retire(FunctionEntry& entry, Retired& retired) {
  if (entry.unloaded_.exchange(true)) return;  // under another of its handles
  retired.push_back(&entry);
  retired_.push_back(&entry);
}

FunctionEntry* Registry::insert(const void* handle, bool is_kernel, ModuleEntry& module, const char* name,
                                Retired& retired) {
  FunctionEntry* known = functions.find(handle);
  if (known != nullptr && (known->module_ == &module || known->module_ == module.library_)) return known;
  // The driver has given the handle to another function: its first owner went unseen, with its context perhaps.
  if (known != nullptr && known->handle_ == handle) retire(*known, retired);
  auto* entry = new FunctionEntry();
  entry->module_ = &module;
  entry->handle_ = handle;
  entry->is_kernel_ = is_kernel;
  if (name != nullptr) entry->name = name;
  module.functions_.push_back(handle);
  functions.set(handle, entry);
  return entry;
}

void Registry::add_module(CUmodule module, std::shared_ptr<const Image> image, bool pinned) {
  auto* entry = new ModuleEntry();
  entry->pinned_home_ = pinned || image == nullptr || !image->complete();
  entry->image_ = std::move(image);
  if (driver().cuCtxGetCurrent(&entry->context_) != CUDA_SUCCESS) entry->context_ = nullptr;
  const std::lock_guard lock(mutex_);
  modules_[module] = entry;
}

void Registry::add_library(CUlibrary library, std::shared_ptr<const Image> image, bool pinned) {
  auto* entry = new ModuleEntry();
  entry->pinned_home_ = pinned || image == nullptr || !image->complete();
  entry->image_ = std::move(image);
  const std::lock_guard lock(mutex_);
  libraries_[library] = entry;
}

void Registry::add_library_module(CUmodule module, CUlibrary library) {
  CUcontext context = nullptr;
  if (driver().cuCtxGetCurrent(&context) != CUDA_SUCCESS) context = nullptr;
  const std::lock_guard lock(mutex_);
  const auto found = libraries_.find(library);
  if (found == libraries_.end()) return;
  ModuleEntry*& entry = modules_[module];
  if (entry != nullptr && entry->library_ == found->second) return;
  entry = new ModuleEntry();
  entry->library_ = found->second;
  entry->context_ = context;
  found->second->modules_.push_back(module);
}

void Registry::add_function(CUfunction function, CUmodule module, const char* name) {
  if (function == nullptr) return;
  Retired retired;
  {
    const std::lock_guard lock(mutex_);
    const auto found = modules_.find(module);
    if (found != modules_.end()) insert(function, false, *found->second, name, retired);
  }
  announce(retired);
}

void Registry::add_kernel(CUkernel kernel, CUlibrary library, const char* name) {
  if (kernel == nullptr) return;
  Retired retired;
  {
    const std::lock_guard lock(mutex_);
    const auto found = libraries_.find(library);
    if (found != libraries_.end()) insert(kernel, true, *found->second, name, retired);
  }
  announce(retired);
}

void Registry::add_kernel_function(CUfunction function, CUkernel kernel) {
  if (function == nullptr) return;
  const std::lock_guard lock(mutex_);
  FunctionEntry* entry = functions.find(kernel);
  if (entry == nullptr || functions.find(function) == entry) return;
  entry->module_->functions_.push_back(function);
  functions.set(function, entry);
}

void Registry::pin_module(CUmodule module) {
  const std::lock_guard lock(mutex_);
  const auto found = modules_.find(module);
  if (found == modules_.end()) return;
  found->second->pinned_home_.store(true, std::memory_order_release);
  if (found->second->library_ != nullptr) found->second->library_->pinned_home_.store(true, std::memory_order_release);
}

void Registry::pin_library(CUlibrary library) {
  const std::lock_guard lock(mutex_);
  const auto found = libraries_.find(library);
  if (found != libraries_.end()) found->second->pinned_home_.store(true, std::memory_order_release);
}

void Registry::drop(ModuleEntry& module, Retired& retired) {
  for (const void* handle : module.functions_) {
    FunctionEntry* entry = functions.find(handle);
    if (entry == nullptr || entry->module_ != &module) continue;  // the handle is another's by now
    functions.remove(handle);
    retire(*entry, retired);
  }
  module.functions_.clear();
  module.functions_.shrink_to_fit();
  module.image_.reset();
  retired_modules_.push_back(&module);
}

void Registry::drop_module(CUmodule module, Retired& retired) {
  const auto found = modules_.find(module);
  if (found == modules_.end()) return;
  drop(*found->second, retired);
  modules_.erase(found);
}

void Registry::remove_module(CUmodule module) {
  Retired retired;
  {
    const std::lock_guard lock(mutex_);
    drop_module(module, retired);
  }
  announce(retired);
}

void Registry::remove_library(CUlibrary library) {
  Retired retired;
  {
    const std::lock_guard lock(mutex_);
    const auto found = libraries_.find(library);
    if (found == libraries_.end()) return;
    for (CUmodule module : found->second->modules_) drop_module(module, retired);
    drop(*found->second, retired);
    libraries_.erase(found);
  }
  announce(retired);
}

void Registry::remove_context(CUcontext context) {
  if (context == nullptr) return;
  Retired retired;
  {
    const std::lock_guard lock(mutex_);
    std::vector<CUmodule> gone;
    for (const auto& [module, entry] : modules_) {
      if (entry->context_ == context) gone.push_back(module);
    }
    for (CUmodule module : gone) drop_module(module, retired);
  }
  announce(retired);
}

FunctionEntry* Registry::resolve(CUfunction handle) {
  CUmodule module = nullptr;
  CUlibrary library = nullptr;
  const auto kernel = reinterpret_cast<CUkernel>(handle);
  const bool is_function = driver().cuFuncGetModule(&module, handle) == CUDA_SUCCESS;
  const bool is_kernel = !is_function && driver().cuKernelGetLibrary(&library, kernel) == CUDA_SUCCESS;
  const std::lock_guard lock(mutex_);
  if (FunctionEntry* known = functions.find(handle)) return known;
  ModuleEntry* home = nullptr;
  if (is_function || is_kernel) {
    ModuleEntry*& known = is_function ? modules_[module] : libraries_[library];
    if (known == nullptr) {
      known = new ModuleEntry();  // loaded unseen: no image, but its end will be seen
      known->pinned_home_ = true;
    }
    home = known;
  } else {
    home = &nowhere();
    home->pinned_home_ = true;
    home->functions_.clear();  // nobody will ever unload it
  }
  Retired none;  // the handle was free
  return insert(handle, is_kernel, *home, nullptr, none);
}

void Registry::set_attribute(const void* handle, CUfunction_attribute attribute, int value, int device) {
  FunctionEntry* entry = find_function(handle);
  if (entry == nullptr) return;
  std::atomic<int>* slot = attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ? &entry->max_dynamic_shared
                           : attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT ? &entry->shared_carveout
                                                                                             : nullptr;
  const bool is_set = slot != nullptr && slot->load(std::memory_order_relaxed) == value &&
                      entry->attribute_device_.load(std::memory_order_relaxed) == device;
  if (is_set) return;  // libraries repeat it before each launch
  const std::lock_guard lock(mutex_);
  // A worker could only be told one value.
  const int told = entry->attribute_device_.load(std::memory_order_relaxed);
  const bool differs =
      slot != nullptr && told != -1 && told != device && slot->load(std::memory_order_relaxed) != value;
  if (slot == nullptr || differs) entry->other_attributes.store(true, std::memory_order_release);
  if (slot != nullptr) slot->store(value, std::memory_order_release);
  entry->attribute_device_.store(device, std::memory_order_relaxed);
}

void Registry::set_other_attribute(const void* handle) {
  if (FunctionEntry* entry = find_function(handle)) entry->other_attributes.store(true, std::memory_order_release);
}

}  // namespace tessera::shim
