// SPDX-License-Identifier: Apache-2.0
// The recursive-descent parser. One class, its methods spread over files by
// concern: parser (module), functions, statements, operands, declarations,
// initializers, expressions, scopes, recovery.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "function_state.h"
#include "lexer.h"
#include "names.h"
#include "tessera/ptx/parser.h"

namespace tessera::ptx {

constexpr uint32_t kMaxScopeDepth = 64;
constexpr uint32_t kMaxNesting = 64;  // operands, expressions, initializer braces
constexpr size_t kMaxDiagnostics = 200;
constexpr uint64_t kMaxPadding = 1u << 20;  // initializer elements that no text stands for
constexpr uint64_t kMaxRepeatedVariables = 1u << 16;
constexpr uint32_t kBodyDepth = 2;
constexpr int kOffsetPrecedence = 10;  // binds tighter than '+': "[%r1+4-8]" are two offsets

/// Ends the statement that it is thrown in; never leaves `parse`.
struct SyntaxError {
  SourceLocation location;
  std::string message;
};

/// "'name'", cut where a name is too long for a message.
inline std::string quoted(std::string_view name) {
  std::string out;
  out.reserve(96);
  out += '\'';
  out += name.substr(0, 80);
  out += '\'';
  return out;
}

/// The text of a dotted word, dot included.
inline std::string dotted(const Token& token) { return {token.begin, token.text.size() + 1}; }

/// The value of a constant expression: PTX computes with .s64, .u64 or .f64.
struct Constant {
  enum class Kind : uint8_t { kSigned, kUnsigned, kFloat32, kFloat64 } kind = Kind::kSigned;
  uint64_t bits = 0;

  bool is_float() const { return kind == Kind::kFloat32 || kind == Kind::kFloat64; }
};

class Parser {
 public:
  Parser(const char* text, size_t size, ParseResult& result);
  void parse_module();

 private:
  // Tokens.
  void advance() { token_ = lexer_.next(); }
  bool accept(char c);
  void expect(char c);
  bool accept_dot(std::string_view word);
  std::string_view expect_word(std::string_view what);
  std::string_view expect_string();
  uint64_t expect_integer();
  [[noreturn]] void fail(const std::string& expected) const;
  [[noreturn]] static void fail_at(SourceLocation location, std::string message);
  std::string describe_token() const;

  // Module scope: parser.cpp.
  void parse_module_statement();
  void parse_version();
  void parse_target();
  void parse_linkage_statement();
  void parse_module_variable(Linkage linkage);
  void define_at_module_scope(Name* name, bool is_definition, SourceLocation location);
  void parse_alias();
  bool parse_debug_directive();
  void parse_file_directive();
  void parse_loc_directive();
  void skip_section();
  void check_forward_references();

  // Functions: functions.cpp.
  void parse_function(Linkage linkage);
  void parse_function_header(bool has_results);
  void parse_parameter_list(std::vector<Variable>& out);
  Variable parse_parameter();
  void parse_function_directives(Function& function);
  bool parse_limit_directive(Directives& directives);
  void parse_dimensions(uint32_t (&out)[3]);
  void parse_body();
  void finish_function(bool declared_only);
  void bind_parameters();
  void resolve_pending();
  void resolve_targets();
  const LabelRecord* find_label(const Name* name, uint32_t scope) const;

  // Statements of a body: statements.cpp.
  void parse_statement();
  void parse_body_directive();
  void parse_labelled(std::string_view label, SourceLocation location);
  void declare_label(std::string_view text, SourceLocation location, bool is_list);
  void parse_targets(std::string_view list_name, SourceLocation location);
  void parse_prototype(std::string_view name, SourceLocation location);
  void parse_instruction();
  void parse_instruction_after_guard(Instruction instruction);
  const Mnemonic* parse_mnemonic();
  const Mnemonic* build_mnemonic(Name* name, SourceLocation location);

