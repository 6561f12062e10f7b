// SPDX-License-Identifier: Apache-2.0
// cvt in all its forms, and cvt.pack.
#include "families.h"

namespace tessera::sim {
namespace {

bool is_half(Type type) { return type == Type::kF16 || type == Type::kBF16; }
bool is_small_pair(Type type) {
  return type == Type::kE4M3x2 || type == Type::kE5M2x2 || type == Type::kE2M1x2 || type == Type::kE2M3x2 ||
         type == Type::kE3M2x2 || type == Type::kUE8M0x2;
}
bool is_wide_pair(Type type) { return type == Type::kF16x2 || type == Type::kBF16x2; }

struct Words {
  Rounding rounding = Rounding::kNone;
  Rounding integral = Rounding::kNone;  // .rni, .rzi, .rmi, .rpi
  u8 flags = 0;
  Type to = Type::kNone, from = Type::kNone;
};

Words parse(FunctionCompiler& c, Modifiers& m) {
  Words words;
  words.rounding = m.take_rounding();
  const int integral = m.take_one({"rni", "rzi", "rmi", "rpi"});
  if (integral >= 0) words.integral = static_cast<Rounding>(integral);
  if (m.take("ftz")) words.flags |= kFtz;
  if (m.take("sat")) words.flags |= kSat;
  if (m.take("relu")) words.flags |= kRelu;
  if (m.take("satfinite")) words.flags |= kSatFinite;
  words.to = m.take_type();
  words.from = m.take_type();
  m.finish();
  if (words.to == Type::kNone || words.from == Type::kNone) c.invalid("two types are wanted");
  return words;
}

u8 variant(Rounding mode) { return mode == Rounding::kNone ? u8{0} : static_cast<u8>(mode); }

/// The type as the tables know it: bits are unsigned.
Type value_type(Type type) {
  switch (type) {
    case Type::kB8:
      return Type::kU8;
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

/// The source register may be wider than the type: the low bits count.
Ref read_source(FunctionCompiler& c, const ptx::Operand& operand, Type type) {
  const RegisterClass have = c.register_class(operand), want = class_of(type);
  if (have == RegisterClass::kNone || have == want) return c.read(operand, type);
  if (have == RegisterClass::kPredicate || have < want) c.invalid("the source register is too small");
  return c.read_resized(operand, want, false);
}

/// The destination register may be wider too: integers are extended into it.
struct Target {
  Ref natural, final;
  RegisterClass from, to;
};
Target open_target(FunctionCompiler& c, const ptx::Operand& operand, Type type) {
  const RegisterClass want = class_of(type), have = c.register_class(operand);
  if (have == RegisterClass::kNone || have == want) {
    const Ref d = c.write(operand, type);
    return {d, d, want, want};
  }
  if (have == RegisterClass::kPredicate || have < want) c.invalid("the destination register is too small");
  return {c.temporary(want), c.register_ref(operand.reg, operand.component), want, have};
}
void close_target(FunctionCompiler& c, const Target& target, Type type) {
  if (target.natural == target.final) return;
  c.move(target.final, c.resize(target.natural, target.from, target.to, is_signed(type)), target.to);
}

/// One value to one value. A half goes through float where only float has a handler: that step is exact.
void convert_value(FunctionCompiler& c, Ref d, Ref a, const Words& words) {
  const Type to = value_type(words.to), from = value_type(words.from);
  const Cost cost = arithmetic_cost(is_float(to) ? to : from);
  const bool from_float = is_float(from), to_float = is_float(to);
  if (from_float && !to_float) {
    if (words.integral == Rounding::kNone) c.invalid("a conversion to an integer needs an integer rounding");
    Ref value = a;
    if (is_half(from)) {
      value = c.temporary(RegisterClass::kWord);
      c.emit(op_key(Op::kCvt, Type::kF32, from), {value}, {a});
    }
    const u8 flags = words.flags & kFtz;  // .sat: out of range is clamped anyway
    return c.emit(op_key(Op::kCvt, to, is_half(from) ? Type::kF32 : from, flags, variant(words.integral)), {d}, {value},
                  0, cost);
  }
  if (from == to && words.integral != Rounding::kNone) {
    if (!is_half(from))
      return c.emit(op_key(Op::kCvtRound, to, to, words.flags, variant(words.integral)), {d}, {a}, 0, cost);
    const Ref wide = c.temporary(RegisterClass::kWord), whole = c.temporary(RegisterClass::kWord);
    c.emit(op_key(Op::kCvt, Type::kF32, from), {wide}, {a});
    c.emit(op_key(Op::kCvtRound, Type::kF32, Type::kF32, words.flags, variant(words.integral)), {whole}, {wide});
    return c.emit(op_key(Op::kCvt, to, Type::kF32), {d}, {whole}, 0, cost);
  }
  const bool saturates_integer = !from_float && to_float && (words.flags & kSat) != 0;
  if (saturates_integer) c.unsupported(".sat from an integer to a float");
  if (words.integral != Rounding::kNone) c.unsupported("an integer rounding between two sizes");
  const u8 flags = !from_float && to_float ? u8{0} : words.flags;
  c.emit(op_key(Op::kCvt, to, from, flags, variant(words.rounding)), {d}, {a}, 0, cost);
}

/// Two floats into a pair: the first source is the upper element.
void convert_pair(FunctionCompiler& c, const ptx::Instruction& i, const Words& words) {
  const bool from_packed = is_wide_pair(words.from);
  require_operands(c, i, from_packed ? 2 : 3, from_packed ? 2 : 3);
  const u64 key = op_key(Op::kCvtPair, words.to, words.from, words.flags, variant(words.rounding));
  const Ref a = c.read(i.operands[1], words.from);
  const Target target = open_target(c, i.operands[0], words.to);
  if (from_packed) {
    c.emit(key, {target.natural}, {a}, 0, {kCostF16, 2});
  } else {
    c.emit(key, {target.natural}, {a, c.read(i.operands[2], words.from)}, 0, {kCostF32, 2});
  }
  close_target(c, target, Type::kU16);
}

void lower_cvt_pack(FunctionCompiler& c, const ptx::Instruction& i, Modifiers& m) {
  static constexpr std::string_view kWords[] = {"u16", "s16", "u8", "s8", "u4", "s4", "u2", "s2"};
  if (!m.take("sat")) c.invalid(".sat is missing");
  int kind = -1;
  for (int k = 0; k < 8 && kind < 0; ++k) kind = m.take(kWords[k]) ? k : -1;
  if (kind < 0) c.invalid("no element type");
  m.take("s32");
  m.take("b32");
  m.finish();
  require_operands(c, i, 3, 4);
  const u8 width = static_cast<u8>(16 >> kind / 2);
  const Ref a = c.read(i.operands[1], Type::kS32), b = c.read(i.operands[2], Type::kS32);
  const Ref above = i.operands.size() > 3 ? c.read(i.operands[3], Type::kB32) : c.constant32(0);
  const Type sign = kind % 2 == 0 ? Type::kU32 : Type::kS32;
  c.emit(op_key(Op::kCvtPack, sign, Type::kNone, 0, width), {c.write(i.operands[0], Type::kB32)}, {a, b, above}, 0,
         {kCostInteger, 2});
}

void lower_cvt(FunctionCompiler& c, const ptx::Instruction& i) {
  Modifiers m(i);
  if (m.take("pack")) return lower_cvt_pack(c, i, m);
  Words words = parse(c, m);
  if (is_small_pair(words.from) && is_wide_pair(words.to)) {
    require_operands(c, i, 2, 2);
    const Ref a = read_source(c, i.operands[1], Type::kU16);
    return c.emit(op_key(Op::kCvtExpand, words.to, words.from, words.flags), {c.write(i.operands[0], words.to)}, {a}, 0,
                  {kCostF16, 2});
  }
  if (is_small_pair(words.to) || (is_wide_pair(words.to) && words.from == Type::kF32)) return convert_pair(c, i, words);
  require_operands(c, i, 2, 2);
  if (words.to == Type::kTF32 && words.rounding == Rounding::kNone) c.invalid("a rounding is missing");
  const Ref a = read_source(c, i.operands[1], words.from);
  const Target target = open_target(c, i.operands[0], words.to);
  convert_value(c, target.natural, a, words);
  close_target(c, target, words.to);
}

constexpr LoweringRow kRows[] = {{"cvt", &lower_cvt}};

}  // namespace

LoweringTable convert_lowerings() { return {kRows, std::size(kRows)}; }

}  // namespace tessera::sim
