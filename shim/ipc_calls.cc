// SPDX-License-Identifier: Apache-2.0
// Legacy IPC handles. The driver makes none for mapped memory, and memory of the
// slot is mapped. So the handle is the shim's own: it names the process and the
// chunk, and whoever opens it under the shim asks that process for the chunk's
// file descriptor. Handles of memory that is the driver's stay the driver's.
#include <cuda.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>

#include "driver.h"
#include "imported_memory.h"
#include "log.h"
#include "order.h"
#include "tessera/transport/socket.h"

using namespace tessera::shim;
namespace transport = tessera::transport;

namespace {

constexpr uint32_t kMagic = 0x43495354;  // "TSIC"
constexpr transport::Milliseconds kPatience{5000};
constexpr uint16_t kAsk = 0x7e01, kGive = 0x7e02;

/// What the 64 bytes of a CUipcMemHandle hold.
struct Handle {
  uint32_t magic;
  uint32_t process;
  uint64_t nonce;  // of the process: names its socket, and tells its own handles
  uint64_t chunk, chunk_bytes, offset, bytes;
  uint8_t device[16];
};
static_assert(sizeof(Handle) == sizeof(CUipcMemHandle));

struct Question {
  ts_message header;
  uint64_t chunk;
};

struct Answer {
  ts_message header;
  uint64_t error;  // CUresult; on success one descriptor comes along
};

std::string socket_of(uint32_t process, uint64_t nonce) {
  char name[64];
  std::snprintf(name, sizeof name, "/ipc-%u-%016llx.sock", process, static_cast<unsigned long long>(nonce));
  return runtime().settings().runtime_folder() + name;
}

/// Gives chunks of this process to others of the same user.
class Exporter {
 public:
  /// Throws TransportError.
  Exporter() : nonce_(random()), listener_(transport::Listener::bind(socket_of(process_, nonce_))) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);  // signals of the program are not for this thread
    std::thread(&Exporter::serve, this).detach();
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  uint64_t nonce() const { return nonce_; }
  uint32_t process() const { return process_; }
  void remove() const {
    if (process_ == static_cast<uint32_t>(::getpid())) ::unlink(listener_.path().c_str());
  }

 private:
  static uint64_t random() {
    std::random_device device;
    return uint64_t{device()} << 32 | device();
  }

  void serve() {
    while (true) {
      try {
        if (const auto peer = listener_.accept(transport::Milliseconds(60000))) answer(*peer);
      } catch (const std::exception& error) {
        log_line(tessera::LogLevel::kDebug, "a process that asked for memory went away: %s", error.what());
      }
    }
  }

  static void answer(const transport::Socket& peer) {
    const auto packet = peer.receive(kPatience);
    if (!packet || packet->type() != kAsk) return;
    const auto question = packet->expect<Question>();
    auto reply = transport::make_message<Answer>(kGive, question.header.request);
    int fd = -1;
    {
      const std::lock_guard lock(world().mutex);
      reply.error = world().memory.export_chunk(question.chunk, &fd);
    }
    const transport::UniqueFd owned(fd);
    peer.send(reply, {&fd, reply.error == CUDA_SUCCESS ? size_t{1} : size_t{0}}, kPatience);
  }

  const uint32_t process_ = static_cast<uint32_t>(::getpid());
  const uint64_t nonce_;
  transport::Listener listener_;
};

Exporter* exporter = nullptr;  // made at the first handle, under the world's lock; lives as long as the process

/// Null after a line: no handle can be given.
Exporter* the_exporter() {
  if (exporter != nullptr && exporter->process() == static_cast<uint32_t>(::getpid())) return exporter;
  try {
    exporter = new Exporter;
    std::atexit([] { exporter->remove(); });
  } catch (const std::exception& error) {
    log_line(tessera::LogLevel::kWarn, "no IPC handle can be made: %s", error.what());
    return nullptr;
  }
  return exporter;
}

