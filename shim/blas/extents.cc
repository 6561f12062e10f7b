// SPDX-License-Identifier: Apache-2.0
#include "blas/extents.h"

#include <algorithm>

namespace tessera::shim {
namespace {

constexpr uint64_t kMostPieces = 64;
constexpr uint64_t kMostBytes = uint64_t{1} << 46;

}  // namespace

bool extents_of(uint64_t address, uint32_t bytes, uint64_t run, std::vector<Level> levels, Extents& out) {
  if (run == 0 || bytes == 0) return false;
  std::erase_if(levels, [](const Level& level) { return level.count == 1; });
  std::sort(levels.begin(), levels.end(), [](const Level& a, const Level& b) { return a.pitch < b.pitch; });
  if (run > kMostBytes / bytes) return false;
  uint64_t whole = run;  // from the first element to behind the last
  for (const Level& level : levels) {
    if (level.count == 0 || level.count > kMostBytes || level.pitch > kMostBytes) return false;
    const uint64_t room = kMostBytes / bytes - whole;
    if (level.pitch != 0 && level.count - 1 > room / level.pitch) return false;
    whole += (level.count - 1) * level.pitch;
  }
  if (address > UINT64_MAX - kMostBytes) return false;
  // What touches or overlaps, innermost first, is one run.
  size_t merged = 0;
  for (; merged < levels.size() && levels[merged].pitch <= run; ++merged) {
    run += (levels[merged].count - 1) * levels[merged].pitch;
  }
  uint64_t pieces = 1;
  for (size_t i = merged; i < levels.size(); ++i)
    pieces = std::min(pieces * std::min(levels[i].count, kMostPieces + 1), kMostPieces + 1);
  if (pieces > kMostPieces) {
    out = {{{address, address + whole * bytes}}, false};
    return true;
  }
  std::vector<uint64_t> begins{address};
  for (size_t i = merged; i < levels.size(); ++i) {
    const size_t before = begins.size();
    for (uint64_t step = 1; step < levels[i].count; ++step) {
      for (size_t j = 0; j < before; ++j) begins.push_back(begins[j] + step * levels[i].pitch * bytes);
    }
  }
  out = {{}, true};
  for (const uint64_t begin : begins) out.ranges.push_back({begin, begin + run * bytes});
  memory::normalize(out.ranges);
  return true;
}

}  // namespace tessera::shim
