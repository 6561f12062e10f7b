// SPDX-License-Identifier: Apache-2.0
// How lowering encodes a SIMD video instruction in MicroOp::imm.
#pragma once

#include "isa.h"
#include "scalar.h"

namespace tessera::sim {

enum class VideoOperation : u8 {
  kAdd,
  kSub,
  kAverage,
  kAbsoluteDifference,
  kMin,
  kMax,
  kSetEq,
  kSetNe,
  kSetLt,
  kSetLe,
  kSetGt,
  kSetGe
};

struct VideoSimd {
  VideoOperation operation = VideoOperation::kAdd;
  u8 count = 4;      // elements in a word: 2 or 4
  u8 elements = 15;  // those that are computed
  bool d_signed = false, a_signed = false, b_signed = false;
  bool saturate = false, accumulate = false;
};

constexpr u64 pack_video_simd(const VideoSimd& v) {
  return u64{static_cast<u8>(v.operation)} | u64{v.count} << 8 | u64{v.elements} << 16 | (v.d_signed ? 1u << 24 : 0u) |
         (v.a_signed ? 1u << 25 : 0u) | (v.b_signed ? 1u << 26 : 0u) | (v.saturate ? 1u << 27 : 0u) |
         (v.accumulate ? 1u << 28 : 0u);
}
TS_INLINE VideoSimd unpack_video_simd(u64 imm) {
  VideoSimd v;
  v.operation = static_cast<VideoOperation>(imm & 0xff);
  v.count = static_cast<u8>(imm >> 8);
  v.elements = static_cast<u8>(imm >> 16);
  v.d_signed = (imm >> 24 & 1) != 0;
  v.a_signed = (imm >> 25 & 1) != 0;
  v.b_signed = (imm >> 26 & 1) != 0;
  v.saturate = (imm >> 27 & 1) != 0;
  v.accumulate = (imm >> 28 & 1) != 0;
  return v;
}

}  // namespace tessera::sim
