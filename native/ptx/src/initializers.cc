// SPDX-License-Identifier: Apache-2.0
#include <bit>

#include "parser_impl.h"

namespace tessera::ptx {

namespace {

double to_double(const Constant& value) {
  if (value.kind == Constant::Kind::kFloat64) return std::bit_cast<double>(value.bits);
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits));
}

/// The bytes of `value` as an element of `type`; false when the type has no such constants.
bool encode(const Constant& value, Type type, uint64_t& out) {
  if ((type == Type::kF32 || type == Type::kF64) && !value.is_float()) return false;
  if (type == Type::kF32) {
    out = value.kind == Constant::Kind::kFloat32 ? value.bits
                                                 : std::bit_cast<uint32_t>(static_cast<float>(to_double(value)));
    return true;
  }
  if (type == Type::kF64) {
    out = value.kind == Constant::Kind::kFloat64 ? value.bits : std::bit_cast<uint64_t>(to_double(value));
    return true;
  }
  const uint32_t size = type_size(type);
  if (value.is_float()) {
    // A pattern fits an untyped element of its own size.
    out = value.bits;
    return size == (value.kind == Constant::Kind::kFloat32 ? 4u : 8u);
  }
  out = size >= 8 ? value.bits : value.bits & ((uint64_t{1} << (8 * size)) - 1);
  return size > 0;
}

}  // namespace

void Parser::parse_initializer(Variable& variable) {
  expect('=');
  if (type_size(variable.type) == 0) return skip_opaque_initializer();
  if (!token_.is('{')) {
    if (!variable.dimensions.empty()) fail("'{'");
    variable.initializer.push_back(parse_initializer_element(variable.type));
    return;
  }
  uint64_t padding = 0;
  const bool is_open = !variable.dimensions.empty() && variable.dimensions[0] == 0;
  parse_initializer_list(variable, 0, padding);
  if (!is_open) return;
  uint64_t row = variable.vector;
  for (size_t i = 1; i < variable.dimensions.size(); ++i) row *= variable.dimensions[i];
  if (row != 0) variable.dimensions[0] = (variable.initializer.size() + row - 1) / row;
}

/// Elements in braces; `level` counts the braces around. An inner list fills its whole sub-array, so
/// that the next one starts where it belongs.
void Parser::parse_initializer_list(Variable& variable, size_t level, uint64_t& padding) {
  const Nesting nesting(*this);
  expect('{');
  const size_t begin = variable.initializer.size();
  if (!token_.is('}')) {
    do {
      if (token_.is('{')) {
        parse_initializer_list(variable, level + 1, padding);
      } else if (level + 1 < variable.dimensions.size()) {
        fail("braces around each row of the array");
      } else {
        variable.initializer.push_back(parse_initializer_element(variable.type));
      }
    } while (accept(','));
  }
  const SourceLocation location = token_.location();
  expect('}');
  if (level == 0 && !variable.dimensions.empty() && variable.dimensions[0] == 0) return;  // as many as are given
  if (level > variable.dimensions.size()) fail_at(location, "more braces than dimensions");
  uint64_t wanted = variable.vector;
  for (size_t i = level; i < variable.dimensions.size(); ++i) {
    if (__builtin_mul_overflow(wanted, variable.dimensions[i], &wanted)) wanted = UINT64_MAX;
  }
  const uint64_t given = variable.initializer.size() - begin;
  if (given > wanted) fail_at(location, "more elements than the array holds");
  if (level == 0) return;  // a missing tail is zero
  padding += wanted - given;
  if (wanted - given > kMaxPadding || padding > kMaxPadding) fail_at(location, "an initializer with too few elements");
  variable.initializer.resize(begin + wanted);
}

Initializer Parser::parse_initializer_element(Type type) {
  if (token_.kind == TokenKind::kWord && !at_warp_size()) return parse_symbol_initializer();
  const SourceLocation location = token_.location();
  const Constant value = parse_expression();
  if (token_.is('(')) {
    if (value.is_float()) fail("',' or '}'");
    return parse_masked_initializer(value.bits);
  }
  Initializer element;
  if (!encode(value, type, element.bits)) {
    fail_at(location, "a constant that a ." + std::string(type_name(type)) + " can't hold");
  }
  return element;
}

/// "sym", "sym+4", "generic(sym)", "generic(sym)+4".
Initializer Parser::parse_symbol_initializer() {
  const SourceLocation location = token_.location();
  Initializer element;
  element.kind = Initializer::Kind::kSymbol;
  std::string_view text = expect_word("a name");
  if (text == "generic" && accept('(')) {
    element.generic = true;
    text = expect_word("a name");
    while (token_.is('+') || token_.is('-')) element.offset += parse_offset();
    expect(')');
  }
  Name* const name = names_.intern(text);
  const bool is_local = name->binding.kind == BindingKind::kVariable;
  element.symbol = is_local ? name->binding.unique : name->text;
  if (name->binding.kind == BindingKind::kNone) {
    forward_.push_back({state_ != nullptr ? state_->function.name : std::string(), name, location});
  }
  while (token_.is('+') || token_.is('-')) {
    element.offset =
        static_cast<int64_t>(static_cast<uint64_t>(element.offset) + static_cast<uint64_t>(parse_offset()));
  }
  return element;
}

/// "0xFF00(sym)": one byte of an address.
Initializer Parser::parse_masked_initializer(uint64_t mask) {
  const SourceLocation location = token_.location();
  expect('(');
  Initializer element = parse_symbol_initializer();
  expect(')');
  const int shift = mask == 0 ? 0 : std::countr_zero(mask);
  if (shift % 8 != 0 || mask >> shift != 0xff) fail_at(location, "a mask must select one byte");
  element.masked = true;
  element.mask_shift = static_cast<uint8_t>(shift);
  return element;
}

/// Texture and sampler references are initialised by attributes, not by data.
void Parser::skip_opaque_initializer() {
  expect('{');
  while (!token_.is('}')) {
    if (token_.kind == TokenKind::kEnd || token_.kind == TokenKind::kInvalid || token_.is(';')) fail("'}'");
    advance();
  }
  advance();
}

}  // namespace tessera::ptx
