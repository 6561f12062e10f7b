// SPDX-License-Identifier: Apache-2.0
// Where the parts of a summary blob lie.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tessera/access/summary.h"

namespace tessera::access {

static_assert(sizeof(ts_summary) == 40 && sizeof(ts_node) == 24 && sizeof(ts_access) == 48,
              "the blob's layout is shared with Python");

inline const ts_summary* header_of(const void* blob) { return static_cast<const ts_summary*>(blob); }

inline const ts_node* nodes_of(const ts_summary* header) { return reinterpret_cast<const ts_node*>(header + 1); }

inline const ts_access* accesses_of(const ts_summary* header) {
  return reinterpret_cast<const ts_access*>(nodes_of(header) + header->n_nodes);
}

}  // namespace tessera::access
