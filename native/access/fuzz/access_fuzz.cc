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
  if (size < 32) return 0;
  std::memcpy(parameters, data, 32);  // also seeds pointers and scalars
  std::vector<uint64_t> blob((size - 32 + 7) / 8);
  std::memcpy(blob.data(), data + 32, size - 32);
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
