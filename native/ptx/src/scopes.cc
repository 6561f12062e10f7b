// SPDX-License-Identifier: Apache-2.0
#include "parser_impl.h"

namespace tessera::ptx {

void Parser::open_scope() {
  if (state_->depth() >= kMaxScopeDepth) fail_at(token_.location(), "scopes are nested too deeply");
  const uint32_t id = static_cast<uint32_t>(state_->scope_parents.size());
  state_->scope_parents.push_back(state_->scopes.empty() ? id : state_->scopes.back().id);
  state_->scopes.push_back({id, {}});
}

void Parser::close_scope() {
  std::vector<Undo>& undo = state_->scopes.back().undo;
  for (auto entry = undo.rbegin(); entry != undo.rend(); ++entry) {
    entry->name->binding = entry->binding;
    entry->name->family = entry->family;
  }
  state_->scopes.pop_back();
}

void Parser::bind(Name* name, uint32_t depth, const Binding& binding) {
  state_->scopes[depth - 1].undo.push_back({name, name->binding, name->family});
  name->binding = binding;
}

/// What `name` means here. A register of a family comes to be when it is first asked for.
const Binding& Parser::resolve(Name* name) {
  const Binding& binding = name->binding;
  if (binding.depth > 0 && state_->nested_families == 0) return binding;
  const Family* const family = find_family(name);
  if (family != nullptr && family->depth > binding.depth) {
    add_register(name, family->depth, family->type, family->vector);
  } else if (binding.kind == BindingKind::kNone && is_special_register(name->text)) {
    name->binding.kind = BindingKind::kSpecial;
  }
  return binding;
}

/// The innermost family that `name` belongs to, if any.
const Family* Parser::find_family(const Name* name) const {
  const std::string_view text = name->text;
  const Family* best = nullptr;
  uint64_t number = 0, scale = 1;
  for (size_t split = text.size(); split-- > 1 && text.size() - split <= 10;) {
    const char digit = text[split];
    if (digit < '0' || digit > '9') break;
    number += static_cast<uint64_t>(digit - '0') * scale;
    scale *= 10;
    if (digit == '0' && split + 1 < text.size()) continue;  // "%r07" is no member of "%r<10>"
    const Name* const prefix = names_.find(text.substr(0, split));
    if (prefix == nullptr) continue;
    uint32_t at = prefix->family;
    while (at != kNoFamily && number >= state_->families[at].count) at = state_->families[at].outer;
    if (at == kNoFamily || (best != nullptr && best->depth >= state_->families[at].depth)) continue;
    best = &state_->families[at];
  }
  return best;
}

RegisterId Parser::add_register(Name* name, uint32_t depth, Type type, uint8_t vector) {
  std::vector<Register>& registers = state_->function.registers;
  const uint32_t id = static_cast<uint32_t>(registers.size());
  registers.push_back({unique_name(name, depth), type, vector});
  bind(name, depth, {BindingKind::kRegister, depth, id, {}});
  return static_cast<RegisterId>(id);
}

void Parser::declare_variable(Variable variable) {
  Name* const name = names_.intern(variable.name);
  check_redeclaration(name, variable.location);
  const uint32_t depth = state_->depth();
  const std::string_view unique = unique_name(name, depth);
  const uint32_t index = static_cast<uint32_t>(state_->function.variables.size());
  bind(name, depth, {BindingKind::kVariable, depth, index, unique});
  variable.name = unique;
  state_->function.variables.push_back(std::move(variable));
}

/// The declaration that `name` stands for here; null when it is no variable, or not declared so far.
const Variable* Parser::variable_of(const Name* name) const {
  const Binding& binding = name->binding;
  if (binding.kind == BindingKind::kModuleSymbol) {
    return name->module_variable < module_.variables.size() ? &module_.variables[name->module_variable] : nullptr;
  }
  if (binding.kind != BindingKind::kVariable) return nullptr;
  const Function& function = state_->function;
  if (binding.depth >= kBodyDepth) return &function.variables[binding.index];
  const size_t parameters = function.parameters.size();
  return binding.index < parameters ? &function.parameters[binding.index]
                                    : &function.returns[binding.index - parameters];
}

/// The name by which the IR knows a declaration: as written, unless an inner scope, the function or
/// the module uses the same for something else.
std::string_view Parser::unique_name(Name* name, uint32_t depth) {
  const bool is_taken = name->function_stamp == state_->stamp || name->binding.kind == BindingKind::kModuleSymbol;
  if (depth > kBodyDepth || is_taken) return scoped_name(name, state_->scopes[depth - 1].id);
  name->function_stamp = state_->stamp;
  return name->text;
}

std::string_view Parser::scoped_name(const Name* name, uint32_t scope_id) {
  return names_.intern(std::string(name->text) + "#" + std::to_string(scope_id))->text;
}

void Parser::check_redeclaration(const Name* name, SourceLocation location) const {
  // Parameters share the scope of the body.
  const uint32_t depth = state_->depth();
  const bool is_same_scope = name->binding.depth == depth || (name->binding.depth == 1 && depth == kBodyDepth);
  const Family* const family = find_family(name);
  const bool is_in_family = family != nullptr && family->depth == depth;
  if (!is_in_family && (!is_same_scope || name->binding.kind == BindingKind::kNone)) return;
  fail_at(location, quoted(name->text) + " is declared twice");
}

}  // namespace tessera::ptx
