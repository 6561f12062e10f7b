// SPDX-License-Identifier: Apache-2.0
// Between lane values and lane masks.
#pragma once

#include "../isa.h"
#include "../scalar.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace tessera::sim::TESSERA_SIM_ISA {
namespace {

/// Bit i is set where lanes[i] has its top bit set.
TS_INLINE u32 mask_of(const u32* lanes) {
#if defined(__AVX512DQ__)
  return static_cast<u32>(_mm512_movepi32_mask(_mm512_loadu_si512(lanes))) |
         static_cast<u32>(_mm512_movepi32_mask(_mm512_loadu_si512(lanes + 16))) << 16;
#elif defined(__AVX2__)
  u32 mask = 0;
  for (int i = 0; i < kLanes; i += 8) {
    const __m256i group = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(lanes + i));
    mask |= static_cast<u32>(_mm256_movemask_ps(_mm256_castsi256_ps(group))) << i;
  }
  return mask;
#elif defined(__SSE2__)
  u32 mask = 0;
  for (int i = 0; i < kLanes; i += 4) {
    const __m128i group = _mm_loadu_si128(reinterpret_cast<const __m128i*>(lanes + i));
    mask |= static_cast<u32>(_mm_movemask_ps(_mm_castsi128_ps(group))) << i;
  }
  return mask;
#else
  u32 mask = 0;
  for (int i = 0; i < kLanes; ++i) mask |= (lanes[i] >> 31) << i;
  return mask;
#endif
}

}  // namespace
}  // namespace tessera::sim::TESSERA_SIM_ISA
