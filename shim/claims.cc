// SPDX-License-Identifier: Apache-2.0
#include "claims.h"

#include <cstring>

#include "driver.h"
#include "tessera/access/summary.h"
#include "world.h"

namespace tessera::shim {
namespace {

constexpr uint32_t kMaxRanges = 256;
constexpr uint64_t kNullPage = 65536;          // a pointer below is null, or null with an offset
constexpr uint64_t kVirtualOrigin = 1u << 20;  // so far before its array a pointer may lie
constexpr uint64_t kNoMemory = 1u << 28;       // no memory of a GPU lies below

bool pack_extra(void** extra, size_t expected, std::vector<uint8_t>& block) {
  const void* buffer = nullptr;
  const size_t* size = nullptr;
  for (void** at = extra; *at != CU_LAUNCH_PARAM_END; at += 2) {
    if (*at == CU_LAUNCH_PARAM_BUFFER_POINTER)
      buffer = at[1];
    else if (*at == CU_LAUNCH_PARAM_BUFFER_SIZE)
      size = static_cast<const size_t*>(at[1]);
    else
      return false;
  }
  if (buffer == nullptr || size == nullptr || *size != expected) return false;  // the driver has a say in other sizes
  const auto* bytes = static_cast<const uint8_t*>(buffer);
  block.assign(bytes, bytes + *size);
  return true;
}

/// An optional argument that is not given: whatever the kernel would touch through it is no memory, so it does not.
/// Where the extent is not known the address may come from elsewhere, and null be an offset of zero.
bool goes_nowhere(const ts_range& range) {
  return range.pointer < kNullPage && (range.flags & TS_ACCESS_UNBOUNDED) == 0 && range.begin < kNullPage &&
         range.end <= kNoMemory;
}

/// Whether the driver knows memory there. Where it does not, the summary may have taken a number for the pointer.
bool is_memory(uint64_t pointer) {
  unsigned type = 0;
  return driver().cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer) == CUDA_SUCCESS;
}

/// The live memory that an access through `range.pointer` may reach. False: none of it lies in the slot.
bool resolve(const DeviceMemory& memory, const ts_range& range, std::vector<Range>& out) {
  const size_t before = out.size();
  if ((range.flags & TS_ACCESS_UNBOUNDED) == 0) {
    if (range.begin >= range.end) return true;
    // Whole inside one allocation in nearly every launch.
    const auto allocation = memory.find(range.begin);
    if (allocation && range.end <= allocation->end)
      out.push_back({range.begin, range.end});
    else
      memory.intersect({range.begin, range.end}, out);
    return out.size() > before;
  }
  const auto allocation = memory.find(range.pointer);
  if (allocation) out.push_back(*allocation);
  // Code that counts from one passes a pointer to before its array: it may lie in the neighbour, or in none.
  const auto next = allocation && allocation->begin == range.pointer ? std::nullopt : memory.find_next(range.pointer);
  if (next && next->begin - range.pointer <= kVirtualOrigin) out.push_back(*next);
  // A pointer to the end of an array is one to the start of its neighbour.
  if (const auto ending = memory.find_ending_at(range.pointer)) out.push_back(*ending);
  return out.size() > before;
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

bool pack_parameters(const LaunchRequest& request, const FunctionEntry& entry, std::vector<uint8_t>& block) {
  if (request.extra != nullptr) {
    // Both at once is an error, and the driver's to report.
    return request.kernel_parameters == nullptr && pack_extra(request.extra, entry.parameter_size, block);
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

Footprint Claims::footprint() const {
  Footprint footprint;
  footprint.everything = !known;
  footprint.reads = needed;
  footprint.writes = written;
  return footprint;
}

Claims claims_of(const LaunchRequest& request, const KernelState& state, std::span<const uint8_t> parameters) {
  Claims claims;
  const void* summary = state.summary();
  if (summary == nullptr) return claims;
  const ts_launch_shape shape = shape_of(request, parameters);
  ts_range ranges[kMaxRanges];
  uint32_t count = 0;
  if (ts_summary_evaluate(summary, &shape, ranges, kMaxRanges, &count) != TS_EVALUATE_OK) return claims;
  claims.known = true;
  for (uint32_t i = 0; i < count; ++i) {
    const ts_range& range = ranges[i];
    if (goes_nowhere(range)) continue;
    std::vector<Range> live;
    if (!resolve(world().memory, range, live)) {
      claims.all_in_slot = false;
      claims.known = claims.known && is_memory(range.pointer);
    }
    for (const Range& piece : live) claims.all_in_slot = claims.all_in_slot && !world().memory.is_exposed(piece);
    claims.exact = claims.exact && (range.flags & TS_ACCESS_EXACT) != 0;
    const bool writes = (range.mode & TS_ACCESS_WRITE) != 0;
    const bool needs_old = (range.mode & TS_ACCESS_READ) != 0 || (range.flags & TS_ACCESS_MUST_WRITE) == 0;
    if (writes) claims.written.insert(claims.written.end(), live.begin(), live.end());
    if (needs_old) claims.needed.insert(claims.needed.end(), live.begin(), live.end());
  }
  memory::normalize(claims.needed);
  memory::normalize(claims.written);
  claims.all = claims.needed;
  claims.all.insert(claims.all.end(), claims.written.begin(), claims.written.end());
  memory::normalize(claims.all);
  return claims;
}

}  // namespace tessera::shim
