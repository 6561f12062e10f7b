// SPDX-License-Identifier: Apache-2.0
#include "linker.h"

#include <algorithm>
#include <cstring>

#include "../memory_gate.h"

namespace tessera::sim {
namespace {

using ptx::Linkage;
using ptx::Space;

struct Intrinsic {
  std::string_view name;
  Op op;
};
constexpr Intrinsic kIntrinsics[] = {
    {"vprintf", Op::kPrintf}, {"malloc", Op::kMalloc}, {"free", Op::kFree}, {"__assertfail", Op::kAssertFail}};

bool is_shared_name(Linkage linkage) { return linkage != Linkage::kNone; }

std::string_view trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

}  // namespace

Linker::Linker(const std::vector<const ptx::Module*>& modules, GlobalAllocator& globals, const DeviceTraits& traits)
    : modules_(modules),
      allocator_(globals),
      traits_(traits),
      program_(std::make_unique<LoadedProgram>()),
      scopes_(modules.size()) {}

std::unique_ptr<LoadedProgram> Linker::link() {
  program_->traits = traits_;
  for (const ptx::Module* module : modules_) check_target(*module);
  collect_functions();
  for (size_t m = 0; m < modules_.size(); ++m) collect_aliases(m);
  add_intrinsics();
  collect_variables();
  scan_references();
  place_shared();
  initialise_variables();
  compile_functions();
  describe_kernels();
  return std::move(program_);
}

void Linker::check_target(const ptx::Module& module) const {
  if (module.address_size != 64)
    throw LoadError(LoadError::Reason::kUnsupportedTarget, "32-bit addresses (.address_size 32) are not supported");
  const uint32_t wanted = ptx::target_architecture(module.target);
  if (wanted > traits_.compute_capability) {
    throw LoadError(
        LoadError::Reason::kUnsupportedTarget,
        "the module is for " + module.target + ", the device is sm_" + std::to_string(traits_.compute_capability));
  }
}

void Linker::collect_functions() {
  for (size_t m = 0; m < modules_.size(); ++m) {
    for (const ptx::Function& function : modules_[m]->functions) {
      if (function.is_declaration) continue;
      const bool shared = function.is_entry || is_shared_name(function.linkage);
      if (shared) {
        const auto existing = linked_.find(function.name);
        if (existing != linked_.end()) {
          if (function.linkage == Linkage::kWeak || existing->second.function->linkage == Linkage::kWeak) continue;
          throw LoadError(LoadError::Reason::kInvalidPtx, "function '" + function.name + "' is defined twice");
        }
      }
      const u32 index = static_cast<u32>(bodies_.size());
      bodies_.push_back({&function, m, lay_out_frame(function), {}, {}, false, false});
      const Symbol symbol{Symbol::Kind::kFunction, index, 0, nullptr, &function};
      if (shared) linked_[function.name] = symbol;
      scopes_[m][function.name] = symbol;
    }
  }
}

void Linker::collect_aliases(size_t module) {
  for (const std::string& alias : modules_[module]->aliases) {
    const size_t equals = alias.find_first_of("=,");
    if (equals == std::string::npos) continue;
    const std::string name(trim(std::string_view(alias).substr(0, equals)));
    const std::string_view target = trim(std::string_view(alias).substr(equals + 1));
    const auto found = scopes_[module].find(target);
    if (found == scopes_[module].end())
      throw LoadError(LoadError::Reason::kUnresolvedSymbol, "alias '" + name + "' names no function");
    linked_[name] = found->second;
  }
}

void Linker::add_intrinsics() {
  for (const Intrinsic& intrinsic : kIntrinsics) {
    linked_.try_emplace(std::string(intrinsic.name),
                        Symbol{Symbol::Kind::kIntrinsic, static_cast<u64>(intrinsic.op), 0, nullptr, nullptr});
  }
  for (const ptx::Module* module : modules_) {
    const ptx::Function* declared = module->find_function("malloc");
    if (declared == nullptr || !declared->is_declaration || program_->heap != nullptr) continue;
    ptx::Variable region;
    region.name = "__device_heap";
    region.space = Space::kGlobal;
    region.type = Type::kB8;
    region.alignment = 256;
    region.dimensions = {Heap::kBytes};
    program_->heap = std::make_unique<Heap>(allocator_.allocate(region, Heap::kBytes, 256), Heap::kBytes);
  }
}

void Linker::place_variable(const ptx::Variable& variable, NameMap& scope) {
  if (variable.space == Space::kGlobal || variable.space == Space::kConst) {
    const u64 size = std::max<u64>(variable.size(), 1);
    const u64 address = allocator_.allocate(variable, size, std::max(variable.alignment, 1u));
    placed_[&variable] = address;
    scope[variable.name] = {Symbol::Kind::kGlobal, address, variable.size(), &variable, nullptr};
    if (is_shared_name(variable.linkage)) linked_[variable.name] = scope[variable.name];
    program_->globals_.push_back({variable.name, address, variable.size()});
  } else if (variable.space == Space::kShared) {
    const bool dynamic = variable.linkage == Linkage::kExtern || variable.size() == 0;
    // Offsets are filled in by place_shared().
    scope[variable.name] = {dynamic ? Symbol::Kind::kDynamicShared : Symbol::Kind::kShared, 0, variable.size(),
                            &variable, nullptr};
  } else if (variable.space != Space::kLocal && variable.space != Space::kParam) {
    throw LoadError(LoadError::Reason::kUnsupportedInstruction, "line " + std::to_string(variable.location.line) +
                                                                    ": variable '" + variable.name +
                                                                    "' lies in a state space that is not supported");
  }
}

void Linker::collect_variables() {
  for (size_t m = 0; m < modules_.size(); ++m) {
    for (const ptx::Variable& variable : modules_[m]->variables) {
      const bool memory = variable.space == Space::kGlobal || variable.space == Space::kConst;
      if (memory && variable.linkage == Linkage::kExtern) continue;  // found by name in the module that defines it
      const bool mergeable = variable.linkage == Linkage::kWeak || variable.linkage == Linkage::kCommon;
      if (memory && is_shared_name(variable.linkage) && linked_.count(variable.name) != 0) {
        if (mergeable) continue;
        throw LoadError(LoadError::Reason::kInvalidPtx, "variable '" + variable.name + "' is defined twice");
      }
      place_variable(variable, scopes_[m]);
      if (memory) initialised_.emplace_back(&variable, m);
    }
  }
  for (Body& body : bodies_) {
    for (const ptx::Variable& variable : body.source->variables) {
      if (variable.space == Space::kLocal || variable.space == Space::kParam) continue;
      place_variable(variable, body.layout.symbols);
      if (variable.space != Space::kShared) initialised_.emplace_back(&variable, body.module);
    }
  }
}

void Linker::scan_operand(Body& body, const Symbols& names, const ptx::Operand& operand, bool is_callee) {
  for (const ptx::Operand& element : operand.elements) scan_operand(body, names, element, false);
  if (operand.kind != ptx::Operand::Kind::kSymbol) return;
  const Symbol* symbol = names.find(operand.text);
  if (symbol == nullptr) return;
  if (symbol->kind == Symbol::Kind::kShared) body.shared.insert(symbol->variable);
  if (symbol->kind == Symbol::Kind::kDynamicShared) body.shared.insert(symbol->variable);
  if (symbol->kind != Symbol::Kind::kFunction) return;
  body.callees.insert(static_cast<u32>(symbol->address));
  if (!is_callee) address_taken_.insert(static_cast<u32>(symbol->address));
}

void Linker::scan_references() {
  for (Body& body : bodies_) {
    const Symbols names = names_of(body);
    for (const ptx::Instruction& instruction : body.source->instructions) {
      const bool is_call = instruction.opcode == "call";
      bool has_name = false;
      for (const ptx::Operand& operand : instruction.operands) {
        const Symbol* symbol = operand.kind == ptx::Operand::Kind::kSymbol ? names.find(operand.text) : nullptr;
        const bool callee = is_call && symbol != nullptr &&
                            (symbol->kind == Symbol::Kind::kFunction || symbol->kind == Symbol::Kind::kIntrinsic);
        has_name = has_name || callee;
        scan_operand(body, names, operand, callee);
      }
      body.calls_indirectly = body.calls_indirectly || (is_call && !has_name);
    }
  }
  for (const auto& [variable, module] : initialised_) {
    for (const ptx::Initializer& item : variable->initializer) {
      if (item.kind != ptx::Initializer::Kind::kSymbol) continue;
      const auto local = scopes_[module].find(item.symbol);
      const auto linked = linked_.find(std::string(item.symbol));
      const Symbol* symbol = local != scopes_[module].end() ? &local->second
                             : linked != linked_.end()      ? &linked->second
                                                            : nullptr;
      if (symbol != nullptr && symbol->kind == Symbol::Kind::kFunction)
        address_taken_.insert(static_cast<u32>(symbol->address));
    }
  }
}

std::set<u32> Linker::reachable(u32 function) const {
  std::set<u32> seen{function};
  std::vector<u32> open{function};
  while (!open.empty()) {
    const Body& body = bodies_[open.back()];
    open.pop_back();
    const auto visit = [&](u32 next) {
      if (seen.insert(next).second) open.push_back(next);
    };
    for (u32 callee : body.callees) visit(callee);
    if (body.calls_indirectly) {
      for (u32 taken : address_taken_) visit(taken);
    }
  }
  return seen;
}

void Linker::place_shared() {
  // A function that two kernels call must find its variables at one place in both. So each variable
  // gets one offset for the program: behind all variables that share a kernel with it.
  std::map<const ptx::Variable*, std::set<u32>> kernels;
  std::vector<const ptx::Variable*> order;
  for (u32 f = 0; f < bodies_.size(); ++f) {
    if (!bodies_[f].source->is_entry) continue;
    for (u32 g : reachable(f)) {
      for (const ptx::Variable* variable : bodies_[g].shared) kernels[variable].insert(f);
    }
  }
  const auto consider = [&](const ptx::Variable& variable) {
    if (kernels.count(&variable) != 0 && variable.size() != 0 && variable.linkage != Linkage::kExtern)
      order.push_back(&variable);
  };
  for (const ptx::Module* module : modules_) {
    for (const ptx::Variable& variable : module->variables) consider(variable);
  }
  for (const Body& body : bodies_) {
    for (const ptx::Variable& variable : body.source->variables) consider(variable);
  }
  for (const ptx::Variable* variable : order) {
    u64 offset = 0;
    for (const auto& [other, at] : shared_offsets_) {
      const auto &mine = kernels[variable], &theirs = kernels[other];
      const bool meet = std::any_of(mine.begin(), mine.end(), [&](u32 k) { return theirs.count(k) != 0; });
      if (meet) offset = std::max(offset, at + other->size());
    }
    const u64 alignment = std::max(variable->alignment, 1u);
    shared_offsets_[variable] = (offset + alignment - 1) / alignment * alignment;
  }
  const auto fill = [&](NameMap& scope) {
    for (auto& [name, symbol] : scope) {
      if (symbol.kind != Symbol::Kind::kShared) continue;
      const auto found = shared_offsets_.find(symbol.variable);
      if (found != shared_offsets_.end()) symbol.address = found->second;
    }
  };
  for (NameMap& scope : scopes_) fill(scope);
  for (Body& body : bodies_) fill(body.layout.symbols);
}

u64 Linker::initial_value(const ptx::Initializer& item, const Symbols& names) const {
  if (item.kind == ptx::Initializer::Kind::kBits) return item.bits;
  const Symbol* symbol = names.find(item.symbol);
  if (symbol == nullptr || symbol->kind == Symbol::Kind::kIntrinsic) {
    throw LoadError(LoadError::Reason::kUnresolvedSymbol,
                    "an initializer names '" + std::string(item.symbol) + "', which nothing defines");
  }
  u64 base = symbol->address;
  if (symbol->kind == Symbol::Kind::kFunction) base += kCodeWindow;
  if (symbol->kind == Symbol::Kind::kShared && item.generic) base += kSharedWindow;
  const u64 value = base + static_cast<u64>(item.offset);
  return item.masked ? value >> item.mask_shift & 0xff : value;
}

void Linker::write_initializer(const ptx::Variable& variable, u64 address, const Symbols& names) {
  const u32 size = ptx::type_size(variable.type);
  u64 at = address;
  const u64 end = address + variable.size();
  std::memset(reinterpret_cast<void*>(address), 0, variable.size());
  for (const ptx::Initializer& item : variable.initializer) {
    const u64 value = initial_value(item, names);
    if (at + size > end)
      throw LoadError(LoadError::Reason::kInvalidPtx, "the initializer of '" + variable.name + "' is too long");
    std::memcpy(reinterpret_cast<void*>(at), &value, std::min<u32>(size, 8));
    at += size;
  }
}

void Linker::initialise_variables() {
  static const FrameLayout kNoFrame;
  for (const auto& [variable, module] : initialised_) {
    write_initializer(*variable, placed_.at(variable), Symbols(kNoFrame, scopes_[module], linked_));
  }
}

void Linker::compile_functions() {
  for (u32 f = 0; f < bodies_.size(); ++f) {
    const Body& body = bodies_[f];
    program_->functions.push_back(std::make_unique<Function>());
    Function& out = *program_->functions.back();
    out.name = body.source->name;
    out.index = f;
    out.is_entry = body.source->is_entry;
    try {
      FunctionCompiler(*body.source, names_of(body), constants_, out).compile();
    } catch (const LoadError& error) {
      throw LoadError(error.reason, (out.is_entry ? "kernel '" : "function '") + out.name + "': " + error.what());
    }
  }
  const std::vector<u8> bytes = constants_.take();
  program_->constants = allocate_aligned(std::max<size_t>(bytes.size(), 64));
  std::copy(bytes.begin(), bytes.end(), program_->constants.get());
}

u32 Linker::local_need(u32 function, std::vector<u8>& on_path) const {
  if (on_path[function] != 0) return 0;  // recursion: the executor grows the stack
  on_path[function] = 1;
  u32 below = 0;
  const Body& body = bodies_[function];
  for (u32 callee : body.callees) below = std::max(below, local_need(callee, on_path));
  if (body.calls_indirectly) {
    for (u32 taken : address_taken_) below = std::max(below, local_need(taken, on_path));
  }
  on_path[function] = 0;
  return body.layout.local_bytes + below;
}

void Linker::describe_kernels() {
  for (u32 f = 0; f < bodies_.size(); ++f) {
    const ptx::Function& source = *bodies_[f].source;
    if (!source.is_entry) continue;
    auto kernel = std::make_unique<LoadedKernel>(*program_, f);
    KernelInfo& info = kernel->info_;
    info.name = source.name;
    info.parameter_block_size = source.parameter_block_size();
    info.parameter_offsets = source.parameter_offsets();
    for (const ptx::Variable& parameter : source.parameters)
      info.parameter_sizes.push_back(static_cast<u32>(parameter.size()));
    u32 dynamic_alignment = 16;
    for (u32 g : reachable(f)) {
      info.registers = std::max(info.registers, std::min(program_->functions[g]->register_estimate + 8, 255u));
      for (const ptx::Variable* variable : bodies_[g].shared) {
        const auto found = shared_offsets_.find(variable);
        if (found == shared_offsets_.end()) {
          dynamic_alignment = std::max(dynamic_alignment, variable->alignment);
        } else {
          info.static_shared_bytes =
              std::max(info.static_shared_bytes, static_cast<u32>(found->second + variable->size()));
        }
      }
    }
    kernel->dynamic_shared_base =
        (info.static_shared_bytes + dynamic_alignment - 1) / dynamic_alignment * dynamic_alignment;
    std::vector<u8> on_path(bodies_.size(), 0);
    info.local_bytes = kernel->local_estimate = local_need(f, on_path);
    const ptx::Directives& directives = source.directives;
    const auto product = [](const uint32_t* t) { return u64{t[0]} * std::max(t[1], 1u) * std::max(t[2], 1u); };
    if (directives.max_threads[0] != 0)
      info.max_threads_per_block = static_cast<u32>(std::min<u64>(product(directives.max_threads), 1024));
    if (directives.required_threads[0] != 0)
      info.max_threads_per_block = static_cast<u32>(std::min<u64>(product(directives.required_threads), 1024));
    for (int k = 0; k < 3; ++k) {
      info.required_threads[k] = directives.required_threads[0] != 0 ? std::max(directives.required_threads[k], 1u) : 0;
      info.required_cluster[k] = directives.required_cluster[0] != 0 ? std::max(directives.required_cluster[k], 1u) : 0;
    }
    program_->names_.push_back(source.name);
    program_->kernels_.emplace(source.name, std::move(kernel));
  }
}

}  // namespace tessera::sim
