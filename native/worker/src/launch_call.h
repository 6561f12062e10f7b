// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "loader.h"
#include "tessera/transport/ring.h"

namespace tessera::worker {

/// Gives a stream the launch of a checked message. Throws DriverError with the kernel's name.
void launch_kernel(const Driver& driver, CUstream stream, const transport::RingMessage& message,
                   const LoadRequest& function);

}  // namespace tessera::worker
