// SPDX-License-Identifier: Apache-2.0
// From evaluated nodes to ranges. Rows that meet or overlap in this launch become
// one interval; what is left of the levels describes the gaps.
#include <cstring>

#include "evaluate.h"

namespace tessera::access {
namespace {

constexpr uint8_t kPromises = TS_ACCESS_EXACT | TS_ACCESS_MUST_WRITE;

struct Level {
  int64_t pitch, count;
};

/// Rows of `width` bytes from `begin` on, at the levels' steps.
struct Rows {
  int64_t begin, width;
  Level levels[TS_SUMMARY_MAX_LEVELS];
  uint32_t n_levels;
};

enum class Found { kEmpty, kUnbounded, kRows };

bool is_bounded(const Values& values, int32_t node) { return !values.unbounded[node]; }

/// Reads lo, hi and the levels, without those of a single row; steps become positive.
Found read_rows(const ts_access& access, const Values& values, Rows* rows) {
  if (!is_bounded(values, access.lo) || !is_bounded(values, access.hi)) return Found::kUnbounded;
  rows->begin = values.value[access.lo];
  if (rows->begin >= values.value[access.hi]) return Found::kEmpty;
  if (__builtin_sub_overflow(values.value[access.hi], rows->begin, &rows->width)) return Found::kUnbounded;
  rows->n_levels = 0;
  for (uint32_t i = 0; i < access.n_levels; ++i) {
    if (!is_bounded(values, access.pitch[i]) || !is_bounded(values, access.count[i])) return Found::kUnbounded;
    Level level = {values.value[access.pitch[i]], values.value[access.count[i]]};
    if (level.count <= 0) return Found::kEmpty;
    if (level.count == 1 || level.pitch == 0) continue;
    if (level.pitch < 0) {
      int64_t back = 0;
      if (level.pitch == INT64_MIN || __builtin_mul_overflow(level.pitch, level.count - 1, &back) ||
          __builtin_add_overflow(rows->begin, back, &rows->begin)) {
        return Found::kUnbounded;
      }
      level.pitch = -level.pitch;
    }
    uint32_t at = rows->n_levels++;
    for (; at > 0 && rows->levels[at - 1].pitch > level.pitch; --at) rows->levels[at] = rows->levels[at - 1];
    rows->levels[at] = level;
  }
  return Found::kRows;
}

/// Adds pitch * (count - 1) to `size`. False when that leaves 64 bits.
bool extend(const Level& level, int64_t* size) {
  int64_t more = 0;
  return !__builtin_mul_overflow(level.pitch, level.count - 1, &more) && !__builtin_add_overflow(*size, more, size);
}

/// Whether `outer` goes on where the rows of `inner` end, or inside of them, in step: then `inner` takes it in.
bool take_in(Level* inner, const Level& outer) {
  const int64_t steps = outer.pitch / inner->pitch;
  if (steps > inner->count || outer.pitch % inner->pitch != 0) return false;
  int64_t count = 0;
  if (__builtin_mul_overflow(steps, outer.count - 1, &count)) return false;
  if (__builtin_add_overflow(count, inner->count, &count)) return false;
  inner->count = count;
  return true;
}

/// Joins what meets; gives the size of the hull, or false when it leaves 64 bits.
bool join_rows(Rows* rows, int64_t* size) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < rows->n_levels; ++i) {
    const Level level = rows->levels[i];
    if (kept == 0 && level.pitch <= rows->width) {
      if (!extend(level, &rows->width)) return false;
    } else if (kept == 0 || !take_in(&rows->levels[kept - 1], level)) {
      rows->levels[kept++] = level;
    }
  }
  rows->n_levels = kept;
  *size = rows->width;
  for (uint32_t i = 0; i < kept; ++i) {
    if (!extend(rows->levels[i], size)) return false;
  }
  return true;
}

void make_unbounded(Relative* range) {
  range->flags = static_cast<uint8_t>((range->flags | TS_ACCESS_UNBOUNDED) & ~kPromises);
  range->row_flags = range->n_levels = 0;
  range->begin = range->end = 0;
}

