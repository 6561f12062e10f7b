// SPDX-License-Identifier: Apache-2.0
#include "claims.h"

#include <algorithm>
#include <cstring>

#include "driver.h"
#include "rows.h"
#include "tessera/access/summary.h"
#include "world.h"

namespace tessera::shim {
namespace {

constexpr uint32_t kMaxRanges = 256;
constexpr uint64_t kMaxRows = 64;              // intervals of one launch beyond one for each range
constexpr size_t kDirectoryTakesRows = 512;    // intervals: each one makes every walk of the directory longer
constexpr uint64_t kNullPage = 65536;          // a pointer below is null, or null with an offset
constexpr uint64_t kVirtualOrigin = 1u << 20;  // so far before its array a pointer may lie

/// An optional argument that is not given: whatever the kernel would touch through it is no memory, so it does not.
/// Where the extent is not known the address may come from elsewhere, and null be an offset of zero.
bool goes_nowhere(const ts_range& range) {
  return range.pointer < kNullPage && (range.flags & TS_ACCESS_UNBOUNDED) == 0 && range.begin < kNullPage &&
         range.end <= kNoMemory;
}

/// The live memory that an access without bounds may reach.
void resolve_unbounded(const DeviceMemory& memory, uint64_t pointer, std::vector<Range>& out) {
  const auto allocation = memory.find(pointer);
  if (allocation) out.push_back(*allocation);
  // Code that counts from one passes a pointer to before its array: it may lie in the neighbour, or in none.
  const auto next = allocation && allocation->begin == pointer ? std::nullopt : memory.find_next(pointer);
  if (next && next->begin - pointer <= kVirtualOrigin) out.push_back(*next);
  // A pointer to the end of an array is one to the start of its neighbour.
  if (const auto ending = memory.find_ending_at(pointer)) out.push_back(*ending);
}

/// The live memory in the rows of a range.
void resolve_rows(const DeviceMemory& memory, const ts_range& range, const Rows& rows, std::vector<Range>& out) {
  // Whole inside one allocation in nearly every launch.
  const auto allocation = memory.find(range.begin);
  const bool inside = allocation && range.end <= allocation->end;
  rows.for_each([&](uint64_t begin, uint64_t end) {
    if (inside)
      out.push_back({begin, end});
    else
      memory.intersect({begin, end}, out);
  });
}

ts_launch_shape shape_of(const LaunchRequest& request, std::span<const uint8_t> parameters) {
  ts_launch_shape shape{};
  shape.parameters = parameters.data();
  shape.parameter_size = static_cast<uint32_t>(parameters.size());
  std::memcpy(shape.grid, request.grid, sizeof shape.grid);
  std::memcpy(shape.block, request.block, sizeof shape.block);
  shape.cluster[0] = shape.cluster[1] = shape.cluster[2] = 1;
  for (const CUlaunchAttribute& attribute : request.attributes) {
    if (attribute.id != CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) continue;
    shape.cluster[0] = attribute.value.clusterDim.x;
    shape.cluster[1] = attribute.value.clusterDim.y;
    shape.cluster[2] = attribute.value.clusterDim.z;
  }
  shape.dynamic_shared = request.dynamic_shared;
  return shape;
}

}  // namespace

bool is_memory(uint64_t pointer) {
  unsigned type = 0;
  return driver().cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer) == CUDA_SUCCESS;
}

bool pack_parameters(const LaunchRequest& request, const FunctionEntry& entry, std::vector<uint8_t>& block) {
  if (request.extra != nullptr) {
    if (request.kernel_parameters != nullptr) return false;  // both at once is an error, and the driver's to report
    const auto buffer = buffer_of(request.extra);
    if (!buffer || buffer->size() != entry.parameter_size) return false;  // the driver has a say in other sizes
    block.assign(buffer->begin(), buffer->end());
    return true;
  }
  block.assign(entry.parameter_size, 0);
  if (entry.parameters.empty()) return true;
  if (request.kernel_parameters == nullptr) return false;
  for (size_t i = 0; i < entry.parameters.size(); ++i) {
    const Parameter& parameter = entry.parameters[i];
    if (request.kernel_parameters[i] == nullptr) return false;
    std::memcpy(block.data() + parameter.offset, request.kernel_parameters[i], parameter.size);
  }
  return true;
}

void Claims::reset() {
  known = false;
  all_in_slot = exact = true;
  needed.clear();
  written.clear();
  all.clear();
}

void Claims::add(uint8_t mode, uint8_t promises, std::span<const Range> live) {
  for (const Range& piece : live) all_in_slot = all_in_slot && !world().memory.is_exposed(piece);
  exact = exact && (promises & TS_ACCESS_EXACT) != 0;
  const bool needs_old = (mode & TS_ACCESS_READ) != 0 || (promises & TS_ACCESS_MUST_WRITE) == 0;
  if ((mode & TS_ACCESS_WRITE) != 0) written.insert(written.end(), live.begin(), live.end());
  if (needs_old) needed.insert(needed.end(), live.begin(), live.end());
}

