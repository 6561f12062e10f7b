// SPDX-License-Identifier: Apache-2.0
#include "tessera/ptx/parser.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "parser_impl.h"

namespace tessera::ptx {

Parser::Parser(const char* text, size_t size, ParseResult& result)
    : result_(result), module_(result.module), arena_(std::make_shared<Arena>()), names_(*arena_), lexer_(text, size) {
  module_.arena = arena_;
}

Parser::Nesting::Nesting(Parser& parser) : parser_(parser) {
  if (++parser_.nesting_ > kMaxNesting) {
    --parser_.nesting_;
    fail_at(parser_.token_.location(), "nested too deeply");
  }
}

// Tokens.

std::string Parser::describe_token() const {
  switch (token_.kind) {
    case TokenKind::kEnd:
      return "the end of the text";
    case TokenKind::kDotWord:
      return quoted(std::string_view(token_.begin, token_.text.size() + 1));
    case TokenKind::kWord:
      return quoted(token_.text);
    case TokenKind::kPunct:
      return quoted(std::string_view(token_.begin, 1));
    case TokenKind::kString:
      return "a string";
    default:
      return "a number";
  }
}

void Parser::fail(const std::string& expected) const {
  if (token_.kind == TokenKind::kInvalid) fail_at(token_.location(), std::string(token_.text));
  fail_at(token_.location(), "expected " + expected + ", found " + describe_token());
}

void Parser::fail_at(SourceLocation location, std::string message) { throw SyntaxError{location, std::move(message)}; }

bool Parser::accept(char c) {
  if (!token_.is(c)) return false;
  advance();
  return true;
}

void Parser::expect(char c) {
  if (!accept(c)) fail(quoted(std::string_view(&c, 1)));
}

bool Parser::accept_dot(std::string_view word) {
  if (!token_.is_dot(word)) return false;
  advance();
  return true;
}

std::string_view Parser::expect_word(std::string_view what) {
  if (token_.kind != TokenKind::kWord) fail(std::string(what));
  const std::string_view text = token_.text;
  advance();
  return text;
}

std::string_view Parser::expect_string() {
  if (token_.kind != TokenKind::kString) fail("a string");
  const std::string_view text = token_.text;
  advance();
  return text;
}

uint64_t Parser::expect_integer() {
  if (token_.kind != TokenKind::kInteger) fail("an integer");
  const uint64_t value = token_.bits;
  advance();
  return value;
}

// Module scope.

void Parser::parse_module() {
  advance();
  if (!token_.is_dot("version"))
    report({token_.location(), "a PTX module begins with .version, found " + describe_token()});
  while (token_.kind != TokenKind::kEnd) {
    const char* const before = token_.begin;
    try {
      parse_module_statement();
    } catch (const SyntaxError& error) {
      state_.reset();
      report(error);
      // What stands where only directives may is the rest of a body that a stray '}' has cut off.
      if (token_.begin == before && is_stray_statement()) mark_broken(last_function_);
      if (token_.begin == before) advance();
      recover_module(std::exchange(in_declaration_, false));
    }
  }
  check_forward_references();
  std::stable_sort(result_.errors.begin(), result_.errors.end(), [](const Diagnostic& a, const Diagnostic& b) {
    return std::pair(a.location.line, a.location.column) < std::pair(b.location.line, b.location.column);
  });
  if (hidden_diagnostics_ > 0) {
    result_.errors.push_back({token_.location(), std::to_string(hidden_diagnostics_) + " more errors are not shown"});
  }
}

void Parser::parse_module_statement() {
  if (accept(';')) return;
  if (token_.is('@')) {
    lexer_.skip_line();  // "@@DWARF ..."
    return advance();
  }
  if (token_.kind != TokenKind::kDotWord) fail("a directive");
  if (parse_debug_directive()) return;
  if (accept_dot("version")) return parse_version();
  if (accept_dot("target")) return parse_target();
  if (accept_dot("address_size")) {
    module_.address_size = static_cast<uint32_t>(expect_integer());
    return;
  }
  if (accept_dot("alias")) return parse_alias();
  if (accept_dot("pragma")) {
    do expect_string();
    while (accept(','));
    return expect(';');
  }
  parse_linkage_statement();
}

void Parser::parse_version() {
  // "8.7" is one token, a decimal number; only its text tells 8.1 from 8.10.
  if (token_.kind != TokenKind::kFloat && token_.kind != TokenKind::kInteger) fail("a version such as 8.7");
  const char* at = token_.begin;
  const auto read = [&at] {
    uint32_t value = 0;
    for (; *at >= '0' && *at <= '9'; ++at)
      value = value < 10000 ? value * 10 + static_cast<uint32_t>(*at - '0') : value;
    return value;
  };
  module_.version_major = read();
  if (*at == '.') {
    ++at;
    module_.version_minor = read();
  }
  advance();
}

void Parser::parse_target() {
  module_.target = expect_word("a target such as sm_90");
  while (accept(',')) module_.target_options.emplace_back(expect_word("a target option"));
}

void Parser::parse_alias() {
  std::string text(expect_word("the name of the alias"));
  expect(',');
  Name* const alias = names_.intern(text);
  text += " = ";
  text += expect_word("the function that the alias stands for");
  expect(';');
  define_at_module_scope(alias, false, {});
  module_.aliases.push_back(std::move(text));
}

void Parser::parse_linkage_statement() {
  Linkage linkage = Linkage::kNone;
  while (true) {
    if (accept_dot("extern")) {
      linkage = Linkage::kExtern;
    } else if (accept_dot("visible")) {
      linkage = Linkage::kVisible;
    } else if (accept_dot("weak")) {
      linkage = Linkage::kWeak;
    } else if (accept_dot("common")) {
      linkage = Linkage::kCommon;
    } else {
      break;
    }
  }
  if (token_.is_dot("entry") || token_.is_dot("func")) return parse_function(linkage);
  parse_module_variable(linkage);
}

void Parser::parse_module_variable(Linkage linkage) {
  if (!at_variable_declaration()) {
    fail_at(token_.location(), token_.kind == TokenKind::kDotWord ? "unknown directive " + describe_token()
                                                                  : "expected a directive, found " + describe_token());
  }
  in_declaration_ = true;
  Variable prefix = parse_variable_prefix();
  prefix.linkage = linkage;
  parse_declarators(prefix, [this](Variable variable) {
    Name* const name = names_.intern(variable.name);
    define_at_module_scope(name, variable.linkage != Linkage::kExtern, variable.location);
    name->module_variable = static_cast<uint32_t>(module_.variables.size());
    module_.variables.push_back(std::move(variable));
  });
  in_declaration_ = false;
}

void Parser::define_at_module_scope(Name* name, bool is_definition, SourceLocation location) {
  if (is_definition && name->is_defined) report({location, quoted(name->text) + " is defined twice"});
  name->is_defined |= is_definition;
  if (name->binding.kind == BindingKind::kNone) name->binding.kind = BindingKind::kModuleSymbol;
}

// Debug information: skipped, at module and at function scope.

bool Parser::parse_debug_directive() {
  if (accept_dot("file")) {
    parse_file_directive();
  } else if (accept_dot("loc")) {
    parse_loc_directive();
  } else if (accept_dot("section")) {
    skip_section();
  } else {
    return false;
  }
  return true;
}

void Parser::parse_file_directive() {
  expect_integer();
  expect_string();
  if (token_.kind == TokenKind::kString) advance();
  while (accept(',')) expect_integer();
}

void Parser::parse_loc_directive() {
  const uint32_t line = token_.line;
  for (int i = 0; i < 3; ++i) expect_integer();
  while (accept(',')) {
    if (token_.kind != TokenKind::kWord) fail("function_name or inlined_at");
    const bool has_name = token_.text == "function_name";
    advance();
    if (has_name) {
      expect_word("a label");
      if (accept('+')) expect_integer();
      continue;
    }
    for (int i = 0; i < 3; ++i) expect_integer();
  }
  // "prologue_end", "is_stmt 0", "discriminator 1": words of the same line.
  const auto is_flag = [this] {
    return token_.kind == TokenKind::kWord &&
           (token_.text == "prologue_end" || token_.text == "epilogue_begin" || token_.text == "is_stmt" ||
            token_.text == "discriminator" || token_.text == "isa" || token_.text == "basic_block");
  };
  while (token_.line == line && is_flag()) {
    advance();
    if (token_.line == line && token_.kind == TokenKind::kInteger) advance();
  }
}

void Parser::skip_section() {
  // ".debug_abbrev" comes as one dotted word, ".debug.info" as several.
  while (token_.kind == TokenKind::kDotWord || token_.kind == TokenKind::kWord || token_.kind == TokenKind::kString) {
    advance();
  }
  expect('{');
  uint32_t depth = 1;
  while (depth > 0) {
    if (token_.kind == TokenKind::kEnd || token_.kind == TokenKind::kInvalid) fail("'}'");
    if (token_.is('{')) ++depth;
    if (token_.is('}')) --depth;
    advance();
  }
}

void Parser::check_forward_references() {
  for (const ForwardReference& reference : forward_) {
    if (reference.name->binding.kind != BindingKind::kNone) continue;
    report({reference.location, "undeclared name " + quoted(reference.name->text)});
    mark_broken(reference.function);
  }
}

ParseResult parse(std::string_view text) {
  ParseResult result;
  const size_t nul = text.find('\0');
  const std::string copy(text.substr(0, nul));  // the lexer needs a NUL at the end
  if (copy.size() > UINT32_MAX) {
    result.errors.push_back({{1, 1}, "PTX text over 4 GiB"});
    return result;
  }
  Parser(copy.c_str(), copy.size(), result).parse_module();
  return result;
}

}  // namespace tessera::ptx
