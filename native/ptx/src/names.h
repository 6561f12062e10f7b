// SPDX-License-Identifier: Apache-2.0
// Every name of a module once: its text in the arena, and what it stands for in
// the scope that is being parsed.
#pragma once

#include <cstdint>
#include <deque>
#include <string_view>
#include <vector>

#include "tessera/ptx/ir.h"

namespace tessera::ptx {

enum class BindingKind : uint8_t { kNone, kRegister, kVariable, kSpecial, kModuleSymbol };

/// What a name means. Depth 0 is the module, 1 a function's parameters, 2 its body, more its inner scopes.
struct Binding {
  BindingKind kind = BindingKind::kNone;
  uint32_t depth = 0;
  uint32_t index = 0;       // kRegister: RegisterId; kVariable: into the list that `depth` names, with
                            // a function's results after its parameters
  std::string_view unique;  // kVariable: the name by which users of the IR find it
};

constexpr uint32_t kNoFamily = 0xffffffffu;

/// `%r<10>`: registers that come to be at first use.
struct Family {
  uint32_t depth = 0;
  uint64_t count = 0;
  Type type = Type::kNone;
  uint8_t vector = 1;
  uint32_t outer = kNoFamily;  // the family of the same prefix in an enclosing scope
};

/// An opcode with its modifiers, taken apart once per module.
struct Mnemonic {
  std::string_view full, opcode;
  Slice<std::string_view> modifiers;
  Slice<Type> types;
  bool is_call = false, is_branch = false;
};

struct Name {
  std::string_view text;
  uint64_t hash = 0;
  uint32_t id = 0;
  uint32_t function_stamp = 0;  // the last function that declared it
  Binding binding;
  uint32_t family = kNoFamily;             // the innermost of this prefix: index into FunctionState::families
  uint32_t module_variable = 0xffffffffu;  // index of its last declaration at module scope
  bool is_defined = false;                 // at module scope: has a body or is no .extern
  const Mnemonic* mnemonic = nullptr;
};

class NameTable {
 public:
  explicit NameTable(Arena& arena);
  Name* intern(std::string_view text);
  Name* find(std::string_view text) const;  // null: not seen so far
  Arena& arena() { return arena_; }

 private:
  size_t slot_of(std::string_view text, uint64_t hash) const;
  void grow();

  Arena& arena_;
  std::vector<Name*> slots_;
  std::deque<Name> names_;
};

/// "%tid", "%clock64", ...: registers that PTX defines itself.
bool is_special_register(std::string_view name);

}  // namespace tessera::ptx
