// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>

#include "coherence.h"

namespace tessera::shim {

/// While this thread is inside a library's call of which more is known than of the kernels that it launches: what they
/// touch in this stream. Null otherwise.
const Footprint* footprint_of_call(CUstream stream);

}  // namespace tessera::shim
