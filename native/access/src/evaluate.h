// SPDX-License-Identifier: Apache-2.0
// The two steps of an evaluation: all nodes, then the range of each access.
#pragma once

#include "layout.h"

namespace tessera::access {

struct Values {
  int64_t value[TS_SUMMARY_MAX_NODES];
  bool unbounded[TS_SUMMARY_MAX_NODES];
};

/// Each entry is written before it is read: nodes are in topological order.
void evaluate_nodes(const ts_summary* header, const ts_launch_shape& launch, Values* values);

/// One range, relative to the pointer that it is based on.
struct Relative {
  uint32_t access;
  uint8_t flags, row_flags, n_levels;
  int64_t begin, end;  // of the hull; both 0 when unbounded
  uint64_t width, pitch[TS_SUMMARY_MAX_LEVELS], count[TS_SUMMARY_MAX_LEVELS];
};

/// False when the access surely touches nothing.
bool make_relative(const ts_access& access, uint32_t index, const Values& values, Relative* range);

/// The range at the pointer that a launch passes.
void place(const ts_access& access, const ts_launch_shape& launch, const Relative& relative, ts_range* range);

}  // namespace tessera::access
