// SPDX-License-Identifier: Apache-2.0
// Shuffles, votes, matches and reductions within a warp. The .sync forms end a
// segment: the executor brings the member lanes together first.
#include "families.h"

namespace tessera::sim {
namespace {

using Kind = ptx::Operand::Kind;

/// The two results of "d|p": the second is a sink where it is not written.
std::pair<Ref, Ref> write_pair(FunctionCompiler& c, const ptx::Operand& operand, Type type) {
  if (operand.kind != Kind::kPair) return {c.write(operand, type), c.temporary(RegisterClass::kPredicate)};
  return {c.write(operand.elements[0], type), c.write(operand.elements[1], Type::kPred)};
}

/// Emits a collective: with a member mask as the last source it waits for the members.
void collective(FunctionCompiler& c, u64 key, const std::vector<Ref>& destinations, std::vector<Ref> sources, u64 imm,
                const ptx::Operand* member_mask) {
  if (member_mask == nullptr) return c.emit(key, destinations, sources, imm);
  sources.push_back(c.read(*member_mask, Type::kB32));
  const u32 position = static_cast<u32>(destinations.size() + sources.size() - 1);
  c.end_segment_with(key, Segment::End::kWarpSync, destinations, sources, imm).detail = position;
}

void lower_shfl(FunctionCompiler& c, const ptx::Instruction& i) {
  Modifiers m(i);
  const bool sync = m.take("sync");
  const int mode = m.take_one({"up", "down", "bfly", "idx"});
  const Type type = m.take_type();
  m.finish();
  if (mode < 0) c.invalid("no mode");
  require_operands(c, i, sync ? 5 : 4, sync ? 5 : 4);
  const Ref a = c.read(i.operands[1], type), b = c.read(i.operands[2], Type::kB32),
            k = c.read(i.operands[3], Type::kB32);
  const auto [d, p] = write_pair(c, i.operands[0], type);
  collective(c, op_key(Op::kShfl, type, Type::kNone, 0, static_cast<u8>(mode)), {d, p}, {a, b, k}, 0,
             sync ? &i.operands[4] : nullptr);
}

void lower_vote(FunctionCompiler& c, const ptx::Instruction& i) {
  Modifiers m(i);
  const bool sync = m.take("sync");
  const int mode = m.take_one({"all", "any", "uni", "ballot"});
  const Type type = m.take_type();
  m.finish();
  if (mode < 0 || (mode == 3) != (type == Type::kB32)) c.invalid("no mode");
  require_operands(c, i, sync ? 3 : 2, sync ? 3 : 2);
  static constexpr Op kOps[] = {Op::kVoteAll, Op::kVoteAny, Op::kVoteUni, Op::kVoteBallot};
  const auto a = c.read_predicate(i.operands[1]);
  collective(c, op_key(kOps[mode]), {c.write(i.operands[0], type)}, {a.ref}, a.negated ? 1 : 0,
             sync ? &i.operands[2] : nullptr);
}

void lower_match(FunctionCompiler& c, const ptx::Instruction& i) {
  Modifiers m(i);
  const int mode = m.take_one({"any", "all"});
  const bool sync = m.take("sync");
  const Type type = m.take_type();
  m.finish();
  if (mode < 0 || !sync) c.invalid("no mode");
  require_operands(c, i, 3, 3);
  const Ref a = c.read(i.operands[1], type);
  if (mode == 0)
    return collective(c, op_key(Op::kMatchAny, type), {c.write(i.operands[0], Type::kB32)}, {a}, 0, &i.operands[2]);
  const auto [d, p] = write_pair(c, i.operands[0], Type::kB32);
  collective(c, op_key(Op::kMatchAll, type), {d, p}, {a}, 0, &i.operands[2]);
}

void lower_redux(FunctionCompiler& c, const ptx::Instruction& i) {
  Modifiers m(i);
  m.take("sync");
  const int which = m.take_one({"add", "min", "max", "and", "or", "xor"});
  const u8 flags = static_cast<u8>((m.take("abs") ? kXorSign : 0) | (m.take("NaN") ? kNan : 0));
  const Type type = m.take_type();
  m.finish();
  if (which < 0) c.invalid("no operation");
  require_operands(c, i, 3, 3);
  const Ref a = c.read(i.operands[1], type);
  collective(c, op_key(Op::kRedux, which >= 3 ? Type::kB32 : type, Type::kNone, flags, static_cast<u8>(which)),
             {c.write(i.operands[0], type)}, {a}, 0, &i.operands[2]);
}

void lower_elect(FunctionCompiler& c, const ptx::Instruction& i) {
  Modifiers m(i);
  m.take("sync");
  m.finish();
  require_operands(c, i, 2, 2);
  const auto [d, p] = write_pair(c, i.operands[0], Type::kB32);
  collective(c, op_key(Op::kElect), {d, p}, {}, 0, &i.operands[1]);
}

void lower_activemask(FunctionCompiler& c, const ptx::Instruction& i) {
  Modifiers m(i);
  const Type type = m.take_type();
  m.finish();
  require_operands(c, i, 1, 1);
  c.emit(op_key(Op::kActivemask), {c.write(i.operands[0], type)}, {});
}

constexpr LoweringRow kRows[] = {
    {"shfl", &lower_shfl},   {"vote", &lower_vote},   {"match", &lower_match},
    {"redux", &lower_redux}, {"elect", &lower_elect}, {"activemask", &lower_activemask},
};

}  // namespace

LoweringTable warp_lowerings() { return {kRows, std::size(kRows)}; }

}  // namespace tessera::sim
