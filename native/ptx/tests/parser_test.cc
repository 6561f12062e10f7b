// SPDX-License-Identifier: Apache-2.0
// What the IR says about well-formed PTX, beyond what the golden files show.
#include "tessera/ptx/parser.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "../../testing/check.h"
#include "dump.h"

using namespace tessera::ptx;

namespace {

const std::string kHead = ".version 8.7\n.target sm_90a\n.address_size 64\n";

ParseResult parse_ok(const std::string& text) {
  ParseResult result = parse(kHead + text);
  for (const Diagnostic& error : result.errors) {
    std::fprintf(stderr, "%u:%u: %s\n", error.location.line, error.location.column, error.message.c_str());
  }
  REQUIRE(result.ok());
  return result;
}

ParseResult parse_body(const std::string& body) {
  return parse_ok(".entry k(.param .u64 p) { .reg .pred %p<5>; .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .f32 %f<9>; " +
                  body + " }");
}

std::string operands_of(const std::string& instruction) {
  const ParseResult result = parse_body(instruction);
  const Function& function = result.module.functions[0];
  std::string out;
  for (const Operand& operand : function.instructions[0].operands) {
    out.append(out.empty() ? "" : " ; ").append(dump_operand(function, operand));
  }
  return out;
}

}  // namespace

TEST_CASE(module_header) {
  const ParseResult result = parse(".version 8.10\n.target sm_100f, debug , texmode_unified\n.address_size 64\n");
  CHECK(result.ok());
  CHECK_EQ(result.module.version_major, 8u);
  CHECK_EQ(result.module.version_minor, 10u);
  CHECK_EQ(result.module.target, "sm_100f");
  CHECK_EQ(target_architecture(result.module.target), 100u);
  CHECK_EQ(target_architecture("sm_"), 0u);
  CHECK_EQ(target_architecture("compute_90"), 0u);
  REQUIRE(result.module.target_options.size() == 2);
  CHECK_EQ(result.module.target_options[1], "texmode_unified");
}

TEST_CASE(text_ends_at_a_nul) {
  const std::string text = kHead + ".entry k() { ret; }";
  CHECK(parse(std::string_view(text.c_str(), text.size() + 1)).ok());
  CHECK(parse(text + std::string(5, '\0') + "garbage").ok());
  CHECK(parse(std::string_view(text)).module.functions.size() == 1);
}

TEST_CASE(carriage_returns_are_space) {
  const ParseResult result =
      parse(".version 8.0\r\n.target sm_80\r\n.address_size 64\r\n.entry k()\r\n{\r\n\tret;\r\n}\r\n");
  CHECK(result.ok());
  CHECK_EQ(result.module.functions[0].instructions[0].location.line, 6u);
}

TEST_CASE(the_ir_outlives_the_text_and_moves) {
  ParseResult result;
  {
    std::string text = kHead + ".global .b32 g; .entry k() { .reg .b64 %rd<2>; mov.u64 %rd1, g; ret; }";
    result = parse(text);
    std::fill(text.begin(), text.end(), 'x');
  }
  const Module copy = result.module;
  const Module moved = std::move(result.module);
  result = {};
  for (const Module* const module : {&copy, &moved}) {
    CHECK_EQ(module->functions[0].instructions[0].full, "mov.u64");
    CHECK_EQ(module->functions[0].instructions[0].operands[1].text, "g");
    CHECK_EQ(module->functions[0].registers[0].name, "%rd1");
  }
}

TEST_CASE(equal_names_are_the_same_bytes) {
  const ParseResult result = parse_body("mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r1, %r2;");
  const auto& instructions = result.module.functions[0].instructions;
  CHECK(instructions[0].full.data() == instructions[2].full.data());
  CHECK(instructions[0].operands[1].text.data() == instructions[1].operands[1].text.data());
  CHECK_EQ(instructions[0].full.data()[instructions[0].full.size()], '\0');
}

