// SPDX-License-Identifier: Apache-2.0
// What a module image is, as far as a worker must know: enough not to hand the
// driver something that reaches outside its own bytes, and to say what it wants.
#pragma once

#include <span>
#include <string>

namespace tessera::worker {

/// Why this image must not be given to the driver; empty when it may.
std::string image_objection(std::span<const char> image);

/// Its architectures, such as "sm_90" or "sm_80, compute_90 (PTX)"; empty when that cannot be told.
std::string image_architectures(std::span<const char> image);

}  // namespace tessera::worker
