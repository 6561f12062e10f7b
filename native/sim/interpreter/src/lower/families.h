// SPDX-License-Identifier: Apache-2.0
// One lowering function per opcode. The table in lower.cc names them.
#pragma once

#include "function_compiler.h"

namespace tessera::sim {

using Lowering = void (*)(FunctionCompiler& c, const ptx::Instruction& instruction);

struct LoweringRow {
  std::string_view opcode;
  Lowering lower;
};
struct LoweringTable {
  const LoweringRow* rows;
  size_t count;
};

LoweringTable integer_lowerings();
LoweringTable logic_lowerings();
LoweringTable float_lowerings();
LoweringTable compare_lowerings();
LoweringTable move_lowerings();
LoweringTable convert_lowerings();
LoweringTable memory_lowerings();
LoweringTable atomic_lowerings();
LoweringTable warp_lowerings();
LoweringTable barrier_lowerings();
LoweringTable mbarrier_lowerings();
LoweringTable control_lowerings();
LoweringTable matrix_lowerings();
LoweringTable video_lowerings();

// ---- shared by families ----
inline bool is_float(Type type) {
  switch (type) {
    case Type::kF16:
    case Type::kF16x2:
    case Type::kBF16:
    case Type::kBF16x2:
    case Type::kTF32:
    case Type::kF32:
    case Type::kF64:
    case Type::kF32x2:
      return true;
    default:
      return false;
  }
}
inline bool is_signed(Type type) {
  return type == Type::kS8 || type == Type::kS16 || type == Type::kS32 || type == Type::kS64 || type == Type::kS16x2;
}
/// kB32 for kU32, kS32, kF32, ...
inline Type bits_of_type(Type type) { return bits_type(class_of(type)); }
/// u16 -> u32, s32 -> s64; kNone when there is none.
Type widened(Type type);
/// What an arithmetic operation of `type` costs one lane, `operations` per value.
Cost arithmetic_cost(Type type, u32 operations = 1);
void require_operands(FunctionCompiler& c, const ptx::Instruction& instruction, size_t least, size_t most);

/// The bits of setp's imm, as the handlers of comparisons read them.
struct Comparison {
  Op op = Op::kSetpEq;
  bool swap = false, invert = false;
};
/// Takes the comparison word; refuses one that does not fit the type.
Comparison take_comparison(FunctionCompiler& c, Modifiers& modifiers, Type type, bool has_type);

/// The floating-point operation behind add, sub, mul, mad and fma.
void lower_float_arithmetic(FunctionCompiler& c, const ptx::Instruction& i, Op op, int sources);
void lower_float_extreme(FunctionCompiler& c, const ptx::Instruction& i, bool is_max);
void lower_float_sign(FunctionCompiler& c, const ptx::Instruction& i, Op op);
void lower_float_divide(FunctionCompiler& c, const ptx::Instruction& i);

/// The forms of cp.async that work on mbarrier objects.
void lower_bulk_copy(FunctionCompiler& c, const ptx::Instruction& i, Modifiers& modifiers);
void lower_cp_async_arrive(FunctionCompiler& c, const ptx::Instruction& i, Modifiers& modifiers);

}  // namespace tessera::sim
