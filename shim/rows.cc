// SPDX-License-Identifier: Apache-2.0
#include "rows.h"

namespace tessera::shim {
namespace {

constexpr uint8_t kPromises = TS_ACCESS_EXACT | TS_ACCESS_MUST_WRITE;

/// How many rows the levels from `first` on make, if they are no more than `most`; else 0.
uint64_t rows_from(const ts_range& range, uint32_t first, uint64_t most) {
  uint64_t rows = 1;
  for (uint32_t i = first; i < range.n_levels; ++i) {
    if (__builtin_mul_overflow(rows, range.count[i], &rows) || rows > most) return 0;
  }
  return rows;
}

}  // namespace

Rows rows_of(const ts_range& range, uint64_t most) {
  Rows rows;
  rows.begin = range.begin;
  if (range.n_levels == 0) {
    rows.width = range.end - range.begin;
    rows.promises = range.flags & kPromises;
    return rows;
  }
  rows.width = range.width;
  uint32_t joined = 0;  // levels; the sum of them all is the hull, so nothing overflows
  for (; joined < range.n_levels; ++joined) {
    const bool apart = range.pitch[joined] >= kSmallestGap && range.pitch[joined] - kSmallestGap >= rows.width;
    rows.intervals = rows_from(range, joined, most);
    if (apart && rows.intervals != 0) break;
    rows.width += range.pitch[joined] * (range.count[joined] - 1);
    rows.intervals = 1;
  }
  for (uint32_t i = joined; i < range.n_levels; ++i) {
    rows.pitch[rows.n_levels] = range.pitch[i];
    rows.count[rows.n_levels++] = range.count[i];
  }
  rows.promises = joined == 0 ? range.row_flags & kPromises : range.flags & kPromises;
  return rows;
}

}  // namespace tessera::shim
