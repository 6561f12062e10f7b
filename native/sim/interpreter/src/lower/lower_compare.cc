// SPDX-License-Identifier: Apache-2.0
// setp, set, selp, slct.
#include "families.h"

namespace tessera::sim {

Comparison take_comparison(FunctionCompiler& c, Modifiers& m, Type type, bool has_type) {
  (void)has_type;
  struct Row {
    std::string_view word;
    bool integer, floating;
    Comparison comparison;
  };
  static constexpr Row kWords[] = {
      {"eq", true, true, {Op::kSetpEq, false, false}},   {"ne", true, true, {Op::kSetpNe, false, false}},
      {"lt", true, true, {Op::kSetpLt, false, false}},   {"le", true, true, {Op::kSetpLe, false, false}},
      {"gt", true, true, {Op::kSetpLt, true, false}},    {"ge", true, true, {Op::kSetpLe, true, false}},
      {"lo", true, false, {Op::kSetpLt, false, false}},  {"ls", true, false, {Op::kSetpLe, false, false}},
      {"hi", true, false, {Op::kSetpLt, true, false}},   {"hs", true, false, {Op::kSetpLe, true, false}},
      {"equ", false, true, {Op::kSetpNe, false, true}},  {"neu", false, true, {Op::kSetpEq, false, true}},
      {"ltu", false, true, {Op::kSetpLe, true, true}},   {"leu", false, true, {Op::kSetpLt, true, true}},
      {"gtu", false, true, {Op::kSetpLe, false, true}},  {"geu", false, true, {Op::kSetpLt, false, true}},
      {"num", false, true, {Op::kSetpNan, false, true}}, {"nan", false, true, {Op::kSetpNan, false, false}},
  };
  for (const Row& row : kWords) {
    if (!m.take(row.word)) continue;
    if (!(is_float(type) ? row.floating : row.integer)) c.unsupported("this comparison of this type");
    Comparison comparison = row.comparison;
    // Integers have no third outcome, so "ne" is the opposite of "eq".
    if (!is_float(type) && comparison.op == Op::kSetpNe) comparison = {Op::kSetpEq, false, true};
    return comparison;
  }
  c.invalid("no comparison");
}

namespace {

Type comparable(Type type) {
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

struct Parsed {
  Comparison comparison;
  Type type = Type::kNone;
  u8 flags = 0;
  u64 imm = 0;
  Ref third = 0;
};

/// The words after an opcode: comparison, combination, ftz and the operands' type (after `skip` types).
Parsed parse(FunctionCompiler& c, const ptx::Instruction& i, Modifiers& m, Type type, size_t operand_count) {
  Parsed parsed;
  parsed.type = comparable(type);
  parsed.flags = m.take("ftz") ? u8{kFtz} : u8{0};
  const bool combined = i.operands.size() == operand_count + 1;
  // In "setp.eq.and.b32" the combination follows the comparison: neither word is also the other.
  parsed.comparison = take_comparison(c, m, type, true);
  const int combine = m.take_one({"and", "or", "xor"});
  m.finish();
  if (combined != (combine >= 0)) c.invalid("a combination needs exactly one predicate more");
  parsed.imm = parsed.comparison.invert ? 1 : 0;
  parsed.third = c.false_predicate();
  if (combined) {
    const auto third = c.read_predicate(i.operands[operand_count]);
    parsed.third = third.ref;
    parsed.imm |= static_cast<u64>(combine + 1) << 1 | (third.negated ? 8u : 0u);
  }
  return parsed;
}

void compare(FunctionCompiler& c, const ptx::Instruction& i, const Parsed& parsed, Ref p, Ref q) {
  Ref a = c.read(i.operands[1], parsed.type), b = c.read(i.operands[2], parsed.type);
  if (parsed.comparison.swap) std::swap(a, b);
  c.emit(op_key(parsed.comparison.op, parsed.type, Type::kNone, parsed.flags), {p, q}, {a, b, parsed.third}, parsed.imm,
         arithmetic_cost(parsed.type));
}

void lower_setp(FunctionCompiler& c, const ptx::Instruction& i) {
  Modifiers m(i);
  const Type type = m.take_type();
  require_operands(c, i, 3, 4);
  const Parsed parsed = parse(c, i, m, type, 3);
  const ptx::Operand& target = i.operands[0];
  if (target.kind == ptx::Operand::Kind::kPair) {
    return compare(c, i, parsed, c.write(target.elements[0], Type::kPred), c.write(target.elements[1], Type::kPred));
  }
  if (class_of(type) == RegisterClass::kWord && is_float(type) && type != Type::kF32)
    c.invalid("a packed comparison has two results");
  compare(c, i, parsed, c.write(target, Type::kPred), c.temporary(RegisterClass::kPredicate));
}

/// set.cmp.dtype.stype: all ones, or one, where the comparison holds.
void lower_set(FunctionCompiler& c, const ptx::Instruction& i) {
  Modifiers m(i);
  const Type to = m.take_type(), from = m.take_type();
  require_operands(c, i, 3, 4);
  const Parsed parsed = parse(c, i, m, from, 3);
  const Ref p = c.temporary(RegisterClass::kPredicate), q = c.temporary(RegisterClass::kPredicate);
  compare(c, i, parsed, p, q);
  const Ref d = c.write(i.operands[0], to);
  if (from == Type::kF16x2 || from == Type::kBF16x2) {
    const u64 one = to == Type::kF16x2 ? 0x3c00 : to == Type::kBF16x2 ? 0x3f80 : 0xffff;
    return c.emit(op_key(Op::kPackMask16), {d}, {p, q}, one);
  }
  const RegisterClass k = class_of(to);
  const u64 one = to == Type::kF32 ? 0x3f800000u : to == Type::kF16 ? 0x3c00u : to == Type::kBF16 ? 0x3f80u : ~u64{0};
  c.emit(op_key(Op::kSelp, bits_type(k)), {d}, {c.constant(k, one), c.constant(k, 0), p});
}

void lower_selp(FunctionCompiler& c, const ptx::Instruction& i) {
  Modifiers m(i);
  const Type type = m.take_type();
  m.finish();
  require_operands(c, i, 4, 4);
  const Ref a = c.read(i.operands[1], type), b = c.read(i.operands[2], type);
  const auto p = c.read_predicate(i.operands[3]);
  c.emit(op_key(Op::kSelp, bits_of_type(type)), {c.write(i.operands[0], type)}, {a, b, p.ref}, p.negated ? 1 : 0,
         {kCostInteger, 1});
}

void lower_slct(FunctionCompiler& c, const ptx::Instruction& i) {
  Modifiers m(i);
  const u8 flags = m.take("ftz") ? u8{kFtz} : u8{0};
  const Type type = m.take_type(), by = m.take_type();
  m.finish();
  require_operands(c, i, 4, 4);
  const Ref a = c.read(i.operands[1], type), b = c.read(i.operands[2], type), x = c.read(i.operands[3], by);
  c.emit(op_key(Op::kSlct, bits_of_type(type), by, flags), {c.write(i.operands[0], type)}, {a, b, x}, 0,
         {kCostInteger, 1});
}

constexpr LoweringRow kRows[] = {
    {"setp", &lower_setp}, {"set", &lower_set}, {"selp", &lower_selp}, {"slct", &lower_slct}};

}  // namespace

LoweringTable compare_lowerings() { return {kRows, std::size(kRows)}; }

}  // namespace tessera::sim