void Claims::finish() {
  memory::normalize(needed);
  memory::normalize(written);
  all = needed;
  all.insert(all.end(), written.begin(), written.end());
  memory::normalize(all);
}

Footprint Claims::footprint() const {
  Footprint footprint;
  footprint.everything = !known;
  footprint.reads = needed;
  footprint.writes = written;
  return footprint;
}

ClaimsMemo::ClaimsMemo(const void* summary) : summary_(summary) { ts_summary_memo_prepare(&evaluations_, summary); }

const Claims& ClaimsMemo::of(const LaunchRequest& request, std::span<const uint8_t> parameters) {
  const ts_launch_shape shape = shape_of(request, parameters);
  const bool takes_rows = world().directory.intervals() < kDirectoryTakesRows;
  make_key(shape, takes_rows);
  Entry& entry = entries_[slot_of_key()];
  const uint64_t memory = world().memory.generation();
  if (entry.memory == memory && entry.key == key_) return entry.claims;
  if (evaluate(shape, takes_rows, entry.claims)) {
    entry.key = key_;
    entry.memory = memory;
  } else {
    entry.key.clear();
  }
  return entry.claims;
}

/// All that claims follow from but the memory: the launch, and whether rows were taken.
void ClaimsMemo::make_key(const ts_launch_shape& shape, bool takes_rows) {
  const std::array<uint32_t, 12> head = {shape.grid[0],    shape.grid[1],        shape.grid[2],        shape.block[0],
                                         shape.block[1],   shape.block[2],       shape.cluster[0],     shape.cluster[1],
                                         shape.cluster[2], shape.dynamic_shared, shape.parameter_size, takes_rows};
  constexpr size_t kHead = sizeof(head) / sizeof(uint64_t);
  key_.resize(kHead + (shape.parameter_size + 7) / 8);
  key_.back() = 0;  // parameters may end within it
  std::memcpy(key_.data(), head.data(), sizeof(head));
  if (shape.parameter_size != 0) std::memcpy(key_.data() + kHead, shape.parameters, shape.parameter_size);
}

size_t ClaimsMemo::slot_of_key() const {
  // Two sums, so that one multiplication need not wait for the last.
  uint64_t even = 0, odd = 0;
  constexpr uint64_t kFactor = 0x9e3779b97f4a7c15u;
  size_t i = 0;
  for (; i + 1 < key_.size(); i += 2) {
    even = (even ^ key_[i]) * kFactor;
    odd = (odd ^ key_[i + 1]) * kFactor;
  }
  if (i < key_.size()) even = (even ^ key_[i]) * kFactor;
  static_assert(kEntries == 32, "the slot is the five highest bits");
  return ((even ^ odd >> 29) * kFactor) >> 59;
}

bool ClaimsMemo::evaluate(const ts_launch_shape& shape, bool takes_rows, Claims& claims) {
  claims.reset();
  ts_range ranges[kMaxRanges];
  uint32_t count = 0;
  if (ts_summary_evaluate_memo(summary_, &evaluations_, &shape, ranges, kMaxRanges, &count) != TS_EVALUATE_OK) {
    return true;
  }
  const DeviceMemory& memory = world().memory;
  bool asked_driver = false;
  uint64_t intervals_left = takes_rows ? kMaxRows : 0;
  claims.known = true;
  for (const ts_range& range : std::span(ranges, count)) {
    if ((range.flags & TS_ACCESS_ANYTHING) != 0) claims.known = false;
    if (goes_nowhere(range) || (range.flags & TS_ACCESS_ANYTHING) != 0) continue;
    uint8_t promises = 0;
    bool is_empty = false;
    live_.clear();
    if ((range.flags & TS_ACCESS_UNBOUNDED) != 0) {
      resolve_unbounded(memory, range.pointer, live_);
    } else {
      const Rows rows = rows_of(range, std::max<uint64_t>(intervals_left, 1));
      intervals_left -= std::min(intervals_left, rows.intervals);
      promises = rows.promises;
      is_empty = range.begin >= range.end;
      resolve_rows(memory, range, rows, live_);
    }
    if (live_.empty() && !is_empty) {
      asked_driver = true;
      // Where the driver knows none, the summary may have taken a number for the pointer.
      const bool elsewhere = is_memory(range.pointer);
      if (!elsewhere && (range.flags & TS_ACCESS_MAYBE) != 0) continue;
      claims.all_in_slot = false;
      claims.known = claims.known && elsewhere;
    }
    claims.add(range.mode, promises, live_);
  }
  claims.finish();
  return !asked_driver;
}

const Claims& claims_of(const LaunchRequest& request, KernelState& state, std::span<const uint8_t> parameters) {
  static const Claims nothing_known;
  ClaimsMemo* memo = state.claims_memo();
  return memo == nullptr ? nothing_known : memo->of(request, parameters);
}

}  // namespace tessera::shim
