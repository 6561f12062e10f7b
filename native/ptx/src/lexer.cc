// SPDX-License-Identifier: Apache-2.0
#include "lexer.h"

#include <array>
#include <bit>
#include <charconv>
#include <cstring>

namespace tessera::ptx {

namespace {

enum CharClass : uint8_t { kLetter = 1, kDigit = 2, kHexDigit = 4, kSpaceChar = 8, kWordChar = kLetter | kDigit };

constexpr std::array<uint8_t, 256> make_classes() {
  std::array<uint8_t, 256> classes{};
  for (int c = 'a'; c <= 'z'; ++c) classes[c] |= kLetter;
  for (int c = 'A'; c <= 'Z'; ++c) classes[c] |= kLetter;
  for (int c = '0'; c <= '9'; ++c) classes[c] |= kDigit | kHexDigit;
  for (int c = 'a'; c <= 'f'; ++c) classes[c] |= kHexDigit;
  for (int c = 'A'; c <= 'F'; ++c) classes[c] |= kHexDigit;
  classes['_'] |= kLetter;
  classes['$'] |= kLetter;
  for (char c : {' ', '\t', '\r', '\v', '\f'}) classes[static_cast<uint8_t>(c)] |= kSpaceChar;
  return classes;
}

constexpr std::array<uint8_t, 256> kClasses = make_classes();

bool is_class(char c, uint8_t wanted) { return (kClasses[static_cast<uint8_t>(c)] & wanted) != 0; }

const char* word_end(const char* at) {
  while (is_class(*at, kWordChar)) ++at;
  return at;
}

/// The end of "a", "a::b", "a::b::c" from `at`.
const char* qualified_end(const char* at) {
  at = word_end(at);
  while (at[0] == ':' && at[1] == ':' && is_class(at[2], kWordChar)) at = word_end(at + 2);
  return at;
}

int digit_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : 99;
}

/// Reads digits of `base`; false when the value needs more than 64 bits. `at` stops at the first other character.
bool read_digits(const char*& at, uint64_t base, uint64_t& value) {
  value = 0;
  bool fits = true;
  for (int digit = digit_value(*at); static_cast<uint64_t>(digit) < base; digit = digit_value(*++at)) {
    fits = fits && value <= (UINT64_MAX - static_cast<uint64_t>(digit)) / base;
    value = value * base + static_cast<uint64_t>(digit);
  }
  return fits;
}

bool is_hex_float(const char* at, int digits) {
  for (int i = 0; i < digits; ++i) {
    if (!is_class(at[i], kHexDigit)) return false;
  }
  return !is_class(at[digits], kWordChar);
}

/// "# 12 "file.cu"" or "#line 12 ...": what a preprocessor leaves. Other directives would change the text.
bool is_line_marker(const char* at) {
  ++at;
  while (*at == ' ' || *at == '\t') ++at;
  return is_class(*at, kDigit) || std::strncmp(at, "line", 4) == 0;
}

}  // namespace

Lexer::Lexer(const char* text, size_t size) : at_(text), end_(text + size), line_begin_(text) {}

Token Lexer::finish(Token token, const char* end) {
  at_ = end;
  return token;
}

Token Lexer::invalid(Token token, const char* end, std::string_view what) {
  token.kind = TokenKind::kInvalid;
  token.text = what;
  return finish(token, end);
}

/// Skips space and comments. False: an unterminated comment, described in `bad`.
bool Lexer::skip_space(Token& bad) {
  while (true) {
    const char c = *at_;
    if (is_class(c, kSpaceChar)) {
      ++at_;
    } else if (c == '\n') {
      line_begin_ = ++at_;
      ++line_;
    } else if ((c == '/' && at_[1] == '/') || (c == '#' && is_line_marker(at_))) {
      const void* newline = std::memchr(at_, '\n', static_cast<size_t>(end_ - at_));
      at_ = newline != nullptr ? static_cast<const char*>(newline) : end_;
    } else if (c == '/' && at_[1] == '*') {
      bad.line = line_;
      bad.begin = at_;
      bad.line_begin = line_begin_;
      at_ += 2;
      while (at_ < end_ && !(at_[0] == '*' && at_[1] == '/')) {
        if (*at_++ == '\n') {
          line_begin_ = at_;
          ++line_;
        }
      }
      if (at_ >= end_) return false;
      at_ += 2;
    } else {
      return true;
    }
  }
}

Token Lexer::next() {
  Token token;
  if (!skip_space(token)) return invalid(token, end_, "comment without an end");
  token.line = line_;
  token.begin = at_;
  token.line_begin = line_begin_;
  const char c = *at_;
  if (is_class(c, kDigit)) return scan_number(token);
  if (is_class(c, kWordChar) || (c == '%' && is_class(at_[1], kWordChar))) return scan_word(token);
  if (c == '.') return scan_dot_word(token);
  if (c == '"') return scan_string(token);
  if (at_ >= end_) return token;
  return scan_punct(token);
}

void Lexer::resume_after(const Token& token, size_t length) {
  at_ = token.begin + length;
  line_begin_ = token.line_begin;
  line_ = token.line;
}

Token Lexer::scan_word(Token token) {
  token.kind = TokenKind::kWord;
  const char* end = word_end(at_ + 1);
  token.text = {at_, static_cast<size_t>(end - at_)};
  return finish(token, end);
}

