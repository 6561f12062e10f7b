// SPDX-License-Identifier: Apache-2.0
// Constant expressions. The expected values are those that ptxas 13 puts into a cubin.
#include <bit>

#include "../../testing/check.h"
#include "tessera/ptx/parser.h"

using namespace tessera::ptx;

namespace {

ParseResult parse_value(const std::string& expression) {
  return parse(".version 8.0\n.target sm_80\n.address_size 64\n.entry k() { foo _, " + expression + "; }");
}

uint64_t value(const std::string& expression) {
  const ParseResult result = parse_value(expression);
  REQUIRE(result.ok());
  const Slice<Operand> operands = result.module.functions[0].instructions[0].operands;
  REQUIRE(operands.size() == 2);
  const Operand& operand = operands[1];
  CHECK(operand.kind == Operand::Kind::kInteger || operand.kind == Operand::Kind::kFloat);
  return operand.bits;
}

std::string error(const std::string& expression) {
  const ParseResult result = parse_value(expression);
  CHECK(!result.ok());
  return result.ok() ? "" : result.errors[0].message;
}

constexpr uint64_t kMinusOne = UINT64_MAX;

}  // namespace

TEST_CASE(arithmetic_and_precedence) {
  CHECK_EQ(value("1+2*3"), 7u);
  CHECK_EQ(value("(1+2)*3"), 9u);
  CHECK_EQ(value("10-4-3"), 3u);
  CHECK_EQ(value("1 << 2 + 1"), 8u);
  CHECK_EQ(value("7 & 3 == 3"), 1u);
  CHECK_EQ(value("1 | 2 ^ 3 & 1"), 3u);
  CHECK_EQ(value("-7 / 2"), static_cast<uint64_t>(-3));
  CHECK_EQ(value("7 % 4"), 3u);
  CHECK_EQ(value("- -5"), 5u);
  CHECK_EQ(value("WARP_SZ*2"), 64u);
  CHECK_EQ(value("WARP_SZ"), 32u);
}

TEST_CASE(signedness_follows_the_manual) {
  CHECK_EQ(value("-1 < 0"), 1u);
  CHECK_EQ(value("-1 < 0U"), 0u);
  CHECK_EQ(value("-(~(2) < 1)"), 0u);  // ~ gives .u64
  CHECK_EQ(value("~(63) > 32"), 1u);
  CHECK_EQ(value("-8 >> 1"), static_cast<uint64_t>(-4));  // the first operand's type
  CHECK_EQ(value("(.u64)-1 >> 60"), 15u);
  CHECK_EQ(value("(.s64)0xFFFFFFFFFFFFFFFF < 0"), 1u);
  CHECK_EQ(value("(-1 & -1) < 0"), 0u);            // & gives .u64
  CHECK_EQ(value("0x8000000000000000 / -1"), 0u);  // over 63 bits: .u64
  CHECK_EQ(value("(.s64)0x8000000000000000 / -1"), 0x8000000000000000u);
}

TEST_CASE(shifts_count_modulo_64) {
  CHECK_EQ(value("1 << 64"), 1u);
  CHECK_EQ(value("64 << 0x7fffffff / 017"), 0x4000u);
  CHECK_EQ(value("63 >> 0x8000000000000000"), 63u);
}

TEST_CASE(logic_and_choice) {
  CHECK_EQ(value("1 && 0 || 1"), 1u);
  CHECK_EQ(value("!5"), 0u);
  CHECK_EQ(value("!0"), 1u);
  CHECK_EQ(value("1 ? 2 : 3"), 2u);
  CHECK_EQ(value("0 ? 2 : 0 ? 3 : 4"), 4u);
  CHECK_EQ(value("(1 ? -1 : 0U) < 0"), 0u);
  CHECK_EQ(value("3 != 4"), 1u);
}

TEST_CASE(doubles) {
  CHECK_EQ(value("(1.0+2.0)*3.0"), std::bit_cast<uint64_t>(9.0));
  CHECK_EQ(value("1.0/4.0"), std::bit_cast<uint64_t>(0.25));
  CHECK_EQ(value("1.5 > 1.0"), 1u);
  CHECK_EQ(value(".5"), std::bit_cast<uint64_t>(0.5));
  CHECK_EQ(value("-.5e1"), std::bit_cast<uint64_t>(-5.0));
  CHECK_EQ(value("-0f00000000"), 0x80000000u);
  CHECK_EQ(value("-0d0000000000000000"), 0x8000000000000000u);
}

TEST_CASE(errors_say_why) {
  CHECK(error("1/0").find("division by zero") != std::string::npos);
  CHECK(error("1 % (2-2)").find("division by zero") != std::string::npos);
  CHECK(error("1+2.0").find("two integers or two .f64") != std::string::npos);
  CHECK(error("0f3F800000+0f3F800000").find("two .f64") != std::string::npos);
  CHECK(error("~1.0").find("integer") != std::string::npos);
  CHECK(error("1+").find("a constant") != std::string::npos);
  CHECK(error("(1").find("')'") != std::string::npos);
  CHECK(error("0x1ffffffffffffffff").find("over 64 bits") != std::string::npos);
  CHECK_EQ(value("-1"), kMinusOne);
}

TEST_MAIN()
