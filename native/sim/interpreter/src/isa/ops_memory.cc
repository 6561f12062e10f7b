// SPDX-License-Identifier: Apache-2.0
// Loads, stores, asynchronous copies and the matrix forms of shared memory access.
#include "map.h"
#include "resolve.h"
#include "tables.h"

namespace tessera::sim::TESSERA_SIM_ISA {
namespace {

template <class T>
TS_INLINE T read_host(u64 address) {
  T value;
  __builtin_memcpy(&value, reinterpret_cast<const void*>(address), sizeof(T));
  return value;
}
template <class T>
TS_INLINE void write_host(u64 address, T value) {
  __builtin_memcpy(reinterpret_cast<void*>(address), &value, sizeof(T));
}

// Strong accesses (.volatile, .relaxed, .acquire, .release) are single machine accesses, seen by other threads.
template <class T, bool kStrong>
TS_INLINE T load_one(u64 address) {
  if constexpr (kStrong) {
    return __atomic_load_n(reinterpret_cast<const T*>(address), __ATOMIC_ACQUIRE);
  } else {
    return read_host<T>(address);
  }
}
template <class T, bool kStrong>
TS_INLINE void store_one(u64 address, T value) {
  if constexpr (kStrong) {
    __atomic_store_n(reinterpret_cast<T*>(address), value, __ATOMIC_RELEASE);
  } else {
    write_host<T>(address, value);
  }
}

/// r = {d0 ... d(N-1), address}: memory of type M into registers of type R, extended.
template <class M, class R, int kCount, bool kStrong>
void load(Warp& w, const MicroOp& op, u32 mask) {
  Resolved at;
  resolve(w, op, mask, op.r[kCount], sizeof(M) * kCount, AccessVerb::kRead, at);
  if (at.contiguous && !kStrong) {
    const M* from = reinterpret_cast<const M*>(at.host[0]);
    for (int k = 0; k < kCount; ++k) {
      R* d = reinterpret_cast<R*>(w.at(op.r[k]));
      TS_LANES d[i] = static_cast<R>(read_host<M>(reinterpret_cast<u64>(from + i * kCount + k)));
    }
    return;
  }
  R* d[kCount];
  for (int k = 0; k < kCount; ++k) d[k] = reinterpret_cast<R*>(w.at(op.r[k]));
  for (int i = 0; i < kLanes; ++i) {
    if ((mask >> i & 1) == 0) continue;
    for (int k = 0; k < kCount; ++k) d[k][i] = static_cast<R>(load_one<M, kStrong>(at.host[i] + sizeof(M) * k));
  }
}

/// r = {address, s0 ... s(N-1)}.
template <class M, class R, int kCount, bool kStrong>
void store(Warp& w, const MicroOp& op, u32 mask) {
  Resolved at;
  resolve(w, op, mask, op.r[0], sizeof(M) * kCount, AccessVerb::kWrite, at);
  if (at.contiguous && !kStrong) {
    M* to = reinterpret_cast<M*>(at.host[0]);
    for (int k = 0; k < kCount; ++k) {
      const R* s = reinterpret_cast<const R*>(w.at(op.r[1 + k]));
      TS_LANES write_host<M>(reinterpret_cast<u64>(to + i * kCount + k), static_cast<M>(s[i]));
    }
    return;
  }
  const R* s[kCount];
  for (int k = 0; k < kCount; ++k) s[k] = reinterpret_cast<const R*>(w.at(op.r[1 + k]));
  for (int i = 0; i < kLanes; ++i) {
    if ((mask >> i & 1) == 0) continue;
    for (int k = 0; k < kCount; ++k) store_one<M, kStrong>(at.host[i] + sizeof(M) * k, static_cast<M>(s[k][i]));
  }
}

void load128(Warp& w, const MicroOp& op, u32 mask) {
  Resolved at;
  resolve(w, op, mask, op.r[1], 16, AccessVerb::kRead, at);
  u128* d = w.lanes128(op.r[0]);
  for (int i = 0; i < kLanes; ++i) {
    if ((mask >> i & 1) != 0) d[i] = read_host<u128>(at.host[i]);
  }
}
void store128(Warp& w, const MicroOp& op, u32 mask) {
  Resolved at;
  resolve(w, op, mask, op.r[0], 16, AccessVerb::kWrite, at);
  const u128* s = w.lanes128(op.r[1]);
  for (int i = 0; i < kLanes; ++i) {
    if ((mask >> i & 1) != 0) write_host<u128>(at.host[i], s[i]);
  }
}

/// A kernel parameter at a fixed offset: the same value in every lane.
template <class M, class R>
void load_param(Warp& w, const MicroOp& op, u32 mask) {
  const u64 offset = op.imm;
  if (offset + sizeof(M) > w.block->parameter_bytes)
    raise_illegal_address(op, -1, offset, sizeof(M), AccessVerb::kRead, "param");
  const R value = static_cast<R>(read_host<M>(reinterpret_cast<u64>(w.block->parameters) + offset));
  R* d = reinterpret_cast<R*>(w.at(op.r[0]));
  TS_LANES d[i] = (mask >> i & 1) != 0 ? value : d[i];
}

/// r = {shared address, global address, source bytes, ignore}: extra is the size; what the source lacks is zero.
void copy_async(Warp& w, const MicroOp& op, u32 mask) {
  const u32 bytes = memory_extra(op.imm);
  Resolved to, from;
  resolve(w, op, mask, op.r[0], bytes, AccessVerb::kWrite, to);
  const u64* address = w.lanes64(op.r[1]);
  const u32* wanted = w.lanes32(op.r[2]);
  const u32 ignored = w.predicate(op.r[3]);
  u32 full = 0;
  for (int i = 0; i < kLanes; ++i) full |= static_cast<u32>(wanted[i] >= bytes && (ignored >> i & 1) == 0) << i;
  full &= mask;
  if (full != 0) {
    TS_LANES from.host[i] = address[i];
    resolve_addresses(w, op, full, MemorySpace::kGlobal, bytes, bytes, AccessVerb::kRead, from);
  }
  for (int i = 0; i < kLanes; ++i) {
    if ((mask >> i & 1) == 0) continue;
    alignas(16) u8 value[16] = {};
    if ((full >> i & 1) != 0) {
      __builtin_memcpy(value, reinterpret_cast<const void*>(from.host[i]), bytes);
    } else if ((ignored >> i & 1) == 0 && wanted[i] != 0) {
      Resolved one;
      one.host[i] = address[i];
      resolve_addresses(w, op, 1u << i, MemorySpace::kGlobal, wanted[i], bytes, AccessVerb::kRead, one);
      __builtin_memcpy(value, reinterpret_cast<const void*>(one.host[i]), wanted[i]);
    }
    __builtin_memcpy(reinterpret_cast<void*>(to.host[i]), value, bytes);
  }
}

// ---- 8x8 matrices of 16-bit elements: row r is at the address of lane 8m + r ----

TS_INLINE void transpose8x8(const u16* from, u16* to) {
  for (int row = 0; row < 8; ++row) {
    for (int column = 0; column < 8; ++column) to[column * 8 + row] = from[row * 8 + column];
  }
}

void require_whole_warp(Warp& w, const MicroOp& op, u32 mask) {
  if (mask != w.live)
    raise_fault(Fault::Kind::kIllegalInstruction, "a warp-wide matrix operation is executed by a part of the warp", op,
                -1);
}

/// The rows' host addresses; lanes beyond the last row take no part.
void resolve_rows(Warp& w, const MicroOp& op, u32 ref, int rows, AccessVerb verb, Resolved& at) {
  const u32 lanes = rows == 32 ? kAllLanes : (1u << rows) - 1;
  resolve(w, op, lanes, ref, 16, verb, at);
}

/// r = {d0 ... d(N-1), address}: lane l's word of matrix m is row l / 4, elements 2 (l % 4) and the next.
template <int kCount, bool kTranspose>
void load_matrices(Warp& w, const MicroOp& op, u32 mask) {
  require_whole_warp(w, op, mask);
  Resolved at;
  resolve_rows(w, op, op.r[kCount], 8 * kCount, AccessVerb::kRead, at);
  alignas(64) u16 matrices[kCount][64];
  for (int row = 0; row < 8 * kCount; ++row) {
    __builtin_memcpy(&matrices[row / 8][row % 8 * 8], reinterpret_cast<const void*>(at.host[row]), 16);
  }
  for (int m = 0; m < kCount; ++m) {
    u16* d = w.lanes16(op.r[m]);
    if (kTranspose) {
      transpose8x8(matrices[m], d);
    } else {
      __builtin_memcpy(d, matrices[m], sizeof matrices[m]);
    }
  }
}

/// r = {address, s0 ... s(N-1)}.
template <int kCount, bool kTranspose>
void store_matrices(Warp& w, const MicroOp& op, u32 mask) {
  require_whole_warp(w, op, mask);
  Resolved at;
  resolve_rows(w, op, op.r[0], 8 * kCount, AccessVerb::kWrite, at);
  for (int m = 0; m < kCount; ++m) {
    alignas(64) u16 matrix[64];
    const u16* s = w.lanes16(op.r[1 + m]);
    if (kTranspose) {
      transpose8x8(s, matrix);
    } else {
      __builtin_memcpy(matrix, s, sizeof matrix);
    }
    for (int row = 0; row < 8; ++row)
      __builtin_memcpy(reinterpret_cast<void*>(at.host[8 * m + row]), matrix + 8 * row, 16);
  }
}

void transpose_matrix(Warp& w, const MicroOp& op, u32 mask) {
  require_whole_warp(w, op, mask);
  alignas(64) u16 matrix[64];
  transpose8x8(w.lanes16(op.r[1]), matrix);
  __builtin_memcpy(w.at(op.r[0]), matrix, sizeof matrix);
}

#define TS_ACCESS(MT, M, RT, R, N)                                        \
  {op_key(Op::kLoad, Type::MT, Type::RT, 0, N), &load<M, R, N, false>}, { \
    op_key(Op::kLoad, Type::MT, Type::RT, 1, N), &load<M, R, N, true>     \
  }
#define TS_STORE(MT, M, RT, R, N)                                           \
  {op_key(Op::kStore, Type::MT, Type::RT, 0, N), &store<M, R, N, false>}, { \
    op_key(Op::kStore, Type::MT, Type::RT, 1, N), &store<M, R, N, true>     \
  }
#define TS_COUNTS(X, MT, M, RT, R) X(MT, M, RT, R, 1), X(MT, M, RT, R, 2), X(MT, M, RT, R, 4), X(MT, M, RT, R, 8)
#define TS_PARAM(MT, M, RT, R) {op_key(Op::kLoadParam, Type::MT, Type::RT), &load_param<M, R>}
#define TS_LOADS(X)                                                                                                  \
  X(kU8, u8, kB16, u16), X(kU8, u8, kB32, u32), X(kU8, u8, kB64, u64), X(kS8, s8, kB16, u16), X(kS8, s8, kB32, u32), \
      X(kS8, s8, kB64, u64), X(kU16, u16, kB16, u16), X(kU16, u16, kB32, u32), X(kU16, u16, kB64, u64),              \
      X(kS16, s16, kB16, u16), X(kS16, s16, kB32, u32), X(kS16, s16, kB64, u64), X(kU32, u32, kB32, u32),            \
      X(kU32, u32, kB64, u64), X(kS32, s32, kB32, u32), X(kS32, s32, kB64, u64), X(kU64, u64, kB64, u64)
#define TS_LOAD_COUNTS(MT, M, RT, R) TS_COUNTS(TS_ACCESS, MT, M, RT, R)
#define TS_STORE_COUNTS(MT, M, RT, R) TS_COUNTS(TS_STORE, MT, M, RT, R)
#define TS_MATRICES(N)                                                                     \
  {op_key(Op::kLdmatrix, Type::kB16, Type::kNone, 0, N), &load_matrices<N, false>},        \
      {op_key(Op::kLdmatrix, Type::kB16, Type::kNone, 1, N), &load_matrices<N, true>},     \
      {op_key(Op::kStmatrix, Type::kB16, Type::kNone, 0, N), &store_matrices<N, false>}, { \
    op_key(Op::kStmatrix, Type::kB16, Type::kNone, 1, N), &store_matrices<N, true>         \
  }

constexpr OpEntry kEntries[] = {
    TS_LOADS(TS_LOAD_COUNTS),
    TS_LOADS(TS_PARAM),
    TS_STORE_COUNTS(kU8, u8, kB16, u16),
    TS_STORE_COUNTS(kU8, u8, kB32, u32),
    TS_STORE_COUNTS(kU8, u8, kB64, u64),
    TS_STORE_COUNTS(kU16, u16, kB16, u16),
    TS_STORE_COUNTS(kU16, u16, kB32, u32),
    TS_STORE_COUNTS(kU16, u16, kB64, u64),
    TS_STORE_COUNTS(kU32, u32, kB32, u32),
    TS_STORE_COUNTS(kU32, u32, kB64, u64),
    TS_STORE_COUNTS(kU64, u64, kB64, u64),
    {op_key(Op::kLoad, Type::kB128, Type::kB128, 0, 1), &load128},
    {op_key(Op::kStore, Type::kB128, Type::kB128, 0, 1), &store128},
    {op_key(Op::kCpAsync), &copy_async},
    TS_MATRICES(1),
    TS_MATRICES(2),
    TS_MATRICES(4),
    {op_key(Op::kMovmatrix, Type::kB16), &transpose_matrix},
};

}  // namespace

OpEntries memory_entries() { return {kEntries, sizeof kEntries / sizeof kEntries[0]}; }

}  // namespace tessera::sim::TESSERA_SIM_ISA
