// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace tessera::worker {

/// Why launch attributes (raw CUlaunchAttribute) from another process cannot be handed to the driver: they may only
/// carry values, no handles or addresses. Empty when they can.
std::string attribute_objection(std::span<const std::byte> attributes);

}  // namespace tessera::worker