void describe(const Rows& rows, Relative* range) {
  range->n_levels = static_cast<uint8_t>(rows.n_levels);
  range->row_flags = 0;
  if (rows.n_levels == 0) return;
  range->row_flags = range->flags & kPromises;
  range->flags &= static_cast<uint8_t>(~kPromises);
  range->width = static_cast<uint64_t>(rows.width);
  for (uint32_t i = 0; i < rows.n_levels; ++i) {
    range->pitch[i] = static_cast<uint64_t>(rows.levels[i].pitch);
    range->count[i] = static_cast<uint64_t>(rows.levels[i].count);
  }
}

}  // namespace

bool make_relative(const ts_access& access, uint32_t index, const Values& values, Relative* range) {
  range->access = index;
  range->flags = access.flags;
  if (access.guard != TS_NO_NODE) {
    if (values.unbounded[access.guard]) {
      range->flags &= static_cast<uint8_t>(~kPromises);
    } else if (values.value[access.guard] == 0) {
      return false;
    }
  }
  Rows rows;
  int64_t size = 0;
  Found found = Found::kUnbounded;
  if ((access.flags & TS_ACCESS_UNBOUNDED) == 0) found = read_rows(access, values, &rows);
  if (found == Found::kEmpty) return false;
  if (found == Found::kRows && join_rows(&rows, &size) && !__builtin_add_overflow(rows.begin, size, &range->end)) {
    range->begin = rows.begin;
    describe(rows, range);
  } else {
    make_unbounded(range);
  }
  return true;
}

void place(const ts_access& access, const ts_launch_shape& launch, const Relative& relative, ts_range* range) {
  std::memcpy(&range->pointer, launch.parameters + access.parameter_offset, sizeof(range->pointer));
  range->mode = access.mode;
  range->access = relative.access;
  range->flags = relative.flags;
  range->row_flags = relative.row_flags;
  range->n_levels = relative.n_levels;
  range->begin = range->end = range->pointer;
  if ((relative.flags & TS_ACCESS_UNBOUNDED) != 0) return;
  uint64_t begin = 0, end = 0;
  // A sum of a pointer and an offset that leaves 64 bits is no address: fall back to the allocation.
  if (__builtin_add_overflow(range->pointer, relative.begin, &begin) ||
      __builtin_add_overflow(range->pointer, relative.end, &end)) {
    range->flags = static_cast<uint8_t>((range->flags | TS_ACCESS_UNBOUNDED) & ~kPromises);
    range->row_flags = range->n_levels = 0;
    return;
  }
  range->begin = begin;
  range->end = end;
  if (relative.n_levels == 0) return;
  range->width = relative.width;
  std::memcpy(range->pitch, relative.pitch, sizeof(range->pitch));
  std::memcpy(range->count, relative.count, sizeof(range->count));
}

}  // namespace tessera::access

extern "C" __attribute__((visibility("default"))) int ts_summary_evaluate(const void* blob,
                                                                          const ts_launch_shape* launch,
                                                                          ts_range* ranges, uint32_t capacity,
                                                                          uint32_t* n_ranges) {
  using namespace tessera::access;
  *n_ranges = 0;
  const ts_summary* header = header_of(blob);
  if (launch->parameter_size < header->parameter_block_size) return TS_EVALUATE_PARAMETERS;
  Values values;
  evaluate_nodes(header, *launch, &values);
  const ts_access* accesses = accesses_of(header);
  uint32_t count = 0;
  for (uint32_t i = 0; i < header->n_accesses; ++i) {
    Relative relative;
    if (!make_relative(accesses[i], i, values, &relative)) continue;
    if (count == capacity) return TS_EVALUATE_CAPACITY;
    place(accesses[i], *launch, relative, &ranges[count++]);
  }
  *n_ranges = count;
  return TS_EVALUATE_OK;
}
