// SPDX-License-Identifier: Apache-2.0
#include "kernel_state.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>

#include "claims.h"
#include "context.h"
#include "driver.h"
#include "log.h"
#include "runtime.h"
#include "session.h"
#include "tessera/access/summary.h"
#include "trial.h"
#include "worker_link.h"

namespace tessera::shim {
namespace {

constexpr uint32_t kAskAgainEvery = 64;  // launches of a kernel whose analysis is still going on
constexpr std::chrono::milliseconds kAskPause{20};

/// First launches are rare and may talk to the controller: one at a time.
std::mutex& first_launch_mutex() {
  static std::mutex* mutex = new std::mutex;
  return *mutex;
}

std::vector<std::unique_ptr<KernelState>>& all_states() {
  static auto* states = new std::vector<std::unique_ptr<KernelState>>;
  return *states;
}

uint64_t mix(uint64_t value) {
  value ^= value >> 33;
  value *= 0xff51afd7ed558ccdu;
  value ^= value >> 33;
  value *= 0xc4ceb9fe1a85ec53u;
  return value ^ value >> 33;
}

uint32_t architecture_of_current_device() {
  CUdevice device = 0;
  return driver().cuCtxGetDevice(&device) == CUDA_SUCCESS ? compute_capability(device) : 0;
}

/// A driver that does not know the attributes knows no clusters.
std::array<uint32_t, 3> required_cluster_of(const FunctionEntry& entry) {
  constexpr CUfunction_attribute kSizes[] = {CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH,
                                             CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT,
                                             CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH};
  std::array<uint32_t, 3> size{};
  for (size_t i = 0; i < size.size(); ++i) {
    int value = 0;
    if (entry.attribute(kSizes[i], &value) == CUDA_SUCCESS && value > 0) size[i] = static_cast<uint32_t>(value);
  }
  return size;
}

/// TESSERA_SCATTER: a device for this launch, whatever the placement says.
uint32_t scattered(uint64_t seed) {
  static std::atomic<uint64_t> launches{0};
  const std::vector<uint32_t> devices = known_workers();
  const uint64_t draw = mix(seed * 0x9e3779b97f4a7c15u + launches.fetch_add(1, std::memory_order_relaxed));
  const uint64_t choice = draw % (devices.size() + 1);
  return choice == 0 ? 0 : devices[choice - 1];
}

bool trusts_trials() {
  static const bool trusts = runtime().settings().trust == "verified";
  return trusts;
}

uint64_t scatter_seed() {
  static const auto seed =
      trials_wanted() ? 0 : static_cast<uint64_t>(runtime().settings().integer(runtime().settings().scatter, 0));
  return seed;
}

}  // namespace

uint32_t entry_without_table() {
  const uint64_t seed = scatter_seed();
  return seed != 0 ? scattered(seed) : uint32_t{TS_DEVICE_HOME};
}

void publish_placements(const ts_placement_table& table) {
  if (scatter_seed() == 0) detail::launch_pointers.placements.store(table.device, std::memory_order_release);
}

KernelState::KernelState(FunctionEntry* entry) : entry_(entry) {}
KernelState::~KernelState() { delete classes_.load(std::memory_order_relaxed); }

ClaimsMemo* KernelState::claims_memo() {
  const void* known = summary();
  if (claims_memo_ == nullptr && known != nullptr) claims_memo_ = std::make_unique<ClaimsMemo>(known);
  return claims_memo_.get();
}

void KernelState::ask() {
  // One image holds the code of every kernel that its module can launch, or nothing is known.
  const std::shared_ptr<const Image> image = entry_->prepare() ? entry_->image() : nullptr;
  if (image == nullptr || !image->complete()) return;
  if (entry_->attribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &max_threads_) != CUDA_SUCCESS) max_threads_ = 0;
  if (entry_->attribute(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, &static_shared_) != CUDA_SUCCESS) max_threads_ = 0;
  home_architecture_ = architecture_of_current_device();
  required_cluster_ = required_cluster_of(*entry_);
  KernelAnswer answer = ask_kernel(*image, entry_->name);
  kernel_id_ = answer.kernel_id;
  pending_.store(answer.status == TS_KERNEL_PENDING, std::memory_order_relaxed);
  if (!tally_.has_row() && kernel_id_ < TS_MAX_KERNELS) {
    uint32_t slot = 0;
    if (ts_kernel_counters* row = counters_of(kernel_id_, &slot)) tally_.set_row(row, slot);
  }
  if (answer.status == TS_KERNEL_READY) adopt(std::move(answer.summary), std::move(answer.passed));
  if (answer.status == TS_KERNEL_FAILED) {
    log_line(LogLevel::kInfo, "%s stays home: %s", entry_->name.c_str(), answer.reason.c_str());
  }
}

