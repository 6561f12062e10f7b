// SPDX-License-Identifier: Apache-2.0
// Video instructions: arithmetic on bytes and halves within words.
#include "../video.h"
#include "integer.h"
#include "map.h"
#include "tables.h"

namespace tessera::sim::TESSERA_SIM_ISA {
namespace {

TS_INLINE s64 part_of(u32 value, int shift, int bits, bool is_signed) {
  const u32 field = value >> shift & (bits == 32 ? ~0u : (1u << bits) - 1);
  return is_signed ? static_cast<s64>(static_cast<s32>(field << (32 - bits)) >> (32 - bits)) : static_cast<s64>(field);
}

TS_INLINE s64 clamp(s64 value, s64 low, s64 high) { return value < low ? low : value > high ? high : value; }

TS_INLINE s64 saturate_to(s64 value, int bits, bool is_signed) {
  const s64 high = is_signed ? (s64{1} << (bits - 1)) - 1 : (s64{1} << bits) - 1;
  return clamp(value, is_signed ? -high - 1 : 0, high);
}

TS_INLINE s64 compute(VideoOperation operation, s64 a, s64 b) {
  switch (operation) {
    case VideoOperation::kAdd:
      return a + b;
    case VideoOperation::kSub:
      return a - b;
    case VideoOperation::kAverage:
      return (a + b + (a + b >= 0 ? 1 : 0)) >> 1;  // halves are rounded away from zero
    case VideoOperation::kAbsoluteDifference:
      return a < b ? b - a : a - b;
    case VideoOperation::kMin:
      return a < b ? a : b;
    case VideoOperation::kMax:
      return a < b ? b : a;
    case VideoOperation::kSetEq:
      return a == b;
    case VideoOperation::kSetNe:
      return a != b;
    case VideoOperation::kSetLt:
      return a < b;
    case VideoOperation::kSetLe:
      return a <= b;
    case VideoOperation::kSetGt:
      return a > b;
    default:
      return a >= b;
  }
}

/// r = {d, a, b, c}: every element, with c where an element is not written, or added to it.
void simd(Warp& w, const MicroOp& op, u32 mask) {
  const VideoSimd video = unpack_video_simd(op.imm);
  u32* d = w.lanes32(op.r[0]);
  const u32 *a = w.lanes32(op.r[1]), *b = w.lanes32(op.r[2]), *c = w.lanes32(op.r[3]);
  const int bits = 32 / video.count;
  const u32 field = (1u << bits) - 1;
  for (int i = 0; i < kLanes; ++i) {
    if ((mask >> i & 1) == 0) continue;
    u32 result = video.accumulate ? 0 : c[i];
    s64 sum = 0;
    for (int k = 0; k < video.count; ++k) {
      if ((video.elements >> k & 1) == 0) continue;
      const s64 x = part_of(a[i], k * bits, bits, video.a_signed), y = part_of(b[i], k * bits, bits, video.b_signed);
      s64 value = compute(video.operation, x, y);
      if (video.saturate) value = saturate_to(value, bits, video.d_signed);
      if (video.accumulate) {
        sum += value;
      } else {
        result = (result & ~(field << (k * bits))) | (static_cast<u32>(value) & field) << (k * bits);
      }
    }
    d[i] = video.accumulate ? static_cast<u32>(sum) + c[i] : result;
  }
}

constexpr OpEntry kEntries[] = {{op_key(Op::kVideoSimd), &simd}};

}  // namespace

OpEntries video_entries() { return {kEntries, sizeof kEntries / sizeof kEntries[0]}; }

}  // namespace tessera::sim::TESSERA_SIM_ISA
