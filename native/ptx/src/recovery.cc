// SPDX-License-Identifier: Apache-2.0
// How the parser goes on after a statement that it could not read.
#include <algorithm>

#include "parser_impl.h"

namespace tessera::ptx {

void Parser::report(const SyntaxError& error) {
  if (state_ != nullptr) state_->failed = true;
  if (result_.errors.size() < kMaxDiagnostics) {
    result_.errors.push_back({error.location, error.message});
  } else {
    ++hidden_diagnostics_;
  }
}

void Parser::mark_broken(std::string_view function) {
  if (!function.empty() && broken_names_.emplace(function).second) result_.broken.emplace_back(function);
}

/// Whether a function begins here, with or without a linkage word. Leaves the tokens as they are.
bool Parser::at_function_start() {
  if (token_.is_dot("entry") || token_.is_dot("func")) return true;
  if (!token_.is_dot("visible") && !token_.is_dot("extern") && !token_.is_dot("weak")) return false;
  const Token linkage = token_;
  advance();
  const bool found = token_.is_dot("entry") || token_.is_dot("func");
  lexer_.resume_after(linkage, linkage.text.size() + 1);
  token_ = linkage;
  return found;
}

/// Whether the '}' at hand, or those that stand together, end vectors of operands: more of the statement follows.
bool Parser::at_end_of_vector() {
  const Token brace = token_;
  for (uint32_t i = 0; i < kMaxNesting && token_.is('}'); ++i) advance();
  const bool found = token_.is(',') || token_.is(']') || token_.is(')') || token_.is('|') || token_.is(';');
  lexer_.resume_after(brace, 1);
  token_ = brace;
  return found;
}

/// Skips to the end of a bad statement of a body. Braces of a bad instruction hold operands and are
/// skipped; those of a bad directive may hold statements, so that a ';' within them ends the search
/// and their '}' is awaited by as many scopes.
void Parser::recover_statement(bool is_directive) {
  uint32_t depth = 0;
  while (token_.kind != TokenKind::kEnd && !at_function_start()) {
    if (token_.is('{')) {
      ++depth;
    } else if (token_.is('}')) {
      if (depth == 0 && (is_directive || !at_end_of_vector())) return;
      if (depth > 0) --depth;
      if (depth == 0 && is_directive) return advance();
    } else if (token_.is(';')) {
      advance();
      break;
    }
    advance();
  }
  if (!is_directive) return;
  for (; depth > 0 && state_->depth() < kMaxScopeDepth; --depth) open_scope();
}

/// Whether the token, at module scope, is of a kind that only bodies hold.
bool Parser::is_stray_statement() const {
  if (token_.kind == TokenKind::kDotWord) return token_.is_dot("reg") || token_.is_dot("param");
  return token_.kind != TokenKind::kInvalid;
}

/// Skips to the next statement of the module. A declaration ends at its ';', whatever its braces
/// look like, a function with the brace that closes it.
void Parser::recover_module(bool in_declaration) {
  uint32_t depth = 0;
  if (in_declaration) {
    while (token_.kind != TokenKind::kEnd && !token_.is(';') && !at_function_start()) advance();
    accept(';');
    return;
  }
  while (token_.kind != TokenKind::kEnd) {
    if (token_.is_dot("entry") || token_.is_dot("func")) return;
    if (token_.is('{')) ++depth;
    if (token_.is(';') && depth == 0) return advance();
    if (token_.is('}') && (depth == 0 || --depth == 0)) return advance();
    if (depth == 0 && (at_function_start() || token_.is_dot("global") || token_.is_dot("const"))) return;
    advance();
  }
}

}  // namespace tessera::ptx
