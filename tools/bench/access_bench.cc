// SPDX-License-Identifier: Apache-2.0
// Time of ts_summary_evaluate for kernels of typical size: the minimum and the
// median over many batches, in nanoseconds per launch.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "blob_builder.h"

namespace {

using tessera::access::testing::BlobBuilder;
using tessera::access::testing::elementwise;

/// A tiled matrix product: three matrices with leading dimensions, guards on
/// rows, columns and depth. 8 accesses over about 60 nodes.
BlobBuilder matmul() {
  BlobBuilder b(3 * 8 + 6 * 4);
  const int32_t zero = b.constant(0), one = b.constant(1), size = b.constant(4);
  int32_t extent[3], stride[3];
  for (int i = 0; i < 3; ++i) extent[i] = b.node(TS_OP_PARAMETER, 24 + 4 * i, 4, 1);
  for (int i = 0; i < 3; ++i) stride[i] = b.node(TS_OP_PARAMETER, 36 + 4 * i, 4, 1);
  for (int i = 0; i < 8; ++i) {
    const int32_t tile = b.constant(16 * (i + 1));
    const int32_t rows = b.node(TS_OP_MIN, extent[i % 3], b.node(TS_OP_MUL, b.node(TS_OP_GRID, i % 2), tile));
    const int32_t last = b.node(TS_OP_MUL, b.node(TS_OP_SUB, rows, one), stride[i % 3]);
    const int32_t hi = b.node(TS_OP_MUL, size, b.node(TS_OP_ADD, last, extent[(i + 1) % 3]));
    b.access(8 * (i % 3), zero, hi, i % 3 == 2 ? TS_ACCESS_WRITE : TS_ACCESS_READ);
  }
  return b;
}

void measure(const char* name, BlobBuilder builder, int batches) {
  const std::vector<uint64_t> blob = builder.build();
  if (ts_summary_validate(blob.data(), blob.size() * 8) != TS_EVALUATE_OK) std::abort();
  std::vector<uint8_t> parameters(builder.header.parameter_block_size, 1);
  const ts_launch_shape launch = {
      parameters.data(), static_cast<uint32_t>(parameters.size()), {64, 64, 1}, {16, 16, 1}, {1, 1, 1}, 0};
  constexpr int kLaunches = 2000;
  std::vector<double> times;
  uint64_t sink = 0;
  for (int batch = 0; batch < batches; ++batch) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kLaunches; ++i) {
      ts_range ranges[16];
      uint32_t count = 0;
      if (ts_summary_evaluate(blob.data(), &launch, ranges, 16, &count) != TS_EVALUATE_OK) std::abort();
      sink += count != 0 ? ranges[count - 1].end : 0;
    }
    const std::chrono::duration<double, std::nano> elapsed = std::chrono::steady_clock::now() - begin;
    times.push_back(elapsed.count() / kLaunches);
  }
  std::sort(times.begin(), times.end());
  std::printf("%-24s %4u nodes %2u accesses: min %6.1f ns, median %6.1f ns  (%llx)\n", name, builder.header.n_nodes,
              builder.header.n_accesses, times.front(), times[times.size() / 2], static_cast<unsigned long long>(sink));
}

}  // namespace

int main(int argc, char** argv) {
  int batches = 500;
  if (argc == 3 && std::strcmp(argv[1], "--batches") == 0) batches = std::max(1, std::atoi(argv[2]));
  measure("elementwise", elementwise(4), batches);
  measure("elementwise, 8 pointers", elementwise(8), batches);
  measure("matmul", matmul(), batches);
  return 0;
}
