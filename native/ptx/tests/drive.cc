// SPDX-License-Identifier: Apache-2.0
#include "drive.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tessera/ptx/cfg.h"
#include "tessera/ptx/image.h"
#include "tessera/ptx/parser.h"

#define MUST(condition) require(condition, #condition)

namespace tessera::ptx {

namespace {

void require(bool condition, const char* text) {
  if (condition) return;
  std::fprintf(stderr, "does not hold: %s\n", text);
  std::abort();
}

void check_operand(const Function& function, const Operand& operand) {
  const size_t labels_end = function.instructions.size();
  if (operand.kind == Operand::Kind::kRegister) {
    MUST(operand.reg >= 0 && static_cast<size_t>(operand.reg) < function.registers.size());
  }
  if (operand.kind == Operand::Kind::kLabel) MUST(operand.label <= labels_end && !operand.text.empty());
  if (operand.kind == Operand::Kind::kSymbol) MUST(!operand.text.empty());
  if (operand.kind == Operand::Kind::kAddress) MUST(!operand.elements.empty());
  if (operand.kind == Operand::Kind::kPair) MUST(operand.elements.size() == 2);
  for (const Operand& element : operand.elements) check_operand(function, element);
}

void check_function(const Function& function) {
  for (const Instruction& instruction : function.instructions) {
    MUST(!instruction.opcode.empty() && instruction.full.starts_with(instruction.opcode));
    MUST(instruction.guard < static_cast<RegisterId>(function.registers.size()));
    MUST(instruction.location.line > 0 && instruction.location.column > 0);
    for (const Operand& operand : instruction.operands) check_operand(function, operand);
  }
  for (const Label& label : function.labels) MUST(label.index <= function.instructions.size());
  for (const Variable& variable : function.variables) {
    MUST(variable.dimensions.empty() || variable.initializer.size() <= variable.element_count() * variable.vector);
  }
  MUST(function.parameter_offsets().size() == function.parameters.size());
}

void check_graph(const Function& function) {
  const ControlFlowGraph graph = build_cfg(function);
  const size_t count = graph.blocks.size();
  MUST(graph.block_of.size() == function.instructions.size());
  MUST(graph.immediate_dominator.size() == count && graph.immediate_post_dominator.size() == count);
  MUST(graph.is_loop_header.size() == count && graph.reverse_post_order.size() <= count);
  uint32_t next = 0;
  for (size_t i = 0; i < count; ++i) {
    const BasicBlock& block = graph.blocks[i];
    MUST(block.begin == next && block.end > block.begin);
    next = block.end;
    for (const uint32_t successor : block.successors) {
      MUST(successor < count);
      const std::vector<uint32_t>& back = graph.blocks[successor].predecessors;
      MUST(back.size() > 1000 || std::count(back.begin(), back.end(), static_cast<uint32_t>(i)) == 1);
    }
    MUST(graph.immediate_dominator[i] == kNoBlock || graph.immediate_dominator[i] < count);
    MUST(graph.immediate_post_dominator[i] == kNoBlock || graph.immediate_post_dominator[i] < count);
  }
  MUST(next == function.instructions.size());
}

}  // namespace

void drive_parse(const char* data, size_t size) {
  const ParseResult result = parse({data, size});
  for (const Function& function : result.module.functions) {
    check_function(function);
    check_graph(function);
  }
  for (const Diagnostic& error : result.errors) MUST(error.location.line > 0 && !error.message.empty());
  MUST(result.broken.empty() || !result.errors.empty());
}

void drive_image(const char* data, size_t size) {
  constexpr size_t kLimit = size_t{1} << 22;
  const std::string copy(data, size);
  image_kind(copy.data(), copy.size());
  const ImageContents contents = read_image(copy.data(), copy.size(), kLimit);
  for (const ImageEntry& entry : contents.entries) MUST(entry.payload.size() <= kLimit);
}

}  // namespace tessera::ptx
