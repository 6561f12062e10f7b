// SPDX-License-Identifier: Apache-2.0
// Turns PTX text into tokens, on demand. The text must end with a NUL, which
// serves as the sentinel of every scan.
#pragma once

#include <cstdint>
#include <string_view>

#include "tessera/ptx/ir.h"

namespace tessera::ptx {

enum class TokenKind : uint8_t {
  kEnd,
  kWord,     // identifier, register, label, "_"
  kDotWord,  // ".global", ".shared::cta"; text is without the first dot
  kInteger,  // bits, is_unsigned
  kFloat,    // bits: a pattern of float_bits bits
  kString,   // text without the quotes
  kPunct,    // punct: one character, or two packed by `pair`
  kInvalid,  // text: what is wrong
};

constexpr uint16_t pair(char a, char b) {
  return static_cast<uint16_t>(static_cast<uint8_t>(a) << 8 | static_cast<uint8_t>(b));
}

struct Token {
  TokenKind kind = TokenKind::kEnd;
  uint8_t float_bits = 0;
  bool is_unsigned = false;
  uint16_t punct = 0;
  uint32_t line = 1;
  const char* begin = nullptr;  // first character, dot or quote included
  const char* line_begin = nullptr;
  std::string_view text;
  uint64_t bits = 0;

  bool is(char c) const { return kind == TokenKind::kPunct && punct == static_cast<uint8_t>(c); }
  bool is(uint16_t two) const { return kind == TokenKind::kPunct && punct == two; }
  bool is_dot(std::string_view word) const { return kind == TokenKind::kDotWord && text == word; }
  SourceLocation location() const { return {line, static_cast<uint32_t>(begin - line_begin) + 1}; }
};

class Lexer {
 public:
  /// `text[size]` must be readable and NUL.
  Lexer(const char* text, size_t size);

  Token next();

  /// Goes on right after `token`, or with `skip` characters of it given back.
  void resume_after(const Token& token, size_t length);

  /// The dotted word that `token` (just read, a kWord) begins: "ld" of "ld.global.u32" becomes the whole.
  std::string_view extend_mnemonic(const Token& token);

  /// Reads ".5", just read as a dotted word, as the number that it is where a number is wanted.
  bool rescan_as_number(Token& token);

  /// Whether the next character that is no space is a single ':'; if so it is consumed.
  bool accept_label_colon();

  void skip_line();

 private:
  bool skip_space(Token& bad);
  Token scan_word(Token token);
  Token scan_dot_word(Token token);
  Token scan_number(Token token);
  Token scan_string(Token token);
  Token scan_punct(Token token);
  Token scan_decimal_float(Token token);
  Token finish(Token token, const char* end);
  Token invalid(Token token, const char* end, std::string_view what);

  const char* at_;
  const char* end_;
  const char* line_begin_;
  uint32_t line_ = 1;
};

}  // namespace tessera::ptx
