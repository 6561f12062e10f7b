// SPDX-License-Identifier: Apache-2.0
// Which bytes a matrix, a batch of matrices or a strided vector occupies.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/memory/directory.h"
#include "tessera/protocol/blas_call.h"

namespace tessera::shim {

struct Extents {
  std::vector<memory::Range> ranges;
  bool exact = true;  // every byte of them belongs to an element
};

/// `count` elements `pitch` elements apart.
struct Level {
  uint64_t count, pitch;
};

/// Runs of `run` elements of `bytes` bytes each, at `address` plus every sum of the levels' multiples. False: they
/// reach beyond the addresses that there are. Many small pieces become the whole from the first to the last.
bool extents_of(uint64_t address, uint32_t bytes, uint64_t run, std::vector<Level> levels, Extents& out);

}  // namespace tessera::shim
