// SPDX-License-Identifier: Apache-2.0
// Stands in for the interpreter where the driver is tested alone: kernels are
// recognised by name and done in C++, everything around them is real.
#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <thread>

#include "tessera/sim/interpreter.h"

namespace tessera::sim {
namespace {

using Body = std::function<LaunchOutcome(const Launch&, const AddressSpace&)>;

template <class T>
T parameter(const Launch& launch, size_t offset) {
  T value;
  std::memcpy(&value, launch.parameters + offset, sizeof(T));
  return value;
}

bool check(LaunchOutcome& outcome, const AddressSpace& memory, uint64_t address, uint64_t size) {
  if (address % size != 0) {
    outcome.fault = {Fault::Kind::kMisaligned, "misaligned address"};
    return false;
  }
  const AddressSpace::Extent extent = memory.find(address);
  if (address >= extent.begin && address + size <= extent.end && extent.writable) return true;
  outcome.fault = {Fault::Kind::kIllegalAddress, "illegal address"};
  return false;
}

LaunchOutcome store_one(const Launch& launch, const AddressSpace& memory) {
  LaunchOutcome outcome;
  const auto out = parameter<uint64_t>(launch, 0);
  if (check(outcome, memory, out, 4)) *reinterpret_cast<uint32_t*>(out) = parameter<uint32_t>(launch, 8);
  outcome.accesses.writes.push_back({out, out + 4});
  return outcome;
}

LaunchOutcome add_one(const Launch& launch, const AddressSpace& memory) {
  LaunchOutcome outcome;
  const auto data = parameter<uint64_t>(launch, 0);
  const uint64_t count = uint64_t{launch.grid.x} * launch.block.x;
  for (uint64_t i = 0; i < count; ++i) {
    if (!check(outcome, memory, data + 4 * i, 4)) return outcome;
    ++reinterpret_cast<uint32_t*>(data)[i];
  }
  outcome.work.dram_bytes = 8 * count;
  outcome.accesses.reads.push_back({data, data + 4 * count});
  outcome.accesses.writes.push_back({data, data + 4 * count});
  return outcome;
}

LaunchOutcome spin(const Launch& launch, const AddressSpace&) {
  const auto* flag = reinterpret_cast<const volatile uint32_t*>(parameter<uint64_t>(launch, 0));
  while (*flag == 0) std::this_thread::yield();
  return {};
}

LaunchOutcome trap(const Launch&, const AddressSpace&) {
  LaunchOutcome outcome;
  outcome.fault = {Fault::Kind::kTrap, "trap"};
  return outcome;
}

class StubKernel final : public Kernel {
 public:
  explicit StubKernel(const ptx::Function& function) {
    info_.name = function.name;
    info_.parameter_offsets = function.parameter_offsets();
    info_.parameter_block_size = function.parameter_block_size();
    for (const ptx::Variable& variable : function.parameters) {
      info_.parameter_sizes.push_back(static_cast<uint32_t>(variable.size()));
    }
    for (const ptx::Variable& variable : function.variables) {
      if (variable.space == ptx::Space::kShared) info_.static_shared_bytes += static_cast<uint32_t>(variable.size());
    }
    info_.registers = 16;
    if (function.directives.max_threads[0] != 0) info_.max_threads_per_block = function.directives.max_threads[0];
    static const std::map<std::string, Body> bodies = {
        {"store_one", store_one}, {"add_one", add_one}, {"spin", spin}, {"trap_now", trap}};
    const auto found = bodies.find(function.name);
    if (found != bodies.end()) body_ = found->second;
  }
  const KernelInfo& info() const override { return info_; }
  LaunchOutcome run(const Launch& launch, const AddressSpace& memory) const override {
    return body_ ? body_(launch, memory) : LaunchOutcome{};
  }

 private:
  KernelInfo info_;
  Body body_;
};

class StubProgram final : public Program {
 public:
  StubProgram(const std::vector<const ptx::Module*>& modules, GlobalAllocator& allocator) {
    for (const ptx::Module* module : modules) {
      for (const ptx::Variable& variable : module->variables) place(variable, allocator);
      for (const ptx::Function& function : module->functions) add(function, modules);
    }
  }
  const std::vector<std::string>& kernel_names() const override { return names_; }
  const Kernel* find_kernel(std::string_view name) const override {
    const auto found = kernels_.find(name);
    return found == kernels_.end() ? nullptr : &found->second;
  }
  const std::vector<ModuleGlobal>& globals() const override { return globals_; }

 private:
  void place(const ptx::Variable& variable, GlobalAllocator& allocator) {
    const uint64_t address = allocator.allocate(variable, variable.size(), std::max(variable.alignment, 1u));
    const uint64_t element = ptx::type_size(variable.type);
    for (size_t i = 0; i < variable.initializer.size(); ++i) {
      std::memcpy(reinterpret_cast<char*>(address) + i * element, &variable.initializer[i].bits, element);
    }
    globals_.push_back({variable.name, address, variable.size()});
  }

  void add(const ptx::Function& function, const std::vector<const ptx::Module*>& modules) {
    for (const ptx::Instruction& instruction : function.instructions) {
      if (instruction.opcode == "frobnicate") {
        throw LoadError(LoadError::Reason::kUnsupportedInstruction,
                        "Not a name of any known instruction: 'frobnicate'");
      }
    }
    if (function.is_declaration) {
      const bool defined = std::any_of(modules.begin(), modules.end(), [&](const ptx::Module* module) {
        return std::any_of(module->functions.begin(), module->functions.end(), [&](const ptx::Function& other) {
          return other.name == function.name && !other.is_declaration;
        });
      });
      if (!defined)
        throw LoadError(LoadError::Reason::kUnresolvedSymbol, "Unresolved extern function '" + function.name + "'");
    } else if (function.is_entry) {
      names_.push_back(function.name);
      kernels_.emplace(function.name, StubKernel(function));
    }
  }

  std::vector<std::string> names_;
  std::map<std::string, StubKernel, std::less<>> kernels_;
  std::vector<ModuleGlobal> globals_;
};

}  // namespace

std::unique_ptr<Program> load(const std::vector<const ptx::Module*>& modules, GlobalAllocator& globals,
                              const DeviceTraits&) {
  return std::make_unique<StubProgram>(modules, globals);
}

}  // namespace tessera::sim
