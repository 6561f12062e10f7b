// SPDX-License-Identifier: Apache-2.0
// mma.sync and wmma.
#include <charconv>

#include "../wmma.h"
#include "address.h"
#include "families.h"

namespace tessera::sim {
namespace {

struct Shape {
  u32 m = 0, n = 0, k = 0;
};

u32 number(std::string_view text, size_t& at) {
  u32 value = 0;
  const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), value);
  at = error == std::errc() ? static_cast<size_t>(end - text.data()) : text.size();
  return value;
}

bool parse_shape(std::string_view word, Shape& shape) {
  if (word.size() < 6 || word[0] != 'm') return false;
  size_t at = 1;
  shape.m = number(word, at);
  if (at >= word.size() || word[at] != 'n') return false;
  shape.n = number(word, ++at);
  if (at >= word.size() || word[at] != 'k') return false;
  shape.k = number(word, ++at);
  return at == word.size();
}

/// The words of an instruction in order, without those taken already.
struct Words {
  Shape shape;
  std::vector<std::string_view> types;  // d, a, b, c
  std::vector<std::string_view> layouts;
  bool saturate = false, is_xor = false, is_and = false;
};

Words parse_words(FunctionCompiler& c, const ptx::Instruction& i, size_t skip) {
  Words words;
  for (size_t k = skip; k < i.modifiers.size(); ++k) {
    const std::string_view word = i.modifiers[k];
    if (word == "sync" || word == "aligned" || word == "popc" || word == "rn") continue;
    if (word == "row" || word == "col") {
      words.layouts.push_back(word);
    } else if (word == "satfinite") {
      words.saturate = true;
    } else if (word == "xor") {
      words.is_xor = true;
    } else if (word == "and") {
      words.is_and = true;
    } else if (parse_shape(word, words.shape)) {
      continue;
    } else if (ptx::parse_type(word) != Type::kNone) {
      words.types.push_back(word);
    } else {
      c.unsupported("modifier ." + std::string(word));
    }
  }
  return words;
}

/// How the handlers' table names an element type.
struct ElementType {
  Type type = Type::kNone;
  u8 flags = 0;
  u32 bits = 0;
};
ElementType element_type(std::string_view word) {
  if (word == "s4") return {Type::kS8, kRelu, 4};
  if (word == "u4") return {Type::kU8, kRelu, 4};
  if (word == "b1") return {Type::kB32, kNan, 1};
  const Type type = ptx::parse_type(word);
  return {type, 0, type == Type::kTF32 ? 32 : ptx::type_size(type) * 8};
}

Cost tensor_cost(Type a, const Shape& shape) {
  const u32 operations = 2 * shape.m * shape.n * shape.k;
  switch (a) {
    case Type::kF16:
      return {kCostTensorF16, operations};
    case Type::kBF16:
      return {kCostTensorBf16, operations};
    case Type::kTF32:
      return {kCostTensorTf32, operations};
    case Type::kF64:
      return {kCostTensorF64, operations};
    default:
      return {kCostTensorI8, operations};
  }
}

void read_fragment(FunctionCompiler& c, const ptx::Operand& operand, u32 count, Type type, std::vector<Ref>& refs) {
  const bool one = operand.kind != ptx::Operand::Kind::kVector;
  if ((one ? 1 : operand.elements.size()) != count) c.invalid("a fragment has the wrong number of registers");
  for (u32 k = 0; k < count; ++k) refs.push_back(c.read(one ? operand : operand.elements[k], type));
}
void write_fragment(FunctionCompiler& c, const ptx::Operand& operand, u32 count, Type type, std::vector<Ref>& refs) {
  const bool one = operand.kind != ptx::Operand::Kind::kVector;
  if ((one ? 1 : operand.elements.size()) != count) c.invalid("a fragment has the wrong number of registers");
  for (u32 k = 0; k < count; ++k) refs.push_back(c.write(one ? operand : operand.elements[k], type));
}

