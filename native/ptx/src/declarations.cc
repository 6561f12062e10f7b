// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "parser_impl.h"

namespace tessera::ptx {

namespace {

Space space_of(std::string_view word) {
  if (word == "global") return Space::kGlobal;
  if (word == "const") return Space::kConst;
  if (word == "shared" || word == "shared::cta") return Space::kShared;
  if (word == "local") return Space::kLocal;
  if (word == "param" || word == "param::entry" || word == "param::func") return Space::kParam;
  if (word == "tex") return Space::kTexture;
  return Space::kNone;
}

uint8_t vector_of(std::string_view word) {
  if (word == "v2") return 2;
  if (word == "v4") return 4;
  return word == "v8" ? uint8_t{8} : uint8_t{0};
}

}  // namespace

bool Parser::at_variable_declaration() const {
  return token_.kind == TokenKind::kDotWord && space_of(token_.text) != Space::kNone;
}

Variable Parser::parse_variable_prefix() {
  Variable variable;
  if (!at_variable_declaration()) fail("a state space such as .param or .global");
  variable.space = space_of(token_.text);
  advance();
  while (token_.kind == TokenKind::kDotWord) parse_variable_word(variable);
  if (variable.type == Type::kNone) fail("a type");
  return variable;
}

/// One of the dotted words between a declaration's space and its name.
void Parser::parse_variable_word(Variable& variable) {
  if (accept_dot("attribute")) return parse_attributes(variable);
  if (accept_dot("ptr")) {
    variable.is_pointer = true;
    return;
  }
  if (accept_dot("align")) {
    const SourceLocation location = token_.location();
    const uint64_t alignment = parse_integer_expression();
    if (alignment == 0 || (alignment & (alignment - 1)) != 0 || alignment > (1u << 30)) {
      fail_at(location, "an alignment must be a power of two");
    }
    (variable.is_pointer ? variable.pointer_alignment : variable.alignment) = static_cast<uint32_t>(alignment);
    return;
  }
  const Space space = space_of(token_.text);
  if (variable.is_pointer && space != Space::kNone) {
    variable.pointer_space = space;
    return advance();
  }
  if (const uint8_t vector = vector_of(token_.text); vector != 0) {
    variable.vector = vector;
    return advance();
  }
  const Type type = parse_type(token_.text);
  if (type == Type::kNone || (type == Type::kOther && variable.space != Space::kRegister)) {
    fail("a type, an alignment or an attribute");
  }
  variable.type = type;
  advance();
}

/// "(.managed, .unified(1, 2))": each attribute as text.
void Parser::parse_attributes(Variable& variable) {
  expect('(');
  do {
    if (token_.kind != TokenKind::kDotWord) fail("an attribute");
    std::string text = dotted(token_);
    advance();
    if (accept('(')) {
      text.append("(").append(std::to_string(expect_integer()));
      while (accept(',')) text.append(", ").append(std::to_string(expect_integer()));
      expect(')');
      text.append(")");
    }
    variable.attributes.push_back(std::move(text));
  } while (accept(','));
  expect(')');
}

/// Name, dimensions and initializer. Returns the count of "name<count>", 0 for a single variable.
uint64_t Parser::parse_declarator(Variable& variable, bool may_repeat) {
  variable.location = token_.location();
  variable.name = expect_word("a name");
  uint64_t count = 0;
  if (may_repeat && accept('<')) {
    count = expect_integer();
    expect('>');
    if (count == 0 || count > kMaxRepeatedVariables) fail_at(variable.location, "no variables or too many");
  }
  while (token_.is('[')) {
    advance();
    if (accept(']')) {
      if (!variable.dimensions.empty()) fail("only the first dimension to be left open");
      variable.dimensions.push_back(0);
      continue;
    }
    variable.dimensions.push_back(parse_integer_expression());
    expect(']');
    if (variable.dimensions.size() > kMaxNesting) fail("fewer dimensions");
  }
  if (variable.alignment == 0) variable.alignment = std::max<uint32_t>(1, type_size(variable.type) * variable.vector);
  if (count == 0 && token_.is('=')) parse_initializer(variable);
  return count;
}

void Parser::parse_body_variable(Linkage linkage) {
  Variable prefix = parse_variable_prefix();
  prefix.linkage = linkage;
  parse_declarators(prefix, [this](Variable variable) { declare_variable(std::move(variable)); });
}

void Parser::parse_register_declaration() {
  Variable prefix;
  prefix.space = Space::kRegister;
  while (token_.kind == TokenKind::kDotWord) parse_variable_word(prefix);
  if (prefix.type == Type::kNone) fail("the type of a register");
  do parse_register_declarator(prefix.type, prefix.vector);
  while (accept(','));
  expect(';');
}

void Parser::parse_register_declarator(Type type, uint8_t vector) {
  const SourceLocation location = token_.location();
  Name* const name = names_.intern(expect_word("the name of a register"));
  const uint32_t depth = state_->depth();
  if (!accept('<')) {
    check_redeclaration(name, location);
    add_register(name, depth, type, vector);
    return;
  }
  const uint64_t count = expect_integer();
  expect('>');
  if (name->family != kNoFamily && state_->families[name->family].depth == depth) {
    fail_at(location, "registers " + quoted(name->text) + " are declared twice");
  }
  state_->scopes.back().undo.push_back({name, name->binding, name->family});
  state_->families.push_back({depth, count, type, vector, name->family});
  name->family = static_cast<uint32_t>(state_->families.size() - 1);
  if (depth > kBodyDepth) ++state_->nested_families;
}

}  // namespace tessera::ptx
