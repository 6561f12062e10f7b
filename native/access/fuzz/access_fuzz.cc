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
}

void check_range(const ts_range& range) {
  require(range.mode != 0 && (range.mode & ~3) == 0);
  if (range.flags & TS_ACCESS_UNBOUNDED) {
    require(range.begin == range.pointer && range.end == range.pointer);
    require((range.flags & (TS_ACCESS_EXACT | TS_ACCESS_MUST_WRITE)) == 0);
  } else {
    require(range.begin < range.end);
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
  ts_range ranges[TS_SUMMARY_MAX_ACCESSES];
  uint32_t count = 0;
  const int status = ts_summary_evaluate(blob.data(), &launch, ranges, TS_SUMMARY_MAX_ACCESSES, &count);
  require(status == TS_EVALUATE_OK || status == TS_EVALUATE_PARAMETERS);
  for (uint32_t i = 0; i < count; ++i) check_range(ranges[i]);
  return 0;
}
