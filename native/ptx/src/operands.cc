// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "parser_impl.h"

namespace tessera::ptx {

namespace {

int8_t component_of(std::string_view word) {
  if (word.size() != 1) return -1;
  constexpr std::string_view kXyzw = "xyzw", kRgba = "rgba";
  const size_t at = std::min(kXyzw.find(word[0]), kRgba.find(word[0]));
  return at == std::string_view::npos ? int8_t{-1} : static_cast<int8_t>(at);
}

}  // namespace

/// Moves the operands from `base` on out of the scratch stack into the arena.
Slice<Operand> Parser::seal(size_t base) {
  const size_t count = scratch_.size() - base;
  Operand* const out = arena_->copy(scratch_.data() + base, count);
  scratch_.resize(base);
  for (size_t i = 0; i < count; ++i) {
    if (out[i].kind == Operand::Kind::kLabel) state_->pending[out[i].label].operand = &out[i];
  }
  return {out, count};
}

Operand Parser::parse_operand() {
  Operand first = parse_operand_value();
  if (!token_.is('|')) return first;
  advance();
  const size_t base = scratch_.size();
  scratch_.push_back(first);
  scratch_.push_back(parse_operand_value());
  Operand both;
  both.kind = Operand::Kind::kPair;
  both.elements = seal(base);
  return both;
}

Operand Parser::parse_operand_value() {
  switch (token_.kind) {
    case TokenKind::kWord:
      return at_warp_size() ? parse_constant_operand() : parse_name_operand();
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return parse_constant_operand();
    case TokenKind::kDotWord:
      if (token_.text[0] >= '0' && token_.text[0] <= '9') return parse_constant_operand();
      fail("an operand");
    case TokenKind::kPunct:
      break;
    default:
      fail("an operand");
  }
  if (token_.is('[')) {
    Operand address = parse_address();
    parse_operand_suffix(address);
    return address;
  }
  if (token_.is('{')) return parse_list(Operand::Kind::kVector, '}');
  if (token_.is('(')) return parse_parenthesised();
  if (token_.is('-') || token_.is('!')) return parse_sign_operand();
  if (token_.is('+') || token_.is('~')) return parse_constant_operand();
  fail("an operand");
}

Operand Parser::parse_name_operand() {
  const SourceLocation location = token_.location();
  Name* const name = names_.intern(token_.text);
  advance();
  Operand operand = operand_of(name, location);
  if (token_.kind == TokenKind::kDotWord) parse_operand_suffix(operand);
  if (operand.kind != Operand::Kind::kSymbol && operand.kind != Operand::Kind::kLabel) return operand;
  if (token_.is('[')) parse_index(name, operand);
  if (token_.is('+') || token_.is('-')) parse_symbol_offset(operand);
  return operand;
}

/// "-%r1", "!%p1", or a constant that begins so.
Operand Parser::parse_sign_operand() {
  const Token sign = token_;
  advance();
  if (token_.kind == TokenKind::kWord && !at_warp_size()) {
    Operand operand = parse_name_operand();
    if (operand.kind != Operand::Kind::kRegister && operand.kind != Operand::Kind::kSpecial) {
      fail_at(sign.location(), "only a register or a constant can be negated");
    }
    operand.negated = true;
    return operand;
  }
  lexer_.resume_after(sign, 1);
  token_ = sign;
  return parse_constant_operand();
}

Operand Parser::parse_constant_operand() {
  const Constant value = parse_expression();
  Operand operand;
  operand.kind = value.is_float() ? Operand::Kind::kFloat : Operand::Kind::kInteger;
  operand.bits = value.bits;
  if (value.is_float()) operand.float_bits = value.kind == Constant::Kind::kFloat32 ? 32 : 64;
  return operand;
}

Operand Parser::parse_parenthesised() {
  if (mnemonic_->is_call) return parse_list(Operand::Kind::kTuple, ')');
  const Token open = token_;
  advance();
  const bool is_list = token_.kind == TokenKind::kWord && !at_warp_size();
  lexer_.resume_after(open, 1);
  token_ = open;
  return is_list ? parse_list(Operand::Kind::kTuple, ')') : parse_constant_operand();
}

Operand Parser::parse_list(Operand::Kind kind, char close) {
  const Nesting nesting(*this);
  advance();
  const size_t base = scratch_.size();
  if (!token_.is(close)) {
    do scratch_.push_back(parse_operand());
    while (accept(','));
  }
  expect(close);
  Operand list;
  list.kind = kind;
  list.elements = seal(base);
  return list;
}

Operand Parser::parse_address() {
  const Nesting nesting(*this);
  expect('[');
  const size_t base = scratch_.size();
  Operand address;
  address.kind = Operand::Kind::kAddress;
  if (token_.kind == TokenKind::kWord) {
    const SourceLocation location = token_.location();
    Name* const name = names_.intern(token_.text);
    advance();
    Operand operand = operand_of(name, location);
    if (token_.kind == TokenKind::kDotWord) parse_operand_suffix(operand);
    scratch_.push_back(operand);
  } else {
    scratch_.push_back(parse_operand_value());
  }
  while (token_.is('+') || token_.is('-')) {
    address.offset =
        static_cast<int64_t>(static_cast<uint64_t>(address.offset) + static_cast<uint64_t>(parse_offset()));
  }
  while (accept(',')) scratch_.push_back(parse_operand());
  if (!token_.is(']')) fail("']'");
  advance();
  address.elements = seal(base);
  return address;
}

/// "+ 4", "- 4", "+-4": the signed constant that follows a base.
int64_t Parser::parse_offset() {
  const bool minus = token_.is('-');
  advance();
  const SourceLocation location = token_.location();
  const Constant value = parse_binary(kOffsetPrecedence);
  if (value.is_float()) fail_at(location, "an offset must be an integer");
  return static_cast<int64_t>(minus ? 0 - value.bits : value.bits);
}

void Parser::parse_symbol_offset(Operand& operand) {
  while (token_.is('+') || token_.is('-')) {
    operand.offset =
        static_cast<int64_t>(static_cast<uint64_t>(operand.offset) + static_cast<uint64_t>(parse_offset()));
  }
}

/// "name[4]": an element of an array, counted in elements.
void Parser::parse_index(const Name* name, Operand& operand) {
  const SourceLocation location = token_.location();
  const Variable* const variable = variable_of(name);
  if (variable == nullptr) fail_at(location, "only a variable that was declared before can be indexed");
  uint64_t offset = 0;
  for (size_t level = 0; token_.is('['); ++level) {
    if (level >= variable->dimensions.size()) fail("no index beyond the array's dimensions");
    advance();
    uint64_t stride = uint64_t{type_size(variable->type)} * variable->vector;
    for (size_t i = level + 1; i < variable->dimensions.size(); ++i) stride *= variable->dimensions[i];
    offset += parse_integer_expression() * stride;
    expect(']');
  }
  operand.offset = static_cast<int64_t>(offset);
  if (mnemonic_->opcode == "mov" || mnemonic_->opcode == "cvta") return;
  // Elsewhere the element itself is meant: the same as "[name+offset]".
  const size_t base = scratch_.size();
  Operand address;
  address.kind = Operand::Kind::kAddress;
  address.offset = std::exchange(operand.offset, 0);
  scratch_.push_back(operand);
  address.elements = seal(base);
  operand = address;
}

void Parser::parse_operand_suffix(Operand& operand) {
  std::vector<std::string_view> words;
  const bool can_select = operand.kind == Operand::Kind::kRegister || operand.kind == Operand::Kind::kSpecial;
  for (; token_.kind == TokenKind::kDotWord; advance()) {
    const int8_t component =
        can_select && operand.component < 0 && words.empty() ? component_of(token_.text) : int8_t{-1};
    if (component >= 0) {
      operand.component = component;
    } else {
      words.push_back(names_.intern(token_.text)->text);
    }
  }
  operand.modifiers = {arena_->copy(words.data(), words.size()), words.size()};
}

Operand Parser::operand_of(Name* name, SourceLocation location) {
  Operand operand;
  if (name->text == "_") return operand;
  const bool may_be_variable = !mnemonic_->is_branch;
  const Binding& binding = resolve(name);
  if (binding.kind == BindingKind::kRegister) {
    operand.kind = Operand::Kind::kRegister;
    operand.reg = static_cast<RegisterId>(binding.index);
  } else if (binding.kind == BindingKind::kSpecial) {
    operand.kind = Operand::Kind::kSpecial;
    operand.text = name->text;
  } else if (binding.kind == BindingKind::kNone || !may_be_variable) {
    if (name->text[0] == '%') {
      report({location, "undeclared register " + quoted(name->text)});
      return operand;  // the rest of the statement may still be read
    }
    operand.kind = Operand::Kind::kLabel;  // until the function's end shows what it is
    operand.label = static_cast<uint32_t>(state_->pending.size());
    state_->pending.push_back({nullptr, name, state_->scopes.back().id, !may_be_variable, location});
  } else {
    operand.kind = Operand::Kind::kSymbol;
    operand.text = binding.kind == BindingKind::kVariable ? binding.unique : name->text;
  }
  return operand;
}

}  // namespace tessera::ptx
