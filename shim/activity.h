// SPDX-License-Identifier: Apache-2.0
// How many operations the program has enqueued at home, by stream handle, and
// which threads are in the middle of enqueuing one. Home launches touch nothing
// else of Tessera's while nothing is remote, so both are lock-free.
#pragma once

#include <cuda.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tessera::shim {

/// Counts per stream handle. Handles are never removed: a count that belongs to
/// a destroyed stream is only a number that no longer grows.
class Activity {
 public:
  static constexpr size_t kSlots = 4096;

  /// Records one operation on `stream` (normalised: never null). What this thread stored before and what it loads
  /// afterwards is never seen the other way round.
  void bump(CUstream stream) {
    slot_of(stream).count.fetch_add(1, std::memory_order_seq_cst);
#if !defined(__x86_64__)  // there the addition is locked, and so a fence by itself
    std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
  }
  /// The stream is about to be destroyed; its handle may come back as another stream.
  void retire(CUstream stream) {
    Slot& slot = slot_of(stream);
    slot.retired.store(slot.count.load(std::memory_order_relaxed), std::memory_order_relaxed);
  }
  /// Whether there were more handles than slots: some streams' operations are not told apart.
  bool overflowed() const { return overflowed_.load(std::memory_order_acquire); }
  /// The number of all operations so far.
  uint64_t total() const;
  /// Calls `visit(stream, slot, count)` for every handle that was seen and is not retired.
  template <class Visit>
  void for_each(Visit&& visit) const;

 private:
  struct alignas(32) Slot {  // never in two cache lines
    std::atomic<CUstream> stream{nullptr};
    std::atomic<uint64_t> count{0};
    std::atomic<uint64_t> retired{UINT64_MAX};  // the count at which its stream was destroyed
  };
  Slot& slot_of(CUstream stream) {
    Slot& slot = slots_[home(stream)];
    if (slot.stream.load(std::memory_order_acquire) == stream) [[likely]]
      return slot;
    return slot_found_for(stream);
  }
  Slot& slot_found_for(CUstream stream);
  static size_t home(CUstream stream) {
    const auto bits = reinterpret_cast<uintptr_t>(stream);
    return (bits ^ bits >> 12) * 0x9e3779b97f4a7c15u >> 52;
  }

  std::atomic<bool> overflowed_{false};
  std::array<Slot, kSlots> slots_;
  std::atomic<uint32_t> used_[kSlots / 32] = {};  // a bit per slot in use, for quick visits
};

template <class Visit>
void Activity::for_each(Visit&& visit) const {
  for (size_t word = 0; word < kSlots / 32; ++word) {
    for (uint32_t bits = used_[word].load(std::memory_order_acquire); bits != 0; bits &= bits - 1) {
      const size_t index = word * 32 + static_cast<size_t>(__builtin_ctz(bits));
      const Slot& slot = slots_[index];
      const uint64_t count = slot.count.load(std::memory_order_relaxed);
      if (count == slot.retired.load(std::memory_order_relaxed)) continue;
      visit(slot.stream.load(std::memory_order_relaxed), index, count);
    }
  }
}

namespace detail {
extern constinit Activity all_activity;
}
inline Activity& activity() { return detail::all_activity; }

/// Says "this thread is enqueuing an operation on this stream at home without the world's lock" for as long
/// as it lives, and records the operation. `World::wake` waits for such threads before it lets anything
/// become remote: a home launch is then surely either before or after.
class HomePass {
 public:
  /// Whoever finds the world calm afterwards is waited for by whoever ends the calm.
  explicit HomePass(CUstream stream) : presence_(mine()) {
    // A counter, not a flag: a host library's callback may launch while a launch is being made. This thread alone
    // changes it, and the fence between this and the question whether the world is calm comes with the record: a
    // locked instruction costs a launch as much as everything else here.
    presence_.inside.store(presence_.inside.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    activity().bump(stream);
  }
  ~HomePass() {
    presence_.inside.store(presence_.inside.load(std::memory_order_relaxed) - 1, std::memory_order_release);
  }
  HomePass(const HomePass&) = delete;
  HomePass& operator=(const HomePass&) = delete;

  /// Waits until no other thread is inside a HomePass. False when one stays too long: the driver holds it up, perhaps
  /// until this thread has gone on.
  [[nodiscard]] static bool drain();

 private:
  // Never freed: a thread's end must not race with drain(). They are reused by later threads.
  struct Presence {
    std::atomic<uint32_t> inside{0};
    std::atomic<bool> owned{false};
    Presence* next = nullptr;
  };
  static Presence& mine() {
    if (known_ == nullptr) [[unlikely]]
      known_ = &made_mine();
    return *known_;
  }
  static Presence& made_mine();
  // Of the first kind of thread-local memory: the library is there from the program's start, and a call is spared.
  [[gnu::tls_model("initial-exec")]] static thread_local constinit Presence* known_;
  Presence& presence_;
};

}  // namespace tessera::shim
