// SPDX-License-Identifier: Apache-2.0
#include "placed_classes.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "claims.h"
#include "session.h"

namespace tessera::shim {
namespace {

constexpr uint64_t kCallQuantities =
    uint64_t{1} << TS_CALL_M | uint64_t{1} << TS_CALL_N | uint64_t{1} << TS_CALL_K | uint64_t{1} << TS_CALL_BATCHES;

/// Where the argument lies; null: the program does not say.
const uint8_t* argument_of(const LaunchRequest& request, const FunctionEntry& entry, uint32_t number) {
  if (request.extra == nullptr) {
    if (request.kernel_parameters == nullptr) return nullptr;
    return static_cast<const uint8_t*>(request.kernel_parameters[number]);
  }
  const Parameter& parameter = entry.parameters[number];
  const auto buffer = buffer_of(request.extra);
  const size_t size = buffer ? buffer->size() : 0;
  const bool inside = buffer && parameter.offset <= size && parameter.size <= size - parameter.offset;
  return inside ? buffer->data() + parameter.offset : nullptr;
}

}  // namespace

ClassKey::ClassKey(const LaunchRequest& request)
    : shape_{request.grid[0] | uint64_t{request.grid[1]} << 32, request.grid[2] | uint64_t{request.block[0]} << 32,
             request.block[1] | uint64_t{request.block[2]} << 32, request.dynamic_shared | uint64_t{1} << 32} {}

bool ClassKey::take_others(uint64_t others, const Quantities& launch) {
  if (static_cast<size_t>(std::popcount(others)) > kMostOthers) return false;
  others_ = others;
  size_t taken = 0;
  for (; others != 0; others &= others - 1) {
    const auto value = launch.value(static_cast<uint32_t>(std::countr_zero(others)));
    if (!value) return false;
    values_[taken++] = *value;
  }
  return true;
}

bool ClassKey::same_others(const ClassKey& other) const {
  return std::equal(values_.begin(), values_.begin() + std::popcount(others_), other.values_.begin());
}

uint64_t ClassKey::hash_with_others(uint64_t hash) const {
  for (int i = 0; i < std::popcount(others_); ++i) {
    hash = (hash ^ hash >> 32 ^ values_[static_cast<size_t>(i)]) * kFactor;
  }
  return hash;
}

uint32_t ClassKey::write(ts_class_value (&out)[TS_CLASS_VALUES]) const {
  static_assert(TS_GRID_X == 0 && TS_SHARED == 6 && TS_SHARED + 1 + kMostOthers <= TS_CLASS_VALUES);
  uint32_t written = 0;
  if (shape_.back() != 0) {
    for (; written <= TS_SHARED; ++written) {
      out[written] = {written, 0, shape_[written / 2] >> (written % 2 * 32) & UINT32_MAX};
    }
  }
  size_t taken = 0;
  for (uint64_t left = others_; left != 0; left &= left - 1) {
    out[written++] = {static_cast<uint32_t>(std::countr_zero(left)), 0, values_[taken++]};
  }
  return written;
}

std::optional<uint64_t> LaunchQuantities::value(uint32_t quantity) const {
  switch (quantity) {
    case TS_GRID_X:
    case TS_GRID_Y:
    case TS_GRID_Z:
      return request_.grid[quantity - TS_GRID_X];
    case TS_BLOCK_X:
    case TS_BLOCK_Y:
    case TS_BLOCK_Z:
      return request_.block[quantity - TS_BLOCK_X];
    case TS_SHARED:
      return request_.dynamic_shared;
    case TS_BLOCKS:  // of a launch that is valid: what overflows is no launch
      return uint64_t{request_.grid[0]} * request_.grid[1] * request_.grid[2];
    case TS_THREADS:
      return uint64_t{request_.block[0]} * request_.block[1] * request_.block[2];
    default:
      return quantity >= TS_ARGUMENT ? argument(quantity - TS_ARGUMENT) : std::nullopt;
  }
}

std::optional<uint64_t> LaunchQuantities::argument(uint32_t number) const {
  if (number >= entry_.parameters.size()) return std::nullopt;
  const size_t size = entry_.parameters[number].size;
  const uint8_t* bytes = argument_of(request_, entry_, number);
  if (bytes == nullptr || size > sizeof(uint64_t) || !std::has_single_bit(size)) return std::nullopt;
  uint64_t value = 0;
  std::memcpy(&value, bytes, size);
  return value;
}

PlacedClasses::~PlacedClasses() {
  for (const auto& bucket : buckets_) {
    for (PlacedClass* it = bucket.load(std::memory_order_relaxed); it != nullptr;) {
      PlacedClass* next = it->next();
      delete it;
      it = next;
    }
  }
}

PlacedClasses::Place PlacedClasses::place(const LaunchRequest& request, const FunctionEntry& function, uint32_t entry) {
  const LaunchQuantities launch(request, function);
  const uint64_t sequence = sequence_of(placement_table());
  ClassKey key(request);
  if (!key.take(arguments(sequence), launch)) return {decide(nullptr, launch, entry), nullptr};
  return place(key, launch, entry, sequence);
}

PlacedClasses::Place PlacedClasses::place_call(const Quantities& call, uint32_t entry) {
  ClassKey key;
  if (!key.take(kCallQuantities, call)) return {decide(nullptr, call, entry), nullptr};
  return place(key, call, entry, sequence_of(placement_table()));
}

PlacedClasses::Place PlacedClasses::place(const ClassKey& key, const Quantities& launch, uint32_t entry,
                                          uint64_t sequence) {
  PlacedClass* known = find(key);
  if (known == nullptr) [[unlikely]]
    known = find_or_make(key);
  Tally* tally = known != nullptr && known->tally().has_row() ? &known->tally() : nullptr;
  if ((entry & TS_PLACED_BY_CLASS) == 0) return {entry, tally};
  const auto decided = known != nullptr ? known->device(sequence) : std::nullopt;
  return {decided ? *decided : decide(known, launch, entry), tally};
}

uint32_t PlacedClasses::decide(PlacedClass* known, const Quantities& launch, uint32_t entry) const {
  const uint32_t fallback = entry & ~uint32_t{TS_PLACED_BY_CLASS};
  if ((entry & TS_PLACED_BY_CLASS) == 0) return fallback;
  const std::optional<Choice> choice = choose(placement_table(), kernel_id_, launch);
  if (!choice) return known != nullptr ? known->last_device().value_or(fallback) : fallback;
  if (known != nullptr) known->decide(*choice);
  return choice->device;
}

/// Another thread may learn of newer arguments meanwhile: then this launch is put into a class of the old ones, which
/// the newer ones never come from.
uint64_t PlacedClasses::arguments(uint64_t sequence) {
  if (arguments_sequence_.load(std::memory_order_acquire) != sequence) [[unlikely]] {
    if (const std::optional<Named> named = arguments_named(placement_table(), kernel_id_)) {
      arguments_.store(named->arguments, std::memory_order_relaxed);
      arguments_sequence_.store(named->sequence, std::memory_order_release);
    }
  }
  return arguments_.load(std::memory_order_relaxed);
}

PlacedClass* PlacedClasses::find_or_make(const ClassKey& key) {
  const std::lock_guard lock(making_);
  if (PlacedClass* known = find(key)) return known;
  if (made_ >= kMostClasses) return nullptr;
  ++made_;
  std::atomic<PlacedClass*>& bucket = buckets_[key.hash() % kBuckets];
  auto made = std::make_unique<PlacedClass>(key, bucket.load(std::memory_order_relaxed));
  uint32_t slot = 0;
  if (ts_kernel_counters* row = counters_of_class(kernel_id_, key, &slot)) made->tally().set_row(row, slot);
  bucket.store(made.get(), std::memory_order_release);
  return made.release();
}

}  // namespace tessera::shim
