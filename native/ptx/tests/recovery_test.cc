// SPDX-License-Identifier: Apache-2.0
// Bad input: an error with its place, and no harm to the rest of the module.
#include <algorithm>

#include "../../testing/check.h"
#include "tessera/ptx/parser.h"

using namespace tessera::ptx;

namespace {

const std::string kHead = ".version 8.0\n.target sm_80\n.address_size 64\n";

bool is_broken(const ParseResult& result, const std::string& name) {
  return std::find(result.broken.begin(), result.broken.end(), name) != result.broken.end();
}

/// Parses something bad between two good kernels and checks that those are untouched. Stray statements
/// may be the rest of the first one, which then is in doubt.
ParseResult between(const std::string& bad, bool is_stray = false) {
  const std::string good = "() { .reg .b32 %r<3>; add.u32 %r1, %r2, 7; ret; }\n";
  ParseResult result = parse(kHead + ".visible .entry before" + good + bad + "\n.visible .entry after" + good);
  CHECK(!result.ok());
  for (const char* const name : {"before", "after"}) {
    const Function* const function = result.module.find_function(name);
    const bool in_doubt = is_stray && name == std::string("before");
    if (!CHECK(function != nullptr && function->instructions.size() == 2 && is_broken(result, name) == in_doubt)) {
      std::fprintf(stderr, "%s was hurt by: %s\n", name, bad.c_str());
    }
  }
  return result;
}

}  // namespace

TEST_CASE(neighbours_survive_every_bad_kernel) {
  const char* const bodies[] = {
      "add.u32 %r1, %r9;",
      "mov.b64 {%r1, ;",
      "mov.b64 {%r1;",
      "ld.global [%r1;",
      "ld.global [;",
      "foo (1;",
      "foo ) ;",
      "foo , ;",
      "@ foo;",
      "@p;",
      "@!;",
      "{ foo bar",
      "{ { {",
      "X: X:",
      ".reg .b32;",
      ".reg .wrong a;",
      ".reg .b32 a<;",
      ".shared .b32 a[;",
      ".shared .b32 a[-;",
      ".wrong { a; b; c }",
      ".wrong { a { b; } c; }",
      ".loc 1;",
      ".pragma 7;",
      "T: .branchtargets ;",
      "P: .callprototype _ (",
      "foo \"text\";",
      "foo 1.2.3;",
      "` ' \\ ^ ~",
      "\x01\x02\xff",
      "bra NOWHERE;",
      ".version 9.0",
      ".local .b32 a = {1, 2};",
      "foo 0x;",
      ".section .x { } }",
      "foo [a+b];",
      ".reg .b32 q<99999999999999999999>;",
  };
  for (const char* const body : bodies) {
    const ParseResult result = between(std::string(".entry bad() { ") + body + " ret; }");
    if (!CHECK(is_broken(result, "bad"))) std::fprintf(stderr, "not broken by: %s\n", body);
  }
}

TEST_CASE(neighbours_survive_bad_declarations) {
  const char* const declarations[] = {".entry bad",
                                      ".entry bad(",
                                      ".entry bad(.param",
                                      ".entry bad(.param .u32 a,) { ret; }",
                                      ".entry bad() .maxntid { ret; }",
                                      ".entry { ret; }",
                                      ".func (.param .b32 r bad() { ret; }",
                                      ".global .u32 a =;",
                                      ".global .u32 a[2] = {1, 2, 3};",
                                      ".global .u32 a = {{{{1}}}};",
                                      ".global .wrong a;",
                                      ".global .align 3 .b32 a;",
                                      ".wrong;",
                                      ".alias a;",
                                      ".file;",
                                      ".global .u32 a[2] = {1, 2",
                                      ".entry bad() { ret;",
                                      ".global .b8 a = 0xFF(;",
                                      ".extern;"};
  for (const char* const declaration : declarations) {
    between(declaration);
  }
  for (const char* const stray :
       {"stray words;", "} } }", "\"text\"", "{ a; b; }", "7", "st.global [%r1], %r2; ret; }", ".reg .b32 x;"}) {
    between(stray, true);
  }
}

