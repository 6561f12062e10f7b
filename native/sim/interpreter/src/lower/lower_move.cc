// SPDX-License-Identifier: Apache-2.0
// mov with packing and unpacking, cvta, isspacep, mapa.
#include "../memory_gate.h"
#include "families.h"

namespace tessera::sim {
namespace {

using Kind = ptx::Operand::Kind;

/// Joins values of `bits` each, least significant first, until one is left.
Ref pack(FunctionCompiler& c, std::vector<Ref> parts, u32 bits) {
  while (parts.size() > 1) {
    const Op op = bits == 8    ? Op::kPackBytes
                  : bits == 16 ? Op::kPackHalves
                  : bits == 32 ? Op::kPackWords
                               : Op::kPackDoubles;
    const RegisterClass joined = bits == 8    ? RegisterClass::kHalf
                                 : bits == 16 ? RegisterClass::kWord
                                 : bits == 32 ? RegisterClass::kDouble
                                              : RegisterClass::kQuad;
    std::vector<Ref> wider;
    for (size_t k = 0; k + 1 < parts.size(); k += 2) {
      wider.push_back(c.temporary(joined));
      c.emit(op_key(op), {wider.back()}, {parts[k], parts[k + 1]});
    }
    parts = std::move(wider);
    bits *= 2;
  }
  return parts[0];
}

/// Splits a value of `bits` into `count` equal parts, least significant first.
std::vector<Ref> unpack(FunctionCompiler& c, Ref whole, u32 bits, size_t count) {
  std::vector<Ref> parts{whole};
  while (parts.size() < count) {
    bits /= 2;
    const Op op = bits == 8    ? Op::kUnpackBytes
                  : bits == 16 ? Op::kUnpackHalves
                  : bits == 32 ? Op::kUnpackWords
                               : Op::kUnpackDoubles;
    const RegisterClass half = bits <= 16   ? RegisterClass::kHalf
                               : bits == 32 ? RegisterClass::kWord
                                            : RegisterClass::kDouble;
    std::vector<Ref> narrower;
    for (Ref part : parts) {
      const Ref low = c.temporary(half), high = c.temporary(half);
      c.emit(op_key(op), {low, high}, {part});
      narrower.push_back(low);
      narrower.push_back(high);
    }
    parts = std::move(narrower);
  }
  return parts;
}

u32 bits_of_class(RegisterClass k) { return slot_bytes(k) * 8 / kLanes; }

Type part_type(FunctionCompiler& c, u32 total, size_t count) {
  const u32 bits = count == 0 || total % count != 0 ? 0 : total / static_cast<u32>(count);
  switch (bits) {
    case 8:
      return Type::kB8;
    case 16:
      return Type::kB16;
    case 32:
      return Type::kB32;
    case 64:
      return Type::kB64;
    default:
      c.invalid("the vector does not divide the value");
  }
}

void move_to_vector(FunctionCompiler& c, const ptx::Instruction& i, Type type) {
  const auto& elements = i.operands[0].elements;
  const u32 total = bits_of_class(class_of(type));
  const Type part = part_type(c, total, elements.size());
  const std::vector<Ref> parts = unpack(c, c.read(i.operands[1], type), total, elements.size());
  for (size_t k = 0; k < elements.size(); ++k) {
    if (elements[k].kind != Kind::kSink) c.move(c.write(elements[k], part), parts[k], class_of(part));
  }
}

void move_from_vector(FunctionCompiler& c, const ptx::Instruction& i, Type type) {
  const auto& elements = i.operands[1].elements;
  const Type part = part_type(c, bits_of_class(class_of(type)), elements.size());
  std::vector<Ref> parts;
  for (const ptx::Operand& element : elements) parts.push_back(c.read(element, part));
  const Ref joined = pack(c, std::move(parts), ptx::type_size(part) * 8);
  c.move(c.write(i.operands[0], type), joined, class_of(type));
}

void lower_mov(FunctionCompiler& c, const ptx::Instruction& i) {
  Modifiers m(i);
  const Type type = m.take_type();
  m.finish();
  require_operands(c, i, 2, 2);
  const ptx::Operand &to = i.operands[0], &from = i.operands[1];
  if (type == Type::kPred) {
    const auto p = c.read_predicate(from);
    return c.emit(op_key(Op::kMov, type), {c.write(to, type)}, {p.ref}, p.negated ? 1 : 0);
  }
  if (class_of(type) == RegisterClass::kNone) c.unsupported("this type");
  if (to.kind == Kind::kVector && to.elements.size() > 1) return move_to_vector(c, i, type);
  if (from.kind == Kind::kVector && from.elements.size() > 1) return move_from_vector(c, i, type);
  const Ref value = c.read(from, type);
  c.emit(op_key(Op::kMov, bits_of_type(type)), {c.write(to, type)}, {value});
}

/// The generic window of a space; a function's own parameters are local memory.
u64 take_window(FunctionCompiler& c, Modifiers& m) {
  if (m.take("global") || m.take("const")) return 0;
  if (m.take("shared") || m.take("shared::cta") || m.take("shared::cluster")) return kSharedWindow;
  if (m.take("local")) return kLocalWindow;
  if (m.take("param::entry")) return kParamWindow;
  if (m.take("param") || m.take("param::func")) return c.source().is_entry ? kParamWindow : kLocalWindow;
  c.unsupported("this state space");
}

void lower_cvta(FunctionCompiler& c, const ptx::Instruction& i) {
  Modifiers m(i);
  const bool to_space = m.take("to");
  const u64 window = take_window(c, m);
  const Type type = m.take_type();
  m.finish();
  require_operands(c, i, 2, 2);
  if (type != Type::kU64) c.unsupported("32-bit addresses");
  const Ref a = c.read(i.operands[1], type), d = c.write(i.operands[0], type);
  if (window == 0) return c.move(d, a, RegisterClass::kDouble);
  c.emit(op_key(Op::kCvta), {d}, {a}, to_space ? u64{0} - window : window);
}

void lower_isspacep(FunctionCompiler& c, const ptx::Instruction& i) {
  Modifiers m(i);
  if (m.has("const")) c.unsupported("constant and global memory share one window");
  const u64 window = take_window(c, m);
  m.finish();
  require_operands(c, i, 2, 2);
  const Ref a = c.read(i.operands[1], Type::kU64);
  c.emit(op_key(Op::kIsspacep), {c.write(i.operands[0], Type::kPred)}, {a}, window);
}

void lower_mapa(FunctionCompiler& c, const ptx::Instruction& i) {
  Modifiers m(i);
  m.take("shared::cluster");
  const Type type = m.take_type();
  m.finish();
  require_operands(c, i, 3, 3);
  const Ref a = c.read(i.operands[1], type), rank = c.read(i.operands[2], Type::kU32);
  c.emit(op_key(Op::kMapa, bits_of_type(type)), {c.write(i.operands[0], type)}, {a, rank});
}

void lower_getctarank(FunctionCompiler& c, const ptx::Instruction& i) {
  Modifiers m(i);
  m.take("shared::cluster");
  const Type type = m.take_type();
  m.finish();
  require_operands(c, i, 2, 2);
  const Ref a = c.read(i.operands[1], type);
  c.emit(op_key(Op::kGetctarank, bits_of_type(type)), {c.write(i.operands[0], Type::kU32)}, {a});
}

constexpr LoweringRow kRows[] = {
    {"mov", &lower_mov},
    {"cvta", &lower_cvta},
    {"isspacep", &lower_isspacep},
    {"mapa", &lower_mapa},
    {"getctarank", &lower_getctarank},
};

}  // namespace

LoweringTable move_lowerings() { return {kRows, std::size(kRows)}; }

}  // namespace tessera::sim
