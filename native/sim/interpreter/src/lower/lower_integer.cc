// SPDX-License-Identifier: Apache-2.0
// Integer arithmetic. Opcodes that floats share go to lower_float.cc from here.
#include "families.h"

namespace tessera::sim {

Type widened(Type type) {
  switch (type) {
    case Type::kU16:
      return Type::kU32;
    case Type::kS16:
      return Type::kS32;
    case Type::kU32:
      return Type::kU64;
    case Type::kS32:
      return Type::kS64;
    default:
      return Type::kNone;
  }
}

Cost arithmetic_cost(Type type, u32 operations) {
  switch (type) {
    case Type::kF32:
    case Type::kTF32:
      return {kCostF32, operations};
    case Type::kF32x2:
      return {kCostF32, 2 * operations};
    case Type::kF64:
      return {kCostF64, operations};
    case Type::kF16:
    case Type::kBF16:
      return {kCostF16, operations};
    case Type::kF16x2:
    case Type::kBF16x2:
      return {kCostF16, 2 * operations};
    case Type::kPred:
    case Type::kNone:
      return {};
    default:
      return {kCostInteger, operations};
  }
}

void require_operands(FunctionCompiler& c, const ptx::Instruction& i, size_t least, size_t most) {
  if (i.operands.size() < least || i.operands.size() > most) c.invalid("the wrong number of operands");
}

namespace {

/// The type whose handler serves: b32 carry chains and the like are unsigned.
Type unsigned_bits(Type type) {
  switch (type) {
    case Type::kB16:
      return Type::kU16;
    case Type::kB32:
      return Type::kU32;
    case Type::kB64:
      return Type::kU64;
    default:
      return type;
  }
}

void plain(FunctionCompiler& c, const ptx::Instruction& i, Modifiers& m, Op op, Type type, int sources, u8 flags = 0,
           u32 cost = 1) {
  m.finish();
  const size_t count = static_cast<size_t>(sources) + 1;
  require_operands(c, i, count, count);
  const Ref d = c.write(i.operands[0], type);
  std::vector<Ref> refs;
  for (size_t k = 1; k < count; ++k) refs.push_back(c.read(i.operands[k], type));
  c.emit(op_key(op, type, Type::kNone, flags), {d}, refs, 0, arithmetic_cost(type, cost));
}

/// d[.cc] = a op b [op c] with the carry flag.
void carry_chain(FunctionCompiler& c, const ptx::Instruction& i, Modifiers& m, Op op, int sources, bool carry_in) {
  const bool carry_out = m.take("cc");
  Type type = unsigned_bits(m.take_type());
  m.finish();
  const size_t count = static_cast<size_t>(sources) + 1;
  require_operands(c, i, count, count);
  if (sources == 2) type = type == Type::kS32 ? Type::kU32 : type == Type::kS64 ? Type::kU64 : type;
  const Ref d = c.write(i.operands[0], type);
  const Ref out = carry_out ? c.carry_flag() : c.temporary(RegisterClass::kPredicate);
  std::vector<Ref> refs;
  for (size_t k = 1; k < count; ++k) refs.push_back(c.read(i.operands[k], type));
  refs.push_back(carry_in ? c.carry_flag() : c.false_predicate());
  c.emit(op_key(op, type), {d, out}, refs, 0, arithmetic_cost(type, sources == 3 ? 2 : 1));
}

template <Op kInteger, Op kSaturated, Op kCarry, Op kFloat>
void add_or_sub(FunctionCompiler& c, const ptx::Instruction& i) {
  if (is_float(i.type)) return lower_float_arithmetic(c, i, kFloat, 2);
  Modifiers m(i);
  if (m.has("cc")) return carry_chain(c, i, m, kCarry, 2, false);
  const bool saturate = m.take("sat");
  const Type type = m.take_type();
  plain(c, i, m, saturate ? kSaturated : kInteger, type, 2);
}

template <Op kCarry>
void with_carry(FunctionCompiler& c, const ptx::Instruction& i) {
  Modifiers m(i);
  carry_chain(c, i, m, kCarry, 2, true);
}

void lower_mul(FunctionCompiler& c, const ptx::Instruction& i) {
  if (is_float(i.type)) return lower_float_arithmetic(c, i, Op::kFmul, 2);
  Modifiers m(i);
  const int part = m.take_one({"lo", "hi", "wide"});
  const Type type = m.take_type();
  if (part < 0) c.invalid("neither .lo, .hi nor .wide");
  if (part != 2) return plain(c, i, m, part == 0 ? Op::kMulLo : Op::kMulHi, type, 2);
  m.finish();
  require_operands(c, i, 3, 3);
  const Ref a = c.read(i.operands[1], type), b = c.read(i.operands[2], type);
  c.emit(op_key(Op::kMulWide, type), {c.write(i.operands[0], widened(type))}, {a, b}, 0, {kCostInteger, 1});
}

void lower_mad(FunctionCompiler& c, const ptx::Instruction& i) {
  if (is_float(i.type)) return lower_float_arithmetic(c, i, Op::kFfma, 3);
  Modifiers m(i);
  const int part = m.take_one({"lo", "hi", "wide"});
  if (part < 0) c.invalid("neither .lo, .hi nor .wide");
  if (m.has("cc")) return carry_chain(c, i, m, part == 0 ? Op::kMadLoCc : Op::kMadHiCc, 3, false);
  const bool saturate = m.take("sat");
  const Type type = m.take_type();
  if (part != 2) {
    if (saturate && part == 0) c.unsupported("mad.lo.sat");
    return plain(c, i, m, part == 0 ? Op::kMadLo : saturate ? Op::kMadHiSat : Op::kMadHi, type, 3, 0, 2);
  }
  m.finish();
  require_operands(c, i, 4, 4);
  const Type wide = widened(type);
  const Ref a = c.read(i.operands[1], type), b = c.read(i.operands[2], type), add = c.read(i.operands[3], wide);
  c.emit(op_key(Op::kMadWide, type), {c.write(i.operands[0], wide)}, {a, b, add}, 0, {kCostInteger, 2});
}

void lower_madc(FunctionCompiler& c, const ptx::Instruction& i) {
  Modifiers m(i);
  const int part = m.take_one({"lo", "hi"});
  if (part < 0) c.invalid("neither .lo nor .hi");
  carry_chain(c, i, m, part == 0 ? Op::kMadLoCc : Op::kMadHiCc, 3, true);
}

template <Op kLow, Op kHigh, Op kHighSaturated, int kSources>
void lower_24(FunctionCompiler& c, const ptx::Instruction& i) {
  Modifiers m(i);
  const int part = m.take_one({"lo", "hi"});
  const bool saturate = m.take("sat");
  const Type type = m.take_type();
  if (part < 0 || (saturate && part == 0)) c.invalid("neither .lo nor .hi");
  plain(c, i, m, part == 0 ? kLow : saturate ? kHighSaturated : kHigh, type, kSources);
}

template <Op kOp, int kSources>
void simple(FunctionCompiler& c, const ptx::Instruction& i) {
  Modifiers m(i);
  const Type type = m.take_type();
  plain(c, i, m, kOp, type, kSources);
}

void lower_div(FunctionCompiler& c, const ptx::Instruction& i) {
  if (is_float(i.type)) return lower_float_divide(c, i);
  simple<Op::kDiv, 2>(c, i);
}

template <Op kInteger, Op kFloat>
void sign_operation(FunctionCompiler& c, const ptx::Instruction& i) {
  if (is_float(i.type)) return lower_float_sign(c, i, kFloat);
  simple<kInteger, 1>(c, i);
}

template <Op kInteger, bool kMax>
void extreme(FunctionCompiler& c, const ptx::Instruction& i) {
  if (is_float(i.type)) return lower_float_extreme(c, i, kMax);
  Modifiers m(i);
  const u8 flags = m.take("relu") ? u8{kRelu} : u8{0};
  const Type type = m.take_type();
  plain(c, i, m, kInteger, type, 2, flags);
}

template <bool kTwo>
void lower_dot(FunctionCompiler& c, const ptx::Instruction& i) {
  Modifiers m(i);
  const int part = kTwo ? m.take_one({"lo", "hi"}) : 0;
  const Type a_type = m.take_type(), b_type = m.take_type();
  m.finish();
  if (part < 0) c.invalid("neither .lo nor .hi");
  require_operands(c, i, 4, 4);
  const Op op = !kTwo ? Op::kDp4a : part == 0 ? Op::kDp2aLo : Op::kDp2aHi;
  const Ref a = c.read(i.operands[1], Type::kB32), b = c.read(i.operands[2], Type::kB32),
            add = c.read(i.operands[3], Type::kB32);
  c.emit(op_key(op, a_type, b_type), {c.write(i.operands[0], Type::kB32)}, {a, b, add}, 0,
         {kCostInteger, kTwo ? 4u : 8u});
}

constexpr LoweringRow kRows[] = {
    {"add", &add_or_sub<Op::kAdd, Op::kAddSat, Op::kAddCc, Op::kFadd>},
    {"sub", &add_or_sub<Op::kSub, Op::kSubSat, Op::kSubCc, Op::kFsub>},
    {"addc", &with_carry<Op::kAddCc>},
    {"subc", &with_carry<Op::kSubCc>},
    {"mul", &lower_mul},
    {"mad", &lower_mad},
    {"madc", &lower_madc},
    {"mul24", &lower_24<Op::kMul24Lo, Op::kMul24Hi, Op::kMul24Hi, 2>},
    {"mad24", &lower_24<Op::kMad24Lo, Op::kMad24Hi, Op::kMad24HiSat, 3>},
    {"sad", &simple<Op::kSad, 3>},
    {"div", &lower_div},
    {"rem", &simple<Op::kRem, 2>},
    {"abs", &sign_operation<Op::kAbs, Op::kFabs>},
    {"neg", &sign_operation<Op::kNeg, Op::kFneg>},
    {"min", &extreme<Op::kMin, false>},
    {"max", &extreme<Op::kMax, true>},
    {"dp4a", &lower_dot<false>},
    {"dp2a", &lower_dot<true>},
};

}  // namespace

LoweringTable integer_lowerings() { return {kRows, std::size(kRows)}; }

}  // namespace tessera::sim
