// SPDX-License-Identifier: Apache-2.0
#include "block.h"

#include <algorithm>
#include <cstring>

namespace tessera::sim {

BlockRunner::BlockRunner(const LoadedKernel& kernel, const Launch& launch, MemoryGate& memory, LaunchServices& services,
                         LaunchTally& tally) {
  const u32 threads = launch.block.x * launch.block.y * launch.block.z;
  context.shared_bytes = launch.dynamic_shared_bytes == 0 ? kernel.info().static_shared_bytes
                                                          : kernel.dynamic_shared_base + launch.dynamic_shared_bytes;
  context.dynamic_shared_base = kernel.dynamic_shared_base;
  context.dynamic_shared_bytes = launch.dynamic_shared_bytes;
  const Dim3 cluster_dims = launch.cluster;
  const u32 block[3] = {launch.block.x, launch.block.y, launch.block.z},
            grid[3] = {launch.grid.x, launch.grid.y, launch.grid.z};
  const u32 shape[3] = {cluster_dims.x, cluster_dims.y, cluster_dims.z};
  for (int k = 0; k < 3; ++k) {
    context.ntid[k] = block[k];
    context.nctaid[k] = grid[k];
    context.cluster_nctaid[k] = shape[k];
    context.nclusters[k] = grid[k] / shape[k];
  }
  context.cluster_size = shape[0] * shape[1] * shape[2];
  context.grid_id = launch.grid_id;
  context.warp_count = (threads + kLanes - 1) / kLanes;
  context.sm_count = kernel.program().traits.multiprocessors;
  context.parameters = launch.parameters;
  context.parameter_bytes = kernel.info().parameter_block_size;
  shared_ = allocate_aligned(context.shared_bytes);
  context.shared = shared_.get();
  for (u32 w = 0; w < context.warp_count; ++w) {
    warps_.push_back(std::make_unique<WarpRunner>(kernel, *this, w, tally));
    Warp& warp = warps_.back()->warp_;
    warp.block = &context;
    warp.memory = &memory;
    warp.services = &services;
    for (u32 lane = 0; lane < kLanes; ++lane) {
      const u32 thread = w * kLanes + lane;
      warp.tid[0][lane] = thread % block[0];
      warp.tid[1][lane] = thread / block[0] % block[1];
      warp.tid[2][lane] = thread / (block[0] * block[1]);
    }
  }
  threads_ = threads;
}

void BlockRunner::begin(const Dim3& index, ClusterState* state) {
  cluster = state;
  const u32 at[3] = {index.x, index.y, index.z};
  u64 linear = 0;
  for (int k = 2; k >= 0; --k) {
    context.ctaid[k] = at[k];
    context.cluster_ctaid[k] = at[k] % context.cluster_nctaid[k];
    context.cluster_id[k] = at[k] / context.cluster_nctaid[k];
    linear = linear * context.nctaid[k] + at[k];
  }
  context.cluster_rank =
      context.cluster_ctaid[0] +
      context.cluster_nctaid[0] * (context.cluster_ctaid[1] + context.cluster_nctaid[1] * context.cluster_ctaid[2]);
  context.sm_id = static_cast<u32>(linear % context.sm_count);
  // Undefined on the hardware; zeros make a run repeatable.
  std::memset(context.shared, 0, context.shared_bytes);
  for (BarrierState& barrier : barriers_) barrier = BarrierState{};
  live_warps_ = context.warp_count;
  for (u32 w = 0; w < context.warp_count; ++w) {
    const u32 left = threads_ - w * kLanes;
    warps_[w]->begin(left >= kLanes ? kAllLanes : (1u << left) - 1);
  }
}

BlockRunner::Progress BlockRunner::run(u64 steps_per_warp, u64& steps) {
  bool ran = false;
  for (const auto& warp : warps_) {
    if (warp->done() || warp->blocked()) continue;
    running_ = warp.get();
    warp->run(steps_per_warp);
    ran |= warp->moved();
    steps += warp->steps_taken();
    if (live_warps_ == 0) return Progress::kDone;
  }
  return ran ? Progress::kRan : Progress::kStuck;
}

void BlockRunner::arrive(u32 id, const BarrierState& arrival) {
  BarrierState& barrier = barriers_[id];
  ++barrier.warps;
  if (arrival.expected != 0) barrier.expected = arrival.expected;
  barrier.population += arrival.population;
  barrier.all = barrier.all && arrival.all;
  barrier.any = barrier.any || arrival.any;
  check(id);
}

void BlockRunner::check(u32 id) {
  const BarrierState& barrier = barriers_[id];
  if (barrier.warps == 0) return;
  const bool complete =
      barrier.expected != 0 ? barrier.warps * kLanes >= barrier.expected : barrier.warps >= live_warps_;
  if (!complete) return;
  const BarrierState ended = barrier;
  barriers_[id] = BarrierState{};
  for (const auto& warp : warps_) warp->release_barrier(id, ended);
}

void BlockRunner::warp_ended() {
  --live_warps_;
  for (u32 id = 0; id < kBarriers; ++id) check(id);
}

void BlockRunner::lanes_ended(u32 lanes) {
  cluster->live -= lanes;
  if (cluster->arrived != 0) cluster->advance();
}

std::string BlockRunner::describe_waits() const {
  for (const auto& warp : warps_) {
    if (!warp->done()) return warp->describe_wait();
  }
  return {};
}

}  // namespace tessera::sim
