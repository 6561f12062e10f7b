// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "claims.h"

namespace tessera::shim {

struct Redirection {
  bool moved = false;
  CUresult result = CUDA_SUCCESS;  // when moved: what the program gets
  uint32_t reason = 0;             // when not: TS_STAY_*
};

/// Runs the launch on worker `device` in the order of its stream, or says why it
/// has to stay home; then nothing was changed but where clean copies lie.
/// Precondition: the world's lock is held and the stream is not captured.
Redirection redirect(const LaunchRequest& request, KernelState& state, uint32_t device, const Claims& claims,
                     std::span<const uint8_t> parameters);

}  // namespace tessera::shim
