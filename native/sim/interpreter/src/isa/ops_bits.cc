// SPDX-License-Identifier: Apache-2.0
// Logic, shifts, bit fields and byte permutes.
#include "integer.h"
#include "map.h"
#include "tables.h"

namespace tessera::sim::TESSERA_SIM_ISA {
namespace {

/// One lookup table for three bits, by op.imm: for each (a, b) the result is 0, 1, c or ~c.
void lop3(Warp& w, const MicroOp& op, u32 mask) {
  u32* d = w.lanes32(op.r[0]);
  const u32 *a = w.lanes32(op.r[1]), *b = w.lanes32(op.r[2]), *c = w.lanes32(op.r[3]);
  u32 flip[4], pass[4];
  for (int k = 0; k < 4; ++k) {
    const u32 zero = op.imm >> (2 * k) & 1, one = op.imm >> (2 * k + 1) & 1;  // result for c = 0, c = 1
    flip[k] = 0 - zero;
    pass[k] = 0 - (zero ^ one);
  }
  TS_LANES {
    const u32 v0 = (c[i] & pass[0]) ^ flip[0], v1 = (c[i] & pass[1]) ^ flip[1];
    const u32 v2 = (c[i] & pass[2]) ^ flip[2], v3 = (c[i] & pass[3]) ^ flip[3];
    const u32 low = ((v0 ^ v1) & b[i]) ^ v0, high = ((v2 ^ v3) & b[i]) ^ v2;
    const u32 result = ((low ^ high) & a[i]) ^ low;
    d[i] = (mask >> i & 1) != 0 ? result : d[i];
  }
}

TS_INLINE u32 permute_byte(u64 bytes, u32 selector, int k) {
  const u32 nibble = selector >> (4 * k) & 15;
  const u32 byte = static_cast<u32>(bytes >> (8 * (nibble & 7))) & 0xff;
  return (nibble & 8) != 0 ? (byte & 0x80) != 0 ? 0xffu : 0u : byte;
}
TS_INLINE u32 permute(u32 a, u32 b, u32 selector) {
  const u64 bytes = u64{b} << 32 | a;
  return permute_byte(bytes, selector, 0) | permute_byte(bytes, selector, 1) << 8 |
         permute_byte(bytes, selector, 2) << 16 | permute_byte(bytes, selector, 3) << 24;
}

// The selector nibbles that each named mode stands for, by the low two bits of c.
enum PermuteMode { kForward4, kBackward4, kReplicate8, kClampLeft, kClampRight, kReplicate16 };
template <PermuteMode kMode>
TS_INLINE u32 permute_mode(u32 a, u32 b, u32 c) {
  constexpr u32 kSelectors[6][4] = {{0x3210, 0x4321, 0x5432, 0x6543}, {0x5670, 0x6701, 0x7012, 0x0123},
                                    {0x0000, 0x1111, 0x2222, 0x3333}, {0x3210, 0x3211, 0x3222, 0x3333},
                                    {0x0000, 0x1110, 0x2210, 0x3210}, {0x1010, 0x3232, 0x1010, 0x3232}};
  return permute(a, b, kSelectors[kMode][c & 3]);
}

/// and, or, xor of predicates: r = {d, a, b}; bits 0 and 1 of imm negate a and b.
template <u32 (*kFunction)(u32, u32)>
void predicate_logic(Warp& w, const MicroOp& op, u32 mask) {
  const u32 a = w.predicate(op.r[1]) ^ (0u - static_cast<u32>(op.imm & 1));
  const u32 b = w.predicate(op.r[2]) ^ (0u - static_cast<u32>(op.imm >> 1 & 1));
  u32& d = w.predicate(op.r[0]);
  d = (d & ~mask) | (kFunction(a, b) & mask);
}

/// mov and not of a predicate: bit 0 of imm negates.
void predicate_move(Warp& w, const MicroOp& op, u32 mask) {
  const u32 a = w.predicate(op.r[1]) ^ (0u - static_cast<u32>(op.imm & 1));
  u32& d = w.predicate(op.r[0]);
  d = (d & ~mask) | (a & mask);
}

#define TS_LOGIC(OP, FUNCTION)                                                                            \
  {op_key(Op::OP, Type::kB16), map<&FUNCTION<u16>>}, {op_key(Op::OP, Type::kB32), map<&FUNCTION<u32>>}, { \
    op_key(Op::OP, Type::kB64), map<&FUNCTION<u64>>                                                       \
  }
#define TS_SHR(TYPE, T) {op_key(Op::kShr, Type::TYPE), map<&shift_right<T>>}
#define TS_FIND(TYPE, T)                                                                                           \
  {op_key(Op::kBfind, Type::TYPE), map<&bfind<T>>}, {op_key(Op::kBfindShift, Type::TYPE), map<&bfind_shift<T>>}, { \
    op_key(Op::kBfe, Type::TYPE), map<&bit_field_extract<T>>                                                       \
  }

constexpr OpEntry kEntries[] = {
    TS_LOGIC(kAnd, bit_and),
    TS_LOGIC(kOr, bit_or),
    TS_LOGIC(kXor, bit_xor),
    TS_LOGIC(kNot, bit_not),
    TS_LOGIC(kCnot, logical_not),
    TS_LOGIC(kShl, shift_left),
    {op_key(Op::kAnd, Type::kPred), &predicate_logic<&bit_and<u32>>},
    {op_key(Op::kOr, Type::kPred), &predicate_logic<&bit_or<u32>>},
    {op_key(Op::kXor, Type::kPred), &predicate_logic<&bit_xor<u32>>},
    {op_key(Op::kMov, Type::kPred), &predicate_move},
    TS_SHR(kU16, u16),
    TS_SHR(kS16, s16),
    TS_SHR(kU32, u32),
    TS_SHR(kS32, s32),
    TS_SHR(kU64, u64),
    TS_SHR(kS64, s64),
    TS_FIND(kU32, u32),
    TS_FIND(kS32, s32),
    TS_FIND(kU64, u64),
    TS_FIND(kS64, s64),
    {op_key(Op::kPopc, Type::kB32), map<&popc32>},
    {op_key(Op::kPopc, Type::kB64), map<&popc64>},
    {op_key(Op::kClz, Type::kB32), map<&clz32>},
    {op_key(Op::kClz, Type::kB64), map<&clz64>},
    {op_key(Op::kBrev, Type::kB32), map<&reverse32>},
    {op_key(Op::kBrev, Type::kB64), map<&reverse64>},
    {op_key(Op::kFns, Type::kB32), map<&fns>},
    {op_key(Op::kBfi, Type::kB32), map<&bit_field_insert<u32>>},
    {op_key(Op::kBfi, Type::kB64), map<&bit_field_insert<u64>>},
    {op_key(Op::kBmskClamp, Type::kB32), map<&bit_mask<true>>},
    {op_key(Op::kBmskWrap, Type::kB32), map<&bit_mask<false>>},
    {op_key(Op::kSzextClamp, Type::kU32), map<&sign_zero_extend<u32, true>>},
    {op_key(Op::kSzextClamp, Type::kS32), map<&sign_zero_extend<s32, true>>},
    {op_key(Op::kSzextWrap, Type::kU32), map<&sign_zero_extend<u32, false>>},
    {op_key(Op::kSzextWrap, Type::kS32), map<&sign_zero_extend<s32, false>>},
    {op_key(Op::kShfLeftClamp, Type::kB32), map<&funnel_left<true>>},
    {op_key(Op::kShfLeftWrap, Type::kB32), map<&funnel_left<false>>},
    {op_key(Op::kShfRightClamp, Type::kB32), map<&funnel_right<true>>},
    {op_key(Op::kShfRightWrap, Type::kB32), map<&funnel_right<false>>},
    {op_key(Op::kLop3, Type::kB32), &lop3},
    {op_key(Op::kPrmt, Type::kB32), map<&permute>},
    {op_key(Op::kPrmt, Type::kB32, Type::kNone, 0, 1), map<&permute_mode<kForward4>>},
    {op_key(Op::kPrmt, Type::kB32, Type::kNone, 0, 2), map<&permute_mode<kBackward4>>},
    {op_key(Op::kPrmt, Type::kB32, Type::kNone, 0, 3), map<&permute_mode<kReplicate8>>},
    {op_key(Op::kPrmt, Type::kB32, Type::kNone, 0, 4), map<&permute_mode<kClampLeft>>},
    {op_key(Op::kPrmt, Type::kB32, Type::kNone, 0, 5), map<&permute_mode<kClampRight>>},
    {op_key(Op::kPrmt, Type::kB32, Type::kNone, 0, 6), map<&permute_mode<kReplicate16>>},
};

}  // namespace

OpEntries bits_entries() { return {kEntries, sizeof kEntries / sizeof kEntries[0]}; }

}  // namespace tessera::sim::TESSERA_SIM_ISA
