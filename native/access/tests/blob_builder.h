// SPDX-License-Identifier: Apache-2.0
// Builds summary blobs for tests and benchmarks, right or deliberately wrong.
#pragma once

#include <cstring>
#include <vector>

#include "tessera/access/summary.h"

namespace tessera::access::testing {

struct BlobBuilder {
  ts_summary header{TS_SUMMARY_MAGIC, TS_SUMMARY_VERSION, 0, 0, 0, 0, 0, 80, 0, 0};
  std::vector<ts_node> nodes;
  std::vector<ts_access> accesses;

  explicit BlobBuilder(uint32_t parameter_block_size) { header.parameter_block_size = parameter_block_size; }

  int32_t node(int32_t op, int32_t a = 0, int32_t b = 0, int32_t c = 0, int64_t value = 0) {
    nodes.push_back({op, a, b, c, value});
    return static_cast<int32_t>(nodes.size()) - 1;
  }
  int32_t constant(int64_t value) { return node(TS_OP_CONST, 0, 0, 0, value); }

  void access(uint32_t parameter, int32_t lo, int32_t hi, uint8_t mode = TS_ACCESS_READ, uint8_t flags = 0,
              int32_t guard = TS_NO_NODE) {
    constexpr int32_t kNone = TS_NO_NODE;
    accesses.push_back({mode, flags, 0, 0, parameter, guard, lo, hi, 0, {kNone, kNone, kNone}, {kNone, kNone, kNone}});
  }
  /// Copies of the last access's row, `count` of them at `pitch` from one another.
  void level(int32_t pitch, int32_t count) {
    ts_access& last = accesses.back();
    last.pitch[last.n_levels] = pitch;
    last.count[last.n_levels++] = count;
  }

  /// The blob in 8-byte words, so that it is aligned.
  std::vector<uint64_t> build() {
    const size_t node_bytes = nodes.size() * sizeof(ts_node), access_bytes = accesses.size() * sizeof(ts_access);
    header.n_nodes = static_cast<uint32_t>(nodes.size());
    header.n_accesses = static_cast<uint32_t>(accesses.size());
    header.size = static_cast<uint32_t>(sizeof(header) + node_bytes + access_bytes);
    std::vector<uint64_t> blob((header.size + 7) / 8);
    auto* out = reinterpret_cast<uint8_t*>(blob.data());
    std::memcpy(out, &header, sizeof(header));
    if (node_bytes != 0) std::memcpy(out + sizeof(header), nodes.data(), node_bytes);
    if (access_bytes != 0) std::memcpy(out + sizeof(header) + node_bytes, accesses.data(), access_bytes);
    return blob;
  }
};

/// `n_arrays` pointers at offsets 0, 8, ... and an int32 length behind them: the
/// first is written, the others read, [0, 4 * min(n, grid * block)) each.
inline BlobBuilder elementwise(uint32_t n_arrays) {
  BlobBuilder blob(n_arrays * 8 + 4);
  const int32_t zero = blob.constant(0), four = blob.constant(4);
  const int32_t n = blob.node(TS_OP_PARAMETER, static_cast<int32_t>(n_arrays * 8), 4, 1);
  const int32_t threads = blob.node(TS_OP_MUL, blob.node(TS_OP_GRID, 0), blob.node(TS_OP_BLOCK, 0));
  const int32_t hi = blob.node(TS_OP_MUL, four, blob.node(TS_OP_MIN, n, threads));
  for (uint32_t i = 0; i < n_arrays; ++i) {
    const uint8_t flags = i == 0 ? TS_ACCESS_EXACT | TS_ACCESS_MUST_WRITE : TS_ACCESS_EXACT;
    blob.access(i * 8, zero, hi, i == 0 ? TS_ACCESS_WRITE : TS_ACCESS_READ, flags);
  }
  return blob;
}

}  // namespace tessera::access::testing
