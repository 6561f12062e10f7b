// SPDX-License-Identifier: Apache-2.0
// Constant expressions: C's operators over 64-bit integers, and doubles. Operand and result types follow
// the table "Summary of Constant Expression Evaluation Rules" of the PTX manual, shift counts ptxas (modulo 64).
#include <bit>

#include "parser_impl.h"

namespace tessera::ptx {

namespace {

using Kind = Constant::Kind;

Constant make_signed(int64_t value) { return {Kind::kSigned, static_cast<uint64_t>(value)}; }
Constant make_double(double value) { return {Kind::kFloat64, std::bit_cast<uint64_t>(value)}; }

bool is_true(const Constant& value) {
  return value.kind == Kind::kFloat64 ? std::bit_cast<double>(value.bits) != 0.0 : value.bits != 0;
}

/// Integer division; the divisor is not zero.
uint64_t divide(const Constant& a, const Constant& b, bool is_unsigned) {
  if (is_unsigned) return a.bits / b.bits;
  const int64_t x = static_cast<int64_t>(a.bits), y = static_cast<int64_t>(b.bits);
  return y == -1 ? 0 - a.bits : static_cast<uint64_t>(x / y);  // INT64_MIN / -1 wraps
}

uint64_t shift(const Constant& a, uint64_t by, bool left) {
  by &= 63;
  if (left) return a.bits << by;
  return a.kind == Kind::kSigned ? static_cast<uint64_t>(static_cast<int64_t>(a.bits) >> by) : a.bits >> by;
}

template <class T>
bool compare(uint16_t op, T a, T b) {
  switch (op) {
    case '<':
      return a < b;
    case '>':
      return a > b;
    case pair('<', '='):
      return a <= b;
    case pair('>', '='):
      return a >= b;
    case pair('=', '='):
      return a == b;
    default:
      return a != b;
  }
}

bool is_comparison(uint16_t op) {
  return op == '<' || op == '>' || op == pair('<', '=') || op == pair('>', '=') || op == pair('=', '=') ||
         op == pair('!', '=');
}

/// False when `op` has no meaning for these doubles.
bool apply_double(uint16_t op, double a, double b, Constant& out) {
  if (is_comparison(op)) {
    out = make_signed(compare(op, a, b));
    return true;
  }
  switch (op) {
    case '+':
      out = make_double(a + b);
      return true;
    case '-':
      out = make_double(a - b);
      return true;
    case '*':
      out = make_double(a * b);
      return true;
    case '/':
      out = make_double(a / b);
      return true;
    default:
      return false;
  }
}

/// False on a division by zero.
bool apply_integer(uint16_t op, const Constant& a, const Constant& b, Constant& out) {
  const bool is_unsigned = a.kind == Kind::kUnsigned || b.kind == Kind::kUnsigned;
  out.kind = is_unsigned ? Kind::kUnsigned : Kind::kSigned;
  if (is_comparison(op)) {
    out = make_signed(is_unsigned ? compare(op, a.bits, b.bits)
                                  : compare(op, static_cast<int64_t>(a.bits), static_cast<int64_t>(b.bits)));
    return true;
  }
  switch (op) {
    case '+':
      out.bits = a.bits + b.bits;
      return true;
    case '-':
      out.bits = a.bits - b.bits;
      return true;
    case '*':
      out.bits = a.bits * b.bits;
      return true;
    case '&':
      out = {Kind::kUnsigned, a.bits & b.bits};
      return true;
    case '|':
      out = {Kind::kUnsigned, a.bits | b.bits};
      return true;
    case '^':
      out = {Kind::kUnsigned, a.bits ^ b.bits};
      return true;
    case pair('<', '<'):
    case pair('>', '>'):
      out = {a.kind, shift(a, b.bits, op == pair('<', '<'))};
      return true;
    case pair('&', '&'):
      out = make_signed(is_true(a) && is_true(b));
      return true;
    case pair('|', '|'):
      out = make_signed(is_true(a) || is_true(b));
      return true;
    default:
      if (b.bits == 0) return false;
      if (op == '%') {
        out = {Kind::kSigned, a.bits % b.bits};
      } else {
        out.bits = divide(a, b, is_unsigned);
      }
      return true;
  }
}

}  // namespace

/// Binding strength of the operator at hand; 0 when there is none.
int Parser::binary_precedence() const {
  if (token_.kind != TokenKind::kPunct) return 0;
  switch (token_.punct) {
    case pair('|', '|'):
      return 1;
    case pair('&', '&'):
      return 2;
    case '|':
      return 3;
    case '^':
      return 4;
    case '&':
      return 5;
    case pair('=', '='):
    case pair('!', '='):
      return 6;
    case '<':
    case '>':
    case pair('<', '='):
    case pair('>', '='):
      return 7;
    case pair('<', '<'):
    case pair('>', '>'):
      return 8;
    case '+':
    case '-':
      return 9;
    case '*':
    case '/':
    case '%':
      return 10;
    default:
      return 0;
  }
}

Constant Parser::parse_expression() {
  const Nesting nesting(*this);
  return parse_ternary();
}

Constant Parser::parse_ternary() {
  const Constant condition = parse_binary(1);
  if (!accept('?')) return condition;
  const Constant yes = parse_expression();
  expect(':');
  const Constant no = parse_expression();
  Constant out = is_true(condition) ? yes : no;
  if (yes.kind == Kind::kUnsigned || no.kind == Kind::kUnsigned) out.kind = out.is_float() ? out.kind : Kind::kUnsigned;
  return out;
}

Constant Parser::parse_binary(int minimum) {
  Constant left = parse_unary();
  while (true) {
    const int precedence = binary_precedence();
    if (precedence < minimum || precedence == 0) return left;
    const uint16_t op = token_.punct;
    const SourceLocation location = token_.location();
    advance();
    const Constant right = parse_binary(precedence + 1);
    Constant out;
    if (left.is_float() || right.is_float()) {
      const bool are_doubles = left.kind == Kind::kFloat64 && right.kind == Kind::kFloat64;
      if (!are_doubles || !apply_double(op, std::bit_cast<double>(left.bits), std::bit_cast<double>(right.bits), out)) {
        fail_at(location, "this operator needs two integers or two .f64 constants");
      }
    } else if (!apply_integer(op, left, right, out)) {
      fail_at(location, "division by zero");
    }
    left = out;
  }
}

Constant Parser::parse_unary() {
  if (token_.kind != TokenKind::kPunct || token_.is('(')) return parse_primary();
  const Nesting nesting(*this);
  const SourceLocation location = token_.location();
  const uint16_t op = token_.punct;
  if (op != '-' && op != '+' && op != '~' && op != '!') fail("a constant");
  advance();
  Constant value = parse_unary();
  if (op == '+') return value;
  if (op == '!') return make_signed(!is_true(value));
  if (value.is_float()) {
    if (op == '~') fail_at(location, "'~' needs an integer");
    value.bits ^= value.kind == Kind::kFloat32 ? uint64_t{1} << 31 : uint64_t{1} << 63;
    return value;
  }
  return op == '-' ? Constant{value.kind, 0 - value.bits} : Constant{Kind::kUnsigned, ~value.bits};
}

Constant Parser::parse_primary() {
  if (token_.kind == TokenKind::kInteger) {
    const Constant value{token_.is_unsigned ? Kind::kUnsigned : Kind::kSigned, token_.bits};
    advance();
    return value;
  }
  if (token_.kind == TokenKind::kFloat) {
    const Constant value{token_.float_bits == 32 ? Kind::kFloat32 : Kind::kFloat64, token_.bits};
    advance();
    return value;
  }
  if (at_warp_size()) {
    advance();
    return make_signed(32);
  }
  if (token_.kind == TokenKind::kDotWord && lexer_.rescan_as_number(token_)) return parse_primary();  // ".5"
  if (!token_.is('(')) fail("a constant");
  advance();
  if (token_.is_dot("u64") || token_.is_dot("s64")) {
    const Kind kind = token_.is_dot("u64") ? Kind::kUnsigned : Kind::kSigned;
    advance();
    expect(')');
    const Nesting nesting(*this);
    const SourceLocation location = token_.location();
    const Constant value = parse_unary();
    if (value.is_float()) fail_at(location, "only integers can be cast");
    return {kind, value.bits};
  }
  const Constant value = parse_expression();
  expect(')');
  return value;
}

uint64_t Parser::parse_integer_expression() {
  const SourceLocation location = token_.location();
  const Constant value = parse_expression();
  if (value.is_float()) fail_at(location, "expected an integer");
  return value.bits;
}

}  // namespace tessera::ptx
