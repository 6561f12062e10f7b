// SPDX-License-Identifier: Apache-2.0
#include "tessera/ptx/capi.h"

#include <cstring>
#include <memory>
#include <string>

#include "../../testing/check.h"

namespace {

const std::string kText =
    ".version 8.7\n.target sm_90a\n.address_size 64\n.global .align 16 .b8 table[64] = {1};\n"
    ".entry k(.param .u64 .ptr .global .align 8 a, .param .u32 b) .reqntid 64, 2 {\n"
    ".reg .b32 %r<4>; .reg .b64 %rd<3>; .reg .pred %p<2>;\n"
    "L: ld.global.nc.v2.b32 {%r1, %r2}, [%rd1+8];\n"
    "@!%p1 bra L;\n"
    "vadd.s32 %r1, %r2.b1, -7;\n"
    "ret;\n}\n"
    ".entry bad() { mov.u32 %r1, 1; }\n";

struct Free {
  void operator()(ts_ptx_module* module) const { ts_ptx_free(module); }
  void operator()(ts_image_contents* contents) const { ts_image_free(contents); }
};

using Module = std::unique_ptr<ts_ptx_module, Free>;
using Contents = std::unique_ptr<ts_image_contents, Free>;

Module parse(const std::string& text) { return Module(ts_ptx_parse(text.data(), text.size())); }

bool equal(const char* a, const char* b) { return a != nullptr && std::strcmp(a, b) == 0; }

}  // namespace

TEST_CASE(module_properties) {
  const Module module = parse(kText);
  REQUIRE(module != nullptr);
  CHECK(equal(ts_ptx_target(module.get()), "sm_90a"));
  CHECK_EQ(ts_ptx_version(module.get()), 807u);
  CHECK_EQ(ts_ptx_function_count(module.get()), 2u);
  CHECK_EQ(ts_ptx_variable_count(module.get()), 1u);
  const ts_ptx_variable* const table = ts_ptx_variable_at(module.get(), 0);
  CHECK(equal(table->name, "table"));
  CHECK_EQ(table->size, 64u);
  CHECK_EQ(table->alignment, 16u);
  CHECK_EQ(int(table->has_initializer), 1);
  CHECK(ts_ptx_variable_at(module.get(), 1) == nullptr);
  CHECK(ts_ptx_function_at(module.get(), 2) == nullptr);
}

TEST_CASE(errors_and_broken_functions) {
  const Module module = parse(kText);
  CHECK_EQ(ts_ptx_error_count(module.get()), 1u);
  uint32_t line = 0, column = 0;
  CHECK(equal(ts_ptx_error(module.get(), 0, &line, &column), "undeclared register '%r1'"));
  CHECK_EQ(line, 12u);
  CHECK_EQ(column, 24u);
  CHECK(ts_ptx_error(module.get(), 1, &line, &column) == nullptr);
  CHECK_EQ(int(ts_ptx_function_at(module.get(), 0)->is_broken), 0);
  CHECK_EQ(int(ts_ptx_function_at(module.get(), 1)->is_broken), 1);
}

