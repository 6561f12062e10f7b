// SPDX-License-Identifier: Apache-2.0
// What is known about the function that is being parsed, beyond what goes into the IR.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "names.h"

namespace tessera::ptx {

/// A binding to restore when a scope ends.
struct Undo {
  Name* name;
  Binding binding;
  uint32_t family;
};

struct Scope {
  uint32_t id = 0;
  std::vector<Undo> undo;
};

/// A name met before its meaning was known: a label further down, or a symbol of the module.
struct PendingName {
  Operand* operand = nullptr;  // null: its statement was dropped
  Name* name = nullptr;
  uint32_t scope = 0;
  bool must_be_label = false;
  SourceLocation location;
};

struct PendingTargets {
  uint32_t list = 0;  // index into Function::target_lists
  std::vector<Name*> names;
  uint32_t scope = 0;
  SourceLocation location;
};

struct LabelRecord {
  std::string_view unique;
  uint32_t index = 0;
  bool is_list = false;  // names a target list or a prototype rather than a place
};

struct FunctionState {
  Function function;
  uint32_t stamp = 0;
  std::vector<Scope> scopes;            // scopes[d - 1] is the open scope of depth d
  std::vector<uint32_t> scope_parents;  // by scope id
  std::unordered_map<uint64_t, LabelRecord> labels;
  std::vector<PendingName> pending;
  std::vector<PendingTargets> pending_targets;
  std::vector<Family> families;
  uint32_t nested_families = 0;  // families declared below the body scope, ever
  bool failed = false;

  uint32_t depth() const { return static_cast<uint32_t>(scopes.size()); }
  static uint64_t label_key(uint32_t scope, const Name* name) { return uint64_t{scope} << 32 | name->id; }
};

}  // namespace tessera::ptx
