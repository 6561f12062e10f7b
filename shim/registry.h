// SPDX-License-Identifier: Apache-2.0
// From handles to what stands behind them: CUmodule and CUlibrary to images,
// CUfunction and CUkernel to functions. The driver takes a CUkernel wherever a
// CUfunction is asked for, so one table holds both.
//
// Lookups take no lock. Changes take one, which is never held across a call into
// the driver. Entries are retired, never freed: a pointer to one stays good.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "handle_table.h"
#include "images.h"

namespace tessera::shim {

/// One loaded module or library. What stands behind its public face is the registry's.
class ModuleEntry {
 public:
  /// The image, or null: not tracked, or unloaded. Takes a lock.
  std::shared_ptr<const Image> image() const;
  /// Null for a library.
  CUcontext context() const;
  /// The address of one of its variables was given out, or options changed its
  /// code: a copy of the module elsewhere would not be the same. Its functions stay home.
  bool pinned_home() const {
    return pinned_home_.load(std::memory_order_acquire) || (library_ != nullptr && library_->pinned_home());
  }

 private:
  friend class Registry;
  std::shared_ptr<const Image> image_;
  CUcontext context_ = nullptr;         // null for a library
  ModuleEntry* library_ = nullptr;      // the library that a module was taken from
  std::vector<const void*> functions_;  // handles of its functions and kernels
  std::vector<CUmodule> modules_;       // of a library: those taken from it
  std::atomic<bool> pinned_home_{false};
};

struct Parameter {
  uint32_t offset, size;
};

/// One kernel: shared by its CUkernel and the CUfunctions made from that.
class FunctionEntry {
 public:
  /// The members below hold once prepare() returned true.
  std::string name;
  std::vector<Parameter> parameters;
  uint32_t parameter_size = 0;  // end of the last parameter

  /// Asks the driver for name and parameters, once; a few driver calls the first
  /// time. False: the driver could not say (it is older than 12.4, or in an error
  /// state), so the kernel stays home.
  bool prepare();

  /// The image, or null: not tracked, or unloaded. Takes a lock: for the first launch only.
  std::shared_ptr<const Image> image() const { return module_->image(); }

  /// May run elsewhere as far as the host side knows: its image is there and
  /// complete, none of its variables' addresses was given out, no option that a worker
  /// could not repeat was set. Cheap; ask at each launch, for it can turn false.
  bool movable() const {
    return !unloaded_.load(std::memory_order_acquire) && !module_->pinned_home() &&
           !other_attributes.load(std::memory_order_acquire);
  }
  /// One attribute of the function on the current device, from the driver.
  CUresult attribute(CUfunction_attribute which, int* value) const;
  /// The context of its module; null for a CUkernel, which has none. Takes a lock.
  CUcontext context() const { return module_->context(); }
  bool unloaded() const { return unloaded_.load(std::memory_order_acquire); }

  // What cuFuncSetAttribute and its like set; -1: nothing.
  std::atomic<int> max_dynamic_shared{-1};
  std::atomic<int> shared_carveout{-1};
  // Something else was set, or different values for different devices.
  std::atomic<bool> other_attributes{false};

  /// For the launch path; null at first. The registry never looks at it.
  std::atomic<void*> launch_state{nullptr};

 private:
  friend class Registry;
  bool ask_driver(std::string& found_name, std::vector<Parameter>& found) const;

  ModuleEntry* module_ = nullptr;
  const void* handle_ = nullptr;
  bool is_kernel_ = false;
  std::atomic<int> attribute_device_{-1};  // for which the attributes were set last
  std::atomic<bool> unloaded_{false};
  std::atomic<uint8_t> prepared_{0};  // 0 not yet, 1 yes, 2 the driver could not say
};

namespace detail {
extern constinit HandleTable<FunctionEntry> functions;
}

/// The entry of a CUfunction or CUkernel; null when it was never announced. A few
/// nanoseconds, no lock.
inline FunctionEntry* find_function(const void* handle) { return detail::functions.find(handle); }
inline FunctionEntry* find_function(CUfunction handle) { return find_function(static_cast<const void*>(handle)); }

/// For a handle that find_function does not know: asks the driver which module it
/// belongs to, and makes an entry. That may be one without an image, but never null.
FunctionEntry* resolve_function(CUfunction handle);

/// The context goes, and with it its modules and functions. Call it before the driver does.
void forget_context(CUcontext context);

/// What the wrappers of module and library calls report. Null images: not tracked.
class Registry {
 public:
  void add_module(CUmodule module, std::shared_ptr<const Image> image, bool pinned);
  void add_library(CUlibrary library, std::shared_ptr<const Image> image, bool pinned);
  void add_library_module(CUmodule module, CUlibrary library);
  /// Functions of a module, kernels of a library, that nobody announced are ignored.
  /// `name` may be null: prepare() asks for it.
  void add_function(CUfunction function, CUmodule module, const char* name);
  void add_kernel(CUkernel kernel, CUlibrary library, const char* name);
  void add_kernel_function(CUfunction function, CUkernel kernel);
  void pin_module(CUmodule module);
  void pin_library(CUlibrary library);
  /// Before the driver's call: the handles may be used again right after it.
  void remove_module(CUmodule module);
  void remove_library(CUlibrary library);
  void remove_context(CUcontext context);
  FunctionEntry* resolve(CUfunction handle);
  void set_attribute(const void* handle, CUfunction_attribute attribute, int value, int device);
  void set_other_attribute(const void* handle);

 private:
  friend class FunctionEntry;
  friend class ModuleEntry;
  using Retired = std::vector<FunctionEntry*>;

  FunctionEntry* insert(const void* handle, bool is_kernel, ModuleEntry& module, const char* name, Retired& retired);
  void retire(FunctionEntry& entry, Retired& retired);
  void drop(ModuleEntry& module, Retired& retired);
  void drop_module(CUmodule module, Retired& retired);

  mutable std::mutex mutex_;
  Retired retired_;
  std::vector<ModuleEntry*> retired_modules_;
  std::unordered_map<CUmodule, ModuleEntry*> modules_;
  std::unordered_map<CUlibrary, ModuleEntry*> libraries_;
};

Registry& registry();

}  // namespace tessera::shim
