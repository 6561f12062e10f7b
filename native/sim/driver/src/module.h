// SPDX-License-Identifier: Apache-2.0
// Loaded code. A Module belongs to one context; a Library to none: its kernels
// become functions of whatever context they are used in.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "context.h"
#include "image.h"
#include "memory.h"
#include "object.h"
#include "tessera/sim/interpreter.h"

namespace tessera::sim {

class Module;
class Library;

/// What a kernel is, on one device.
struct KernelFacts {
  const KernelInfo& info;
  const Code& code;
};

/// Attributes that a program may set on a function or kernel.
struct FunctionSettings {
  std::atomic<int> max_dynamic_shared{-1};  // -1: 48 KiB less the static part
  std::atomic<int> carveout{-1};
  std::atomic<int> non_portable_cluster{0};
  std::atomic<int> required_cluster[3] = {0, 0, 0};
  void copy_from(const FunctionSettings& other);
};

class Function : public Object {
 public:
  static constexpr Tag kTag = Tag::kFunction;
  Function(Module& module, const Kernel& kernel) : Object(kTag), module_(module), kernel_(kernel) {}

  Module& module() const { return module_; }
  const Kernel& kernel() const { return kernel_; }
  const KernelInfo& info() const { return kernel_.info(); }
  KernelFacts facts() const;
  FunctionSettings settings;

 private:
  Module& module_;  // owns this
  const Kernel& kernel_;
};

class Module : public Object {
 public:
  static constexpr Tag kTag = Tag::kModule;

  /// Fails with the CUresult of the load; `log` then says why.
  static Ref<Module> load(Context& context, const Image& image, std::string& log);
  ~Module() override;
  /// Takes the handles away. The code and its variables live until queued launches are done.
  void unload();

  Context& context() const { return *context_; }
  uint64_t context_generation() const { return generation_; }
  /// Null when there is none of that name.
  Function* find_function(std::string_view name) const;
  const std::vector<Function*>& functions() const { return in_order_; }
  const ModuleGlobal* find_global(std::string_view name) const;
  const Code& code() const { return code_; }
  bool is_managed(std::string_view name) const { return managed_.find(name) != managed_.end(); }

  Library* library = nullptr;  // set where it is a library's module

 private:
  explicit Module(Context& context);
  friend class ModuleVariables;

  Ref<Context> context_;
  const uint64_t generation_;
  Code code_;
  std::vector<MemoryPtr> variables_;
  std::set<std::string, std::less<>> managed_;
  std::unique_ptr<Program> program_;
  std::map<std::string, Ref<Function>, std::less<>> by_name_;
  std::vector<Function*> in_order_;
};

class LibraryKernel : public Object {
 public:
  static constexpr Tag kTag = Tag::kKernel;
  LibraryKernel(Library& library, std::string name) : Object(kTag), library_(library), name_(std::move(name)) {}

  Library& library() const { return library_; }
  const std::string& name() const { return name_; }
  /// Its function in `context`, loaded at first use.
  Function& function_in(Context& context);
  FunctionSettings& settings_on(int device) { return settings_[static_cast<size_t>(device)]; }

 private:
  Library& library_;
  const std::string name_;
  FunctionSettings settings_[kMaxDevices];
  // The last answer, read without a lock: most programs use a kernel in one context.
  struct Answer {
    Context* context;
    uint64_t generation;
    Function* function;
  };
  std::atomic<const Answer*> last_{nullptr};
  std::mutex answers_mutex_;
  std::vector<std::unique_ptr<const Answer>> answers_;  // a reader may still hold an old one
};

class Library : public Object {
 public:
  static constexpr Tag kTag = Tag::kLibrary;
  explicit Library(Image image);
  ~Library() override;

  void unload();
  /// Null when there is none of that name. Fails where the code is invalid.
  LibraryKernel* find_kernel(std::string_view name);
  std::vector<LibraryKernel*> kernels();
  Module& module_in(Context& context);
  /// Carries a kernel's settings on a device over to its functions there.
  void apply_settings(LibraryKernel& kernel, const Device& device);
  /// What a kernel is on a device, without a context.
  KernelFacts facts_on(Device& device, const LibraryKernel& kernel);

 private:
  struct Loaded {
    Context* context;
    uint64_t generation;
    Ref<Module> module;
  };
  struct Bare;  // code loaded for its facts alone, no context

  void list_kernels();

  const Image image_;
  std::mutex mutex_;
  bool listed_ = false;
  CUresult list_result_ = CUDA_SUCCESS;
  std::map<std::string, Ref<LibraryKernel>, std::less<>> kernels_;
  std::vector<Loaded> loaded_;
  std::map<int, std::unique_ptr<Bare>> bare_;
};

/// Loads code without a context, to see whether it would load; the reason is appended to `log`.
CUresult try_load(const Image& image, const Device& device, std::string& log);

/// The function behind a CUfunction, or behind a CUkernel in `context`: both may be launched.
Function& launchable(CUfunction handle, Context* context);

}  // namespace tessera::sim
