// SPDX-License-Identifier: Apache-2.0
// atom and red, with their vector forms.
#include "address.h"
#include "families.h"

namespace tessera::sim {
namespace {

using Kind = ptx::Operand::Kind;

/// The operation's word, by the number that the handlers' table gives it.
int take_update(Modifiers& m) { return m.take_one({"add", "min", "max", "and", "or", "xor", "exch", "inc", "dec"}); }

Type table_type(Type type, bool bitwise) {
  if (bitwise) return bits_of_type(type);
  return type;
}

struct Update {
  MemorySpace space;
  bool is_cas;
  int which;  // in take_update's order
  Type type;
  u8 count;
  bool hint;
};
Update parse(FunctionCompiler& c, const ptx::Instruction& i) {
  Modifiers m(i);
  Update update{};
  if (m.has("async")) c.unsupported("asynchronous reductions");
  update.space = take_space(c, m);
  update.hint = m.has("L2::cache_hint");
  take_ordering(m);
  m.ignore({"noftz"});
  const int vector = m.take_one({"v2", "v4", "v8"});
  update.count = static_cast<u8>(vector < 0 ? 1 : 2 << vector);
  update.is_cas = m.take("cas");
  update.which = update.is_cas ? 0 : take_update(m);
  update.type = m.take_type();
  m.finish();
  if (update.which < 0) c.unsupported("this operation");
  if (update.space == MemorySpace::kLocal || update.space == MemorySpace::kParam)
    c.invalid("the operation needs global or shared memory");
  return update;
}

const ptx::Operand& element(const ptx::Operand& operand, size_t k) {
  return operand.kind == Kind::kVector ? operand.elements[k] : operand;
}

void emit_update(FunctionCompiler& c, const ptx::Instruction& i, const Update& update, bool returns) {
  const size_t first = returns ? 1 : 0;
  const size_t values = update.is_cas ? 2 : 1;
  require_operands(c, i, first + 1 + values, first + 1 + values + (update.hint ? 1 : 0));
  Address address = read_address(c, i.operands[first], update.space);
  const bool bitwise = update.is_cas || (update.which >= 3 && update.which <= 6);
  const Type type = table_type(update.type, bitwise);
  if (update.count > 1 && i.operands[first + 1].elements.size() != update.count) c.invalid("a vector is wanted");
  std::vector<Ref> results;
  for (u8 k = 0; k < update.count; ++k) {
    // One result goes straight to its register; several wait until every operand has been read.
    const bool direct = returns && update.count == 1;
    const Ref d = direct ? c.write(i.operands[0], update.type) : c.temporary(class_of(update.type));
    results.push_back(d);
    const Ref b = c.read(element(i.operands[first + 1], k), update.type);
    const Cost cost = arithmetic_cost(update.type);
    if (update.is_cas) {
      c.emit(op_key(Op::kAtomCas, type), {d}, {address.ref, b, c.read(i.operands[first + 2], update.type)},
             address.imm(), cost);
    } else {
      c.emit(op_key(Op::kAtom, type, Type::kNone, 0, static_cast<u8>(update.which)), {d}, {address.ref, b},
             address.imm(), cost);
    }
    address.offset += ptx::type_size(update.type);
  }
  for (u8 k = 0; returns && update.count > 1 && k < update.count; ++k) {
    const ptx::Operand& target = element(i.operands[0], k);
    if (target.kind != Kind::kSink) c.move(c.write(target, update.type), results[k], class_of(update.type));
  }
}

void lower_atom(FunctionCompiler& c, const ptx::Instruction& i) { emit_update(c, i, parse(c, i), true); }
void lower_red(FunctionCompiler& c, const ptx::Instruction& i) { emit_update(c, i, parse(c, i), false); }

constexpr LoweringRow kRows[] = {{"atom", &lower_atom}, {"red", &lower_red}};

}  // namespace

LoweringTable atomic_lowerings() { return {kRows, std::size(kRows)}; }

}  // namespace tessera::sim
