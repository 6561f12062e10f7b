// SPDX-License-Identifier: Apache-2.0
// atom and red. Lanes act one after another, each with one machine atomic, so
// that launches on other threads see whole updates. Half-precision pairs are
// updated as one word, which is stronger than PTX asks for.
#include "approximate.h"
#include "integer.h"
#include "map.h"
#include "resolve.h"
#include "tables.h"

namespace tessera::sim::TESSERA_SIM_ISA {
namespace {

template <class T>
TS_INLINE Storage<T> exchange_bits(u64 address, Storage<T> expected, T desired, bool& done) {
  done = __atomic_compare_exchange_n(reinterpret_cast<Storage<T>*>(address), &expected, to_storage<T>(desired), false,
                                     __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return expected;
}

/// r = {d, address, b}: d = old value; memory = F(old, b).
template <class T, T (*kUpdate)(T, T), T (*kGlobalUpdate)(T, T)>
void atomic(Warp& w, const MicroOp& op, u32 mask) {
  Resolved at;
  resolve(w, op, mask, op.r[1], sizeof(T), AccessVerb::kAtomic, at);
  Storage<T>* d = lanes_of<T>(w, op.r[0]);
  const Storage<T>* b = lanes_of<T>(w, op.r[2]);
  for (int i = 0; i < kLanes; ++i) {
    if ((mask >> i & 1) == 0) continue;
    const T operand = from_storage<T>(b[i]);
    Storage<T> old = __atomic_load_n(reinterpret_cast<Storage<T>*>(at.host[i]), __ATOMIC_RELAXED);
    for (bool done = false; !done;) {
      const T before = from_storage<T>(old);
      old = exchange_bits<T>(at.host[i], old, at.global ? kGlobalUpdate(before, operand) : kUpdate(before, operand),
                             done);
    }
    d[i] = old;
  }
}

/// r = {d, address, compared, new}.
template <class T>
void compare_and_swap(Warp& w, const MicroOp& op, u32 mask) {
  Resolved at;
  resolve(w, op, mask, op.r[1], sizeof(T), AccessVerb::kAtomic, at);
  T* d = lanes_of<T>(w, op.r[0]);
  const T *compared = lanes_of<T>(w, op.r[2]), *desired = lanes_of<T>(w, op.r[3]);
  for (int i = 0; i < kLanes; ++i) {
    if ((mask >> i & 1) == 0) continue;
    T expected = compared[i];
    __atomic_compare_exchange_n(reinterpret_cast<T*>(at.host[i]), &expected, desired[i], false, __ATOMIC_SEQ_CST,
                                __ATOMIC_SEQ_CST);
    d[i] = expected;
  }
}

template <class T>
TS_INLINE T replace(T, T b) {
  return b;
}
TS_INLINE u32 increment(u32 old, u32 limit) { return old >= limit ? 0 : old + 1; }
TS_INLINE u32 decrement(u32 old, u32 limit) { return old == 0 || old > limit ? limit : old - 1; }
template <bool kFlush>
TS_INLINE f32 add_float(f32 a, f32 b) {
  return finish<kFlush, false>(value_of<f32, kFlush>(a) + value_of<f32, kFlush>(b));
}
TS_INLINE f64 add_double(f64 a, f64 b) {
  const f64 sum = a + b;
  // The adder beside the memory passes a NaN on as it is.
  return sum == sum ? sum : b != b ? b : a != a ? a : f64_of(kNanF64);
}

enum class HalfUpdate { kAdd, kMin, kMax };
template <HalfUpdate kWhich>
TS_INLINE f32 update_value(f32 a, f32 b) {
  if constexpr (kWhich == HalfUpdate::kAdd) return a + b;
  const bool first = kWhich == HalfUpdate::kMin ? a < b : a > b;
  const bool zeros = a == 0.0f && b == 0.0f;
  const f32 ordered = zeros   ? f32_of(kWhich == HalfUpdate::kMin ? bits_of(a) | bits_of(b) : bits_of(a) & bits_of(b))
                      : first ? a
                              : b;
  return a != a ? b : b != b ? a : ordered;
}
template <HalfUpdate kWhich>
TS_INLINE f16 update_half(f16 a, f16 b) {
  return {float_to_half(update_value<kWhich>(half_to_float(a.bits), half_to_float(b.bits)))};
}
template <HalfUpdate kWhich>
TS_INLINE bf16 update_half(bf16 a, bf16 b) {
  return {float_to_bfloat(update_value<kWhich>(bfloat_to_float(a.bits), bfloat_to_float(b.bits)))};
}
template <class T, HalfUpdate kWhich>
TS_INLINE T update_single(T a, T b) {
  return update_half<kWhich>(a, b);
}
template <class T, HalfUpdate kWhich>
TS_INLINE u32 update_pair(u32 a, u32 b) {
  const T low = update_half<kWhich>(T{static_cast<u16>(a)}, T{static_cast<u16>(b)});
  const T high = update_half<kWhich>(T{static_cast<u16>(a >> 16)}, T{static_cast<u16>(b >> 16)});
  return u32{low.bits} | u32{high.bits} << 16;
}

// The name of the update, as lowering passes it in the key's variant.
enum Update : u8 {
  kUpdateAdd,
  kUpdateMin,
  kUpdateMax,
  kUpdateAnd,
  kUpdateOr,
  kUpdateXor,
  kUpdateExch,
  kUpdateInc,
  kUpdateDec
};

#define TS_ATOM(NAME, TYPE, T, FUNCTION) \
  {op_key(Op::kAtom, Type::TYPE, Type::kNone, 0, NAME), &atomic<T, &FUNCTION, &FUNCTION>}
#define TS_INTEGER_ATOM(TYPE, T)                                                  \
  TS_ATOM(kUpdateAdd, TYPE, T, add<T>), TS_ATOM(kUpdateMin, TYPE, T, minimum<T>), \
      TS_ATOM(kUpdateMax, TYPE, T, maximum<T>)
#define TS_BIT_ATOM(TYPE, T)                                                                 \
  TS_ATOM(kUpdateAnd, TYPE, T, bit_and<T>), TS_ATOM(kUpdateOr, TYPE, T, bit_or<T>),          \
      TS_ATOM(kUpdateXor, TYPE, T, bit_xor<T>), TS_ATOM(kUpdateExch, TYPE, T, replace<T>), { \
    op_key(Op::kAtomCas, Type::TYPE), &compare_and_swap<T>                                   \
  }
#define TS_HALF_ATOM(NAME, WHICH)                                                \
  {op_key(Op::kAtom, Type::kF16, Type::kNone, 0, NAME),                          \
   &atomic<f16, &update_single<f16, WHICH>, &update_single<f16, WHICH>>},        \
      {op_key(Op::kAtom, Type::kBF16, Type::kNone, 0, NAME),                     \
       &atomic<bf16, &update_single<bf16, WHICH>, &update_single<bf16, WHICH>>}, \
      {op_key(Op::kAtom, Type::kF16x2, Type::kNone, 0, NAME),                    \
       &atomic<u32, &update_pair<f16, WHICH>, &update_pair<f16, WHICH>>},        \
  {                                                                              \
    op_key(Op::kAtom, Type::kBF16x2, Type::kNone, 0, NAME),                      \
        &atomic<u32, &update_pair<bf16, WHICH>, &update_pair<bf16, WHICH>>       \
  }

constexpr OpEntry kEntries[] = {
    TS_INTEGER_ATOM(kU32, u32),
    TS_INTEGER_ATOM(kS32, s32),
    TS_INTEGER_ATOM(kU64, u64),
    TS_INTEGER_ATOM(kS64, s64),
    TS_BIT_ATOM(kB16, u16),
    TS_BIT_ATOM(kB32, u32),
    TS_BIT_ATOM(kB64, u64),
    TS_ATOM(kUpdateInc, kU32, u32, increment),
    TS_ATOM(kUpdateDec, kU32, u32, decrement),
    // On global memory the hardware's single-precision adder flushes subnormals; on shared memory it does not.
    {op_key(Op::kAtom, Type::kF32, Type::kNone, 0, kUpdateAdd), &atomic<f32, &add_float<false>, &add_float<true>>},
    TS_ATOM(kUpdateAdd, kF64, f64, add_double),
    TS_HALF_ATOM(kUpdateAdd, HalfUpdate::kAdd),
    TS_HALF_ATOM(kUpdateMin, HalfUpdate::kMin),
    TS_HALF_ATOM(kUpdateMax, HalfUpdate::kMax),
};

}  // namespace

OpEntries atomic_entries() { return {kEntries, sizeof kEntries / sizeof kEntries[0]}; }

}  // namespace tessera::sim::TESSERA_SIM_ISA
