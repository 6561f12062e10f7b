// SPDX-License-Identifier: Apache-2.0
#include "module.h"

#include <sys/mman.h>

#include <algorithm>

#include "device.h"
#include "report.h"
#include "vmm.h"

namespace tessera::sim {

/// Gives module-scope variables their memory: device memory, or host pages for managed ones.
class ModuleVariables final : public GlobalAllocator {
 public:
  explicit ModuleVariables(Module& module) : module_(module) {}

  uint64_t allocate(const ptx::Variable& variable, uint64_t size, uint64_t alignment) override {
    auto memory = std::make_shared<Memory>();
    memory->size = std::max<uint64_t>(size, 1);
    memory->context = &module_.context();
    memory->context_generation = module_.context_generation();
    if (is_managed(variable)) {
      module_.managed_.insert(variable.name);
      place_managed(*memory);
    } else {
      place_on_device(*memory, alignment);
    }
    address_map().insert(memory);
    module_.variables_.push_back(memory);
    return memory->begin;
  }

 private:
  static bool is_managed(const ptx::Variable& variable) {
    return std::any_of(variable.attributes.begin(), variable.attributes.end(),
                       [](const std::string& attribute) { return attribute.find("managed") != std::string::npos; });
  }

  void place_managed(Memory& memory) {
    memory.kind = MemoryKind::kManaged;
    memory.device = module_.context().device().index();
    memory.flags = CU_MEM_ATTACH_GLOBAL;
    memory.mapping_size = round_up(memory.size, 4096);
    void* const pages = mmap(nullptr, memory.mapping_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    require(pages != MAP_FAILED, CUDA_ERROR_OUT_OF_MEMORY);
    memory.begin = memory.mapping_begin = reinterpret_cast<uint64_t>(pages);
  }

  void place_on_device(Memory& memory, uint64_t alignment) {
    Device& device = module_.context().device();
    memory.kind = MemoryKind::kGlobal;
    memory.device = device.index();
    memory.begin = memory.mapping_begin = device.take(memory.size, std::max<uint64_t>(alignment, kAllocationUnit));
    memory.mapping_size = round_up(memory.size, kAllocationUnit);
    // Reused device memory holds what was there before; a variable starts as zero.
    std::fill_n(reinterpret_cast<char*>(memory.begin), memory.size, char{0});
  }

  Module& module_;
};

namespace {

DeviceTraits traits_of(const Device& device) {
  DeviceTraits traits;
  traits.compute_capability = device.model().compute_capability();
  traits.multiprocessors = device.model().multiprocessors;
  traits.device_index = static_cast<uint32_t>(device.index());
  return traits;
}

// What a LoadError says goes to the log and, since it may be this simulator's own limit, to the user.
std::unique_ptr<Program> compile(const Code& code, GlobalAllocator& variables, const Device& device, std::string& log) {
  std::vector<const ptx::Module*> parts;
  for (const auto& part : code.parts) parts.push_back(part.get());
  try {
    return tessera::sim::load(parts, variables, traits_of(device));
  } catch (const LoadError& error) {
    log += std::string("ptxas application ptx input; error   : ") + error.what() + "\n";
    if (error.reason == LoadError::Reason::kUnsupportedInstruction) diagnose(error.what());
    fail(CUDA_ERROR_INVALID_PTX);
  }
}

}  // namespace

void FunctionSettings::copy_from(const FunctionSettings& other) {
  max_dynamic_shared.store(other.max_dynamic_shared.load());
  carveout.store(other.carveout.load());
  non_portable_cluster.store(other.non_portable_cluster.load());
  for (int i = 0; i < 3; ++i) required_cluster[i].store(other.required_cluster[i].load());
}

KernelFacts Function::facts() const { return {info(), module_.code()}; }

Module::Module(Context& context)
    : Object(kTag), context_(Ref<Context>::share(&context)), generation_(context.generation()) {}

Ref<Module> Module::load(Context& context, const Image& image, std::string& log) {
  Ref<Module> module(new Module(context));
  const CUresult parsed = parse_image(image, context.device().model().compute_capability(), module->code_, log);
  require(parsed == CUDA_SUCCESS, parsed);
  ModuleVariables variables(*module);
  module->program_ = compile(module->code_, variables, context.device(), log);
  for (const std::string& name : module->program_->kernel_names()) {
    const Kernel* kernel = module->program_->find_kernel(name);
    Ref<Function> function(new Function(*module, *kernel));
    module->in_order_.push_back(function.get());
    module->by_name_.emplace(name, std::move(function));
  }
  return module;
}

Module::~Module() {
  for (const MemoryPtr& variable : variables_) release_memory(variable);
}

void Module::unload() {
  kill(kTag);
  for (Function* function : in_order_) function->kill(Function::kTag);
}

Function* Module::find_function(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second.get();
}

const ModuleGlobal* Module::find_global(std::string_view name) const {
  for (const ModuleGlobal& global : program_->globals()) {
    if (global.name == name) return &global;
  }
  return nullptr;
}

// ---- libraries ----

namespace {

/// Variables of code that is loaded for its facts alone: never run, so plain host memory does.
class ScratchVariables final : public GlobalAllocator {
 public:
  uint64_t allocate(const ptx::Variable&, uint64_t size, uint64_t alignment) override {
    auto& bytes = memory_.emplace_back(size + alignment + 1);
    return round_up(reinterpret_cast<uint64_t>(bytes.data()), std::max<uint64_t>(alignment, 1));
  }

