// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "memory.h"
#include "stream.h"
namespace tessera::sim {
class Capture {};
class GraphNode {};
CUdeviceptr capture_allocation(Stream&, Pool&, size_t);
void capture_free(Stream&, const MemoryPtr&);
}
