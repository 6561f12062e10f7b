// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "placed_classes.h"
#include "registry.h"
#include "tally.h"
#include "tessera/access/summary.h"
#include "tessera/protocol/control.h"
#include "world.h"

namespace tessera::shim {

class ClaimsMemo;
class WorkerLink;

/// From now on launches look here, unless they are thrown (TESSERA_SCATTER). Once, before the session begins.
void publish_placements(const ts_placement_table& table);
/// Where what has no place in such a table is to run: as thrown, or at home.
uint32_t entry_without_table();
/// Where what has this number is to run now, as in the placement table: 0 home, else a worker's index; or
/// TS_PLACED_BY_CLASS and either.
inline uint32_t entry_of(uint32_t kernel_id) {
  const uint8_t* entries = detail::launch_pointers.placements.load(std::memory_order_acquire);
  if (entries == nullptr || kernel_id >= TS_MAX_KERNELS) [[unlikely]]
    return entry_without_table();
  return __atomic_load_n(&entries[kernel_id], __ATOMIC_RELAXED);
}

/// What the launch path knows of one function. Made at its first launch, never
/// freed; hangs at FunctionEntry::launch_state.
class KernelState {
  // What a launch at home looks at, in one cache line.
  alignas(64) FunctionEntry* entry_;
  std::atomic<bool> pending_{false};
  std::atomic<uint32_t> launches_while_pending_{0};
  std::atomic<uint32_t> stay_{TS_STAY_NO_SUMMARY};  // TS_STAY_PLACED: free to move
  uint32_t kernel_id_ = TS_MAX_KERNELS;
  uint32_t properties_ = 0;
  Tally tally_;
  std::atomic<PlacedClasses*> classes_{nullptr};

 public:
  explicit KernelState(FunctionEntry* entry);
  ~KernelState();

  FunctionEntry* entry() const { return entry_; }
  /// The validated summary, or null while there is none.
  const void* summary() const { return summary_.load(std::memory_order_acquire); }
  /// What its launches claimed; null while there is no summary. With the world's lock held.
  ClaimsMemo* claims_memo();
  uint32_t properties() const { return properties_; }
  uint32_t minimum_architecture() const { return minimum_architecture_; }
  uint32_t only_architecture() const { return only_architecture_; }
  uint32_t home_architecture() const { return home_architecture_; }
  /// Whether the controller has described its code, be it as unknown.
  bool analysed() const { return !summary_bytes_.empty(); }
  /// Waits for an analysis that is going on, at most so long.
  void await_analysis(std::chrono::milliseconds longest);
  /// A trial has shown that it touches more than its claims say: it stays home.
  void distrust();
  /// Whether it is an unknown kernel that may move in the launch classes that passed trials (TESSERA_TRUST=verified).
  bool moves_by_trial() const { return !passed_.empty(); }
  bool has_passed(uint64_t launch_class) const;
  /// Blocks of a cluster that the kernel's code asks for; zeros: none.
  const std::array<uint32_t, 3>& required_cluster() const { return required_cluster_; }
  /// Whether it looks at memory that others may be writing meanwhile, and so may wait for them.
  bool watches_others() const { return (properties_ & TS_KERNEL_SYSTEM_SCOPE) != 0; }

  /// Whether home's driver would take a launch of this shape. In doubt it is asked: the launch stays home.
  bool surely_valid(const uint32_t (&grid)[3], const uint32_t (&block)[3], uint32_t dynamic_shared) const;

  /// Where a launch now should run: the kernel's entry in the placement table, 0 for home, and in `reason` why
  /// it is home although it may not have been placed there (TS_STAY_*).
  uint32_t placed(uint32_t* reason) {
    if (pending_.load(std::memory_order_relaxed)) [[unlikely]]
      ask_again();
    *reason = stay_.load(std::memory_order_relaxed);
    return *reason == TS_STAY_PLACED ? entry_of(kernel_id_) : 0;
  }
  /// The classes that its launches are told apart into, where they are. Any thread.
  PlacedClasses& classes();
  /// Counts the launches that are not told apart.
  Tally& tally() { return tally_; }

  /// The function's number on a worker, under the world's lock. It holds for that
  /// attachment alone: a worker attached anew knows nothing. And for the attributes that the function had then.
  static constexpr int64_t kNotLoaded = -2, kRefused = -1;
  int64_t on_worker(const WorkerLink& worker) const;
  void set_on_worker(const WorkerLink& worker, int64_t number);

  /// Asks the controller, once or until it knows. Not on the path of known kernels.
  void ask();

 private:
  void adopt(std::vector<uint8_t> summary, std::vector<uint64_t> passed);
  void ask_again();

  std::atomic<const void*> summary_{nullptr};
  std::vector<uint8_t> summary_bytes_;
  std::unique_ptr<ClaimsMemo> claims_memo_;
  int max_threads_ = 0, static_shared_ = 0;  // at home
  uint32_t minimum_architecture_ = 0, only_architecture_ = 0;
  uint32_t home_architecture_ = 0;
  std::array<uint32_t, 3> required_cluster_{}, required_block_{};
  std::vector<uint64_t> passed_;  // launch classes, sorted
  struct OnWorker {
    const WorkerLink* worker = nullptr;
    int64_t number = kNotLoaded;
    int max_dynamic_shared = -1, shared_carveout = -1;
  };
  std::array<OnWorker, TS_MAX_DEVICES> on_worker_{};
};

/// The state of a function, made when it is first launched.
KernelState& made_kernel_state(CUfunction function);
inline KernelState& kernel_state(CUfunction function) {
  if (const FunctionEntry* entry = find_function(function)) [[likely]] {
    if (void* state = entry->launch_state.load(std::memory_order_acquire)) [[likely]]
      return *static_cast<KernelState*>(state);
  }
  return made_kernel_state(function);
}

}  // namespace tessera::shim
