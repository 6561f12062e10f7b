// SPDX-License-Identifier: Apache-2.0
// What the placement table says of kernels whose launches are placed apart.
#pragma once

#include <cstdint>
#include <optional>

#include "tessera/protocol/control.h"

namespace tessera::shim {

/// The numbers of one launch, or of one library's call, that placement may go by.
class Quantities {
 public:
  virtual ~Quantities() = default;
  /// The value of TS_GRID_X and so on; none where this launch has no such number.
  virtual std::optional<uint64_t> value(uint32_t quantity) const = 0;
};

/// Where a launch goes, and the table's sequence for which that holds.
struct Choice {
  uint32_t device = 0;
  uint64_t sequence = 0;
};

/// What the table's sequence is now: as long as it stays the same, so do all choices.
uint64_t sequence_of(ts_placement_table& table);

/// The device of the kernel's first choice that the launch fits; else that of its entry. None while the table is being
/// changed, which lasts long only when its writer ends in the midst of it.
std::optional<Choice> choose(ts_placement_table& table, uint32_t kernel_id, const Quantities& launch);

/// The quantities from TS_ARGUMENT on that the kernel's choices name, a bit each, and the sequence for which that
/// holds. None as above.
struct Named {
  uint64_t arguments = 0;
  uint64_t sequence = 0;
};
std::optional<Named> arguments_named(ts_placement_table& table, uint32_t kernel_id);

}  // namespace tessera::shim