TEST_CASE(registers_come_to_be_at_first_use) {
  const ParseResult result = parse_body(".reg .b32 %many<4000000000>; mov.u32 %many7, %r3; mov.u32 %many7, 1;");
  const Function& function = result.module.functions[0];
  REQUIRE(function.registers.size() == 2);
  CHECK_EQ(function.registers[0].name, "%many7");
  CHECK(function.registers[1].type == Type::kB32);
  CHECK(!parse(kHead + ".entry k() { .reg .b32 %r<3>; mov.u32 %r3, 1; }").ok());
  CHECK(!parse(kHead + ".entry k() { .reg .b32 %r<3>; mov.u32 %r, 1; }").ok());
  CHECK(!parse(kHead + ".entry k() { .reg .b32 %r<3>; .reg .b32 %r1; }").ok());
}

TEST_CASE(a_prefix_may_end_in_digits) {
  const ParseResult result = parse_body(".reg .b64 a1<3>; .reg .b32 a<20>; mov.u64 a12, 1; mov.u32 a9, 1;");
  const Function& function = result.module.functions[0];
  CHECK(function.registers[1].type == Type::kB32);
}

TEST_CASE(addresses) {
  CHECK_EQ(operands_of("ld.global.b32 { %r1 }, [ %rd1 + 0 ];"), "{%r1} ; [%rd1]");
  CHECK_EQ(operands_of("ld.u32 %r1, [%rd1+-8];"), "%r1 ; [%rd1-8]");
  CHECK_EQ(operands_of("ld.u32 %r1, [%rd1 - 8];"), "%r1 ; [%rd1-8]");
  CHECK_EQ(operands_of("ld.u32 %r1, [p+4];"), "%r1 ; [p+4]");
  CHECK_EQ(operands_of("ld.u32 %r1, [0x40];"), "%r1 ; [64]");
  CHECK_EQ(operands_of("tex.2d [%rd1, {%f1, %f2}];"), "[%rd1, {%f1, %f2}]");
  CHECK_EQ(operands_of("foo [%rd1, %rd2, {%f1}], 1;"), "[%rd1, %rd2, {%f1}] ; 1");
  CHECK_EQ(operands_of("ld.u32 %r1, [%rd1].unified;"), "%r1 ; [%rd1].unified");
}

TEST_CASE(elements_of_arrays) {
  const std::string arrays = ".shared .b32 s[4]; .shared .v2 .b32 v[3][4]; { .shared .b8 s[9]; ";
  CHECK_EQ(operands_of(arrays + "mov.u32 %r1, s[2]; }"), "%r1 ; s#2+2");
  CHECK_EQ(operands_of(arrays + "} mov.u32 %r1, s[3];"), "%r1 ; s+12");
  CHECK_EQ(operands_of(arrays + "ld.shared.u32 %r1, v[2][1]; }"), "%r1 ; [v+72]");
  CHECK(!parse(kHead + ".entry k() { .reg .b32 r; mov.u32 r, r[1]; }").ok());
  CHECK(!parse(kHead + ".entry k() { .reg .b32 r; mov.u32 r, later[1]; } .global .b32 later[2];").ok());
  const ParseResult result = parse_ok(
      ".global .b64 g[2]; .func (.param .b32 o[2]) f(.param .b32 i[3]) { .reg .b64 r; mov.u64 r, g[1]; mov.u64 r, "
      "o[1]; mov.u64 r, i[2]; }");
  std::vector<int64_t> offsets;
  for (const Instruction& instruction : result.module.functions[0].instructions)
    offsets.push_back(instruction.operands[1].offset);
  CHECK(offsets == (std::vector<int64_t>{8, 4, 8}));
}