u8 log2_of(u32 value) {
  u8 n = 0;
  while ((1u << n) < value) ++n;
  return n;
}

void lower_mma(FunctionCompiler& c, const ptx::Instruction& i) {
  if (i.has("sp") || i.has("sp::ordered_metadata")) c.unsupported("sparse matrices");
  const Words words = parse_words(c, i, 0);
  require_operands(c, i, 4, 4);
  if (words.types.size() != 4 || words.layouts.size() != 2) c.unsupported("this form");
  if (words.layouts[0] != "row" || words.layouts[1] != "col") c.unsupported("only .row.col");
  const Type d = ptx::parse_type(words.types[0]);
  const ElementType a = element_type(words.types[1]), b = element_type(words.types[2]);
  if (words.types[0] != words.types[3] || words.shape.n != 8 || a.bits != b.bits || a.bits == 0)
    c.unsupported("this combination of types");
  u8 flags = a.flags;
  if (a.type != b.type) flags |= kUnsignedOther;
  if (words.saturate) flags |= kSatFinite;
  if (words.is_and) flags |= kXorSign;
  if (a.bits == 1 && words.is_and == words.is_xor) c.invalid("neither .xor nor .and");
  const bool wide = a.type == Type::kF64;
  const u32 rows = words.shape.m / 8, blocks = words.shape.k * a.bits / (wide ? 256 : 128);
  const u32 accumulators = d == Type::kF16 ? rows : 2 * rows;
  const Type element = wide ? Type::kF64 : Type::kB32, sum = wide ? Type::kF64 : Type::kB32;
  std::vector<Ref> targets, refs;
  read_fragment(c, i.operands[1], rows * blocks, element, refs);
  read_fragment(c, i.operands[2], blocks, element, refs);
  read_fragment(c, i.operands[3], accumulators, sum, refs);
  write_fragment(c, i.operands[0], accumulators, sum, targets);
  const u8 variant = static_cast<u8>(log2_of(words.shape.k) | (words.shape.m == 16 ? 0x80 : 0));
  c.emit(op_key(Op::kMma, a.type, d, flags, variant), targets, refs, 0, tensor_cost(a.type, words.shape));
}

// ---- wmma ----

enum class Role { kA, kB, kAccumulator };

/// Registers of a fragment, as PTX fixes them.
u32 fragment_registers(Role role, const Shape& shape, Type type) {
  const u32 elements = role == Role::kA ? shape.m * shape.k : role == Role::kB ? shape.k * shape.n : shape.m * shape.n;
  if (role != Role::kAccumulator && type == Type::kF16) return 8;
  const u32 bytes = ptx::type_size(type);
  return elements / kLanes * bytes / (bytes == 8 ? 8 : 4);
}
Type register_type(Type type) { return ptx::type_size(type) == 8 ? Type::kB64 : Type::kB32; }

FragmentShape memory_shape(Role role, const Shape& shape, Type type, bool by_columns, u32 registers) {
  FragmentShape f;
  f.rows = role == Role::kB ? shape.k : shape.m;
  f.columns = role == Role::kA ? shape.k : shape.n;
  f.bytes = ptx::type_size(type);
  f.by_columns = by_columns;
  f.registers = registers;
  return f;
}

void check_wmma_shape(FunctionCompiler& c, const Shape& s, Type type) {
  const auto is = [&s](u32 m, u32 n, u32 k) { return s.m == m && s.n == n && s.k == k; };
  const bool usual = is(16, 16, 16) || is(32, 8, 16) || is(8, 32, 16);
  const bool fits = type == Type::kTF32  ? is(16, 16, 8)
                    : type == Type::kF64 ? is(8, 8, 4)
                                         : usual || (type == Type::kF32 && is(16, 16, 8));
  if (!fits) c.unsupported("this shape");
}

