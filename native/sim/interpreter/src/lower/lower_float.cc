// SPDX-License-Identifier: Apache-2.0
// Floating-point arithmetic.
#include "families.h"

namespace tessera::sim {

namespace {

u8 take_flags(Modifiers& m) {
  u8 flags = 0;
  if (m.take("ftz")) flags |= kFtz;
  if (m.take("sat")) flags |= kSat;
  if (m.take("relu")) flags |= kRelu;
  if (m.take("NaN")) flags |= kNan;
  if (m.take("xorsign") || m.take("xorsign.abs")) flags |= kXorSign;
  return flags;
}

void emit_plain(FunctionCompiler& c, const ptx::Instruction& i, u64 key, Type type, int sources, Cost cost) {
  const size_t count = static_cast<size_t>(sources) + 1;
  require_operands(c, i, count, count);
  std::vector<Ref> refs;
  for (size_t k = 1; k < count; ++k) refs.push_back(c.read(i.operands[k], type));
  c.emit(key, {c.write(i.operands[0], type)}, refs, 0, cost);
}

u8 rounding_variant(Rounding mode) { return mode == Rounding::kNone ? u8{0} : static_cast<u8>(mode); }

/// add.f32.bf16-like forms: an operand of a narrower type.
bool mixes_types(const ptx::Instruction& i) { return i.types.size() > 1 && i.types[0] != i.types[1]; }

}  // namespace

void lower_float_arithmetic(FunctionCompiler& c, const ptx::Instruction& i, Op op, int sources) {
  if (mixes_types(i)) c.unsupported("operands of two types");
  Modifiers m(i);
  const Rounding mode = m.take_rounding();
  const u8 flags = take_flags(m);
  const Type type = m.take_type();
  m.finish();
  const bool is_fma = op == Op::kFfma;
  emit_plain(c, i, op_key(op, type, Type::kNone, flags, rounding_variant(mode)), type, sources,
             arithmetic_cost(type, is_fma ? 2 : 1));
}

void lower_float_extreme(FunctionCompiler& c, const ptx::Instruction& i, bool is_max) {
  Modifiers m(i);
  u8 flags = take_flags(m);
  if (m.take("abs")) flags |= kXorSign;
  const Type type = m.take_type();
  m.finish();
  const bool three = i.operands.size() == 4;
  const Op op = three ? (is_max ? Op::kFmax3 : Op::kFmin3) : (is_max ? Op::kFmax : Op::kFmin);
  emit_plain(c, i, op_key(op, type, Type::kNone, flags), type, three ? 3 : 2, arithmetic_cost(type));
}

void lower_float_sign(FunctionCompiler& c, const ptx::Instruction& i, Op op) {
  Modifiers m(i);
  const u8 flags = take_flags(m);
  const Type type = m.take_type();
  m.finish();
  emit_plain(c, i, op_key(op, type, Type::kNone, flags), type, 1, arithmetic_cost(type));
}

void lower_float_divide(FunctionCompiler& c, const ptx::Instruction& i) {
  Modifiers m(i);
  const int approximate = m.take_one({"approx", "full"});
  const Rounding mode = m.take_rounding();
  const u8 flags = take_flags(m);
  const Type type = m.take_type();
  m.finish();
  if (approximate < 0 && mode == Rounding::kNone) c.unsupported("a division without a rounding");
  const Op op = approximate == 0 ? Op::kFdivApprox : approximate == 1 ? Op::kFdivFull : Op::kFdiv;
  emit_plain(c, i, op_key(op, type, Type::kNone, flags, rounding_variant(mode)), type, 2, arithmetic_cost(type));
}

namespace {

void lower_fma(FunctionCompiler& c, const ptx::Instruction& i) { lower_float_arithmetic(c, i, Op::kFfma, 3); }

/// rcp and sqrt: rounded, or approximate (variant 4 for float).
template <Op kOp>
void root_or_reciprocal(FunctionCompiler& c, const ptx::Instruction& i) {
  Modifiers m(i);
  const bool approximate = m.take("approx");
  const Rounding mode = m.take_rounding();
  const u8 flags = take_flags(m);
  const Type type = m.take_type();
  m.finish();
  u64 key = op_key(kOp, type, Type::kNone, flags, approximate ? u8{4} : rounding_variant(mode));
  if (approximate && type == Type::kF64)
    key = op_key(Op::kRcpApprox64, type, Type::kNone, flags, kOp == Op::kRcp ? 0 : 255);
  emit_plain(c, i, key, type, 1, arithmetic_cost(type));
}

template <Op kOp>
void approximate_only(FunctionCompiler& c, const ptx::Instruction& i) {
  Modifiers m(i);
  const bool approximate = m.take("approx");
  const u8 flags = take_flags(m);
  const Type type = m.take_type();
  m.finish();
  if (!approximate) c.unsupported("only the .approx form exists");
  const Op op = kOp == Op::kRsqrt && type == Type::kF64 ? Op::kRsqrtApprox64 : kOp;
  emit_plain(c, i, op_key(op, type, Type::kNone, flags), type, 1, arithmetic_cost(type));
}

void lower_copysign(FunctionCompiler& c, const ptx::Instruction& i) {
  Modifiers m(i);
  const Type type = m.take_type();
  m.finish();
  emit_plain(c, i, op_key(Op::kCopysign, type), type, 2, arithmetic_cost(type));
}

void lower_testp(FunctionCompiler& c, const ptx::Instruction& i) {
  Modifiers m(i);
  const int kind = m.take_one({"finite", "infinite", "number", "notanumber", "normal", "subnormal"});
  const Type type = m.take_type();
  m.finish();
  require_operands(c, i, 2, 2);
  if (kind < 0) c.invalid("no kind of number");
  const Ref a = c.read(i.operands[1], type);
  c.emit(op_key(Op::kTestp, type), {c.write(i.operands[0], Type::kPred)}, {a}, static_cast<u64>(kind),
         arithmetic_cost(type));
}

constexpr LoweringRow kRows[] = {
    {"fma", &lower_fma},
    {"rcp", &root_or_reciprocal<Op::kRcp>},
    {"sqrt", &root_or_reciprocal<Op::kSqrt>},
    {"rsqrt", &approximate_only<Op::kRsqrt>},
    {"sin", &approximate_only<Op::kSin>},
    {"cos", &approximate_only<Op::kCos>},
    {"lg2", &approximate_only<Op::kLg2>},
    {"ex2", &approximate_only<Op::kEx2>},
    {"tanh", &approximate_only<Op::kTanh>},
    {"copysign", &lower_copysign},
    {"testp", &lower_testp},
};

}  // namespace

LoweringTable float_lowerings() { return {kRows, std::size(kRows)}; }

}  // namespace tessera::sim