TEST_CASE(operand_forms) {
  CHECK_EQ(operands_of("setp.eq %p1|%p2, !%p3, -1;"), "%p1|%p2 ; -%p3 ; -1");
  CHECK_EQ(operands_of("setp.eq _|%p2, %r1;"), "_|%p2 ; %r1");
  CHECK_EQ(operands_of("shfl %r1|_, _;"), "%r1|_ ; _");
  CHECK_EQ(operands_of("mov.b64 {%r1, _}, %rd1;"), "{%r1, _} ; %rd1");
  CHECK_EQ(operands_of("mov.u32 %r1, %tid.z;"), "%r1 ; %tid.z");
  CHECK_EQ(operands_of("mov.f32 %f1, 0f3F800000;"), "%f1 ; 0f3f800000");
  CHECK_EQ(operands_of("add.f32 %f1, -%f2, 1.0;"), "%f1 ; -%f2 ; 0d3ff0000000000000");
  CHECK_EQ(operands_of("vadd %r1.b3, %r2.h0;"), "%r1.b3 ; %r2.h0");
  CHECK_EQ(operands_of("foo {{1, 2}, {%r1}};"), "{{1, 2}, {%r1}}");
  CHECK_EQ(operands_of("foo;"), "");
}

TEST_CASE(calls) {
  const std::string head =
      ".func (.param .b32 r) f(.param .b32 a, .param .b32 b); .func g(); .entry k() { .reg .b32 %r<4>; .reg .b64 "
      "%rd<2>; ";
  const ParseResult result = parse_ok(head +
                                      "{ .param .b32 r, a; call.uni (r), f, (a, a); call g; call g, (); P: "
                                      ".callprototype _ (.param .b32 _); call %rd1, (a), P; } }");
  const Function& function = *result.module.find_function("k");
  REQUIRE(function.instructions.size() == 4);
  CHECK(function.instructions[0].operands[0].kind == Operand::Kind::kTuple);
  CHECK_EQ(function.instructions[0].operands[1].text, "f");
  CHECK_EQ(function.instructions[0].operands[2].elements.size(), 2u);
  CHECK_EQ(function.instructions[2].operands[1].elements.size(), 0u);
  REQUIRE(function.prototypes.size() == 1);
  CHECK(function.instructions[3].operands[2].kind == Operand::Kind::kSymbol);
  CHECK_EQ(function.instructions[3].operands[2].text, function.prototypes[0].name);
}

TEST_CASE(types_and_modifiers) {
  const ParseResult result = parse_body(
      "cvt.rn.satfinite.e4m3x2.f32 %r1, %f1; ld.global.v4.u8 {%r1}, [p]; mma.m16n8k32.s32.u4.s8.s32 %r1; "
      "foo.u8x4.b16x2;");
  const auto& instructions = result.module.functions[0].instructions;
  CHECK(instructions[0].type == Type::kE4M3x2);
  REQUIRE(instructions[0].types.size() == 2);
  CHECK(instructions[0].types[1] == Type::kF32);
  CHECK(instructions[0].has("satfinite"));
  CHECK(!instructions[0].has("sat"));
  CHECK(instructions[1].type == Type::kU8);
  CHECK_EQ(instructions[1].modifiers.size(), 3u);
  REQUIRE(instructions[2].types.size() == 4);
  CHECK(instructions[2].types[1] == Type::kOther);
  CHECK(instructions[3].type == Type::kOther);
}

TEST_CASE(type_words) {
  CHECK(parse_type(".u32") == Type::kU32);
  CHECK(parse_type("bf16x2") == Type::kBF16x2);
  CHECK(parse_type("b1") == Type::kOther);
  CHECK(parse_type("ue4m3x4") == Type::kOther);
  for (const char* const word :
       {"", "b", "x2", "v4", "m16n8k8", "rn", "L1", "e4", "f4e", "global", "sys", "s", "1d", "b4e"}) {
    if (!CHECK(parse_type(word) == Type::kNone)) std::fprintf(stderr, "a type: %s\n", word);
  }
  for (int i = 1; i < static_cast<int>(Type::kOther); ++i) {
    const Type type = static_cast<Type>(i);
    CHECK(parse_type(type_name(type)) == type);
  }
  CHECK_EQ(type_size(Type::kB128), 16u);
  CHECK_EQ(type_size(Type::kE2M1x2), 1u);
}

