// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "claims.h"

namespace tessera::shim {

struct Redirection {
  bool moved = false;
  CUresult result = CUDA_SUCCESS;  // when moved: what the program gets
  uint32_t reason = 0;             // when not: TS_STAY_*
};

/// Why this launch has to stay home, wherever it was placed: TS_STAY_*; TS_STAY_PLACED when nothing keeps it there but
/// what a worker lacks. Precondition: the world's lock is held.
uint32_t obstacle_to(const LaunchRequest& request, const KernelState& state, const Claims& claims);

/// Whether the device runs the kernel's code.
bool runs_on(const KernelState& state, const ts_device& device);

/// Runs the launch on worker `device` in the order of its stream, or says why it
/// has to stay home; then nothing was changed but where clean copies lie.
/// Precondition: the world's lock is held and the stream is not captured.
Redirection redirect(const LaunchRequest& request, KernelState& state, Tally& tally, uint32_t device,
                     const Claims& claims, std::span<const uint8_t> parameters);

/// What a worker is asked to do: a kernel's launch, or a library's call.
class Errand {
 public:
  virtual ~Errand() = default;
  /// Makes sure that the worker has the code. False: it cannot be had there.
  virtual bool load(WorkerLink& worker) = 0;
  /// One message of the lane. False: nothing was sent.
  virtual bool send(WorkerLink& worker, int lane, uint32_t start, std::span<const ts_ring_range> ranges) = 0;
  virtual void count_bytes_in(uint32_t device, uint64_t bytes) = 0;
};

/// Has `worker` do it in the order of `stream`. Preconditions: as for redirect, and nothing but what the worker lacks
/// keeps it home.
Redirection move(CUstream stream, WorkerLink& worker, const Claims& claims, Errand& errand);

}  // namespace tessera::shim
