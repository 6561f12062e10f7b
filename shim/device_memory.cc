// SPDX-License-Identifier: Apache-2.0
#include "device_memory.h"

#include <algorithm>
#include <utility>

#include "driver.h"
#include "log.h"
#include "own_events.h"
#include "tessera/protocol/channel.h"
#include "world.h"

namespace tessera::shim {
namespace {

constexpr uint64_t kGranule = TS_GRANULE;
constexpr uint64_t kPoolUnit = 32u << 20;  // what a pool of the driver takes from the device at a time
constexpr uint64_t kShared = 4u << 20;     // a block this large has a chunk of its own: sharing would waste the rest

uint64_t round_up(uint64_t bytes, uint64_t unit = kGranule) { return (bytes + unit - 1) / unit * unit; }

bool attribute(CUdevice device, CUdevice_attribute which) {
  int value = 0;
  return driver().cuDeviceGetAttribute(&value, which, device) == CUDA_SUCCESS && value != 0;
}

CUmemAllocationProp properties_of(CUdevice device, bool rdma) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  properties.allocFlags.gpuDirectRDMACapable = rdma ? 1 : 0;
  return properties;
}

}  // namespace

void DeviceMemory::start(uint64_t base, uint64_t size, uint64_t chunk_bytes, ReleaseHook on_release) {
  base_ = base;
  size_ = size;
  chunk_bytes_ = std::max(round_up(chunk_bytes), kGranule);
  on_release_ = std::move(on_release);
  mapped_.start(base, size);
}

DeviceMemory::Part* DeviceMemory::current_part() {
  CUdevice device = -1;
  if (size_ == 0 || driver().cuCtxGetDevice(&device) != CUDA_SUCCESS) return nullptr;
  if (device < 0 || static_cast<uint32_t>(device) >= kParts) return nullptr;
  Part& part = parts_[static_cast<uint32_t>(device)];
  if (part.device < 0) {
    part.device = device;
    part.unsupported = reserve(part) != CUDA_SUCCESS;
  }
  return part.unsupported ? nullptr : &part;
}