TEST_CASE(what_has_no_end_is_reported_where_it_begins) {
  const ParseResult comment = parse(kHead + ".entry k() { ret; }\n  /* x");
  REQUIRE(comment.errors.size() == 1);
  CHECK_EQ(comment.errors[0].location.line, 5u);
  CHECK_EQ(comment.errors[0].location.column, 3u);
  CHECK(comment.broken.empty());
  const ParseResult body = parse(kHead + ".entry k() { ret;");
  REQUIRE(body.errors.size() == 1);
  CHECK(body.errors[0].message.find("no closing '}'") != std::string::npos);
  CHECK(is_broken(body, "k"));
}

TEST_CASE(one_unknown_instruction_is_no_error) {
  const ParseResult result = parse(kHead + ".entry k() { .reg .b64 %rd<3>; quux.new.u32 [%rd1], {1, 2}, %rd2; ret; }");
  CHECK(result.ok());
  CHECK_EQ(result.module.functions[0].instructions[0].opcode, "quux");
}

TEST_CASE(a_bad_operand_costs_one_statement) {
  for (const char* const bad :
       {"foo {%r1, %r99}, [%r1];", "foo {%r1, ?}, [%r1, {%r1, $}], %r1;", "foo {%r1, {1 2}}|%r1;"}) {
    const ParseResult result =
        between(std::string(".entry bad() { .reg .b32 %r<3>; mov.u32 %r1, 1; ") + bad + " mov.u32 %r1, 2; }");
    const Function* const function = result.module.find_function("bad");
    REQUIRE(function != nullptr && !function->instructions.empty());
    CHECK_EQ(function->instructions.back().operands[1].bits, 2u);
  }
}

TEST_CASE(errors_have_a_place_and_a_message) {
  const ParseResult result = parse(kHead + ".entry k() {\n  .reg .b32 %r<2>;\n  add.u32 %r1, %r7, 1;\n}");
  REQUIRE(result.errors.size() == 1);
  CHECK_EQ(result.errors[0].location.line, 6u);
  CHECK_EQ(result.errors[0].location.column, 16u);
  CHECK_EQ(result.errors[0].message, "undeclared register '%r7'");
}

TEST_CASE(a_missing_symbol_breaks_only_its_users) {
  const ParseResult result = parse(kHead +
                                   ".entry a() { .reg .b32 %r<2>; ld.global.u32 %r1, [missing]; ret; }\n"
                                   ".entry b() { .reg .b32 %r<2>; ld.global.u32 %r1, [later]; call f; ret; }\n"
                                   ".global .u32 later;\n.func f() { ret; }\n");
  CHECK_EQ(result.errors.size(), 1u);
  CHECK(is_broken(result, "a"));
  CHECK(!is_broken(result, "b"));
}

TEST_CASE(text_that_is_no_ptx_is_one_error_or_few) {
  for (const char* const text : {"", "hello world",
                                 "\x7f"
                                 "ELF",
                                 "int main() { return 0; }", "\n\n\n"}) {
    const ParseResult result = parse(text);
    CHECK(!result.ok() && result.errors.size() <= 5);
    CHECK(result.module.functions.empty());
  }
}

TEST_CASE(many_errors_are_counted_not_kept) {
  std::string text = kHead + ".entry k() {";
  for (int i = 0; i < 5000; ++i) text += "foo bar;\n";
  const ParseResult result = parse(text + "}");
  CHECK(result.errors.size() <= 201);
  CHECK(result.errors.back().message.find("more errors are not shown") != std::string::npos);
  CHECK_EQ(result.broken.size(), 1u);
  CHECK(is_broken(result, "k"));
}

TEST_CASE(every_prefix_of_a_module_ends) {
  const std::string text =
      kHead +
      ".global .b8 t[4] = {1, 2, 0xFF(x)};\n.entry k(.param .u64 p) .maxntid 3 {\n.reg .b32 %r<3>; "
      "{ .reg .b32 t; L: @%p1 bra L; mov.b64 {%r1, _}, [p+4]; } call (a), f, (b), c;\n}\n";
  for (size_t size = 0; size <= text.size(); ++size) {
    const ParseResult result = parse(std::string_view(text).substr(0, size));
    CHECK(result.module.functions.size() <= 1);
  }
}

TEST_MAIN()