TEST_CASE(parameters_are_laid_out) {
  const ParseResult result = parse_ok(
      ".entry k(.param .u8 a, .param .u64 b, .param .align 16 .b8 c[20], .param .u16 d, .param .v2 .f32 e, .param .b8 "
      "f[3]) { ret; }");
  const Function& function = result.module.functions[0];
  CHECK(function.parameter_offsets() == (std::vector<uint32_t>{0, 8, 16, 36, 40, 48}));
  CHECK_EQ(function.parameter_block_size(), 51u);
}

TEST_CASE(large_parameters_and_many_of_them) {
  std::string list;
  for (int i = 0; i < 100; ++i) list += ".param .u64 p" + std::to_string(i) + ", ";
  const ParseResult result = parse_ok(".entry k(" + list + ".param .align 64 .b8 last[32000]) { ret; }");
  CHECK_EQ(result.module.functions[0].parameters.size(), 101u);
  CHECK_EQ(result.module.functions[0].parameter_block_size(), 832u + 32000u);
}

TEST_CASE(sizes_saturate) {
  const ParseResult result = parse_ok(".global .b64 x[4294967296][4294967296]; .global .b32 y[];");
  CHECK_EQ(result.module.variables[0].size(), UINT64_MAX);
  CHECK_EQ(result.module.variables[1].size(), 0u);
}

TEST_CASE(definitions_win_over_declarations) {
  const ParseResult result = parse_ok(".func f(); .extern .global .b32 x; .func f() { ret; } .global .b32 x;");
  CHECK(!result.module.find_function("f")->is_declaration);
  CHECK(result.module.find_variable("x")->linkage == Linkage::kNone);
  CHECK(result.module.find_function("g") == nullptr);
  CHECK(!parse(kHead + ".func f() { ret; } .func f() { ret; }").ok());
  CHECK(!parse(kHead + ".global .b32 x; .global .b32 x;").ok());
}

TEST_CASE(inner_names_do_not_leak) {
  CHECK(!parse(kHead + ".entry k() { { .reg .b32 t; } mov.u32 t, 1; }").ok());
  CHECK(!parse(kHead + ".entry a() { .reg .b32 t; ret; } .entry b() { mov.u32 t, 1; }").ok());
  CHECK(!parse(kHead + ".entry k() { bra L; { L: ret; } }").ok());
  CHECK(!parse(kHead + ".entry k(.param .u32 p) { .reg .b32 p; }").ok());
  CHECK(!parse(kHead + ".entry k() { mov.u32 t, 1; .shared .b32 t; }").ok());
}

TEST_CASE(an_inner_label_hides_an_outer_one_even_before_it) {
  const ParseResult result = parse_body("L: mov.u32 %r1, 1; { bra L; mov.u32 %r1, 2; L: mov.u32 %r1, 3; } bra L;");
  const auto& instructions = result.module.functions[0].instructions;
  CHECK_EQ(instructions[1].operands[0].label, 3u);
  CHECK_EQ(instructions[4].operands[0].label, 0u);
}

TEST_CASE(what_compilers_write_has_no_errors) {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(TESSERA_CORPUS_DIR)) {
    if (entry.path().extension() != ".ptx") continue;
    std::ifstream file(entry.path(), std::ios::binary);
    const ParseResult result = parse(std::string{std::istreambuf_iterator<char>(file), {}});
    if (!CHECK(result.ok() && !result.module.functions.empty())) std::fprintf(stderr, "in %s\n", entry.path().c_str());
    ++count;
  }
  CHECK(count >= 7);
}

TEST_MAIN()
