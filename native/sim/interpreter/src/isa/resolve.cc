// SPDX-License-Identifier: Apache-2.0
#include "resolve.h"

namespace tessera::sim::TESSERA_SIM_ISA {
namespace {

struct Span {
  u64 low, high;  // of the lanes' addresses
};

TS_INLINE Span span_of(const u64* address) {
  u64 low = address[0], high = address[0];
  for (int i = 0; i < kLanes; ++i) {
    low = address[i] < low ? address[i] : low;
    high = address[i] > high ? address[i] : high;
  }
  return {low, high};
}

TS_INLINE bool consecutive(const u64* address, u32 bytes) {
  u64 differences = 0;
  for (int i = 0; i < kLanes; ++i) differences |= address[i] ^ (address[0] + static_cast<u64>(i) * bytes);
  return differences == 0;
}

TS_INLINE void repeat_active(u64* address, u32 mask) {
  const u64 first = address[__builtin_ctz(mask)];
  TS_LANES address[i] = (mask >> i & 1) != 0 ? address[i] : first;
}

void check_alignment(const MicroOp& op, u32 mask, const u64* address, u32 alignment) {
  u64 low_bits = 0;
  for (int i = 0; i < kLanes; ++i) low_bits |= address[i];
  if ((low_bits & (alignment - 1)) == 0) [[likely]]
    return;
  for (int i = 0; i < kLanes; ++i) {
    if ((mask >> i & 1) != 0 && (address[i] & (alignment - 1)) != 0) raise_misaligned(op, i, address[i], alignment);
  }
}

TS_INLINE void track(Warp& w, u64 begin, u64 end, AccessVerb verb) {
  if (verb != AccessVerb::kWrite) w.memory->tracker.read(begin, end);
  if (verb != AccessVerb::kRead) w.memory->tracker.write(begin, end);
}

TS_INLINE void count_bytes(Warp& w, u32 mask, u32 bytes, AccessVerb verb) {
  const u64 total = static_cast<u64>(__builtin_popcount(mask)) * bytes;
  if (verb != AccessVerb::kWrite) w.memory->bytes_read += total;
  if (verb != AccessVerb::kRead) w.memory->bytes_written += total;
}

void check_global_lane(Warp& w, const MicroOp& op, int lane, u64 address, u32 bytes, AccessVerb verb) {
  if (address + bytes < address || !w.memory->allows(address, address + bytes, verb != AccessVerb::kRead)) {
    raise_illegal_address(op, lane, address, bytes, verb, "global");
  }
}

void resolve_global(Warp& w, const MicroOp& op, u32 mask, u32 bytes, AccessVerb verb, Resolved& out) {
  out.global = true;
  out.contiguous = mask == kAllLanes && consecutive(out.host, bytes);
  count_bytes(w, mask, bytes, verb);
  const Span span = out.contiguous ? Span{out.host[0], out.host[kLanes - 1]} : span_of(out.host);
  const bool whole = span.high + bytes > span.high && span.high >= span.low &&
                     w.memory->allows(span.low, span.high + bytes, verb != AccessVerb::kRead);
  if (out.contiguous && whole) [[likely]]
    return track(w, span.low, span.high + bytes, verb);
  if (whole && span.low == span.high) return track(w, span.low, span.low + bytes, verb);
  for (int i = 0; i < kLanes; ++i) {
    if ((mask >> i & 1) == 0) continue;
    if (!whole) check_global_lane(w, op, i, out.host[i], bytes, verb);
    track(w, out.host[i], out.host[i] + bytes, verb);
  }
}

u64 shared_host(Warp& w, const MicroOp& op, int lane, u64 address, u32 bytes, AccessVerb verb) {
  const BlockContext* block = w.block;
  const u64 rank = address >> kClusterRankShift, offset = address & kSharedOffsetMask;
  if (rank != 0 && rank <= block->cluster_size) block = block->cluster[rank - 1];
  if (rank > w.block->cluster_size || offset + bytes > block->shared_bytes) {
    raise_illegal_address(op, lane, address, bytes, verb, "shared");
  }
  return reinterpret_cast<u64>(block->shared) + offset;
}

void resolve_shared(Warp& w, const MicroOp& op, u32 mask, u32 bytes, AccessVerb verb, Resolved& out) {
  const Span span = span_of(out.host);
  if (span.high + bytes <= w.block->shared_bytes && span.high + bytes > span.high) [[likely]] {
    out.contiguous = mask == kAllLanes && consecutive(out.host, bytes);
    const u64 base = reinterpret_cast<u64>(w.block->shared);
    TS_LANES out.host[i] += base;
    return;
  }
  u64 host = 0;
  for (int i = 0; i < kLanes; ++i) {
    if ((mask >> i & 1) != 0) out.host[i] = host = shared_host(w, op, i, out.host[i], bytes, verb);
  }
  repeat_active(out.host, mask);
}

void resolve_local(Warp& w, const MicroOp& op, u32 mask, u32 bytes, AccessVerb verb, Resolved& out) {
  const Span span = span_of(out.host);
  if (span.high + bytes > w.local_bytes || span.high + bytes < span.high) {
    for (int i = 0; i < kLanes; ++i) {
      const bool outside = out.host[i] + bytes > w.local_bytes || out.host[i] + bytes < out.host[i];
      if ((mask >> i & 1) != 0 && outside) raise_illegal_address(op, i, out.host[i], bytes, verb, "local");
    }
  }
  const u64 base = reinterpret_cast<u64>(w.local), stride = w.local_bytes;
  TS_LANES out.host[i] += base + static_cast<u64>(i) * stride;
}

void resolve_param(Warp& w, const MicroOp& op, u32 mask, u32 bytes, AccessVerb verb, Resolved& out) {
  for (int i = 0; i < kLanes; ++i) {
    const bool outside = out.host[i] + bytes > w.block->parameter_bytes || out.host[i] + bytes < bytes;
    if ((mask >> i & 1) != 0 && (outside || verb != AccessVerb::kRead)) {
      raise_illegal_address(op, i, out.host[i], bytes, verb, "param");
    }
  }
  const u64 base = reinterpret_cast<u64>(w.block->parameters);
  TS_LANES out.host[i] += base;
}

/// Lanes that point into different windows: each window's lanes are resolved together.
void resolve_mixed(Warp& w, const MicroOp& op, u32 mask, u32 bytes, AccessVerb verb, Resolved& out);

void resolve_generic(Warp& w, const MicroOp& op, u32 mask, u32 bytes, AccessVerb verb, Resolved& out) {
  u64 any = 0, different = 0;
  for (int i = 0; i < kLanes; ++i) {
    any |= out.host[i];
    different |= (out.host[i] ^ out.host[0]) >> kWindowShift;
  }
  if (any < kSharedWindow) [[likely]]
    return resolve_global(w, op, mask, bytes, verb, out);
  if (different != 0) return resolve_mixed(w, op, mask, bytes, verb, out);
  const u64 window = out.host[0] & ~kWindowOffsetMask;
  if (window != kSharedWindow && window != kLocalWindow && window != kParamWindow) {
    return resolve_global(w, op, mask, bytes, verb, out);  // not an address of ours: found illegal there
  }
  TS_LANES out.host[i] &= kWindowOffsetMask;
  if (window == kSharedWindow) return resolve_shared(w, op, mask, bytes, verb, out);
  if (window == kLocalWindow) return resolve_local(w, op, mask, bytes, verb, out);
  resolve_param(w, op, mask, bytes, verb, out);
}

void resolve_mixed(Warp& w, const MicroOp& op, u32 mask, u32 bytes, AccessVerb verb, Resolved& out) {
  u32 left = mask;
  Resolved part;
  while (left != 0) {
    const u64 window = out.host[__builtin_ctz(left)] >> kWindowShift;
    u32 group = 0;
    for (int i = 0; i < kLanes; ++i) {
      if ((left >> i & 1) != 0 && out.host[i] >> kWindowShift == window) group |= 1u << i;
    }
    TS_LANES part.host[i] = out.host[i];
    repeat_active(part.host, group);
    resolve_generic(w, op, group, bytes, verb, part);
    for (int i = 0; i < kLanes; ++i) {
      if ((group >> i & 1) != 0) out.host[i] = part.host[i];
    }
    left &= ~group;
  }
  out.contiguous = out.global = false;
  repeat_active(out.host, mask);
}

}  // namespace

void resolve_addresses(Warp& w, const MicroOp& op, u32 mask, MemorySpace space, u32 bytes, u32 alignment,
                       AccessVerb verb, Resolved& out) {
  out.contiguous = out.global = false;
  if (mask != kAllLanes) repeat_active(out.host, mask);
  check_alignment(op, mask, out.host, alignment);
  switch (space) {
    case MemorySpace::kGlobal:
      return resolve_global(w, op, mask, bytes, verb, out);
    case MemorySpace::kShared:
      return resolve_shared(w, op, mask, bytes, verb, out);
    case MemorySpace::kLocal:
      return resolve_local(w, op, mask, bytes, verb, out);
    case MemorySpace::kParam:
      return resolve_param(w, op, mask, bytes, verb, out);
    default:
      return resolve_generic(w, op, mask, bytes, verb, out);
  }
}

void resolve(Warp& w, const MicroOp& op, u32 mask, u32 ref, u32 bytes, AccessVerb verb, Resolved& out) {
  const MemorySpace space = memory_space(op.imm);
  const u64 offset = static_cast<u64>(memory_offset(op.imm));
  if (space == MemorySpace::kFrame) {
    const u64 address = w.local_base + offset;
    TS_LANES out.host[i] = address;
    return resolve_addresses(w, op, mask, MemorySpace::kLocal, bytes, bytes, verb, out);
  }
  if ((op.imm & kNarrowAddress) != 0) {
    const u32* address = w.lanes32(ref);
    TS_LANES out.host[i] = address[i] + offset;
  } else {
    const u64* address = w.lanes64(ref);
    TS_LANES out.host[i] = address[i] + offset;
  }
  resolve_addresses(w, op, mask, space, bytes, bytes, verb, out);
}

}  // namespace tessera::sim::TESSERA_SIM_ISA
