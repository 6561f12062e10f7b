// SPDX-License-Identifier: Apache-2.0
// One launch: which blocks are resident, who runs next, and what came of it.
#include <algorithm>
#include <deque>

#include "block.h"
#include "fault.h"
#include "services.h"

namespace tessera::sim {
namespace {

// Warps take turns after this many instructions, should one of them wait in a loop for another.
constexpr u64 kWarpTurn = 1 << 14;
// A block that runs longer than this may wait for one that is not resident yet: another one is let in.
constexpr u64 kBlockTurn = u64{1} << 22;
constexpr u64 kCooperativeTurn = 1 << 16;
constexpr size_t kMaxResident = 1024;

/// The blocks of one cluster: they are resident together.
struct Unit {
  ClusterState state;
  std::vector<std::unique_ptr<BlockRunner>> blocks;
  std::vector<BlockContext*> contexts;
};

class Grid {
 public:
  Grid(const LoadedKernel& kernel, const Launch& launch, const AddressSpace& memory, LaunchOutcome& outcome)
      : kernel_(kernel),
        launch_(launch),
        outcome_(outcome),
        gate_(memory, launch.record_accesses),
        tally_(kernel.program()) {
    services_.heap = kernel.program().heap.get();
    const u64 budget = launch.step_budget == 0 ? kDefaultStepBudget : launch.step_budget;
    budget_ = budget;
    clusters_[0] = launch.grid.x / launch.cluster.x;
    clusters_[1] = launch.grid.y / launch.cluster.y;
    clusters_[2] = launch.grid.z / launch.cluster.z;
    total_ = u64{clusters_[0]} * clusters_[1] * clusters_[2];
  }

  void run() {
    try {
      run_units();
    } catch (const FaultError& error) {
      outcome_.fault = describe(error);
    } catch (const std::bad_alloc&) {
      outcome_.fault = {Fault::Kind::kInvalidConfig,
                        "kernel '" + kernel_.info().name + "': the host has no memory for the resident blocks"};
    }
    finish();
  }

 private:
  std::unique_ptr<Unit> make_unit() {
    auto unit = std::make_unique<Unit>();
    const u32 size = launch_.cluster.x * launch_.cluster.y * launch_.cluster.z;
    for (u32 rank = 0; rank < size; ++rank) {
      unit->blocks.push_back(std::make_unique<BlockRunner>(kernel_, launch_, gate_, services_, tally_));
      unit->contexts.push_back(&unit->blocks.back()->context);
    }
    for (BlockContext* context : unit->contexts) context->cluster = unit->contexts.data();
    return unit;
  }

  void start(Unit& unit) {
    const u64 n = next_++;
    const u32 at[3] = {static_cast<u32>(n % clusters_[0]), static_cast<u32>(n / clusters_[0] % clusters_[1]),
                       static_cast<u32>(n / (u64{clusters_[0]} * clusters_[1]))};
    const Dim3 shape = launch_.cluster;
    unit.state = ClusterState{};
    unit.state.live = static_cast<u32>(unit.blocks.size()) * launch_.block.x * launch_.block.y * launch_.block.z;
    for (u32 rank = 0; rank < unit.blocks.size(); ++rank) {
      const Dim3 index{at[0] * shape.x + rank % shape.x, at[1] * shape.y + rank / shape.x % shape.y,
                       at[2] * shape.z + rank / (shape.x * shape.y)};
      unit.blocks[rank]->begin(index, &unit.state);
    }
  }

  void run_units() {
    std::vector<std::unique_ptr<Unit>> resident;
    const auto admit = [&] {
      resident.push_back(make_unit());
      start(*resident.back());
    };
    admit();
    while (launch_.cooperative && next_ < total_) admit();
    const u64 turn = launch_.cooperative || launch_.cluster.x * launch_.cluster.y * launch_.cluster.z > 1
                         ? kCooperativeTurn
                         : kBlockTurn;
    while (!resident.empty()) {
      for (size_t u = 0; u < resident.size();) {
        if (!run_unit(*resident[u], turn)) {
          ++u;
        } else if (next_ < total_) {
          start(*resident[u]);
        } else {
          resident.erase(resident.begin() + static_cast<std::ptrdiff_t>(u));
        }
      }
      if (!resident.empty() && next_ < total_ && resident.size() < kMaxResident) admit();
    }
  }

  /// True when every block of the unit has ended; false when its turn is over.
  bool run_unit(Unit& unit, u64 turn) {
    const u64 stop = steps_ + turn;
    for (;;) {
      bool all_done = true, any_ran = false;
      for (const auto& block : unit.blocks) {
        if (block->done()) continue;
        running_ = block.get();
        const BlockRunner::Progress progress = block->run(kWarpTurn, steps_);
        all_done = all_done && progress == BlockRunner::Progress::kDone;
        any_ran = any_ran || progress != BlockRunner::Progress::kStuck;
      }
      if (all_done) return true;
      if (!any_ran)
        throw FaultError{Fault::Kind::kLaunchTimeout, "deadlock: " + running_->describe_waits(), nullptr, -1};
      if (steps_ > budget_)
        throw FaultError{Fault::Kind::kLaunchTimeout, "more than " + std::to_string(budget_) + " warp instructions",
                         nullptr, -1};
      if (steps_ > stop) return false;
    }
  }