/// CUDA_ERROR_NOT_SUPPORTED: not memory that cuMemAlloc gave from the slot.
CUresult make_handle(CUdeviceptr address, CUipcMemHandle* out) {
  const std::lock_guard lock(world().mutex);
  DeviceMemory& memory = world().memory;
  const auto allocation = memory.find(address);
  const auto owner = memory.owner_of(address);
  const auto chunk = memory.chunk_of(address);
  if (!allocation || !owner || owner->ordered || !chunk) return CUDA_ERROR_NOT_SUPPORTED;
  const Exporter* served = the_exporter();
  if (served == nullptr) return CUDA_ERROR_OPERATING_SYSTEM;
  Handle handle{};
  handle.magic = kMagic;
  handle.process = served->process();
  handle.nonce = served->nonce();
  handle.chunk = chunk->begin;
  handle.chunk_bytes = chunk->size();
  handle.offset = allocation->begin - chunk->begin;
  handle.bytes = allocation->size();
  CUuuid uuid{};
  if (driver().cuDeviceGetUuid_v2(&uuid, memory.device_of(address)) == CUDA_SUCCESS)
    std::memcpy(handle.device, uuid.bytes, sizeof handle.device);
  std::memcpy(out, &handle, sizeof handle);
  memory.expose(address);  // others may change it from now on: it stays home
  return CUDA_SUCCESS;
}

struct Opened {
  Handle handle;
  CUcontext context;
  CUdeviceptr mapped;
  uint64_t mapped_bytes, bytes;
  CUmemGenericAllocationHandle memory;
  uint32_t users;
};

std::mutex opened_mutex;
std::map<CUdeviceptr, Opened>& opened() {
  static auto* all = new std::map<CUdeviceptr, Opened>;
  return *all;
}

/// The exporting process's descriptor. Throws TransportError.
CUresult ask_for_chunk(const Handle& handle, transport::UniqueFd& fd) {
  const auto socket = transport::Socket::connect(socket_of(handle.process, handle.nonce), kPatience);
  auto question = transport::make_message<Question>(kAsk, 1);
  question.chunk = handle.chunk;
  socket.send(question, {}, kPatience);
  auto packet = socket.receive(kPatience);
  if (!packet || packet->type() != kGive) return CUDA_ERROR_OPERATING_SYSTEM;
  const auto answer = packet->expect<Answer>(packet->fds.size());
  if (answer.error != CUDA_SUCCESS || packet->fds.size() != 1) return CUDA_ERROR_INVALID_VALUE;
  fd = std::move(packet->fds[0]);
  return CUDA_SUCCESS;
}

