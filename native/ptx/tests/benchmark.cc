// SPDX-License-Identifier: Apache-2.0
// ptx_benchmark FILE...: parses each PTX text, or all PTX in each image, and prints the speed.
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>

#include "tessera/ptx/cfg.h"
#include "tessera/ptx/image.h"
#include "tessera/ptx/parser.h"

namespace {

using namespace tessera::ptx;
using Clock = std::chrono::steady_clock;

struct Totals {
  size_t modules = 0, bytes = 0, instructions = 0, errors = 0;
  double parse_seconds = 0, cfg_seconds = 0;
};

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

void measure(const std::string& text, Totals& totals) {
  const Clock::time_point start = Clock::now();
  const ParseResult result = parse(text);
  totals.parse_seconds += seconds_since(start);
  const Clock::time_point middle = Clock::now();
  for (const Function& function : result.module.functions) {
    totals.instructions += function.instructions.size();
    build_cfg(function);
  }
  totals.cfg_seconds += seconds_since(middle);
  ++totals.modules;
  totals.bytes += text.size();
  totals.errors += result.errors.size();
}

}  // namespace

int main(int argc, char** argv) {
  Totals totals;
  for (int i = 1; i < argc; ++i) {
    std::ifstream file(argv[i], std::ios::binary);
    const std::string data{std::istreambuf_iterator<char>(file), {}};
    const ImageListing listing = list_image(data.data(), data.size());
    for (const EntryReference& reference : listing.entries) {
      ImageEntry entry;
      std::string error;
      if (reference.kind != ImageEntry::Kind::kPtx) continue;
      if (read_entry(data.data(), data.size(), reference, SIZE_MAX / 2, entry, error)) measure(entry.payload, totals);
    }
  }
  if (totals.modules == 0) {
    std::fprintf(stderr, "usage: ptx_benchmark FILE...: PTX text, fatbins or libraries; none of these holds PTX\n");
    return 1;
  }
  std::printf("%zu modules, %.1f MB, %zu instructions, %zu errors\n", totals.modules, totals.bytes / 1e6,
              totals.instructions, totals.errors);
  std::printf("parse: %.1f MB/s, %.2f M instructions/s; control flow graphs: %.2f M instructions/s\n",
              totals.bytes / 1e6 / totals.parse_seconds, totals.instructions / 1e6 / totals.parse_seconds,
              totals.instructions / 1e6 / totals.cfg_seconds);
}