void KernelState::adopt(std::vector<uint8_t> bytes, std::vector<uint64_t> passed) {
  if (ts_summary_validate(bytes.data(), bytes.size()) != TS_EVALUATE_OK) {
    log_line(LogLevel::kWarn, "%s stays home: the controller sent a summary that this build cannot read",
             entry_->name.c_str());
    return;
  }
  ts_summary header;
  std::memcpy(&header, bytes.data(), sizeof header);
  properties_ = header.properties;
  minimum_architecture_ = header.minimum_architecture;
  only_architecture_ = header.only_architecture;
  required_block_ = {header.required_block & 0x7ff, header.required_block >> 11 & 0x7ff, header.required_block >> 22};
  summary_bytes_ = std::move(bytes);
  uint32_t stay = TS_STAY_PLACED;
  if ((properties_ & TS_KERNEL_HOME_ONLY) != 0) stay = TS_STAY_PROPERTY;
  if ((properties_ & TS_KERNEL_UNKNOWN) != 0) stay = TS_STAY_UNKNOWN;
  // An unknown kernel may touch anything: its accesses say less than the whole truth.
  if (stay != TS_STAY_UNKNOWN) summary_.store(summary_bytes_.data(), std::memory_order_release);
  if ((properties_ & TS_KERNEL_HOME_ONLY) == TS_KERNEL_UNKNOWN && trusts_trials() && !passed.empty()) {
    std::sort(passed.begin(), passed.end());
    passed_ = std::move(passed);
    stay = TS_STAY_PLACED;
  }
  stay_.store(stay, std::memory_order_relaxed);
}

void KernelState::await_analysis(std::chrono::milliseconds longest) {
  const auto deadline = std::chrono::steady_clock::now() + longest;
  while (pending_.load(std::memory_order_relaxed) && std::chrono::steady_clock::now() < deadline) {
    {
      const std::lock_guard lock(first_launch_mutex());
      if (pending_.load(std::memory_order_relaxed)) ask();
    }
    if (pending_.load(std::memory_order_relaxed)) std::this_thread::sleep_for(kAskPause);
  }
}

void KernelState::distrust() {
  stay_.store(TS_STAY_UNKNOWN, std::memory_order_relaxed);
  summary_.store(nullptr, std::memory_order_release);
}

bool KernelState::has_passed(uint64_t launch_class) const {
  return std::binary_search(passed_.begin(), passed_.end(), launch_class);
}

bool KernelState::surely_valid(const uint32_t (&grid)[3], const uint32_t (&block)[3], uint32_t dynamic_shared) const {
  constexpr uint64_t kMaxGridX = 0x7fffffff, kMaxGridYZ = 65535, kMaxBlockZ = 64, kDefaultShared = 48 << 10;
  const uint64_t threads = uint64_t{block[0]} * block[1] * block[2];
  const int set = entry_->max_dynamic_shared.load(std::memory_order_relaxed);
  const uint64_t shared_limit =
      set < 0 ? kDefaultShared - std::min<uint64_t>(kDefaultShared, static_cast<uint64_t>(static_shared_))
              : static_cast<uint64_t>(set);
  const auto& wanted = required_block_;
  if (wanted[0] != 0 && (wanted[0] != block[0] || wanted[1] != block[1] || wanted[2] != block[2])) return false;
  return grid[0] != 0 && grid[0] <= kMaxGridX && grid[1] != 0 && grid[1] <= kMaxGridYZ && grid[2] != 0 &&
         grid[2] <= kMaxGridYZ && threads != 0 && block[0] <= 1024 && block[1] <= 1024 && block[2] <= kMaxBlockZ &&
         threads <= static_cast<uint64_t>(max_threads_) && dynamic_shared <= shared_limit;
}

void KernelState::ask_again() {
  if (launches_while_pending_.fetch_add(1, std::memory_order_relaxed) % kAskAgainEvery != kAskAgainEvery - 1) return;
  const std::lock_guard lock(first_launch_mutex());
  if (pending_.load(std::memory_order_relaxed)) ask();
}

PlacedClasses& KernelState::classes() {
  if (PlacedClasses* known = classes_.load(std::memory_order_acquire)) [[likely]]
    return *known;
  auto made = std::make_unique<PlacedClasses>(kernel_id_);
  PlacedClasses* known = nullptr;
  if (!classes_.compare_exchange_strong(known, made.get(), std::memory_order_acq_rel)) return *known;
  return *made.release();
}

int64_t KernelState::on_worker(const WorkerLink& worker) const {
  const OnWorker& known = on_worker_[worker.index()];
  const bool same = known.worker == &worker && known.max_dynamic_shared == entry_->max_dynamic_shared.load() &&
                    known.shared_carveout == entry_->shared_carveout.load();
  return same ? known.number : kNotLoaded;
}

void KernelState::set_on_worker(const WorkerLink& worker, int64_t number) {
  on_worker_[worker.index()] = {&worker, number, entry_->max_dynamic_shared.load(), entry_->shared_carveout.load()};
}

KernelState& made_kernel_state(CUfunction function) {
  FunctionEntry* entry = find_function(function);
  if (entry == nullptr) [[unlikely]]
    entry = resolve_function(function);
  const std::lock_guard lock(first_launch_mutex());
  if (void* state = entry->launch_state.load(std::memory_order_acquire)) return *static_cast<KernelState*>(state);
  auto made = std::make_unique<KernelState>(entry);
  made->ask();
  entry->launch_state.store(made.get(), std::memory_order_release);
  all_states().push_back(std::move(made));
  return *all_states().back();
}

}  // namespace tessera::shim
