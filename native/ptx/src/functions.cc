// SPDX-License-Identifier: Apache-2.0
#include "parser_impl.h"

namespace tessera::ptx {

void Parser::parse_function(Linkage linkage) {
  state_ = std::make_unique<FunctionState>();
  state_->stamp = ++function_count_;
  Function& function = state_->function;
  function.linkage = linkage;
  function.is_entry = token_.is_dot("entry");
  function.location = token_.location();
  advance();
  bool has_body = true;
  try {
    open_scope();
    parse_function_header(!function.is_entry);
    has_body = token_.is('{');
    if (!has_body && !accept(';') && !function.is_declaration) fail("'{' or ';'");
  } catch (const SyntaxError& error) {
    report(error);
    recover_module(false);
    return finish_function(false);
  }
  if (has_body) {
    define_at_module_scope(names_.intern(function.name), true, function.location);
    parse_body();
  }
  finish_function(!has_body);
}

void Parser::parse_function_header(bool has_results) {
  Function& function = state_->function;
  Variable attributes;
  while (accept_dot("attribute")) parse_attributes(attributes);
  for (const std::string& text : attributes.attributes) {
    function.directives.other.push_back(std::string(".attribute(").append(text).append(")"));
  }
  parse_function_directives(function);
  if (has_results && token_.is('(')) parse_parameter_list(function.returns);
  function.name = expect_word("the name of a function");
  define_at_module_scope(names_.intern(function.name), false, function.location);
  if (token_.is('(')) parse_parameter_list(function.parameters);
  bind_parameters();
  parse_function_directives(function);
}

void Parser::parse_parameter_list(std::vector<Variable>& out) {
  expect('(');
  if (accept(')')) return;
  do out.push_back(parse_parameter());
  while (accept(','));
  expect(')');
}

Variable Parser::parse_parameter() {
  const SourceLocation location = token_.location();
  Variable variable;
  if (accept_dot("reg")) {
    variable.space = Space::kRegister;
    while (token_.kind == TokenKind::kDotWord) parse_variable_word(variable);
  } else {
    variable = parse_variable_prefix();
  }
  parse_declarator(variable);
  variable.location = location;
  return variable;
}

void Parser::bind_parameters() {
  Function& function = state_->function;
  for (std::vector<Variable>* list : {&function.returns, &function.parameters}) {
    uint32_t next_index = list == &function.returns ? static_cast<uint32_t>(function.parameters.size()) : 0;
    for (Variable& variable : *list) {
      const uint32_t index = next_index++;
      if (variable.name == "_") continue;
      Name* const name = names_.intern(variable.name);
      check_redeclaration(name, variable.location);
      if (variable.space == Space::kRegister) {
        const RegisterId id = add_register(name, 1, variable.type, variable.vector);
        variable.name = function.registers[static_cast<size_t>(id)].name;
        continue;
      }
      const std::string_view unique = unique_name(name, 1);
      variable.name = unique;
      bind(name, 1, {BindingKind::kVariable, 1, index, unique});
    }
  }
}

void Parser::parse_dimensions(uint32_t (&out)[3]) {
  uint32_t values[3] = {1, 1, 1};
  size_t count = 0;
  do {
    if (count == 3) fail("at most three dimensions");
    values[count++] = static_cast<uint32_t>(parse_integer_expression());
  } while (accept(','));
  std::copy(std::begin(values), std::end(values), std::begin(out));
}

/// A directive that limits launches or resources; false when the token is none.
bool Parser::parse_limit_directive(Directives& directives) {
  const auto number = [this](uint32_t& out) { out = static_cast<uint32_t>(parse_integer_expression()); };
  if (accept_dot("maxntid")) {
    parse_dimensions(directives.max_threads);
  } else if (accept_dot("reqntid")) {
    parse_dimensions(directives.required_threads);
  } else if (accept_dot("reqnctapercluster")) {
    parse_dimensions(directives.required_cluster);
  } else if (accept_dot("minnctapersm")) {
    number(directives.min_blocks_per_multiprocessor);
  } else if (accept_dot("maxnreg")) {
    number(directives.max_registers);
  } else if (accept_dot("maxclusterrank")) {
    number(directives.max_cluster_rank);
  } else if (accept_dot("explicitcluster")) {
    directives.explicit_cluster = true;
  } else if (accept_dot("noreturn")) {
    directives.noreturn = true;
  } else {
    return false;
  }
  return true;
}

void Parser::parse_function_directives(Function& function) {
  while (token_.kind == TokenKind::kDotWord && !at_function_start()) {
    if (parse_limit_directive(function.directives)) continue;
    if (accept_dot("pragma")) {
      do function.directives.pragmas.emplace_back(expect_string());
      while (accept(','));
      // The ';' belongs to the pragma; with no body after it, it has ended a declaration too.
      if (accept(';')) function.is_declaration = true;
      continue;
    }
    std::string text = dotted(token_);
    advance();
    for (bool first = true; first ? token_.kind == TokenKind::kInteger : accept(','); first = false) {
      text += (first ? " " : ", ") + std::to_string(expect_integer());
    }
    function.directives.other.push_back(std::move(text));
  }
}

void Parser::parse_body() {
  expect('{');
  open_scope();
  while (true) {
    if (token_.is('}')) {
      close_scope();
      advance();
      if (state_->depth() < kBodyDepth) return;
      continue;
    }
    if (token_.kind == TokenKind::kEnd || at_function_start()) {
      return report({token_.location(), "function " + quoted(state_->function.name) + " has no closing '}'"});
    }
    const bool is_directive = token_.kind == TokenKind::kDotWord;
    const char* const before = token_.begin;
    try {
      parse_statement();
    } catch (const SyntaxError& error) {
      report(error);
      if (token_.begin == before && !token_.is('{') && !token_.is(';')) advance();
      recover_statement(is_directive);
    }
  }
}

void Parser::finish_function(bool declared_only) {
  resolve_pending();
  resolve_targets();
  while (state_->depth() > 0) close_scope();
  Function& function = state_->function;
  function.is_declaration = declared_only;
  if (state_->failed) mark_broken(function.name);
  last_function_ = function.name;
  if (!function.name.empty()) module_.functions.push_back(std::move(function));
  state_.reset();
}

const LabelRecord* Parser::find_label(const Name* name, uint32_t scope) const {
  while (true) {
    const auto found = state_->labels.find(FunctionState::label_key(scope, name));
    if (found != state_->labels.end()) return &found->second;
    const uint32_t parent = state_->scope_parents[scope];
    if (parent == scope) return nullptr;
    scope = parent;
  }
}

/// Gives the names that were met before their declaration their meaning: a label of an enclosing
/// scope, or else a symbol that the module declares further down.
void Parser::resolve_pending() {
  for (const PendingName& pending : state_->pending) {
    if (pending.operand == nullptr) continue;
    Operand& operand = *pending.operand;
    if (const LabelRecord* label = find_label(pending.name, pending.scope); label != nullptr) {
      operand.kind = label->is_list ? Operand::Kind::kSymbol : Operand::Kind::kLabel;
      operand.label = label->is_list ? 0 : label->index;
      operand.text = label->unique;
      continue;
    }
    operand.kind = Operand::Kind::kSymbol;
    operand.label = 0;
    operand.text = pending.name->text;
    if (pending.must_be_label) {
      report({pending.location, "no label " + quoted(pending.name->text) + " in this function"});
    } else if (pending.name->function_stamp == state_->stamp) {
      report({pending.location, quoted(pending.name->text) + " is used before its declaration"});
    } else if (pending.name->binding.kind == BindingKind::kNone) {
      forward_.push_back({state_->function.name, pending.name, pending.location});
    }
  }
}

void Parser::resolve_targets() {
  for (const PendingTargets& pending : state_->pending_targets) {
    BranchTargets& list = state_->function.target_lists[pending.list];
    for (Name* const name : pending.names) {
      const LabelRecord* const label = find_label(name, pending.scope);
      if (label == nullptr || label->is_list) {
        report({pending.location, "no label " + quoted(name->text) + " in this function"});
        continue;
      }
      list.targets.emplace_back(label->unique);
      list.label_indices.push_back(label->index);
    }
  }
}

}  // namespace tessera::ptx
