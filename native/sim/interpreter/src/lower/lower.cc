// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <unordered_map>

#include "families.h"

namespace tessera::sim {
namespace {

std::unordered_map<std::string_view, Lowering> build_table() {
  std::unordered_map<std::string_view, Lowering> table;
  const LoweringTable families[] = {
      integer_lowerings(),  logic_lowerings(),   float_lowerings(),  compare_lowerings(), move_lowerings(),
      convert_lowerings(),  memory_lowerings(),  atomic_lowerings(), warp_lowerings(),    barrier_lowerings(),
      mbarrier_lowerings(), control_lowerings(), matrix_lowerings(), video_lowerings(),
  };
  for (const LoweringTable& family : families) {
    for (size_t k = 0; k < family.count; ++k) table.emplace(family.rows[k].opcode, family.rows[k].lower);
  }
  return table;
}

}  // namespace

void lower(FunctionCompiler& c, const ptx::Instruction& instruction) {
  static const std::unordered_map<std::string_view, Lowering> kTable = build_table();
  const auto found = kTable.find(instruction.opcode);
  if (found == kTable.end()) throw_unsupported(instruction, "unknown opcode");
  found->second(c, instruction);
}

}  // namespace tessera::sim