CUresult map(Opened& made, CUdevice device, int fd) {
  CUresult result = driver().cuMemImportFromShareableHandle(
      &made.memory, reinterpret_cast<void*>(static_cast<intptr_t>(fd)), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  if (result != CUDA_SUCCESS) return result;
  result = driver().cuMemAddressReserve(&made.mapped, made.mapped_bytes, 0, 0, 0);
  if (result == CUDA_SUCCESS) {
    result = driver().cuMemMap(made.mapped, made.mapped_bytes, 0, made.memory, 0);
    if (result == CUDA_SUCCESS) {
      CUmemAccessDesc access{};
      access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
      access.location.id = device;
      access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
      result = driver().cuMemSetAccess(made.mapped, made.mapped_bytes, &access, 1);
      if (result != CUDA_SUCCESS) driver().cuMemUnmap(made.mapped, made.mapped_bytes);
    }
    if (result != CUDA_SUCCESS) driver().cuMemAddressFree(made.mapped, made.mapped_bytes);
  }
  if (result != CUDA_SUCCESS) driver().cuMemRelease(made.memory);
  return result;
}

CUresult open_handle(CUdeviceptr* address, const Handle& handle, unsigned int flags) {
  CUdevice device = -1;
  CUcontext context = nullptr;
  if (const CUresult known = driver().cuCtxGetDevice(&device); known != CUDA_SUCCESS) return known;
  if (address == nullptr || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) return CUDA_ERROR_INVALID_VALUE;
  driver().cuCtxGetCurrent(&context);
  if (handle.process == static_cast<uint32_t>(::getpid()) && exporter != nullptr && exporter->nonce() == handle.nonce) {
    return CUDA_ERROR_INVALID_CONTEXT;  // as the driver: not in the process that made it
  }
  const std::lock_guard lock(opened_mutex);
  for (auto& [begin, known] : opened()) {
    if (known.context != context || std::memcmp(&known.handle, &handle, sizeof handle) != 0) continue;
    ++known.users;
    *address = begin;
    return CUDA_SUCCESS;
  }
  try {
    transport::UniqueFd fd;
    if (const CUresult given = ask_for_chunk(handle, fd); given != CUDA_SUCCESS) return given;
    Opened made{handle, context, 0, handle.chunk_bytes, handle.bytes, 0, 1};
    if (const CUresult mapped = map(made, device, fd.get()); mapped != CUDA_SUCCESS) return mapped;
    *address = made.mapped + handle.offset;
    opened().emplace(*address, made);
    return CUDA_SUCCESS;
  } catch (const std::exception& error) {
    log_line(tessera::LogLevel::kWarn,
             "memory of process %u cannot be opened: %s (both need the same TESSERA_RUNTIME_DIR)", handle.process,
             error.what());
    return CUDA_ERROR_INVALID_VALUE;
  }
}

/// CUDA_ERROR_NOT_SUPPORTED: not opened here.
CUresult close_handle(CUdeviceptr address) {
  const std::lock_guard lock(opened_mutex);
  const auto found = opened().find(address);
  if (found == opened().end()) return CUDA_ERROR_NOT_SUPPORTED;
  Opened& known = found->second;
  if (known.users > 1) {
    --known.users;
    return CUDA_SUCCESS;
  }
  // Work that uses it ends first, as in the driver.
  if (const CUresult ended = driver().cuCtxSynchronize(); ended != CUDA_SUCCESS) return ended;
  CUresult result = driver().cuMemUnmap(known.mapped, known.mapped_bytes);
  if (result == CUDA_SUCCESS) result = driver().cuMemAddressFree(known.mapped, known.mapped_bytes);
  const CUresult released = driver().cuMemRelease(known.memory);
  opened().erase(found);
  return result == CUDA_SUCCESS ? released : result;
}

bool is_ours(const CUipcMemHandle& handle, Handle& out) {
  std::memcpy(&out, &handle, sizeof out);
  return out.magic == kMagic;
}

}  // namespace

namespace tessera::shim {

std::optional<memory::Range> imported_range(CUdeviceptr address) {
  const std::lock_guard lock(opened_mutex);
  auto after = opened().upper_bound(address);
  if (after == opened().begin()) return std::nullopt;
  const auto& [begin, known] = *--after;
  if (address - begin >= known.bytes) return std::nullopt;
  return memory::Range{begin, begin + known.bytes};
}

}  // namespace tessera::shim

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  if (handle == nullptr || !runtime().active() || !world().memory.in_slot(address)) {
    return after_call(driver().cuIpcGetMemHandle(handle, address));
  }
  const CUresult made = make_handle(address, handle);
  if (made == CUDA_ERROR_NOT_SUPPORTED) return after_call(driver().cuIpcGetMemHandle(handle, kNowhere));
  if (made != CUDA_SUCCESS) return after_call(made);
  return enqueue(nullptr, false, anything, [] { return CUDA_SUCCESS; });  // and what is elsewhere comes home
}

#define TESSERA_OPEN_HANDLE(symbol)                                                                               \
  TESSERA_DRIVER_ENTRY CUresult CUDAAPI symbol(CUdeviceptr* address, CUipcMemHandle handle, unsigned int flags) { \
    Handle ours;                                                                                                  \
    if (!is_ours(handle, ours)) return after_call(driver().symbol(address, handle, flags));                       \
    return after_call(open_handle(address, ours, flags));                                                         \
  }
TESSERA_OPEN_HANDLE(cuIpcOpenMemHandle)
TESSERA_OPEN_HANDLE(cuIpcOpenMemHandle_v2)

TESSERA_DRIVER_ENTRY CUresult CUDAAPI cuIpcCloseMemHandle(CUdeviceptr address) {
  const CUresult closed = close_handle(address);
  return after_call(closed == CUDA_ERROR_NOT_SUPPORTED ? driver().cuIpcCloseMemHandle(address) : closed);
}
