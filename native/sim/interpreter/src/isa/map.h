// SPDX-License-Identifier: Apache-2.0
// Makes a handler of a function on scalars: `map<&add<u32>>` applies it to every
// lane. The function's parameter types say which registers it reads.
#pragma once

#include "../op_key.h"
#include "../warp.h"

namespace tessera::sim::TESSERA_SIM_ISA {
namespace {

template <int kBytes>
struct StorageOf;
template <>
struct StorageOf<2> {
  using type = u16;
};
template <>
struct StorageOf<4> {
  using type = u32;
};
template <>
struct StorageOf<8> {
  using type = u64;
};

// u8 and s8 live in 16-bit registers.
template <class T>
using Storage = typename StorageOf<(sizeof(T) == 1 ? 2 : sizeof(T))>::type;

template <class T>
TS_INLINE T from_storage(Storage<T> bits) {
  if constexpr (sizeof(T) == 1) {
    return static_cast<T>(bits);
  } else {
    return __builtin_bit_cast(T, bits);
  }
}

template <class T>
TS_INLINE Storage<T> to_storage(T value) {
  if constexpr (sizeof(T) == 1) {
    return static_cast<u16>(static_cast<s16>(value));  // sign- or zero-extended: s16 of a u8 is not negative
  } else {
    return __builtin_bit_cast(Storage<T>, value);
  }
}

template <class T>
TS_INLINE Storage<T>* lanes_of(const Warp& w, u32 ref) {
  return reinterpret_cast<Storage<T>*>(w.at(ref));
}

template <class Signature, Signature kFunction>
struct Mapped;

template <class R, class A, R (*kFunction)(A)>
struct Mapped<R (*)(A), kFunction> {
  static void run(Warp& w, const MicroOp& op, u32 mask) {
    Storage<R>* d = lanes_of<R>(w, op.r[0]);
    const Storage<A>* a = lanes_of<A>(w, op.r[1]);
    if (mask == w.live) {
      TS_LANES d[i] = to_storage<R>(kFunction(from_storage<A>(a[i])));
    } else {
      TS_LANES {
        const Storage<R> result = to_storage<R>(kFunction(from_storage<A>(a[i])));
        d[i] = (mask >> i & 1) != 0 ? result : d[i];
      }
    }
  }
};

template <class R, class A, class B, R (*kFunction)(A, B)>
struct Mapped<R (*)(A, B), kFunction> {
  static void run(Warp& w, const MicroOp& op, u32 mask) {
    Storage<R>* d = lanes_of<R>(w, op.r[0]);
    const Storage<A>* a = lanes_of<A>(w, op.r[1]);
    const Storage<B>* b = lanes_of<B>(w, op.r[2]);
    if (mask == w.live) {
      TS_LANES d[i] = to_storage<R>(kFunction(from_storage<A>(a[i]), from_storage<B>(b[i])));
    } else {
      TS_LANES {
        const Storage<R> result = to_storage<R>(kFunction(from_storage<A>(a[i]), from_storage<B>(b[i])));
        d[i] = (mask >> i & 1) != 0 ? result : d[i];
      }
    }
  }
};

template <class R, class A, class B, class C, R (*kFunction)(A, B, C)>
struct Mapped<R (*)(A, B, C), kFunction> {
  static void run(Warp& w, const MicroOp& op, u32 mask) {
    Storage<R>* d = lanes_of<R>(w, op.r[0]);
    const Storage<A>* a = lanes_of<A>(w, op.r[1]);
    const Storage<B>* b = lanes_of<B>(w, op.r[2]);
    const Storage<C>* c = lanes_of<C>(w, op.r[3]);
    if (mask == w.live) {
      TS_LANES d[i] = to_storage<R>(kFunction(from_storage<A>(a[i]), from_storage<B>(b[i]), from_storage<C>(c[i])));
    } else {
      TS_LANES {
        const Storage<R> result =
            to_storage<R>(kFunction(from_storage<A>(a[i]), from_storage<B>(b[i]), from_storage<C>(c[i])));
        d[i] = (mask >> i & 1) != 0 ? result : d[i];
      }
    }
  }
};

/// Four operands: the masked form only, for rare operations.
template <class R, class A, class B, class C, class D, R (*kFunction)(A, B, C, D)>
struct Mapped<R (*)(A, B, C, D), kFunction> {
  static void run(Warp& w, const MicroOp& op, u32 mask) {
    Storage<R>* d = lanes_of<R>(w, op.r[0]);
    const Storage<A>* a = lanes_of<A>(w, op.r[1]);
    const Storage<B>* b = lanes_of<B>(w, op.r[2]);
    const Storage<C>* c = lanes_of<C>(w, op.r[3]);
    const Storage<D>* e = lanes_of<D>(w, op.r[4]);
    TS_LANES {
      const Storage<R> result = to_storage<R>(
          kFunction(from_storage<A>(a[i]), from_storage<B>(b[i]), from_storage<C>(c[i]), from_storage<D>(e[i])));
      d[i] = (mask >> i & 1) != 0 ? result : d[i];
    }
  }
};

template <auto kFunction>
constexpr Handler map = &Mapped<decltype(kFunction), kFunction>::run;

}  // namespace
}  // namespace tessera::sim::TESSERA_SIM_ISA