  // Operands: operands.cpp.
  Operand parse_operand();
  Operand parse_operand_value();
  Operand parse_name_operand();
  Operand parse_sign_operand();
  Operand parse_constant_operand();
  Operand parse_parenthesised();
  Operand parse_address();
  Operand parse_list(Operand::Kind kind, char close);
  Operand operand_of(Name* name, SourceLocation location);
  void parse_operand_suffix(Operand& operand);
  void parse_symbol_offset(Operand& operand);
  void parse_index(const Name* name, Operand& operand);
  int64_t parse_offset();
  Slice<Operand> seal(size_t base);

  // Declarations: declarations.cpp, initializers.cpp.
  bool at_variable_declaration() const;
  Variable parse_variable_prefix();
  void parse_variable_word(Variable& variable);
  void parse_attributes(Variable& variable);
  uint64_t parse_declarator(Variable& variable, bool may_repeat = false);
  template <class Declare>
  void parse_declarators(const Variable& prefix, Declare declare);
  void parse_body_variable(Linkage linkage);
  void parse_register_declaration();
  void parse_register_declarator(Type type, uint8_t vector);
  void parse_initializer(Variable& variable);
  void parse_initializer_list(Variable& variable, size_t level, uint64_t& padding);
  Initializer parse_initializer_element(Type type);
  Initializer parse_symbol_initializer();
  Initializer parse_masked_initializer(uint64_t mask);
  void skip_opaque_initializer();

  // Constant expressions: expressions.cpp.
  Constant parse_expression();
  Constant parse_ternary();
  Constant parse_binary(int minimum);
  Constant parse_unary();
  Constant parse_primary();
  int binary_precedence() const;
  uint64_t parse_integer_expression();

  // Names and scopes: scopes.cpp.
  void open_scope();
  void close_scope();
  void bind(Name* name, uint32_t depth, const Binding& binding);
  const Binding& resolve(Name* name);
  const Variable* variable_of(const Name* name) const;
  const Family* find_family(const Name* name) const;
  RegisterId add_register(Name* name, uint32_t depth, Type type, uint8_t vector);
  void declare_variable(Variable variable);
  std::string_view unique_name(Name* name, uint32_t depth);
  std::string_view scoped_name(const Name* name, uint32_t scope_id);
  void check_redeclaration(const Name* name, SourceLocation location) const;

  // Errors: recovery.cpp.
  void report(const SyntaxError& error);
  void mark_broken(std::string_view function);
  void recover_statement(bool is_directive);
  void recover_module(bool in_declaration);
  bool is_stray_statement() const;
  bool at_function_start();
  bool at_end_of_vector();
  bool at_warp_size() const { return token_.kind == TokenKind::kWord && token_.text == "WARP_SZ"; }

  struct ForwardReference {
    std::string function;
    Name* name;
    SourceLocation location;
  };

  /// Counts a level of recursion for as long as it lives.
  class Nesting {
   public:
    explicit Nesting(Parser& parser);
    ~Nesting() { --parser_.nesting_; }

   private:
    Parser& parser_;
  };

  ParseResult& result_;
  Module& module_;
  std::shared_ptr<Arena> arena_;
  NameTable names_;
  Lexer lexer_;
  Token token_;
  std::unique_ptr<FunctionState> state_;  // null at module scope
  uint32_t function_count_ = 0;
  uint32_t nesting_ = 0;
  size_t hidden_diagnostics_ = 0;
  const Mnemonic* mnemonic_ = nullptr;  // of the instruction at hand
  std::vector<Operand> scratch_;
  std::vector<ForwardReference> forward_;
  std::unordered_set<std::string> broken_names_;
  bool in_declaration_ = false;  // of a variable of the module
  std::string last_function_;    // the one that ended last
  std::string mnemonic_buffer_;
};

/// The declarators after `prefix`, each given to `declare` with its own name; ends behind the ';'.
template <class Declare>
void Parser::parse_declarators(const Variable& prefix, Declare declare) {
  do {
    Variable variable = prefix;
    const uint64_t count = parse_declarator(variable, true);
    if (count == 0) {
      declare(std::move(variable));
      continue;
    }
    for (uint64_t i = 0; i < count; ++i) {  // "name<3>": name0, name1, name2
      Variable one = variable;
      one.name += std::to_string(i);
      declare(std::move(one));
    }
  } while (accept(','));
  expect(';');
}

}  // namespace tessera::ptx
