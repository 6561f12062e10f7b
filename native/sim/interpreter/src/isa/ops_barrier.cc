// SPDX-License-Identifier: Apache-2.0
// mbarrier objects in shared memory, and the bulk copies that complete on them.
// An object is one word of ours: programs may only pass it to mbarrier operations.
#include "map.h"
#include "resolve.h"
#include "tables.h"

namespace tessera::sim::TESSERA_SIM_ISA {
namespace {

constexpr u32 kCountMask = (1u << 20) - 1;
constexpr s64 kBytesBias = s64{1} << 20;

struct Object {
  u32 pending, expected;  // arrivals: left in this phase, and of each phase
  s64 bytes;              // transactions outstanding
  bool phase;
};
TS_INLINE Object unpack(u64 word) {
  return {static_cast<u32>(word) & kCountMask, static_cast<u32>(word >> 20) & kCountMask,
          static_cast<s64>(word >> 40 & 0x1fffff) - kBytesBias, (word >> 63) != 0};
}
TS_INLINE u64 pack(const Object& o) {
  return u64{o.pending} | u64{o.expected} << 20 | (static_cast<u64>(o.bytes + kBytesBias) & 0x1fffff) << 40 |
         u64{o.phase} << 63;
}
TS_INLINE u64& word_at(u64 host) { return *reinterpret_cast<u64*>(host); }

TS_INLINE void complete_if_due(Object& o) {
  if (o.pending != 0 || o.bytes != 0) return;
  o.phase = !o.phase;
  o.pending = o.expected;
}

template <class F>
void each(Warp& w, const MicroOp& op, u32 mask, u32 ref, AccessVerb verb, F visit) {
  Resolved at;
  resolve(w, op, mask, ref, 8, verb, at);
  for (int i = 0; i < kLanes; ++i) {
    if ((mask >> i & 1) != 0) visit(i, at.host[i]);
  }
}

/// r = {address, count}
void init(Warp& w, const MicroOp& op, u32 mask) {
  const u32* count = w.lanes32(op.r[1]);
  each(w, op, mask, op.r[0], AccessVerb::kWrite, [&](int i, u64 host) {
    if (count[i] == 0 || count[i] > kCountMask)
      raise_fault(Fault::Kind::kIllegalInstruction, "mbarrier.init with a count out of range", op, i);
    word_at(host) = pack({count[i], count[i], 0, false});
  });
}

void inval(Warp& w, const MicroOp& op, u32 mask) {
  each(w, op, mask, op.r[0], AccessVerb::kWrite, [](int, u64 host) { word_at(host) = 0; });
}

TS_INLINE void arrive_at(const MicroOp& op, int lane, u64 host, u32 count, u32 bytes, bool drops) {
  Object o = unpack(word_at(host));
  if (count == 0 || count > o.pending)
    raise_fault(Fault::Kind::kIllegalInstruction, "more arrivals at an mbarrier than it expects", op, lane);
  o.bytes += bytes;
  o.pending -= count;
  if (drops) o.expected -= count;
  complete_if_due(o);
  word_at(host) = pack(o);
}

/// r = {state, address, count, bytes}; extra bit 0: the arrivals are dropped from later phases.
void arrive(Warp& w, const MicroOp& op, u32 mask) {
  u64* state = w.lanes64(op.r[0]);
  const u32 *count = w.lanes32(op.r[2]), *bytes = w.lanes32(op.r[3]);
  const bool drops = (memory_extra(op.imm) & 1) != 0;
  Resolved at;
  resolve(w, op, mask, op.r[1], 8, AccessVerb::kWrite, at);
  for (int i = 0; i < kLanes; ++i) {
    if ((mask >> i & 1) == 0) continue;
    const u64 before = word_at(at.host[i]);
    arrive_at(op, i, at.host[i], count[i], bytes[i], drops);
    state[i] = before;
  }
}

/// r = {address, bytes}
void expect_bytes(Warp& w, const MicroOp& op, u32 mask) {
  const u32* bytes = w.lanes32(op.r[1]);
  each(w, op, mask, op.r[0], AccessVerb::kWrite, [&](int i, u64 host) {
    Object o = unpack(word_at(host));
    o.bytes += bytes[i];
    word_at(host) = pack(o);
  });
}

TS_INLINE void complete_at(u64 host, u32 bytes) {
  Object o = unpack(word_at(host));
  o.bytes -= bytes;
  complete_if_due(o);
  word_at(host) = pack(o);
}
void complete_bytes(Warp& w, const MicroOp& op, u32 mask) {
  const u32* bytes = w.lanes32(op.r[1]);
  each(w, op, mask, op.r[0], AccessVerb::kWrite, [&](int i, u64 host) { complete_at(host, bytes[i]); });
}

/// r = {p, address, state or parity}: by a state's phase, or by a parity. Who waits lets others run.
template <bool kParity>
void test_wait(Warp& w, const MicroOp& op, u32 mask) {
  u32 complete = 0;
  each(w, op, mask, op.r[1], AccessVerb::kRead, [&](int i, u64 host) {
    const bool waited = kParity ? (w.lanes32(op.r[2])[i] & 1) != 0 : unpack(w.lanes64(op.r[2])[i]).phase;
    complete |= static_cast<u32>(unpack(word_at(host)).phase != waited) << i;
  });
  u32& p = w.predicate(op.r[0]);
  p = (p & ~mask) | (complete & mask);
  if ((complete & mask) != mask) w.yield = true;
}

TS_INLINE u32 pending_count(u64 state) { return unpack(state).pending; }

/// r = {destination, source, bytes, mbarrier}; imm: the two spaces, and whether there is an mbarrier.
void bulk_copy(Warp& w, const MicroOp& op, u32 mask) {
  const MemorySpace to_space = static_cast<MemorySpace>(op.imm & 15),
                    from_space = static_cast<MemorySpace>(op.imm >> 4 & 15);
  const u64 *to = w.lanes64(op.r[0]), *from = w.lanes64(op.r[1]), *barrier = w.lanes64(op.r[3]);
  const u32* bytes = w.lanes32(op.r[2]);
  for (int i = 0; i < kLanes; ++i) {
    if ((mask >> i & 1) == 0) continue;
    if (bytes[i] % 16 != 0)
      raise_fault(Fault::Kind::kIllegalInstruction, "a bulk copy's size is not a multiple of 16", op, i);
    if (bytes[i] != 0) {
      Resolved target, origin;
      target.host[i] = to[i];
      origin.host[i] = from[i];
      resolve_addresses(w, op, 1u << i, from_space, bytes[i], 16, AccessVerb::kRead, origin);
      resolve_addresses(w, op, 1u << i, to_space, bytes[i], 16, AccessVerb::kWrite, target);
      __builtin_memmove(reinterpret_cast<void*>(target.host[i]), reinterpret_cast<const void*>(origin.host[i]),
                        bytes[i]);
    }
    if ((op.imm >> 8 & 1) == 0) continue;
    Resolved object;
    object.host[i] = barrier[i];
    resolve_addresses(w, op, 1u << i, MemorySpace::kShared, 8, 8, AccessVerb::kWrite, object);
    complete_at(object.host[i], bytes[i]);
  }
}

constexpr OpEntry kEntries[] = {
    {op_key(Op::kMbarrierInit), &init},
    {op_key(Op::kMbarrierInval), &inval},
    {op_key(Op::kMbarrierArrive), &arrive},
    {op_key(Op::kMbarrierExpectTx), &expect_bytes},
    {op_key(Op::kMbarrierCompleteTx), &complete_bytes},
    {op_key(Op::kMbarrierTestWait), &test_wait<false>},
    {op_key(Op::kMbarrierTestWait, Type::kNone, Type::kNone, 0, 1), &test_wait<true>},
    {op_key(Op::kMbarrierPendingCount), map<&pending_count>},
    {op_key(Op::kBulkCopy), &bulk_copy},
};

}  // namespace

OpEntries barrier_entries() { return {kEntries, sizeof kEntries / sizeof kEntries[0]}; }

}  // namespace tessera::sim::TESSERA_SIM_ISA
