// SPDX-License-Identifier: Apache-2.0
// Joins modules: resolves names, places variables, compiles every function.
#pragma once

#include <deque>
#include <map>
#include <set>

#include "../program.h"
#include "function_compiler.h"

namespace tessera::sim {

class Linker {
 public:
  Linker(const std::vector<const ptx::Module*>& modules, GlobalAllocator& globals, const DeviceTraits& traits);

  /// Throws LoadError.
  std::unique_ptr<LoadedProgram> link();

 private:
  /// A function with a body, and what is known before it is compiled.
  struct Body {
    const ptx::Function* source = nullptr;
    size_t module = 0;
    FrameLayout layout;
    std::set<u32> callees;                  // functions that it may reach directly
    std::set<const ptx::Variable*> shared;  // shared variables that it names
    bool calls_indirectly = false;
    bool uses_dynamic_shared = false;
  };
  using NameMap = std::unordered_map<std::string_view, Symbol>;

  void check_target(const ptx::Module& module) const;
  void collect_functions();
  void collect_aliases(size_t module);
  void collect_variables();
  void place_variable(const ptx::Variable& variable, NameMap& scope);
  void scan_references();
  void scan_operand(Body& body, const Symbols& names, const ptx::Operand& operand, bool is_callee);
  void place_shared();
  std::set<u32> reachable(u32 function) const;
  void initialise_variables();
  void write_initializer(const ptx::Variable& variable, u64 address, const Symbols& names);
  u64 initial_value(const ptx::Initializer& item, const Symbols& names) const;
  void add_intrinsics();
  void compile_functions();
  void describe_kernels();
  Symbols names_of(const Body& body) const { return {body.layout, scopes_[body.module], linked_}; }
  u32 local_need(u32 function, std::vector<u8>& on_path) const;

  const std::vector<const ptx::Module*>& modules_;
  GlobalAllocator& allocator_;
  const DeviceTraits& traits_;
  std::unique_ptr<LoadedProgram> program_;
  std::deque<Body> bodies_;                               // by function index
  std::vector<NameMap> scopes_;                           // by module
  std::unordered_map<std::string, Symbol> linked_;        // names that modules share
  std::unordered_map<const ptx::Variable*, u64> placed_;  // global and constant variables
  std::map<const ptx::Variable*, u64> shared_offsets_;
  std::vector<std::pair<const ptx::Variable*, size_t>> initialised_;  // variable, module
  std::set<u32> address_taken_;
  ConstantPool constants_;
};

}  // namespace tessera::sim
