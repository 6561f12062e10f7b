// SPDX-License-Identifier: Apache-2.0
#include "parser_impl.h"

namespace tessera::ptx {

void Parser::parse_statement() {
  if (token_.kind == TokenKind::kWord) {
    if (!lexer_.accept_label_colon()) return parse_instruction_after_guard({.location = token_.location()});
    const Token label = token_;
    advance();
    return parse_labelled(label.text, label.location());
  }
  if (token_.is('@')) return parse_instruction();
  if (token_.kind == TokenKind::kDotWord) return parse_body_directive();
  if (token_.is('{')) {
    open_scope();
    return advance();
  }
  if (accept(';')) return;
  fail("a statement");
}

void Parser::parse_body_directive() {
  if (parse_debug_directive()) return;
  if (accept_dot("reg")) return parse_register_declaration();
  if (accept_dot("pragma")) {
    do state_->function.directives.pragmas.emplace_back(expect_string());
    while (accept(','));
    return expect(';');
  }
  if (parse_limit_directive(state_->function.directives)) return expect(';');
  Linkage linkage = Linkage::kNone;
  if (accept_dot("extern")) linkage = Linkage::kExtern;
  if (at_variable_declaration()) return parse_body_variable(linkage);
  fail_at(token_.location(), "unknown directive " + describe_token());
}

void Parser::parse_labelled(std::string_view label, SourceLocation location) {
  if (accept_dot("callprototype")) {
    declare_label(label, location, true);
    return parse_prototype(label, location);
  }
  if (token_.is_dot("branchtargets") || token_.is_dot("calltargets")) {
    declare_label(label, location, true);
    return parse_targets(label, location);
  }
  declare_label(label, location, false);
}

void Parser::declare_label(std::string_view text, SourceLocation location, bool is_list) {
  Name* const name = names_.intern(text);
  const uint32_t scope = state_->scopes.back().id;
  const std::string_view unique = state_->depth() > kBodyDepth ? scoped_name(name, scope) : name->text;
  const uint32_t index = static_cast<uint32_t>(state_->function.instructions.size());
  const LabelRecord record{unique, index, is_list};
  if (!state_->labels.emplace(FunctionState::label_key(scope, name), record).second) {
    fail_at(location, "label " + quoted(text) + " is declared twice");
  }
  if (!is_list) state_->function.labels.push_back({unique, index});
}

void Parser::parse_targets(std::string_view list_name, SourceLocation location) {
  const bool are_labels = token_.is_dot("branchtargets");
  advance();
  const uint32_t scope = state_->scopes.back().id;
  BranchTargets list;
  list.name = find_label(names_.intern(list_name), scope)->unique;
  PendingTargets pending{static_cast<uint32_t>(state_->function.target_lists.size()), {}, scope, location};
  do {
    Name* const target = names_.intern(expect_word("a target"));
    if (are_labels) {
      pending.names.push_back(target);
      continue;
    }
    list.targets.emplace_back(target->text);
    if (target->binding.kind == BindingKind::kNone) forward_.push_back({state_->function.name, target, location});
  } while (accept(','));
  expect(';');
  state_->function.target_lists.push_back(std::move(list));
  if (are_labels) state_->pending_targets.push_back(std::move(pending));
}

void Parser::parse_prototype(std::string_view name, SourceLocation location) {
  Function prototype;
  prototype.name = find_label(names_.intern(name), state_->scopes.back().id)->unique;
  prototype.is_declaration = true;
  prototype.location = location;
  if (token_.is('(')) parse_parameter_list(prototype.returns);
  expect_word("'_'");
  if (token_.is('(')) parse_parameter_list(prototype.parameters);
  parse_function_directives(prototype);
  expect(';');
  state_->function.prototypes.push_back(std::move(prototype));
}

void Parser::parse_instruction() {
  Instruction instruction;
  instruction.location = token_.location();
  advance();
  if (token_.is('@')) {  // "@@DWARF ..."
    lexer_.skip_line();
    return advance();
  }
  instruction.guard_negated = accept('!');
  if (token_.kind != TokenKind::kWord) fail("a predicate");
  const Binding& binding = resolve(names_.intern(token_.text));
  if (binding.kind != BindingKind::kRegister) fail("a declared predicate");
  instruction.guard = static_cast<RegisterId>(binding.index);
  advance();
  if (token_.kind != TokenKind::kWord) fail("an instruction");
  parse_instruction_after_guard(instruction);
}

void Parser::parse_instruction_after_guard(Instruction instruction) {
  mnemonic_ = parse_mnemonic();
  instruction.opcode = mnemonic_->opcode;
  instruction.full = mnemonic_->full;
  instruction.modifiers = mnemonic_->modifiers;
  instruction.types = mnemonic_->types;
  instruction.type = mnemonic_->types.empty() ? Type::kNone : mnemonic_->types[0];
  scratch_.clear();
  if (!token_.is(';')) {
    do scratch_.push_back(parse_operand());
    while (accept(','));
  }
  if (!token_.is(';')) fail("',' or ';'");
  instruction.operands = seal(0);
  state_->function.instructions.push_back(instruction);
  advance();
}

const Mnemonic* Parser::parse_mnemonic() {
  const SourceLocation location = token_.location();
  std::string_view text = lexer_.extend_mnemonic(token_);
  advance();
  if (token_.kind == TokenKind::kDotWord) {  // "ld .global .u32": rare, but allowed
    mnemonic_buffer_ = text;
    for (; token_.kind == TokenKind::kDotWord; advance()) mnemonic_buffer_.append(".").append(token_.text);
    text = mnemonic_buffer_;
  }
  Name* const name = names_.intern(text);
  if (name->mnemonic == nullptr) name->mnemonic = build_mnemonic(name, location);
  return name->mnemonic;
}

const Mnemonic* Parser::build_mnemonic(Name* name, SourceLocation location) {
  const std::string_view full = name->text;
  const char first = static_cast<char>(full[0] | 0x20);
  if (first < 'a' || first > 'z') {
    fail_at(location, "expected an instruction, found " + quoted(full));
  }
  std::vector<std::string_view> words;
  std::vector<Type> types;
  size_t begin = full.find('.');
  Mnemonic mnemonic;
  mnemonic.full = full;
  mnemonic.opcode = names_.intern(full.substr(0, begin))->text;
  while (begin != std::string_view::npos) {
    const size_t end = full.find('.', begin + 1);
    const std::string_view word = full.substr(begin + 1, end == std::string_view::npos ? end : end - begin - 1);
    words.push_back(names_.intern(word)->text);
    if (const Type type = parse_type(word); type != Type::kNone) types.push_back(type);
    begin = end;
  }
  mnemonic.modifiers = {arena_->copy(words.data(), words.size()), words.size()};
  mnemonic.types = {arena_->copy(types.data(), types.size()), types.size()};
  mnemonic.is_call = mnemonic.opcode == "call";
  mnemonic.is_branch = mnemonic.opcode == "bra" || mnemonic.opcode == "brx";
  return arena_->copy(&mnemonic, 1);
}

}  // namespace tessera::ptx