Token Lexer::scan_dot_word(Token token) {
  const char* end = qualified_end(at_ + 1);
  if (end == at_ + 1) return invalid(token, end, "a '.' without a word");
  token.kind = TokenKind::kDotWord;
  token.text = {at_ + 1, static_cast<size_t>(end - at_ - 1)};
  return finish(token, end);
}

Token Lexer::scan_string(Token token) {
  const char* at = at_ + 1;
  while (at < end_ && *at != '"' && *at != '\n') at += *at == '\\' && at + 1 < end_ && at[1] != '\n' ? 2 : 1;
  if (at >= end_ || *at != '"') return invalid(token, at < end_ ? at : end_, "string without an end");
  token.kind = TokenKind::kString;
  token.text = {at_ + 1, static_cast<size_t>(at - at_ - 1)};
  return finish(token, at + 1);
}

Token Lexer::scan_decimal_float(Token token) {
  double value = 0;
  const auto [end, error] = std::from_chars(at_, end_, value);
  if (error != std::errc()) return invalid(token, end, "floating-point literal out of range");
  token.kind = TokenKind::kFloat;
  token.float_bits = 64;
  token.bits = std::bit_cast<uint64_t>(value);
  if (is_class(*end, kWordChar)) return invalid(token, word_end(end), "malformed number");
  return finish(token, end);
}

Token Lexer::scan_number(Token token) {
  const char* at = at_;
  const char kind = static_cast<char>(at[1] | 0x20);
  const int hex_digits = at[0] != '0' ? 0 : kind == 'f' ? 8 : kind == 'd' ? 16 : 0;
  if (hex_digits != 0) {
    if (!is_hex_float(at + 2, hex_digits)) return invalid(token, word_end(at), "malformed floating-point pattern");
    at += 2;
    read_digits(at, 16, token.bits);
    token.kind = TokenKind::kFloat;
    token.float_bits = hex_digits == 8 ? 32 : 64;
    return finish(token, at);
  }
  const bool prefixed = at[0] == '0' && (kind == 'x' || kind == 'b');
  if (!prefixed) {
    const char* digits_end = at;
    while (is_class(*digits_end, kDigit)) ++digits_end;
    const bool exponent = (*digits_end | 0x20) == 'e' &&
                          (is_class(digits_end[1], kDigit) ||
                           ((digits_end[1] == '+' || digits_end[1] == '-') && is_class(digits_end[2], kDigit)));
    if (exponent || (*digits_end == '.' && !is_class(digits_end[1], kLetter))) {
      return scan_decimal_float(token);
    }
  }
  uint64_t base = at[0] == '0' && is_class(at[1], kDigit) ? 8 : 10;
  if (prefixed) {
    base = kind == 'x' ? 16 : 2;
    at += 2;
  }
  const char* first = at;
  const bool fits = read_digits(at, base, token.bits);
  if (at == first) return invalid(token, word_end(at), "malformed number");
  if (*at == 'U' || *at == 'u') {
    token.is_unsigned = true;
    ++at;
  }
  if (is_class(*at, kWordChar)) return invalid(token, word_end(at), "malformed number");
  if (!fits) return invalid(token, at, "integer literal over 64 bits");
  token.kind = TokenKind::kInteger;
  token.is_unsigned = token.is_unsigned || token.bits > static_cast<uint64_t>(INT64_MAX);
  return finish(token, at);
}

Token Lexer::scan_punct(Token token) {
  constexpr uint16_t kPairs[] = {pair('<', '<'), pair('>', '>'), pair('<', '='), pair('>', '='),
                                 pair('=', '='), pair('!', '='), pair('&', '&'), pair('|', '|')};
  token.kind = TokenKind::kPunct;
  token.punct = static_cast<uint8_t>(*at_);
  if (static_cast<uint8_t>(*at_) < 0x21 || static_cast<uint8_t>(*at_) > 0x7e) {
    return invalid(token, at_ + 1, "unexpected character");
  }
  for (const uint16_t two : kPairs) {
    if (pair(at_[0], at_[1]) != two) continue;
    token.punct = two;
    return finish(token, at_ + 2);
  }
  return finish(token, at_ + 1);
}

std::string_view Lexer::extend_mnemonic(const Token& token) {
  const char* end = token.begin + token.text.size();
  while (end[0] == '.' && is_class(end[1], kWordChar)) end = qualified_end(end + 1);
  at_ = end;
  return {token.begin, static_cast<size_t>(end - token.begin)};
}

bool Lexer::rescan_as_number(Token& token) {
  if (!is_class(token.text[0], kDigit)) return false;
  at_ = token.begin;
  token = scan_decimal_float(token);
  return true;
}

bool Lexer::accept_label_colon() {
  if (!is_class(*at_, kSpaceChar) && *at_ != '\n' && *at_ != ':' && *at_ != '/') return false;  // nearly always
  const char* const at = at_;
  const char* const line_begin = line_begin_;
  const uint32_t line = line_;
  Token bad;
  if (skip_space(bad) && at_[0] == ':' && at_[1] != ':') {
    ++at_;
    return true;
  }
  at_ = at;
  line_begin_ = line_begin;
  line_ = line;
  return false;
}

void Lexer::skip_line() {
  while (at_ < end_ && *at_ != '\n') ++at_;
}

}  // namespace tessera::ptx