 private:
  std::vector<std::vector<char>> memory_;
};

}  // namespace

CUresult try_load(const Image& image, const Device& device, std::string& log) {
  Code code;
  if (const CUresult parsed = parse_image(image, device.model().compute_capability(), code, log)) return parsed;
  ScratchVariables variables;
  try {
    compile(code, variables, device, log);
    return CUDA_SUCCESS;
  } catch (const Failure& failure) {
    return failure.code;
  }
}

struct Library::Bare {
  Code code;
  ScratchVariables variables;
  std::unique_ptr<Program> program;
};

Library::Library(Image image) : Object(kTag), image_(std::move(image)) {}
Library::~Library() = default;

void Library::list_kernels() {
  if (listed_) return;
  listed_ = true;
  Code code;
  std::string log;
  list_result_ = parse_image(image_, devices().front()->model().compute_capability(), code, log);
  for (const auto& part : code.parts) {
    for (const ptx::Function& function : part->functions) {
      if (!function.is_entry || function.is_declaration) continue;
      kernels_.emplace(function.name, Ref<LibraryKernel>(new LibraryKernel(*this, function.name)));
    }
  }
}

LibraryKernel* Library::find_kernel(std::string_view name) {
  const std::lock_guard lock(mutex_);
  list_kernels();
  require(list_result_ == CUDA_SUCCESS, list_result_);
  const auto found = kernels_.find(name);
  return found == kernels_.end() ? nullptr : found->second.get();
}

std::vector<LibraryKernel*> Library::kernels() {
  const std::lock_guard lock(mutex_);
  list_kernels();
  require(list_result_ == CUDA_SUCCESS, list_result_);
  std::vector<LibraryKernel*> all;
  for (const auto& entry : kernels_) all.push_back(entry.second.get());
  return all;
}

Module& Library::module_in(Context& context) {
  const std::lock_guard lock(mutex_);
  for (const Loaded& entry : loaded_) {
    if (entry.context == &context && entry.generation == context.generation()) return *entry.module;
  }
  std::string log;
  Ref<Module> module;
  try {
    module = Module::load(context, image_, log);
  } catch (const Failure&) {
    diagnose("a library's code does not load: " + log);
    throw;
  }
  module->library = this;
  for (const auto& [name, kernel] : kernels_) {
    if (Function* function = module->find_function(name)) {
      function->settings.copy_from(kernel->settings_on(context.device().index()));
    }
  }
  std::erase_if(loaded_, [&context](const Loaded& entry) { return entry.context == &context; });
  loaded_.push_back({&context, context.generation(), module});
  context.add_module(*module);
  return *loaded_.back().module;
}

KernelFacts Library::facts_on(Device& device, const LibraryKernel& kernel) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Bare>& bare = bare_[device.index()];
  if (!bare) {
    auto loaded = std::make_unique<Bare>();
    std::string log;
    const CUresult parsed = parse_image(image_, device.model().compute_capability(), loaded->code, log);
    require(parsed == CUDA_SUCCESS, parsed);
    loaded->program = compile(loaded->code, loaded->variables, device, log);
    bare = std::move(loaded);
  }
  const Kernel* found = bare->program->find_kernel(kernel.name());
  require(found != nullptr, CUDA_ERROR_NOT_FOUND);
  return {found->info(), bare->code};
}

void Library::apply_settings(LibraryKernel& kernel, const Device& device) {
  const std::lock_guard lock(mutex_);
  for (const Loaded& entry : loaded_) {
    if (&entry.context->device() != &device) continue;
    if (Function* function = entry.module->find_function(kernel.name())) {
      function->settings.copy_from(kernel.settings_on(device.index()));
    }
  }
}

void Library::unload() {
  kill(kTag);
  const std::lock_guard lock(mutex_);
  for (const Loaded& entry : loaded_) {
    entry.module->unload();
    entry.context->remove_module(*entry.module);
  }
  loaded_.clear();
  for (const auto& kernel : kernels_) kernel.second->kill(LibraryKernel::kTag);
}

Function& LibraryKernel::function_in(Context& context) {
  const uint64_t generation = context.generation();
  const Answer* last = last_.load(std::memory_order_acquire);
  if (last != nullptr && last->context == &context && last->generation == generation) return *last->function;
  Function* function = library_.module_in(context).find_function(name_);
  require(function != nullptr, CUDA_ERROR_NOT_FOUND);
  const std::lock_guard lock(answers_mutex_);
  for (const auto& answer : answers_) {
    if (answer->context == &context && answer->generation == generation) {
      last_.store(answer.get(), std::memory_order_release);
      return *function;
    }
  }
  answers_.push_back(std::make_unique<const Answer>(Answer{&context, generation, function}));
  last_.store(answers_.back().get(), std::memory_order_release);
  return *function;
}

Function& launchable(CUfunction handle, Context* context) {
  const auto address = reinterpret_cast<uintptr_t>(handle);
  require(address >= 4096 && address % alignof(Object) == 0, CUDA_ERROR_INVALID_HANDLE);
  if (reinterpret_cast<Object*>(handle)->tag() == Tag::kKernel) {
    require(context != nullptr, CUDA_ERROR_INVALID_CONTEXT);
    return from_handle<LibraryKernel>(handle).function_in(*context);
  }
  return from_handle<Function>(handle);
}

}  // namespace tessera::sim
