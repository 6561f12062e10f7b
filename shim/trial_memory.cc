// SPDX-License-Identifier: Apache-2.0
#include "trial_memory.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "driver.h"
#include "tessera/transport/ring.h"
#include "worker_link.h"
#include "world.h"

namespace tessera::shim {
namespace {

using transport::SharedMemory;

enum Role : uint8_t { kNothing = 0, kNeeded = 1, kWritten = 2 };

std::vector<uint64_t> granules_of(const Claims& claims) {
  std::vector<uint64_t> granules;
  for (const Range& range : claims.all) {
    for (uint64_t at = range.begin / TS_GRANULE * TS_GRANULE; at < range.end; at += TS_GRANULE) {
      if (granules.empty() || granules.back() < at) granules.push_back(at);
    }
  }
  return granules;
}

/// The first byte of [0, size) in which the two differ, or `size`.
size_t first_difference(const uint8_t* a, const uint8_t* b, size_t size) {
  if (std::memcmp(a, b, size) == 0) return size;
  return static_cast<size_t>(std::mismatch(a, a + size, b).first - a);
}

size_t first_other_than(uint8_t value, const uint8_t* bytes, size_t size) {
  return static_cast<size_t>(std::find_if(bytes, bytes + size, [&](uint8_t byte) { return byte != value; }) - bytes);
}

}  // namespace

uint64_t TrialMemory::bytes_of(const Claims& claims) { return granules_of(claims).size() * TS_GRANULE; }

TrialMemory::TrialMemory(const Claims& claims)
    : claims_(claims),
      granules_(granules_of(claims)),
      memory_(SharedMemory::create("tessera-trial", TS_TRIAL_DATA + 2 * granules_.size() * TS_GRANULE)) {
  for (const Range& range : claims.needed) roles_.set(range.begin, range.end, kNeeded);
  for (const Range& range : claims.written) roles_.set(range.begin, range.end, kWritten);
}

bool TrialMemory::write_launch(const LaunchRequest& request, std::span<const uint8_t> parameters) {
  std::vector<ts_ring_range> ranges;
  ranges.reserve(claims_.all.size() + claims_.needed.size());
  for (const Range& range : claims_.all) ranges.push_back({range.begin, range.end, 0});
  for (const Range& range : claims_.needed) ranges.push_back({range.begin, range.end, TS_RANGE_PULL});
  const uint64_t bytes = transport::launch_message_size(ranges.size(), request.attributes.size(), parameters.size());
  constexpr uint64_t kAlignment = transport::kRingAlignment;
  const uint64_t size = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (size > TS_TRIAL_DATA || parameters.size() > TS_MAX_PARAMETERS ||
      request.attributes.size() > transport::kMaxLaunchAttributes) {
    return false;
  }
  ts_ring_header header{};
  header.size = static_cast<uint32_t>(size);
  const WorkerLink::Kernel kernel{
      0, 0, request.grid, request.block, request.dynamic_shared, parameters, request.attributes};
  shim::write_launch(memory_.as<uint8_t>(), header, ranges, kernel);
  return true;
}

CUresult TrialMemory::take_before() {
  for (size_t i = 0; i < granules_.size(); ++i) {
    const CUresult result = driver().cuMemcpyDtoH_v2(const_cast<uint8_t*>(before(i)), granules_[i], TS_GRANULE);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult TrialMemory::compare(uint8_t poison, std::optional<Difference>& found) const {
  std::vector<uint8_t> home(TS_GRANULE);
  for (size_t i = 0; i < granules_.size() && !found; ++i) {
    const CUresult result = driver().cuMemcpyDtoH_v2(home.data(), granules_[i], TS_GRANULE);
    if (result != CUDA_SUCCESS) return result;
    found = compare_granule(i, poison, home.data());
  }
  return CUDA_SUCCESS;
}

/// What is outside of the write set first: that is evidence by itself.
std::optional<Difference> TrialMemory::compare_granule(size_t i, uint8_t poison, const uint8_t* home) const {
  std::optional<Difference> outside, result;
  const uint64_t granule = granules_[i];
  roles_.for_each(granule, granule + TS_GRANULE, [&](uint64_t begin, uint64_t end, uint8_t role) {
    const uint64_t offset = begin - granule;
    const size_t size = end - begin;
    const uint8_t *was = before(i) + offset, *tried = after(i) + offset, *now = home + offset;
    if (role == kWritten) {
      const size_t at = result ? size : first_difference(tried, now, size);
      if (at < size) result = {Difference::Kind::kResult, begin + at};
      return;
    }
    if (outside) return;
    const size_t tried_at =
        role == kNeeded ? first_difference(tried, was, size) : first_other_than(poison, tried, size);
    if (tried_at < size) {
      outside = {Difference::Kind::kOutside, begin + tried_at};
      return;
    }
    const size_t home_at = first_difference(now, was, size);
    if (home_at < size) outside = {Difference::Kind::kHomeOutside, begin + home_at};
  });
  return outside ? outside : result;
}

/// Everything that the context owns, and what the program mapped itself, beside the granules of the trial.
bool TrialMemory::save_others(std::vector<Saved>& saved) const {
  CUcontext context = nullptr;
  if (driver().cuCtxGetCurrent(&context) != CUDA_SUCCESS) return false;
  uint64_t bytes = 0;
  std::vector<Range> owned;
  for (const CUdeviceptr address : world().memory.owned_by(context)) {
    if (const auto allocation = world().memory.find(address)) owned.push_back(*allocation);
  }
  world().memory.mapped().for_each_run([&](Range run) { owned.push_back(run); });
  for (const Range& allocation : owned) {
    for (uint64_t at = allocation.begin; at < allocation.end;) {
      const uint64_t stop = std::min(allocation.end, at / TS_GRANULE * TS_GRANULE + TS_GRANULE);
      if (!std::binary_search(granules_.begin(), granules_.end(), at / TS_GRANULE * TS_GRANULE)) {
        saved.push_back({{at, stop}, {}});
        bytes += stop - at;
      }
      at = stop;
    }
  }
  if (bytes > kMostBytes) return false;
  return std::all_of(saved.begin(), saved.end(), [](Saved& piece) {
    piece.bytes.resize(piece.range.size());
    return driver().cuMemcpyDtoH_v2(piece.bytes.data(), piece.range.begin, piece.range.size()) == CUDA_SUCCESS;
  });
}

CUresult TrialMemory::keep_after() {
  for (size_t i = 0; i < granules_.size(); ++i) {
    if (const CUresult result = driver().cuMemcpyDtoH_v2(after(i), granules_[i], TS_GRANULE)) return result;
  }
  return CUDA_SUCCESS;
}

CUresult TrialMemory::put_before() const {
  for (size_t i = 0; i < granules_.size(); ++i) {
    if (const CUresult result = driver().cuMemcpyHtoD_v2(granules_[i], before(i), TS_GRANULE)) return result;
  }
  return CUDA_SUCCESS;
}

CUresult TrialMemory::is_as_after(bool& same) const {
  std::vector<uint8_t> home(TS_GRANULE);
  same = true;
  for (size_t i = 0; i < granules_.size() && same; ++i) {
    if (const CUresult result = driver().cuMemcpyDtoH_v2(home.data(), granules_[i], TS_GRANULE)) return result;
    same = std::memcmp(home.data(), after(i), TS_GRANULE) == 0;
  }
  return CUDA_SUCCESS;
}

CUresult TrialMemory::put_after(const std::vector<Saved>& saved) const {
  for (size_t i = 0; i < granules_.size(); ++i) {
    if (const CUresult result = driver().cuMemcpyHtoD_v2(granules_[i], after(i), TS_GRANULE)) return result;
  }
  for (const Saved& piece : saved) {
    if (const CUresult result = driver().cuMemcpyHtoD_v2(piece.range.begin, piece.bytes.data(), piece.range.size())) {
      return result;
    }
  }
  return CUDA_SUCCESS;
}

std::string place_of(uint64_t address) {
  char text[96];
  if (const auto allocation = world().memory.find(address)) {
    std::snprintf(text, sizeof text, "byte %llu of the %llu at 0x%llx",
                  static_cast<unsigned long long>(address - allocation->begin),
                  static_cast<unsigned long long>(allocation->size()),
                  static_cast<unsigned long long>(allocation->begin));
  } else {
    std::snprintf(text, sizeof text, "0x%llx, beside every allocation", static_cast<unsigned long long>(address));
  }
  return text;
}

}  // namespace tessera::shim