TEST_CASE(the_flat_view_of_a_function) {
  const Module module = parse(kText);
  const ts_ptx_function* const f = ts_ptx_function_at(module.get(), 0);
  REQUIRE(f != nullptr && f == ts_ptx_function_at(module.get(), 0));
  CHECK_EQ(f->n_instructions, 4u);
  CHECK_EQ(f->n_parameters, 2u);
  CHECK_EQ(f->parameters[1].offset, 8u);
  CHECK_EQ(f->parameters[0].pointer_alignment, 8u);
  CHECK_EQ(f->parameter_block_size, 12u);
  CHECK_EQ(f->required_threads[1], 2u);
  CHECK_EQ(f->n_blocks, 2u);
  CHECK_EQ(int(f->blocks[0].is_loop_header), 1);
  REQUIRE(f->n_labels == 1);
  CHECK(equal(f->labels[0].name, "L"));

  const ts_ptx_instruction& load = f->instructions[0];
  CHECK(equal(load.opcode, "ld"));
  CHECK(equal(load.full, "ld.global.nc.v2.b32"));
  CHECK(equal(f->modifiers[load.first_modifier + 1], "nc"));
  CHECK(equal(ts_ptx_type_name(load.type), "b32"));
  const ts_ptx_operand& vector = f->operands[load.first_operand];
  CHECK(equal(ts_ptx_operand_kind_name(vector.kind), "vector"));
  REQUIRE(vector.n_elements == 2);
  CHECK(equal(f->registers[f->operands[vector.first_element + 1].reg].name, "%r2"));
  const ts_ptx_operand& address = f->operands[load.first_operand + 1];
  CHECK(equal(ts_ptx_operand_kind_name(address.kind), "address"));
  CHECK_EQ(address.offset, 8);

  const ts_ptx_instruction& branch = f->instructions[1];
  CHECK(equal(f->registers[branch.guard].name, "%p1"));
  CHECK_EQ(int(branch.guard_negated), 1);
  CHECK_EQ(f->operands[branch.first_operand].label, 0u);

  const ts_ptx_operand& selected = f->operands[f->instructions[2].first_operand + 1];
  REQUIRE(selected.n_modifiers == 1);
  CHECK(equal(f->modifiers[selected.first_modifier], "b1"));
  CHECK_EQ(f->operands[f->instructions[2].first_operand + 2].bits, static_cast<uint64_t>(-7));
}

TEST_CASE(equal_text_is_one_pointer) {
  const Module module = parse(
      ".version 8.0\n.target sm_80\n.global .b32 x; .func x1() { .reg .b64 %rd<2>; mov.u64 %rd1, x; mov.b64 %rd1, x; }"
      ".func x2() { .reg .b64 %rd<2>; mov.u64 %rd1, x; }");
  const ts_ptx_function* const one = ts_ptx_function_at(module.get(), 0);
  const ts_ptx_function* const two = ts_ptx_function_at(module.get(), 1);
  CHECK(one->instructions[0].opcode == one->instructions[1].opcode);
  CHECK(one->instructions[0].full == two->instructions[0].full);
  CHECK(one->instructions[0].full != one->instructions[1].full);
  CHECK(one->operands[1].text == ts_ptx_variable_at(module.get(), 0)->name);
}

TEST_CASE(names_end) {
  CHECK(ts_ptx_type_name(1000) == nullptr);
  CHECK(equal(ts_ptx_type_name(36), "other"));
  CHECK(ts_ptx_type_name(37) == nullptr);
  CHECK(equal(ts_ptx_operand_kind_name(10), "sink"));
  CHECK(ts_ptx_operand_kind_name(11) == nullptr);
  CHECK(equal(ts_ptx_space_name(7), "shared"));
  CHECK(ts_ptx_space_name(9) == nullptr);
}

TEST_CASE(images) {
  const Contents contents(ts_image_open(kText.data(), kText.size()));
  REQUIRE(ts_image_entry_count(contents.get()) == 1);
  uint32_t architecture = 0;
  CHECK_EQ(ts_image_entry_kind(contents.get(), 0, &architecture), 0);
  CHECK_EQ(architecture, 90u);
  CHECK_EQ(ts_image_entry_kind(contents.get(), 1, nullptr), -1);
  int kind = -1;
  size_t size = 0;
  for (int round = 0; round < 2; ++round) {
    const char* const payload = ts_image_entry(contents.get(), 0, &kind, &architecture, &size);
    REQUIRE(payload != nullptr);
    CHECK(std::string(payload, size) == kText);
    ts_image_drop(contents.get(), 0);
  }
  CHECK(ts_image_entry(contents.get(), 1, nullptr, nullptr, nullptr) == nullptr);
  const Contents unknown(ts_image_read("what", 4));
  CHECK_EQ(ts_image_entry_count(unknown.get()), 0u);
  CHECK_EQ(ts_image_error_count(unknown.get()), 1u);
  CHECK(ts_image_error(unknown.get(), 0) != nullptr && ts_image_error(unknown.get(), 1) == nullptr);
  const Contents whole(ts_image_read(kText.data(), kText.size()));
  CHECK(ts_image_entry(whole.get(), 0, nullptr, nullptr, &size) != nullptr);
}

TEST_MAIN()
