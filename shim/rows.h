// SPDX-License-Identifier: Apache-2.0
// Sets of rows as the directory takes them: an interval each, as long as they are few and far between.
#pragma once

#include <cstdint>

#include "tessera/access/summary.h"

namespace tessera::shim {

/// An interval costs its own copy, message entry and place in the directory: about as much as moving so many bytes.
constexpr uint64_t kSmallestGap = 16u << 10;

/// Intervals of `width` bytes at `begin` + i * pitch[0] + j * pitch[1] + ..., i < count[0] and so on.
struct Rows {
  uint64_t begin = 0, width = 0;
  uint32_t n_levels = 0;
  uint64_t pitch[TS_SUMMARY_MAX_LEVELS]{}, count[TS_SUMMARY_MAX_LEVELS]{};
  uint64_t intervals = 1;
  uint8_t promises = 0;  // TS_ACCESS_EXACT, TS_ACCESS_MUST_WRITE: what holds for every byte of the intervals

  template <class Visit>
  void for_each(Visit&& visit) const {
    walk(n_levels, begin, visit);
  }

 private:
  template <class Visit>
  void walk(uint32_t levels, uint64_t at, Visit& visit) const {
    if (levels == 0) return visit(at, at + width);
    for (uint64_t i = 0; i < count[levels - 1]; ++i) walk(levels - 1, at + i * pitch[levels - 1], visit);
  }
};

/// At most `most` intervals that hold every byte of a bounded range: its rows, or, from the innermost level outwards,
/// the hulls of those that lie close together or are too many. `most` is not 0.
Rows rows_of(const ts_range& range, uint64_t most);

}  // namespace tessera::shim
