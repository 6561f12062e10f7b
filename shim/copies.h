// SPDX-License-Identifier: Apache-2.0
// What the wrappers of copies and of batches of them share.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace tessera::shim {

/// The driver refuses what leaves an allocation. In the slot it cannot see where one ends: it is given null then,
/// which it refuses as it would have refused the address. Takes the world's lock.
CUdeviceptr judged(CUdeviceptr address, uint64_t bytes);

}  // namespace tessera::shim
