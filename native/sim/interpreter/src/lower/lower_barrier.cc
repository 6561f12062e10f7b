// SPDX-License-Identifier: Apache-2.0
// Barriers of blocks, warps and clusters, mbarrier objects, fences.
#include "address.h"
#include "families.h"

namespace tessera::sim {
namespace {

void nothing(FunctionCompiler& c, const ptx::Instruction&) { c.emit(op_key(Op::kNop), {}, {}); }

void lower_warp_barrier(FunctionCompiler& c, const ptx::Instruction& i, Modifiers& m) {
  m.take("sync");
  m.finish();
  require_operands(c, i, 1, 1);
  c.end_segment(Segment::End::kWarpBarrier, {}, {c.read(i.operands[0], Type::kB32)});
}

void lower_cluster_barrier(FunctionCompiler& c, const ptx::Instruction& i, Modifiers& m) {
  const int which = m.take_one({"arrive", "wait"});
  m.ignore({"release", "relaxed", "acquire", "aligned"});
  m.finish();
  require_operands(c, i, 0, 0);
  if (which < 0) c.invalid("neither .arrive nor .wait");
  c.end_segment(which == 0 ? Segment::End::kClusterArrive : Segment::End::kClusterWait);
}

void end_with_barrier(FunctionCompiler& c, const BlockBarrier& barrier, const std::vector<Ref>& destinations,
                      const std::vector<Ref>& sources) {
  const u32 detail = static_cast<u32>(c.out().barriers.size());
  c.out().barriers.push_back(barrier);
  c.end_segment(Segment::End::kBlockBarrier, destinations, sources).detail = detail;
}

void lower_reduction(FunctionCompiler& c, const ptx::Instruction& i, Modifiers& m) {
  const int which = m.take_one({"popc", "and", "or"});
  const Type type = m.take_type();
  m.finish();
  if (which < 0) c.invalid("no reduction");
  require_operands(c, i, 3, 4);
  BlockBarrier barrier;
  barrier.kind = which == 0   ? BlockBarrier::Kind::kReducePopc
                 : which == 1 ? BlockBarrier::Kind::kReduceAnd
                              : BlockBarrier::Kind::kReduceOr;
  barrier.counted = i.operands.size() == 4;
  const auto p = c.read_predicate(i.operands[i.operands.size() - 1]);
  barrier.predicate_negated = p.negated;
  const Ref name = c.read(i.operands[1], Type::kU32);
  const Ref count = barrier.counted ? c.read(i.operands[2], Type::kU32) : c.constant32(0);
  end_with_barrier(c, barrier, {c.write(i.operands[0], type)}, {name, count, p.ref});
}

void lower_bar(FunctionCompiler& c, const ptx::Instruction& i) {
  Modifiers m(i);
  if (m.take("warp")) return lower_warp_barrier(c, i, m);
  if (m.take("cluster")) return lower_cluster_barrier(c, i, m);
  m.take("cta");
  const int form = m.take_one({"sync", "arrive", "red"});
  m.take("aligned");
  if (form < 0) c.invalid("neither .sync, .arrive nor .red");
  if (form == 2) return lower_reduction(c, i, m);
  m.finish();
  require_operands(c, i, 1, 2);
  BlockBarrier barrier;
  barrier.kind = form == 0 ? BlockBarrier::Kind::kSync : BlockBarrier::Kind::kArrive;
  barrier.counted = i.operands.size() == 2;
  if (form == 1 && !barrier.counted) c.invalid(".arrive needs a thread count");
  const Ref name = c.read(i.operands[0], Type::kU32);
  end_with_barrier(c, barrier, {}, {name, barrier.counted ? c.read(i.operands[1], Type::kU32) : c.constant32(0)});
}

constexpr LoweringRow kRows[] = {
    {"bar", &lower_bar},
    {"barrier", &lower_bar},
    {"membar", &nothing},
    {"fence", &nothing},
};

}  // namespace

LoweringTable barrier_lowerings() { return {kRows, std::size(kRows)}; }

}  // namespace tessera::sim
