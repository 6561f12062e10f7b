// SPDX-License-Identifier: Apache-2.0
// Moves, packing and unpacking, and the change of a value's register width.
#include "map.h"
#include "tables.h"

namespace tessera::sim::TESSERA_SIM_ISA {
namespace {

template <class T>
TS_INLINE T move(T a) {
  return a;
}

void move128(Warp& w, const MicroOp& op, u32 mask) {
  u128* d = w.lanes128(op.r[0]);
  const u128* a = w.lanes128(op.r[1]);
  for (int i = 0; i < kLanes; ++i) {
    if ((mask >> i & 1) != 0) d[i] = a[i];
  }
}

// Packing: the first source is the least significant part.
TS_INLINE u32 pack_halves(u16 low, u16 high) { return u32{low} | u32{high} << 16; }
TS_INLINE u64 pack_words(u32 low, u32 high) { return u64{low} | u64{high} << 32; }
TS_INLINE u16 pack_bytes(u16 low, u16 high) { return static_cast<u16>((low & 0xff) | high << 8); }
TS_INLINE u128 pack_doubles(u64 low, u64 high) { return {low, high}; }

template <class Whole, class Part>
void unpack(Warp& w, const MicroOp& op, u32 mask) {
  Part *low = lanes_of<Part>(w, op.r[0]), *high = lanes_of<Part>(w, op.r[1]);
  const Whole* a = lanes_of<Whole>(w, op.r[2]);
  constexpr int kShift = static_cast<int>(sizeof(Part)) * 8;
  TS_LANES {
    const Whole value = a[i];
    low[i] = (mask >> i & 1) != 0 ? static_cast<Part>(value) : low[i];
    high[i] = (mask >> i & 1) != 0 ? static_cast<Part>(value >> kShift) : high[i];
  }
}

void unpack_bytes(Warp& w, const MicroOp& op, u32 mask) {
  u16 *low = w.lanes16(op.r[0]), *high = w.lanes16(op.r[1]);
  const u16* a = w.lanes16(op.r[2]);
  for (int i = 0; i < kLanes; ++i) {
    if ((mask >> i & 1) == 0) continue;
    const u16 value = a[i];
    low[i] = value & 0xff;
    high[i] = static_cast<u16>(value >> 8);
  }
}

void pack128(Warp& w, const MicroOp& op, u32 mask) {
  u128* d = w.lanes128(op.r[0]);
  const u64 *a = w.lanes64(op.r[1]), *b = w.lanes64(op.r[2]);
  for (int i = 0; i < kLanes; ++i) {
    if ((mask >> i & 1) != 0) d[i] = pack_doubles(a[i], b[i]);
  }
}

void unpack128(Warp& w, const MicroOp& op, u32 mask) {
  u64 *low = w.lanes64(op.r[0]), *high = w.lanes64(op.r[1]);
  const u128* a = w.lanes128(op.r[2]);
  for (int i = 0; i < kLanes; ++i) {
    if ((mask >> i & 1) == 0) continue;
    low[i] = a[i].low;
    high[i] = a[i].high;
  }
}

template <class From, class To>
TS_INLINE To resize(From a) {
  return static_cast<To>(a);
}

#define TS_RESIZE(TYPE, TO, FROM_T, TO_T) {op_key(Op::kResize, Type::TYPE, Type::TO), map<&resize<FROM_T, TO_T>>}

constexpr OpEntry kEntries[] = {
    {op_key(Op::kMov, Type::kB16), map<&move<u16>>},
    {op_key(Op::kMov, Type::kB32), map<&move<u32>>},
    {op_key(Op::kMov, Type::kB64), map<&move<u64>>},
    {op_key(Op::kMov, Type::kB128), &move128},
    {op_key(Op::kPackBytes), map<&pack_bytes>},
    {op_key(Op::kPackHalves), map<&pack_halves>},
    {op_key(Op::kPackWords), map<&pack_words>},
    {op_key(Op::kPackDoubles), &pack128},
    {op_key(Op::kUnpackBytes), &unpack_bytes},
    {op_key(Op::kUnpackHalves), &unpack<u32, u16>},
    {op_key(Op::kUnpackWords), &unpack<u64, u32>},
    {op_key(Op::kUnpackDoubles), &unpack128},
    // from a signed or unsigned value to a register of another width
    TS_RESIZE(kU16, kB32, u16, u32),
    TS_RESIZE(kU16, kB64, u16, u64),
    TS_RESIZE(kS16, kB32, s16, u32),
    TS_RESIZE(kS16, kB64, s16, u64),
    TS_RESIZE(kU32, kB16, u32, u16),
    TS_RESIZE(kU32, kB64, u32, u64),
    TS_RESIZE(kS32, kB16, s32, u16),
    TS_RESIZE(kS32, kB64, s32, u64),
    TS_RESIZE(kU64, kB16, u64, u16),
    TS_RESIZE(kU64, kB32, u64, u32),
    TS_RESIZE(kS64, kB16, s64, u16),
    TS_RESIZE(kS64, kB32, s64, u32),
};

}  // namespace

OpEntries move_entries() { return {kEntries, sizeof kEntries / sizeof kEntries[0]}; }

}  // namespace tessera::sim::TESSERA_SIM_ISA
