// SPDX-License-Identifier: Apache-2.0
// Which devices run a kernel's code; tessera.protocol.architectures has the same rule.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "tessera/access/summary.h"

namespace tessera::shim {

/// `minimum` and `only`: the architecture fields of a summary. `device`: its compute capability, 80 for 8.0.
inline bool architecture_runs_on(uint32_t minimum, uint32_t only, uint32_t device) {
  // Devices of embedded boards: machine code goes neither from them nor to them.
  constexpr uint32_t kEmbedded[] = {53, 62, 72, 87, 101, 110};
  if (only >= TS_ARCHITECTURE_MAJORS) return device == only;
  if (only == 0) return device >= minimum;
  const bool embedded = std::find(std::begin(kEmbedded), std::end(kEmbedded), device) != std::end(kEmbedded);
  return device / 10 == only && device >= minimum && !embedded;
}

}  // namespace tessera::shim
