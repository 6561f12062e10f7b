// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tessera::sim {

class Device;

/// Fails with CUDA_ERROR_INVALID_VALUE for an attribute that cuda.h does not name.
int device_attribute(const Device& device, int attribute);

}  // namespace tessera::sim