void lower_wmma_access(FunctionCompiler& c, const ptx::Instruction& i, bool is_load) {
  const std::string_view part = i.modifiers.size() > 1 ? i.modifiers[1] : std::string_view();
  const Role role = part == "a" ? Role::kA : part == "b" ? Role::kB : Role::kAccumulator;
  Modifiers m(i);
  m.ignore({"load", "store", "a", "b", "c", "d", "sync", "aligned"});
  const int layout = m.take_one({"row", "col"});
  Shape shape;
  for (std::string_view word : i.modifiers) {
    if (parse_shape(word, shape)) m.take(word);
  }
  const MemorySpace space = take_space(c, m);
  const Type type = m.take_type();
  m.finish();
  if (layout < 0 || type == Type::kNone || type == Type::kOther) c.unsupported("this form");
  check_wmma_shape(c, shape, type);
  require_operands(c, i, 2, 3);
  const u32 registers = fragment_registers(role, shape, type);
  const FragmentShape f = memory_shape(role, shape, type, layout == 1, registers);
  const Address address = read_address(c, i.operands[is_load ? 1 : 0], space);
  const Ref stride =
      i.operands.size() > 2 ? c.read(i.operands[2], Type::kU32) : c.constant32(layout == 1 ? f.rows : f.columns);
  std::vector<Ref> fragment, rest{address.ref, stride, c.constant32(pack_fragment(f))};
  if (is_load) {
    write_fragment(c, i.operands[0], registers, register_type(type), fragment);
    return c.emit(op_key(Op::kWmmaLoad), fragment, rest, address.imm(static_cast<u8>(registers)));
  }
  read_fragment(c, i.operands[1], registers, register_type(type), fragment);
  rest.insert(rest.end(), fragment.begin(), fragment.end());
  c.emit(op_key(Op::kWmmaStore), {}, rest, address.imm(static_cast<u8>(registers)));
}

void lower_wmma(FunctionCompiler& c, const ptx::Instruction& i) {
  if (i.has("load")) return lower_wmma_access(c, i, true);
  if (i.has("store")) return lower_wmma_access(c, i, false);
  if (i.modifiers.empty() || i.modifiers[0] != "mma") c.unsupported("this form");
  Words words = parse_words(c, i, 1);
  require_operands(c, i, 4, 4);
  if (words.types.size() == 2) words.types = {words.types[0], "f16", "f16", words.types[1]};
  if (words.types.size() != 4 || words.types[1] != words.types[2]) c.unsupported("this form");
  const Type d = ptx::parse_type(words.types[0]), a = ptx::parse_type(words.types[1]),
             sum = ptx::parse_type(words.types[3]);
  check_wmma_shape(c, words.shape, a);
  const u32 nd = fragment_registers(Role::kAccumulator, words.shape, d),
            na = fragment_registers(Role::kA, words.shape, a);
  const u32 nb = fragment_registers(Role::kB, words.shape, a),
            nc = fragment_registers(Role::kAccumulator, words.shape, sum);
  std::vector<Ref> targets, refs;
  read_fragment(c, i.operands[1], na, register_type(a), refs);
  read_fragment(c, i.operands[2], nb, register_type(a), refs);
  read_fragment(c, i.operands[3], nc, register_type(sum), refs);
  write_fragment(c, i.operands[0], nd, register_type(d), targets);
  const u64 imm =
      words.shape.m | words.shape.n << 8 | words.shape.k << 16 | u64{nd} << 24 | u64{na} << 32 | u64{nb} << 40;
  const u8 flags = static_cast<u8>(kFtz | (words.saturate ? kSatFinite : 0));
  c.emit(op_key(Op::kMma, a, d, flags, static_cast<u8>(sum)), targets, refs, imm, tensor_cost(a, words.shape));
}

constexpr LoweringRow kRows[] = {{"mma", &lower_mma}, {"wmma", &lower_wmma}};

}  // namespace

LoweringTable matrix_lowerings() { return {kRows, std::size(kRows)}; }

}  // namespace tessera::sim
