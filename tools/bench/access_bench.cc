// SPDX-License-Identifier: Apache-2.0
// Time of ts_summary_evaluate for kernels of typical size: the minimum and the
// median over many batches, in nanoseconds per launch. "new" evaluates, "kept"
// finds the launch in a memo. Summaries of real kernels may be given as files:
//
//   access_bench [--batches 500] [NAME.blob...]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

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

struct Times {
  double least, median;
};

template <class Evaluate>
Times time_of(int batches, Evaluate evaluate) {
  constexpr int kLaunches = 2000;
  std::vector<double> times;
  for (int batch = 0; batch < batches; ++batch) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kLaunches; ++i) evaluate();
    const std::chrono::duration<double, std::nano> elapsed = std::chrono::steady_clock::now() - begin;
    times.push_back(elapsed.count() / kLaunches);
  }
  std::sort(times.begin(), times.end());
  return {times.front(), times[times.size() / 2]};
}

void measure(const char* name, const std::vector<uint64_t>& blob, size_t size, int batches) {
  if (ts_summary_validate(blob.data(), size) != TS_EVALUATE_OK) {
    std::fprintf(stderr, "access_bench: %s is no summary of this version\n", name);
    std::exit(1);
  }
  ts_summary header;
  std::memcpy(&header, blob.data(), sizeof(header));
  std::vector<uint8_t> parameters(header.parameter_block_size);
  for (size_t i = 0; i + 4 <= parameters.size(); i += 4) parameters[i] = 64;  // every scalar is 64
  const ts_launch_shape launch = {
      parameters.data(), static_cast<uint32_t>(parameters.size()), {64, 64, 1}, {16, 16, 1}, {1, 1, 1}, 0};
  static ts_range ranges[TS_SUMMARY_MAX_ACCESSES];
  static ts_memo memo;
  ts_summary_memo_prepare(&memo, blob.data());
  uint32_t count = 0;
  const Times fresh = time_of(batches, [&] {
    if (ts_summary_evaluate(blob.data(), &launch, ranges, TS_SUMMARY_MAX_ACCESSES, &count) != TS_EVALUATE_OK)
      std::abort();
  });
  const Times kept = time_of(batches, [&] {
    if (ts_summary_evaluate_memo(blob.data(), &memo, &launch, ranges, TS_SUMMARY_MAX_ACCESSES, &count) !=
        TS_EVALUATE_OK)
      std::abort();
  });
  std::printf(
      "%-28s %4u nodes %2u accesses %2u ranges: new min %6.1f ns, median %6.1f ns; kept min %5.1f ns, "
      "median %5.1f ns\n",
      name, header.n_nodes, header.n_accesses, count, fresh.least, fresh.median, kept.least, kept.median);
}

void measure(const char* name, BlobBuilder builder, int batches) {
  const std::vector<uint64_t> blob = builder.build();
  measure(name, blob, builder.header.size, batches);
}

void measure_file(const char* path, int batches) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::vector<uint64_t> blob((bytes.size() + 7) / 8 + 1);
  std::memcpy(blob.data(), bytes.data(), bytes.size());
  const char* slash = std::strrchr(path, '/');
  measure(slash != nullptr ? slash + 1 : path, blob, bytes.size(), batches);
}

}  // namespace

int main(int argc, char** argv) {
  int batches = 500, next = 1;
  if (argc >= 3 && std::strcmp(argv[1], "--batches") == 0) {
    batches = std::max(1, std::atoi(argv[2]));
    next = 3;
  }
  if (next == argc) {
    measure("elementwise", elementwise(4), batches);
    measure("elementwise, 8 pointers", elementwise(8), batches);
    measure("matmul", matmul(), batches);
  }
  for (int i = next; i < argc; ++i) measure_file(argv[i], batches);
  return 0;
}
