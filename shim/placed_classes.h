// SPDX-License-Identifier: Apache-2.0
// Launches of one kernel that placement tells apart: by shape, and by those arguments that its rules name. (The launch
// class of launch_class.h goes by all arguments, as trials have to: one that counts steps would make each launch a
// class of its own.) Where a class goes is decided when it is first seen, and anew when the placement table changes.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "choices.h"
#include "tally.h"

namespace tessera::shim {

class FunctionEntry;
struct LaunchRequest;

/// What all launches of a class have in common. Made and looked up at each launch of a kernel that is placed by class.
class ClassKey {
 public:
  static constexpr size_t kMostOthers = 4;
  /// Of a library's call: it has no shape.
  ClassKey() = default;
  explicit ClassKey(const LaunchRequest& request);

  /// Takes the values of quantities from TS_CALL_M on, `others` a bit each. False: the launch lacks one, or they are
  /// too many, and it is of no class.
  bool take(uint64_t others, const Quantities& launch) { return others == 0 || take_others(others, launch); }

  bool operator==(const ClassKey& other) const {
    uint64_t differ = others_ ^ other.others_;
    for (size_t i = 0; i < shape_.size(); ++i) differ |= shape_[i] ^ other.shape_[i];
    return differ == 0 && (others_ == 0 || same_others(other));
  }
  uint64_t hash() const {
    // Two sums, so that one multiplication need not wait for the last.
    const uint64_t even = ((shape_[0] ^ others_) * kFactor ^ shape_[1]) * kFactor;
    const uint64_t odd = (shape_[2] * kFactor ^ shape_[3]) * kFactor;
    const uint64_t hash = (even ^ odd >> 29) * kFactor;
    return (others_ == 0 ? hash : hash_with_others(hash)) >> 32;
  }
  /// Writes down what the class's launches have in common; how many values that are.
  uint32_t write(ts_class_value (&out)[TS_CLASS_VALUES]) const;

 private:
  static constexpr uint64_t kFactor = 0x9e3779b97f4a7c15u;
  bool take_others(uint64_t others, const Quantities& launch);
  bool same_others(const ClassKey& other) const;
  uint64_t hash_with_others(uint64_t hash) const;

  std::array<uint64_t, 4> shape_{};  // TS_GRID_X to TS_SHARED by twos, the last half is 1; zeros: none
  uint64_t others_ = 0;
  std::array<uint64_t, kMostOthers> values_;  // of the others, in ascending order; behind them nothing
};

/// A kernel's launch.
class LaunchQuantities final : public Quantities {
 public:
  LaunchQuantities(const LaunchRequest& request, const FunctionEntry& entry) : request_(request), entry_(entry) {}
  std::optional<uint64_t> value(uint32_t quantity) const override;

 private:
  std::optional<uint64_t> argument(uint32_t number) const;
  const LaunchRequest& request_;
  const FunctionEntry& entry_;
};

/// One class, and what counts its launches. Never freed.
class PlacedClass {
 public:
  PlacedClass(const ClassKey& key, PlacedClass* next) : key_(key), next_(next) {}
  const ClassKey& key() const { return key_; }
  PlacedClass* next() const { return next_; }
  Tally& tally() { return tally_; }

  /// Where it goes, if that has been decided for this sequence of the table.
  std::optional<uint32_t> device(uint64_t sequence) const {
    const uint64_t decided = decided_.load(std::memory_order_relaxed);
    return decided >> 8 == sequence ? std::optional<uint32_t>(decided & 0xff) : std::nullopt;
  }
  /// Where it went last; none before it was first decided.
  std::optional<uint32_t> last_device() const {
    const uint64_t decided = decided_.load(std::memory_order_relaxed);
    return decided != kUndecided ? std::optional<uint32_t>(decided & 0xff) : std::nullopt;
  }
  void decide(const Choice& choice) { decided_.store(choice.sequence << 8 | choice.device, std::memory_order_relaxed); }

 private:
  static constexpr uint64_t kUndecided = UINT64_MAX;
  const ClassKey key_;
  PlacedClass* const next_;
  Tally tally_;
  std::atomic<uint64_t> decided_{kUndecided};  // sequence << 8 | device
};

/// The classes of one kernel, or of one kind of a library's calls, that have been seen.
class PlacedClasses {
 public:
  explicit PlacedClasses(uint32_t kernel_id) : kernel_id_(kernel_id) {}
  ~PlacedClasses();
  PlacedClasses(const PlacedClasses&) = delete;
  PlacedClasses& operator=(const PlacedClasses&) = delete;

  struct Place {
    uint32_t device = 0;
    Tally* tally = nullptr;  // the class's; null where it has no row of the counters
  };
  /// Where a launch goes whose kernel's entry in the placement table is `entry`. Any thread; takes a lock only for a
  /// class that is new.
  Place place(const LaunchRequest& request, const FunctionEntry& function, uint32_t entry);
  /// The same for a library's call, which these quantities of TS_CALL_M and on tell apart.
  Place place_call(const Quantities& call, uint32_t entry);

 private:
  static constexpr size_t kBuckets = 64, kMostClasses = 256;

  /// Which arguments tell launches apart now.
  uint64_t arguments(uint64_t sequence);
  Place place(const ClassKey& key, const Quantities& launch, uint32_t entry, uint64_t sequence);
  uint32_t decide(PlacedClass* known, const Quantities& launch, uint32_t entry) const;
  PlacedClass* find(const ClassKey& key) const {
    PlacedClass* it = buckets_[key.hash() % kBuckets].load(std::memory_order_acquire);
    while (it != nullptr && !(it->key() == key)) it = it->next();
    return it;
  }
  PlacedClass* find_or_make(const ClassKey& key);

  const uint32_t kernel_id_;
  std::atomic<uint64_t> arguments_{0}, arguments_sequence_{UINT64_MAX};
  std::array<std::atomic<PlacedClass*>, kBuckets> buckets_{};
  std::mutex making_;
  size_t made_ = 0;
};

}  // namespace tessera::shim
