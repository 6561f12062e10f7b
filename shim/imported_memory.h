// SPDX-License-Identifier: Apache-2.0
// Memory of other processes, opened through the shim's own IPC handles.
#pragma once

#include <cuda.h>

#include <optional>

#include "tessera/memory/directory.h"

namespace tessera::shim {

/// An address at which there is never memory: a call that is given it answers as for any that it does not know.
constexpr CUdeviceptr kNowhere = 1;

/// The other process's allocation that holds `address`, where it is mapped here.
std::optional<memory::Range> imported_range(CUdeviceptr address);

}  // namespace tessera::shim