CUresult DeviceMemory::reserve(Part& part) {
  const bool able = attribute(part.device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) &&
                    attribute(part.device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
  if (!able) {
    log_line(LogLevel::kWarn, "device %d cannot export memory: its allocations stay with the driver", part.device);
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  part.rdma = attribute(part.device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
  // Twice the memory: freed chunks leave holes of other sizes than are asked for next.
  size_t memory = 0;
  if (driver().cuDeviceTotalMem_v2(&memory, part.device) != CUDA_SUCCESS) return CUDA_ERROR_NOT_SUPPORTED;
  const uint64_t bytes = std::min(round_up(2 * uint64_t{memory}), mapped_.lowest() - base_ - parts_bytes_);
  if (bytes < memory) {
    log_line(LogLevel::kWarn, "no addresses are left for device %d: its memory stays with the driver", part.device);
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  const uint64_t wanted = base_ + parts_bytes_;
  CUdeviceptr granted = 0;
  const CUresult result = driver().cuMemAddressReserve(&granted, bytes, kGranule, wanted, 0);
  if (result == CUDA_SUCCESS && granted == wanted) {
    part.begin = part.next = wanted;
    part.end = wanted + bytes;
    parts_bytes_ += bytes;
    return CUDA_SUCCESS;
  }
  if (result == CUDA_SUCCESS) driver().cuMemAddressFree(granted, bytes);
  log_line(LogLevel::kWarn, "the addresses at 0x%llx are taken: device %d's memory stays with the driver",
           static_cast<unsigned long long>(wanted), part.device);
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult DeviceMemory::allocate(uint64_t bytes, CUdeviceptr* address) {
  uint64_t found = 0;
  const CUresult result = place(bytes, &found);
  return result == CUDA_SUCCESS ? finish(found, false, address) : result;
}

CUresult DeviceMemory::allocate_ordered(uint64_t bytes, uint64_t stream, CUdeviceptr* address) {
  Part* part = current_part();
  if (part == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  if (const auto reused = reuse_ordered(*part, bytes, stream)) return finish(*reused, true, address);
  uint64_t found = 0;
  const CUresult result = place(bytes, &found);
  return result == CUDA_SUCCESS ? finish(found, true, address) : result;
}

CUresult DeviceMemory::place(uint64_t bytes, uint64_t* address) {
  Part* part = current_part();
  if (part == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  const auto take = [&] {
    const auto found = part->arena.allocate(bytes);
    if (found) *address = *found;
    return found.has_value();
  };
  harvest(*part);
  if (take()) return CUDA_SUCCESS;
  CUresult result = grow(*part, bytes);
  if (result == CUDA_ERROR_OUT_OF_MEMORY && !part->pending.empty()) {
    // What was freed in stream order is free memory to the program: wait for it.
    for (const Pending& pending : part->pending) driver().cuEventSynchronize(pending.freed);
    harvest(*part);
    if (take()) return CUDA_SUCCESS;
    result = grow(*part, bytes);
  }
  if (result != CUDA_SUCCESS) return result;
  return take() ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult DeviceMemory::finish(uint64_t address, bool ordered, CUdeviceptr* out) {
  Owner owner{nullptr, next_id_++, ordered};
  driver().cuCtxGetCurrent(&owner.context);
  owners_[address] = owner;
  const auto allocation = find(address);
  if (ordered && allocation) part_of(address)->pool.take(allocation->size());
  *out = address;
  return CUDA_SUCCESS;
}

void DeviceMemory::PoolUse::take(uint64_t bytes) {
  used += bytes;
  used_high = std::max(used_high, used);
  reserved = std::max(reserved, round_up(used, kPoolUnit));
  reserved_high = std::max(reserved_high, reserved);
}

void DeviceMemory::PoolUse::settle(uint64_t threshold) {
  reserved = std::max(round_up(used, kPoolUnit), std::min(reserved, threshold));
}

DeviceMemory::PoolUse* DeviceMemory::pool_use(CUdevice device, uint64_t threshold) {
  const auto part = parts_.find(static_cast<uint32_t>(device));
  if (part == parts_.end() || part->second.unsupported) return nullptr;
  harvest(part->second);
  part->second.pool.settle(threshold);
  return &part->second.pool;
}

void DeviceMemory::trim(CUdevice device) {
  const auto part = parts_.find(static_cast<uint32_t>(device));
  if (part == parts_.end() || part->second.unsupported) return;
  harvest(part->second);
  release_free_chunks(part->second, true);
}

uint64_t DeviceMemory::unused_bytes(CUdevice device) {
  const auto part = parts_.find(static_cast<uint32_t>(device));
  if (part == parts_.end() || part->second.unsupported) return 0;
  harvest(part->second);
  const memory::Arena& arena = part->second.arena;
  return arena.mapped_bytes() - arena.occupied_bytes();
}

bool DeviceMemory::overruns(uint64_t address, uint64_t bytes) const {
  if (bytes == 0 || !in_slot(address)) return false;
  const auto allocation = find(address);
  return !allocation || bytes > allocation->end - address;
}

CUresult DeviceMemory::grow(Part& part, uint64_t bytes) {
  const uint64_t exact = round_up(bytes);
  // A large block gets a chunk of its own, which goes back to the driver when it is freed. The chunks that small
  // blocks share grow with their number: what a chunk holds and nobody uses is missing where the device is almost full.
  const uint64_t shared = std::clamp(round_up(part.arena.occupied_bytes()), kGranule, chunk_bytes_);
  const uint64_t sizes[] = {exact >= kShared ? exact : std::max(exact, shared), exact};
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  for (const uint64_t size : sizes) {
    const uint64_t begin = take_addresses(part, size);
    if (begin == 0) return CUDA_ERROR_NOT_SUPPORTED;  // of addresses: the driver may have some
    result = map_chunk(part, {begin, begin + size});
    if (result == CUDA_SUCCESS) return result;
    part.holes.push_back({begin, begin + size});
    if (result != CUDA_ERROR_OUT_OF_MEMORY) return result;
    release_free_chunks(part, true);
  }
  return result;
}

uint64_t DeviceMemory::take_addresses(Part& part, uint64_t bytes) {
  for (Range& hole : part.holes) {
    if (hole.size() < bytes) continue;
    const uint64_t begin = hole.begin;
    hole.begin += bytes;
    return begin;
  }
  if (part.end - part.next < bytes) return 0;
  part.next += bytes;
  return part.next - bytes;
}

CUresult DeviceMemory::map_chunk(Part& part, Range chunk) {
  const CUmemAllocationProp properties = properties_of(part.device, part.rdma);
  CUmemGenericAllocationHandle handle = 0;
  CUresult result = driver().cuMemCreate(&handle, chunk.size(), &properties, 0);
  if (result != CUDA_SUCCESS) return result;
  result = driver().cuMemMap(chunk.begin, chunk.size(), 0, handle, 0);
  if (result == CUDA_SUCCESS) {
    result = set_access(part, chunk);
    if (result != CUDA_SUCCESS) driver().cuMemUnmap(chunk.begin, chunk.size());
  }
  if (result != CUDA_SUCCESS) {
    driver().cuMemRelease(handle);
    return result;
  }
  handles_[chunk.begin] = handle;
  part.arena.add_chunk(chunk);
  return CUDA_SUCCESS;
}

CUresult DeviceMemory::set_access(const Part& part, Range chunk) {
  std::vector<CUmemAccessDesc> access;
  const auto allow = [&](CUdevice device) {
    CUmemAccessDesc description{};
    description.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    description.location.id = device;
    description.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    access.push_back(description);
  };
  allow(part.device);
  for (const CUdevice peer : part.peers) allow(peer);
  return driver().cuMemSetAccess(chunk.begin, chunk.size(), access.data(), access.size());
}

CUresult DeviceMemory::grant(CUdevice owner, CUdevice accessor) {
  if (size_ == 0 || owner == accessor || owner < 0 || static_cast<uint32_t>(owner) >= kParts) return CUDA_SUCCESS;
  Part& part = parts_[static_cast<uint32_t>(owner)];
  if (!part.peers.insert(accessor).second) return CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  part.arena.for_each_chunk([&](Range chunk) {
    const CUresult one = set_access(part, chunk);
    if (result == CUDA_SUCCESS) result = one;
  });
  return result;
}

void DeviceMemory::release_free_chunks(Part& part, bool all) {
  std::vector<Range> chunks = part.arena.free_chunks();
  bool kept = all;
  for (const Range& chunk : chunks) {
    if (!kept && chunk.size() <= chunk_bytes_) {  // one spare, so that a loop of one allocation maps once
      kept = true;
      continue;
    }
    on_release_(chunk);
    part.arena.remove_chunk(chunk.begin);
    const CUresult unmapped = driver().cuMemUnmap(chunk.begin, chunk.size());
    const CUresult released = driver().cuMemRelease(handles_[chunk.begin]);
    handles_.erase(chunk.begin);
    exposures_ += std::erase(exposed_, chunk);
    if (unmapped == CUDA_SUCCESS) part.holes.push_back(chunk);  // else the addresses are left alone for good
    if (unmapped != CUDA_SUCCESS || released != CUDA_SUCCESS) {
      log_line(LogLevel::kWarn, "the driver kept a chunk of %llu MiB that was to be freed (errors %d, %d)",
               static_cast<unsigned long long>(chunk.size() >> 20), unmapped, released);
    }
  }
  std::erase_if(part.holes, [](const Range& hole) { return hole.size() == 0; });
  memory::normalize(part.holes);
}

std::optional<Range> DeviceMemory::free(CUdeviceptr address) {
  Part* part = part_of(address);
  if (part == nullptr) return std::nullopt;
  const auto freed = part->arena.free(address);
  if (!freed) return std::nullopt;
  const auto owner = owners_.find(address);
  if (owner != owners_.end() && owner->second.ordered) part->pool.used -= freed->size();
  if (owner != owners_.end()) owners_.erase(owner);
  release_free_chunks(*part, false);
  return freed;
}

std::optional<Range> DeviceMemory::defer_free(CUdeviceptr address) {
  const auto range = find(address);
  const auto owner = owners_.find(address);
  if (!range || owner == owners_.end()) return std::nullopt;
  if (owner->second.ordered) part_of(address)->pool.used -= range->size();
  owners_.erase(owner);
  deferred_.push_back(address);
  return range;
}

void DeviceMemory::free_deferred() {
  for (const CUdeviceptr address : std::exchange(deferred_, {})) free(address);
}

std::optional<Range> DeviceMemory::free_ordered(CUdeviceptr address, uint64_t stream, CUevent freed) {
  Part* part = part_of(address);
  const auto range = part == nullptr ? std::nullopt : part->arena.find(address);
  const auto owner = owners_.find(address);
  if (!range || owner == owners_.end()) return std::nullopt;
  part->pending.push_back({*range, stream, freed, owner->second.ordered});
  owners_.erase(owner);
  return range;
}

std::optional<uint64_t> DeviceMemory::reuse_ordered(Part& part, uint64_t bytes, uint64_t stream) {
  // Newest first: its lines are the likeliest to be in the device's cache.
  for (auto it = part.pending.rbegin(); it != part.pending.rend(); ++it) {
    const uint64_t held = it->range.size();
    if (it->stream != stream || held < bytes || held - bytes > held / 4) continue;
    const uint64_t address = it->range.begin;
    part.arena.resize(address, bytes);
    own_events().discard(it->freed);
    if (it->ordered) part.pool.used -= held;
    part.pending.erase(std::next(it).base());
    return address;
  }
  return std::nullopt;
}

void DeviceMemory::harvest(Part& part) {
  // Asking for an event would spoil a capture.
  if (part.pending.empty() || world().captures.load(std::memory_order_acquire) != 0) return;
  std::erase_if(part.pending, [&](const Pending& pending) {
    if (driver().cuEventQuery(pending.freed) != CUDA_SUCCESS) return false;
    own_events().discard(pending.freed);
    if (pending.ordered) part.pool.used -= pending.range.size();
    part.arena.free(pending.range.begin);
    return true;
  });
}

void DeviceMemory::settle() {
  for (auto& [device, part] : parts_) harvest(part);
}

DeviceMemory::Part* DeviceMemory::part_of(uint64_t address) {
  return const_cast<Part*>(static_cast<const DeviceMemory*>(this)->part_of(address));
}

const DeviceMemory::Part* DeviceMemory::part_of(uint64_t address) const {
  if (!in_slot(address)) return nullptr;
  for (const auto& [device, part] : parts_) {
    if (address >= part.begin && address < part.end) return &part;
  }
  return nullptr;
}

std::optional<Range> DeviceMemory::find(uint64_t address) const {
  const Part* part = part_of(address);
  return part == nullptr ? mapped_.find(address) : part->arena.find(address);
}

std::optional<Range> DeviceMemory::find_ending_at(uint64_t address) const {
  const Part* part = part_of(address - 1);
  return part == nullptr ? mapped_.find_ending_at(address) : part->arena.find_ending_at(address);
}

std::optional<Range> DeviceMemory::find_next(uint64_t address) const {
  const Part* part = part_of(address);
  const auto next = part == nullptr ? std::nullopt : part->arena.find_next(address);
  return next ? next : mapped_.find_next(address);
}

void DeviceMemory::intersect(Range range, std::vector<Range>& out) const {
  for (const auto& [device, part] : parts_) {
    if (range.overlaps({part.begin, part.end})) part.arena.intersect(range, out);
  }
  mapped_.intersect(range, out);
}

std::optional<Range> DeviceMemory::chunk_of(uint64_t address) const {
  const Part* part = part_of(address);
  return part == nullptr ? mapped_.piece_of(address) : part->arena.chunk_of(address);
}

std::optional<DeviceMemory::Owner> DeviceMemory::owner_of(uint64_t address) const {
  const auto allocation = find(address);
  if (!allocation) return std::nullopt;
  const auto owner = owners_.find(allocation->begin);
  return owner == owners_.end() ? std::nullopt : std::optional(owner->second);
}

CUdevice DeviceMemory::device_of(uint64_t address) const {
  if (const Part* part = part_of(address)) return part->device;
  const MappedMemory::Handle* handle = mapped_.piece_of(address) ? mapped_.handle_at(address) : nullptr;
  return handle == nullptr ? -1 : handle->device;
}

std::vector<CUdeviceptr> DeviceMemory::owned_by(CUcontext context) const {
  std::vector<CUdeviceptr> result;
  for (const auto& [address, owner] : owners_) {
    if (context == nullptr || owner.context == context) result.push_back(address);
  }
  return result;
}

void DeviceMemory::expose(uint64_t address) {
  auto chunk = chunk_of(address);
  if (chunk && !in_slot(address)) chunk = {address / kGranule * kGranule, address / kGranule * kGranule + kGranule};
  if (!chunk || is_exposed(*chunk)) return;
  exposed_.push_back(*chunk);
  ++exposures_;
}

void DeviceMemory::expose(Range range) {
  if (in_slot(range.begin))
    expose(range.begin);
  else
    mapped_.keep_home(range);
}

bool DeviceMemory::is_exposed(Range range) const {
  return memory::overlap(exposed_, {&range, 1}) || mapped_.stays_home(range);
}

void DeviceMemory::unmapped(Range range) {
  for (const Range& piece : mapped_.unmap(range)) {
    on_release_(piece);
    exposures_ += std::erase_if(exposed_, [&](const Range& exposed) { return exposed.overlaps(piece); });
  }
}

uint64_t DeviceMemory::generation() const {
  uint64_t sum = exposures_ + mapped_.changes();
  for (const auto& [device, part] : parts_) sum += part.arena.changes();
  return sum;
}

/// Of what the program mapped: it may have given its handle back already.
CUresult DeviceMemory::export_mapped(uint64_t begin, int* fd) const {
  const auto piece = mapped_.piece_of(begin);
  if (!piece || piece->begin != begin || mapped_.stays_home(*piece)) return CUDA_ERROR_INVALID_VALUE;
  CUmemGenericAllocationHandle handle = 0;
  void* address = reinterpret_cast<void*>(begin);  // NOLINT(performance-no-int-to-ptr)
  const CUresult result = driver().cuMemRetainAllocationHandle(&handle, address);
  if (result != CUDA_SUCCESS) return result;
  const CUresult exported =
      driver().cuMemExportToShareableHandle(fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  const CUresult released = driver().cuMemRelease(handle);
  return exported == CUDA_SUCCESS ? released : exported;
}

CUresult DeviceMemory::export_chunk(uint64_t begin, int* fd) const {
  const auto handle = handles_.find(begin);
  if (handle == handles_.end()) return export_mapped(begin, fd);
  return driver().cuMemExportToShareableHandle(fd, handle->second, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
}

uint64_t DeviceMemory::mapped_bytes() const {
  uint64_t sum = mapped_.mapped_bytes();
  for (const auto& [device, part] : parts_) sum += part.arena.mapped_bytes();
  return sum;
}

uint64_t DeviceMemory::used_bytes() const {
  uint64_t sum = mapped_.mapped_bytes();
  for (const auto& [device, part] : parts_) sum += part.arena.used_bytes();
  return sum;
}

}  // namespace tessera::shim
