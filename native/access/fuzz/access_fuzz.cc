// SPDX-License-Identifier: Apache-2.0
// libFuzzer: any bytes may be offered as a summary; what validate accepts must
// evaluate without a fault, and give ranges that keep the documented promises.
#include <cstdlib>
#include <cstring>
#include <vector>

#include "tessera/access/summary.h"

namespace {

constexpr uint32_t kParameterBytes = 256;

void require(bool condition) {
  if (!condition) std::abort();
}

void mend_levels(ts_access* accesses, uint32_t n_accesses, uint32_t n_nodes) {
  for (uint32_t i = 0; i < n_accesses && n_nodes != 0; ++i) {
    ts_access& access = accesses[i];
    const bool unbounded = (access.flags & TS_ACCESS_UNBOUNDED) != 0;
    access.reserved = 0;
    access.parameter_offset %= kParameterBytes - 7;
    access.n_levels = unbounded ? 0 : access.n_levels % (TS_SUMMARY_MAX_LEVELS + 1);
    access.lo = unbounded ? TS_NO_NODE : static_cast<int32_t>(static_cast<uint32_t>(access.lo) % n_nodes);
    access.hi = unbounded ? TS_NO_NODE : static_cast<int32_t>(static_cast<uint32_t>(access.hi) % n_nodes);
    for (uint32_t k = 0; k < TS_SUMMARY_MAX_LEVELS; ++k) {
      for (int32_t* node : {&access.pitch[k], &access.count[k]}) {
        *node = k >= access.n_levels ? TS_NO_NODE : static_cast<int32_t>(static_cast<uint32_t>(*node) % n_nodes);
      }
    }
  }
}

/// Makes a well-formed header and operands that point backwards, so that most
/// inputs get past validate and exercise the evaluator.
void mend(uint8_t* blob, size_t size) {
  if (size < sizeof(ts_summary)) return;
  auto* header = reinterpret_cast<ts_summary*>(blob);
  const size_t room = size - sizeof(ts_summary);
  const uint32_t n_nodes = static_cast<uint32_t>(room / sizeof(ts_node) * 3 / 4);
  const uint32_t n_accesses = static_cast<uint32_t>((room - n_nodes * sizeof(ts_node)) / sizeof(ts_access));
  *header = {TS_SUMMARY_MAGIC, TS_SUMMARY_VERSION, 0, 0, n_nodes, n_accesses, kParameterBytes, 80, 0, 0};
  header->size = static_cast<uint32_t>(sizeof(ts_summary) + n_nodes * sizeof(ts_node) + n_accesses * sizeof(ts_access));
  auto* nodes = reinterpret_cast<ts_node*>(header + 1);
  for (uint32_t i = 0; i < n_nodes; ++i) {
    ts_node& node = nodes[i];
    node.op = i == 0 ? TS_OP_CONST : static_cast<int32_t>(static_cast<uint32_t>(node.op) % 33);
    if (i == 0 || node.op < 10) continue;
    node.a = static_cast<int32_t>(static_cast<uint32_t>(node.a) % i);
    node.c = static_cast<int32_t>(static_cast<uint32_t>(node.c) % i);
    node.b = static_cast<int32_t>(static_cast<uint32_t>(node.b) % i);
    if (node.op == TS_OP_WRAP) {
      node.b = 8 << (node.b % 3);
      node.c &= 1;
    }
  }
  mend_levels(reinterpret_cast<ts_access*>(nodes + n_nodes), n_accesses, n_nodes);
}

void check_range(const ts_range& range) {
  require(range.mode != 0 && (range.mode & ~3) == 0);
  require(range.n_levels <= TS_SUMMARY_MAX_LEVELS);
  if (range.flags & TS_ACCESS_UNBOUNDED) {
    require(range.begin == range.pointer && range.end == range.pointer && range.n_levels == 0);
    require((range.flags & (TS_ACCESS_EXACT | TS_ACCESS_MUST_WRITE)) == 0);
    return;
  }
  require(range.begin < range.end);
  if (range.n_levels == 0) return;
  require((range.flags & (TS_ACCESS_EXACT | TS_ACCESS_MUST_WRITE)) == 0);
  require(range.width > 0);
  uint64_t size = range.width, least = range.width + 1;
  for (uint32_t i = 0; i < range.n_levels; ++i) {
    require(range.pitch[i] >= least && range.count[i] >= 2);
    least = range.pitch[i];
    size += range.pitch[i] * (range.count[i] - 1);
  }
  require(range.end - range.begin == size);
}

bool same(const ts_range& a, const ts_range& b) {
  bool equal = a.pointer == b.pointer && a.begin == b.begin && a.end == b.end && a.mode == b.mode &&
               a.flags == b.flags && a.n_levels == b.n_levels && a.access == b.access;
  if (equal && a.n_levels != 0) equal = a.row_flags == b.row_flags && a.width == b.width;
  for (uint32_t i = 0; equal && i < a.n_levels; ++i) equal = a.pitch[i] == b.pitch[i] && a.count[i] == b.count[i];
  return equal;
}

/// Twice with a memo: what was kept must be what is computed.
void check_memo(const void* blob, const ts_launch_shape& launch, const ts_range* ranges, uint32_t count, int status) {
  static ts_memo memo;
  static ts_range again[TS_SUMMARY_MAX_ACCESSES];
  ts_summary_memo_prepare(&memo, blob);
  for (int round = 0; round < 2; ++round) {
    uint32_t n = 0;
    require(ts_summary_evaluate_memo(blob, &memo, &launch, again, TS_SUMMARY_MAX_ACCESSES, &n) == status);
    require(n == count);
    for (uint32_t i = 0; i < n; ++i) require(same(ranges[i], again[i]));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  uint8_t parameters[kParameterBytes] = {};
  if (size <= 32) return 0;
  std::memcpy(parameters, data, 32);  // also seeds pointers and scalars
  std::vector<uint64_t> blob((size - 32 + 7) / 8);
  std::memcpy(blob.data(), data + 32, size - 32);
  if (data[31] & 1) mend(reinterpret_cast<uint8_t*>(blob.data()), size - 32);
  if (ts_summary_validate(blob.data(), size - 32) != TS_EVALUATE_OK) return 0;
  ts_launch_shape launch = {parameters, kParameterBytes, {}, {}, {1, 1, 1}, 0};
  std::memcpy(launch.grid, data, 12);
  std::memcpy(launch.block, data + 12, 12);
  static ts_range ranges[TS_SUMMARY_MAX_ACCESSES];
  uint32_t count = 0;
  const int status = ts_summary_evaluate(blob.data(), &launch, ranges, TS_SUMMARY_MAX_ACCESSES, &count);
  require(status == TS_EVALUATE_OK || status == TS_EVALUATE_PARAMETERS);
  for (uint32_t i = 0; i < count; ++i) check_range(ranges[i]);
  check_memo(blob.data(), launch, ranges, count, status);
  return 0;
}
