// SPDX-License-Identifier: Apache-2.0
#include "lexer.h"

#include "../../testing/check.h"

using namespace tessera::ptx;

namespace {

/// The tokens point into `text`.
std::vector<Token> tokens_of(const std::string& text) {
  Lexer lexer(text.c_str(), text.size());
  std::vector<Token> out;
  for (Token token = lexer.next(); token.kind != TokenKind::kEnd; token = lexer.next()) out.push_back(token);
  return out;
}

Token only(const std::string& text) {
  const std::vector<Token> tokens = tokens_of(text);
  REQUIRE(tokens.size() == 1);
  return tokens[0];
}

}  // namespace

TEST_CASE(integers) {
  CHECK_EQ(only("0").bits, 0u);
  CHECK_EQ(only("42").bits, 42u);
  CHECK_EQ(only("0x1F").bits, 31u);
  CHECK_EQ(only("0XfFfF").bits, 65535u);
  CHECK_EQ(only("0b101").bits, 5u);
  CHECK_EQ(only("0777").bits, 511u);
  CHECK_EQ(only("18446744073709551615").bits, UINT64_MAX);
  CHECK(!only("9223372036854775807").is_unsigned);
  CHECK(only("9223372036854775808").is_unsigned);
  CHECK(only("7U").is_unsigned);
  CHECK_EQ(only("7U").bits, 7u);
}

TEST_CASE(malformed_numbers) {
  const char* const bad[] = {"18446744073709551616",
                             "0x10000000000000000",
                             "09",
                             "0x",
                             "0b2",
                             "0b",
                             "12ab",
                             "0f3F80",
                             "0f3F8000001",
                             "0d3FF",
                             "1.5x",
                             "1e5q",
                             "0xfg",
                             "1e999"};
  for (const char* const text : bad) {
    if (!CHECK(tokens_of(text)[0].kind == TokenKind::kInvalid)) std::fprintf(stderr, "accepted: %s\n", text);
  }
}

TEST_CASE(floats) {
  const Token single = only("0f3F800000");
  CHECK(single.kind == TokenKind::kFloat);
  CHECK_EQ(single.bits, 0x3f800000u);
  CHECK_EQ(int(single.float_bits), 32);
  CHECK_EQ(only("0D3ff0000000000000").bits, 0x3ff0000000000000u);
  for (const char* const text : {"1.0", "1.", "10e-1", "1E0", "1.0e+0"}) {
    CHECK_EQ(only(text).bits, 0x3ff0000000000000u);
    CHECK_EQ(int(only(text).float_bits), 64);
  }
}

TEST_CASE(words) {
  const std::string text = "_ $L__BB0_1 %r12 %tid.x .shared::cta .b32 \"a \\\" b\" WARP_SZ";
  const std::vector<Token> tokens = tokens_of(text);
  REQUIRE(tokens.size() == 9);
  CHECK_EQ(tokens[0].text, "_");
  CHECK_EQ(tokens[1].text, "$L__BB0_1");
  CHECK_EQ(tokens[2].text, "%r12");
  CHECK_EQ(tokens[3].text, "%tid");
  CHECK(tokens[4].is_dot("x"));
  CHECK(tokens[5].is_dot("shared::cta"));
  CHECK(tokens[6].is_dot("b32"));
  CHECK(tokens[7].kind == TokenKind::kString);
  CHECK_EQ(tokens[7].text, "a \\\" b");
}

TEST_CASE(punctuation_takes_pairs) {
  const std::vector<Token> tokens = tokens_of("<<>><=>===!=&&||<>|&:% 4");
  REQUIRE(tokens.size() == 15);
  CHECK(tokens[0].is(pair('<', '<')));
  CHECK(tokens[7].is(pair('|', '|')));
  CHECK(tokens[8].is('<'));
  CHECK(tokens[13].is('%'));
}

TEST_CASE(locations_count_lines_and_columns) {
  const std::vector<Token> tokens = tokens_of("a\r\n  b /* x\n y */ c // d\n\te");
  REQUIRE(tokens.size() == 4);
  CHECK_EQ(tokens[0].location().line, 1u);
  CHECK_EQ(tokens[0].location().column, 1u);
  CHECK_EQ(tokens[1].location().line, 2u);
  CHECK_EQ(tokens[1].location().column, 3u);
  CHECK_EQ(tokens[2].location().line, 3u);
  CHECK_EQ(tokens[2].location().column, 7u);
  CHECK_EQ(tokens[3].location().line, 4u);
  CHECK_EQ(tokens[3].location().column, 2u);
}

TEST_CASE(what_has_no_end_is_invalid_and_ends_the_text) {
  for (const char* const text : {"/* x", "\"x", "/*", "\"", "/", "\"x\\"}) {
    const std::vector<Token> tokens = tokens_of(text);
    REQUIRE(tokens.size() == 1);
    CHECK(tokens[0].kind == TokenKind::kInvalid || tokens[0].is('/'));
  }
}

TEST_CASE(line_markers_are_space_other_directives_are_not) {
  CHECK_EQ(tokens_of("# 1 \"a.cu\"\n#line 7 \"b\"\nx").size(), 1u);
  CHECK_EQ(tokens_of("#define x 1\n").size(), 4u);
}

TEST_CASE(mnemonics_hold_their_modifiers) {
  const std::string text = "ld.global.L1::evict_last.b32 %r1";
  Lexer lexer(text.c_str(), text.size());
  const Token first = lexer.next();
  CHECK_EQ(first.text, "ld");
  CHECK_EQ(lexer.extend_mnemonic(first), "ld.global.L1::evict_last.b32");
  CHECK_EQ(lexer.next().text, "%r1");
}

TEST_CASE(label_colons) {
  const auto is_label = [](const std::string& text) {
    Lexer lexer(text.c_str(), text.size());
    lexer.next();
    const bool found = lexer.accept_label_colon();
    CHECK_EQ(lexer.next().text, found ? "x" : "");
    return found;
  };
  CHECK(is_label("L:x"));
  CHECK(is_label("L \t: x"));
  CHECK(is_label("L // why\n : x"));
  CHECK(!is_label("L::"));
  CHECK(!is_label("L ;"));
}

TEST_MAIN()
