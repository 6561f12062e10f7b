// SPDX-License-Identifier: Apache-2.0
#include "launch_class.h"

#include <algorithm>
#include <cstring>

#include "world.h"

namespace tessera::shim {
namespace {

constexpr uint64_t kBehindAddresses = 1ull << 56;  // no memory lies above
constexpr uint64_t kVector = 16;                   // the largest piece that one instruction moves

uint64_t mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
  return hash ^ hash >> 32;
}

uint64_t word_at(std::span<const uint8_t> parameters, size_t offset) {
  uint64_t word = 0;
  std::memcpy(&word, parameters.data() + offset, std::min(sizeof word, parameters.size() - offset));
  return word;
}

/// What a word points to as it stands: its allocation, or the one that ends there.
std::vector<Range> pointed_to(uint64_t word) {
  std::vector<Range> found;
  const DeviceMemory& memory = world().memory;
  if (const auto allocation = memory.find(word)) found.push_back(*allocation);
  if (const auto ending = memory.find_ending_at(word)) found.push_back(*ending);
  return found;
}

bool is_other_memory(uint64_t word) {
  const DeviceMemory& memory = world().memory;
  return word >= kNoMemory && word < kBehindAddresses && !memory.in_slot(word) && !memory.find(word) && is_memory(word);
}

uint64_t shape_hash(const LaunchRequest& request) {
  uint64_t hash = mix(1, request.dynamic_shared);
  for (const uint32_t size : request.grid) hash = mix(hash, size);
  for (const uint32_t size : request.block) hash = mix(hash, size);
  for (const CUlaunchAttribute& attribute : request.attributes) {
    hash = mix(hash, static_cast<uint64_t>(attribute.id));
    if (attribute.id != CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) continue;
    const auto& size = attribute.value.clusterDim;
    hash = mix(mix(mix(hash, size.x), size.y), size.z);
  }
  return hash;
}

}  // namespace

uint64_t launch_class_of(const LaunchRequest& request, std::span<const uint8_t> parameters) {
  uint64_t hash = mix(shape_hash(request), parameters.size());
  std::vector<uint64_t> seen;  // allocations, by their begin, in the order of the words
  for (size_t offset = 0; offset < parameters.size(); offset += sizeof(uint64_t)) {
    const uint64_t word = word_at(parameters, offset);
    const std::vector<Range> allocations = pointed_to(word);
    if (allocations.empty()) {
      hash = mix(hash, word);
      continue;
    }
    const auto known = std::find(seen.begin(), seen.end(), allocations.front().begin);
    const auto number = static_cast<uint64_t>(known - seen.begin());
    if (known == seen.end()) seen.push_back(allocations.front().begin);
    hash = mix(mix(hash, number), 1 + word % kVector);
  }
  return hash == 0 ? 1 : hash;
}

Claims claims_of_words(std::span<const uint8_t> parameters) {
  Claims claims;
  claims.known = true;
  claims.exact = false;
  // A struct may hold a pointer at any multiple of four.
  for (size_t offset = 0; offset + sizeof(uint64_t) <= parameters.size(); offset += sizeof(uint32_t)) {
    const uint64_t word = word_at(parameters, offset);
    if (is_other_memory(word)) claims.all_in_slot = false;
    for (const Range& allocation : pointed_to(word)) {
      claims.all.push_back(allocation);
      claims.all_in_slot = claims.all_in_slot && !world().memory.is_exposed(allocation);
    }
  }
  memory::normalize(claims.all);
  claims.needed = claims.written = claims.all;
  return claims;
}

Claims claims_by_trial(const LaunchRequest& request, const KernelState& state, std::vector<uint8_t>& parameters) {
  if (!state.moves_by_trial() || !pack_parameters(request, *state.entry(), parameters)) return {};
  return state.has_passed(launch_class_of(request, parameters)) ? claims_of_words(parameters) : Claims{};
}

}  // namespace tessera::shim
