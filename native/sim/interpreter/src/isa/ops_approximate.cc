// SPDX-License-Identifier: Apache-2.0
// The .approx operations of single and double precision.
#include <math.h>

#include "approximate.h"
#include "map.h"
#include "tables.h"
#include "tiny.h"

namespace tessera::sim::TESSERA_SIM_ISA {
namespace {

template <f32 (*kFunction)(f32), bool kFlush>
TS_INLINE f32 approximate(f32 a) {
  const f32 result = kFunction(value_of<f32, kFlush>(a));
  return kFlush ? flush(result) : result;
}

template <u32 kQuarterTurns, bool kFlush>
void trigonometry(Warp& w, const MicroOp& op, u32 mask) {
  u32* d = w.lanes32(op.r[0]);
  const u32* a = w.lanes32(op.r[1]);
  alignas(64) u32 far[kLanes], result[kLanes];
  TS_LANES {
    const f32 x = value_of<f32, kFlush>(f32_of(a[i]));
    const f32 magnitude = f32_of(bits_of(x) & 0x7fffffffu);
    const bool near = magnitude < kFastAngle;
    far[i] = near ? 0u : 1u;
    const f32 value = trigonometric(near ? x : 0.0f, kQuarterTurns);
    result[i] = bits_of(kFlush ? flush(value) : value);
  }
  for (int i = 0; i < kLanes; ++i) {
    if ((mask >> i & 1) == 0) continue;
    if (far[i] != 0) {
      const f64 x = static_cast<f64>(f32_of(a[i]));
      result[i] = bits_of(canonical(static_cast<f32>(kQuarterTurns == 0 ? sin(x) : cos(x))));
    }
    d[i] = result[i];
  }
}

TS_INLINE f32 reciprocal(f32 a) { return canonical(1.0f / a); }
TS_INLINE f32 square_root(f32 a) { return canonical(__builtin_sqrtf(a)); }
template <bool kFlush>
TS_INLINE f32 divide_full(f32 a, f32 b) {
  return finish<kFlush, false>(value_of<f32, kFlush>(a) / value_of<f32, kFlush>(b));
}
/// A divisor above 2^126 has a subnormal reciprocal, which the hardware flushes.
template <bool kFlush>
TS_INLINE f32 divide_approximately(f32 a, f32 b) {
  const f32 x = value_of<f32, kFlush>(a), y = value_of<f32, kFlush>(b);
  const f32 magnitude = f32_of(bits_of(y) & 0x7fffffffu);
  const f32 huge = x * f32_of(bits_of(y) & 0x80000000u);
  return finish<kFlush, false>(magnitude > 0x1p126f && magnitude < __builtin_inff() ? huge : x / y);
}

// Double precision, .ftz: the operand's and the result's low words are zero.
TS_INLINE f64 flush64(f64 a) {
  const u64 bits = bits_of(a);
  return f64_of((bits & 0x7ff0000000000000ull) == 0 ? bits & (u64{1} << 63) : bits);
}
TS_INLINE f64 high_word(f64 a) { return f64_of(bits_of(a) & 0xffffffff00000000ull); }
TS_INLINE f64 nearest_high_word(f64 a) {
  const u64 bits = bits_of(a);
  const bool finite = (bits & 0x7ff0000000000000ull) != 0x7ff0000000000000ull;
  return a == a ? f64_of((finite ? bits + 0x80000000ull : bits) & 0xffffffff00000000ull) : f64_of(u64{kNanF32} << 32);
}
TS_INLINE f64 reciprocal64(f64 a) { return flush64(nearest_high_word(1.0 / flush64(high_word(a)))); }
TS_INLINE f64 reciprocal_root64_high(f64 a) { return nearest_high_word(1.0 / __builtin_sqrt(flush64(high_word(a)))); }
/// Without .ftz the operation is a library routine of full precision.
TS_INLINE f64 reciprocal_root64(f64 a) {
  const f64 result = 1.0 / __builtin_sqrt(a);
  return result == result ? result : f64_of(kNanF64);
}

#define TS_APPROXIMATE(OP, FUNCTION)                                                  \
  {op_key(Op::OP, Type::kF32), map<&approximate<&FUNCTION, false>>}, {                \
    op_key(Op::OP, Type::kF32, Type::kNone, kFtz), map<&approximate<&FUNCTION, true>> \
  }

// Variant 4 tells an approximate operation from the rounded ones of the same name.
#define TS_APPROXIMATE_4(OP, FUNCTION)                                                    \
  {op_key(Op::OP, Type::kF32, Type::kNone, 0, 4), map<&approximate<&FUNCTION, false>>}, { \
    op_key(Op::OP, Type::kF32, Type::kNone, kFtz, 4), map<&approximate<&FUNCTION, true>>  \
  }

constexpr OpEntry kEntries[] = {
    TS_APPROXIMATE(kEx2, exp2_float),
    TS_APPROXIMATE(kLg2, log2_float),
    TS_APPROXIMATE(kTanh, tanh_float),
    TS_APPROXIMATE(kRsqrt, rsqrt_float),
    TS_APPROXIMATE_4(kRcp, reciprocal),
    TS_APPROXIMATE_4(kSqrt, square_root),
    {op_key(Op::kSin, Type::kF32), &trigonometry<0, false>},
    {op_key(Op::kSin, Type::kF32, Type::kNone, kFtz), &trigonometry<0, true>},
    {op_key(Op::kCos, Type::kF32), &trigonometry<1, false>},
    {op_key(Op::kCos, Type::kF32, Type::kNone, kFtz), &trigonometry<1, true>},
    {op_key(Op::kFdivFull, Type::kF32), map<&divide_full<false>>},
    {op_key(Op::kFdivFull, Type::kF32, Type::kNone, kFtz),
     &Flushing<SingleFormat, &divide_full<true>, &exact_quotient<f32>>::run},
    {op_key(Op::kFdivApprox, Type::kF32), map<&divide_approximately<false>>},
    {op_key(Op::kFdivApprox, Type::kF32, Type::kNone, kFtz),
     &Flushing<SingleFormat, &divide_approximately<true>, &exact_quotient<f32>>::run},
    {op_key(Op::kRcpApprox64, Type::kF64, Type::kNone, kFtz), map<&reciprocal64>},
    {op_key(Op::kRsqrtApprox64, Type::kF64), map<&reciprocal_root64>},
    {op_key(Op::kRsqrtApprox64, Type::kF64, Type::kNone, kFtz), map<&reciprocal_root64_high>},
};

}  // namespace

OpEntries approximate_entries() { return {kEntries, sizeof kEntries / sizeof kEntries[0]}; }

}  // namespace tessera::sim::TESSERA_SIM_ISA
