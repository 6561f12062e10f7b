// SPDX-License-Identifier: Apache-2.0
// Logic, shifts and bit fields.
#include "families.h"

namespace tessera::sim {
namespace {

/// and, or, xor on bits or predicates.
template <Op kOp>
void logic(FunctionCompiler& c, const ptx::Instruction& i) {
  Modifiers m(i);
  const Type type = m.take_type();
  m.finish();
  require_operands(c, i, 3, 3);
  if (type == Type::kPred) {
    const auto a = c.read_predicate(i.operands[1]), b = c.read_predicate(i.operands[2]);
    return c.emit(op_key(kOp, type), {c.write(i.operands[0], type)}, {a.ref, b.ref},
                  (a.negated ? 1u : 0u) | (b.negated ? 2u : 0u));
  }
  const Ref a = c.read(i.operands[1], type), b = c.read(i.operands[2], type);
  c.emit(op_key(kOp, type), {c.write(i.operands[0], type)}, {a, b}, 0, {kCostInteger, 1});
}

void lower_not(FunctionCompiler& c, const ptx::Instruction& i) {
  Modifiers m(i);
  const Type type = m.take_type();
  m.finish();
  require_operands(c, i, 2, 2);
  if (type == Type::kPred) {
    const auto a = c.read_predicate(i.operands[1]);
    return c.emit(op_key(Op::kMov, type), {c.write(i.operands[0], type)}, {a.ref}, a.negated ? 0 : 1);
  }
  const Ref a = c.read(i.operands[1], type);
  c.emit(op_key(Op::kNot, type), {c.write(i.operands[0], type)}, {a}, 0, {kCostInteger, 1});
}

void lower_cnot(FunctionCompiler& c, const ptx::Instruction& i) {
  Modifiers m(i);
  const Type type = m.take_type();
  m.finish();
  require_operands(c, i, 2, 2);
  const Ref a = c.read(i.operands[1], type);
  c.emit(op_key(Op::kCnot, type), {c.write(i.operands[0], type)}, {a}, 0, {kCostInteger, 1});
}

void lower_shl(FunctionCompiler& c, const ptx::Instruction& i) {
  Modifiers m(i);
  const Type type = m.take_type();
  m.finish();
  require_operands(c, i, 3, 3);
  const Ref a = c.read(i.operands[1], type), b = c.read(i.operands[2], Type::kU32);
  c.emit(op_key(Op::kShl, bits_of_type(type)), {c.write(i.operands[0], type)}, {a, b}, 0, {kCostInteger, 1});
}

void lower_shr(FunctionCompiler& c, const ptx::Instruction& i) {
  Modifiers m(i);
  Type type = m.take_type();
  m.finish();
  require_operands(c, i, 3, 3);
  if (type == Type::kB16) type = Type::kU16;
  if (type == Type::kB32) type = Type::kU32;
  if (type == Type::kB64) type = Type::kU64;
  const Ref a = c.read(i.operands[1], type), b = c.read(i.operands[2], Type::kU32);
  c.emit(op_key(Op::kShr, type), {c.write(i.operands[0], type)}, {a, b}, 0, {kCostInteger, 1});
}

void lower_shf(FunctionCompiler& c, const ptx::Instruction& i) {
  Modifiers m(i);
  const int direction = m.take_one({"l", "r"}), mode = m.take_one({"clamp", "wrap"});
  const Type type = m.take_type();
  m.finish();
  require_operands(c, i, 4, 4);
  if (direction < 0 || mode < 0) c.invalid("a direction or a mode is missing");
  const Op op = direction == 0 ? (mode == 0 ? Op::kShfLeftClamp : Op::kShfLeftWrap)
                               : (mode == 0 ? Op::kShfRightClamp : Op::kShfRightWrap);
  const Ref a = c.read(i.operands[1], type), b = c.read(i.operands[2], type),
            amount = c.read(i.operands[3], Type::kU32);
  c.emit(op_key(op, type), {c.write(i.operands[0], type)}, {a, b, amount}, 0, {kCostInteger, 1});
}

u64 constant_operand(FunctionCompiler& c, const ptx::Operand& operand) {
  if (operand.kind != ptx::Operand::Kind::kInteger) c.invalid("the operand has to be a constant");
  return operand.bits;
}

void lower_lop3(FunctionCompiler& c, const ptx::Instruction& i) {
  Modifiers m(i);
  const int combine = m.take_one({"or", "and"});
  const Type type = m.take_type();
  m.finish();
  require_operands(c, i, combine < 0 ? 5 : 6, combine < 0 ? 5 : 6);
  const bool pair = i.operands[0].kind == ptx::Operand::Kind::kPair;
  const ptx::Operand& target = pair ? i.operands[0].elements[0] : i.operands[0];
  const Ref a = c.read(i.operands[1], type), b = c.read(i.operands[2], type), third = c.read(i.operands[3], type);
  const u64 table = constant_operand(c, i.operands[4]) & 0xff;
  const Ref d = c.write(target, type);
  if (combine < 0) return c.emit(op_key(Op::kLop3, type), {d}, {a, b, third}, table, {kCostInteger, 1});
  if (!pair) c.invalid("a predicate result is missing");
  // p = (d != 0) combined with q: "ne" is the opposite of "eq".
  const Ref value = c.temporary(RegisterClass::kWord);
  const auto q = c.read_predicate(i.operands[5]);
  c.emit(op_key(Op::kLop3, type), {value}, {a, b, third}, table, {kCostInteger, 1});
  c.move(d, value, RegisterClass::kWord);
  const u64 imm = 1u | (combine == 0 ? 2u : 1u) << 1 | (q.negated ? 8u : 0u);
  c.emit(op_key(Op::kSetpEq, Type::kU32),
         {c.write(i.operands[0].elements[1], Type::kPred), c.temporary(RegisterClass::kPredicate)},
         {value, c.constant32(0), q.ref}, imm);
}

template <Op kOp>
void count_bits(FunctionCompiler& c, const ptx::Instruction& i) {
  Modifiers m(i);
  const Type type = m.take_type();
  m.finish();
  require_operands(c, i, 2, 2);
  const Ref a = c.read(i.operands[1], type);
  c.emit(op_key(kOp, type), {c.write(i.operands[0], Type::kU32)}, {a}, 0, {kCostInteger, 1});
}

void lower_brev(FunctionCompiler& c, const ptx::Instruction& i) {
  Modifiers m(i);
  const Type type = m.take_type();
  m.finish();
  require_operands(c, i, 2, 2);
  const Ref a = c.read(i.operands[1], type);
  c.emit(op_key(Op::kBrev, type), {c.write(i.operands[0], type)}, {a}, 0, {kCostInteger, 1});
}

void lower_bfind(FunctionCompiler& c, const ptx::Instruction& i) {
  Modifiers m(i);
  const bool shift = m.take("shiftamt");
  const Type type = m.take_type();
  m.finish();
  require_operands(c, i, 2, 2);
  const Ref a = c.read(i.operands[1], type);
  c.emit(op_key(shift ? Op::kBfindShift : Op::kBfind, type), {c.write(i.operands[0], Type::kU32)}, {a}, 0,
         {kCostInteger, 1});
}

void lower_fns(FunctionCompiler& c, const ptx::Instruction& i) {
  Modifiers m(i);
  const Type type = m.take_type();
  m.finish();
  require_operands(c, i, 4, 4);
  const Ref mask = c.read(i.operands[1], Type::kB32), base = c.read(i.operands[2], Type::kB32),
            offset = c.read(i.operands[3], Type::kB32);
  c.emit(op_key(Op::kFns, type), {c.write(i.operands[0], Type::kB32)}, {mask, base, offset}, 0, {kCostInteger, 1});
}

void lower_bfe(FunctionCompiler& c, const ptx::Instruction& i) {
  Modifiers m(i);
  const Type type = m.take_type();
  m.finish();
  require_operands(c, i, 4, 4);
  const Ref a = c.read(i.operands[1], type), position = c.read(i.operands[2], Type::kU32),
            length = c.read(i.operands[3], Type::kU32);
  c.emit(op_key(Op::kBfe, type), {c.write(i.operands[0], type)}, {a, position, length}, 0, {kCostInteger, 1});
}

void lower_bfi(FunctionCompiler& c, const ptx::Instruction& i) {
  Modifiers m(i);
  const Type type = m.take_type();
  m.finish();
  require_operands(c, i, 5, 5);
  const Ref a = c.read(i.operands[1], type), b = c.read(i.operands[2], type);
  const Ref position = c.read(i.operands[3], Type::kU32), length = c.read(i.operands[4], Type::kU32);
  c.emit(op_key(Op::kBfi, type), {c.write(i.operands[0], type)}, {a, b, position, length}, 0, {kCostInteger, 1});
}

template <Op kClamp, Op kWrap>
void clamp_or_wrap(FunctionCompiler& c, const ptx::Instruction& i) {
  Modifiers m(i);
  const int mode = m.take_one({"clamp", "wrap"});
  const Type type = m.take_type();
  m.finish();
  require_operands(c, i, 3, 3);
  if (mode < 0) c.invalid("neither .clamp nor .wrap");
  const Ref a = c.read(i.operands[1], Type::kB32), b = c.read(i.operands[2], Type::kB32);
  c.emit(op_key(mode == 0 ? kClamp : kWrap, type), {c.write(i.operands[0], Type::kB32)}, {a, b}, 0, {kCostInteger, 1});
}

void lower_prmt(FunctionCompiler& c, const ptx::Instruction& i) {
  Modifiers m(i);
  const Type type = m.take_type();
  const int mode = m.take_one({"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"});
  m.finish();
  require_operands(c, i, 4, 4);
  const Ref a = c.read(i.operands[1], type), b = c.read(i.operands[2], type),
            selector = c.read(i.operands[3], Type::kB32);
  c.emit(op_key(Op::kPrmt, type, Type::kNone, 0, static_cast<u8>(mode + 1)), {c.write(i.operands[0], type)},
         {a, b, selector}, 0, {kCostInteger, 1});
}

constexpr LoweringRow kRows[] = {
    {"and", &logic<Op::kAnd>},
    {"or", &logic<Op::kOr>},
    {"xor", &logic<Op::kXor>},
    {"not", &lower_not},
    {"cnot", &lower_cnot},
    {"shl", &lower_shl},
    {"shr", &lower_shr},
    {"shf", &lower_shf},
    {"lop3", &lower_lop3},
    {"popc", &count_bits<Op::kPopc>},
    {"clz", &count_bits<Op::kClz>},
    {"brev", &lower_brev},
    {"bfind", &lower_bfind},
    {"fns", &lower_fns},
    {"bfe", &lower_bfe},
    {"bfi", &lower_bfi},
    {"bmsk", &clamp_or_wrap<Op::kBmskClamp, Op::kBmskWrap>},
    {"szext", &clamp_or_wrap<Op::kSzextClamp, Op::kSzextWrap>},
    {"prmt", &lower_prmt},
};

}  // namespace

LoweringTable logic_lowerings() { return {kRows, std::size(kRows)}; }

}  // namespace tessera::sim