  Fault describe(const FaultError& error) const {
    std::string text = "kernel '" + kernel_.info().name + "'";
    const WarpRunner* warp = running_ == nullptr ? nullptr : running_->running();
    if (warp != nullptr && error.op != nullptr && warp->running_function() != nullptr) {
      const Function& function = *warp->running_function();
      const size_t index = static_cast<size_t>(error.op - function.ops.data());
      if (function.name != kernel_.info().name) text += ", function '" + function.name + "'";
      if (index < function.lines.size()) text += ", line " + std::to_string(function.lines[index]);
    }
    if (running_ != nullptr) text += ", block " + triple(running_->context.ctaid);
    if (warp != nullptr && error.op != nullptr) {
      const int lane = error.lane >= 0             ? error.lane
                       : warp->running_mask() != 0 ? __builtin_ctz(warp->running_mask())
                                                   : 0;
      const u32 thread[3] = {warp->warp_.tid[0][lane], warp->warp_.tid[1][lane], warp->warp_.tid[2][lane]};
      text += ", thread " + triple(thread);
    }
    return {error.kind, text + ": " + error.what};
  }
  static std::string triple(const u32* v) {
    return "(" + std::to_string(v[0]) + "," + std::to_string(v[1]) + "," + std::to_string(v[2]) + ")";
  }

  void finish() {
    Work& work = outcome_.work;
    u64 costs[kCostKinds] = {};
    std::copy(std::begin(tally_.guarded_costs), std::end(tally_.guarded_costs), costs);
    work.warp_instructions = tally_.guarded_ops;
    work.lane_instructions = tally_.guarded_lanes;
    for (size_t f = 0; f < tally_.segments.size(); ++f) {
      const Function& function = *kernel_.program().functions[f];
      for (size_t s = 0; s < tally_.segments[f].size(); ++s)
        add_segment(function.segments[s], tally_.segments[f][s], work, costs);
    }
    work.integer_ops = costs[kCostInteger];
    work.fp32_flops = costs[kCostF32];
    work.fp64_flops = costs[kCostF64];
    work.fp16_flops = costs[kCostF16];
    work.tensor_flops_f16 = costs[kCostTensorF16];
    work.tensor_flops_bf16 = costs[kCostTensorBf16];
    work.tensor_flops_tf32 = costs[kCostTensorTf32];
    work.tensor_flops_f64 = costs[kCostTensorF64];
    work.tensor_ops_i8 = costs[kCostTensorI8];
    work.global_bytes_read = gate_.bytes_read;
    work.global_bytes_written = gate_.bytes_written;
    work.dram_bytes = gate_.tracker.distinct_sector_bytes();
    if (launch_.record_accesses) outcome_.accesses = gate_.tracker.take_record();
    outcome_.printf_output = std::move(services_.printf_output);
  }

  static void add_segment(const Segment& segment, const SegmentTally& tally, Work& work, u64* costs) {
    work.warp_instructions += tally.warps * segment.plain_ops;
    work.lane_instructions += tally.lanes * segment.plain_ops;
    for (int k = 0; k < kLaneCostKinds; ++k) costs[k] += tally.lanes * segment.lane_costs[k];
    for (int k = kLaneCostKinds; k < kCostKinds; ++k) costs[k] += tally.warps * segment.warp_costs[k - kLaneCostKinds];
  }

  const LoadedKernel& kernel_;
  const Launch& launch_;
  LaunchOutcome& outcome_;
  MemoryGate gate_;
  LaunchServices services_;
  LaunchTally tally_;
  u32 clusters_[3] = {};
  u64 total_ = 0, next_ = 0, steps_ = 0, budget_ = 0;
  BlockRunner* running_ = nullptr;
};

/// Empty when the launch can run.
std::string check(const KernelInfo& info, const Launch& launch) {
  const auto product = [](const Dim3& d) { return u64{d.x} * d.y * d.z; };
  if (product(launch.grid) == 0 || product(launch.block) == 0 || product(launch.cluster) == 0)
    return "a dimension of the grid, block or cluster is zero";
  if (launch.grid.x > 0x7fffffffu || launch.grid.y > 65535 || launch.grid.z > 65535) return "the grid is too large";
  if (launch.block.x > 1024 || launch.block.y > 1024 || launch.block.z > 64 || product(launch.block) > 1024)
    return "the block is too large";
  if (product(launch.block) > info.max_threads_per_block)
    return "the block has more threads than the kernel allows (.maxntid)";
  if (info.required_threads[0] != 0 &&
      (launch.block.x != info.required_threads[0] || launch.block.y != info.required_threads[1] ||
       launch.block.z != info.required_threads[2])) {
    return "the block is not of the shape that the kernel requires (.reqntid)";
  }
  if (launch.grid.x % launch.cluster.x != 0 || launch.grid.y % launch.cluster.y != 0 ||
      launch.grid.z % launch.cluster.z != 0)
    return "the grid is not a multiple of the cluster";
  if (product(launch.cluster) > 16) return "the cluster is too large";
  if (info.parameter_block_size != 0 && launch.parameters == nullptr)
    return "the kernel takes parameters and none were given";
  if (u64{launch.dynamic_shared_bytes} + info.static_shared_bytes > (u64{1} << kClusterRankShift))
    return "too much shared memory";
  return {};
}

}  // namespace

LaunchOutcome LoadedKernel::run(const Launch& launch, const AddressSpace& memory) const {
  LaunchOutcome outcome;
  const std::string problem = check(info_, launch);
  if (!problem.empty()) {
    outcome.fault = {Fault::Kind::kInvalidConfig, "kernel '" + info_.name + "': " + problem};
    return outcome;
  }
  Grid(*this, launch, memory, outcome).run();
  return outcome;
}

}  // namespace tessera::sim
