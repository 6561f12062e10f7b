// SPDX-License-Identifier: Apache-2.0
#include "blas/calls.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "blas/inside.h"
#include "blas/operands.h"
#include "context.h"
#include "handle_table.h"
#include "log.h"
#include "redirect.h"
#include "runtime.h"
#include "session.h"
#include "tessera/protocol/blas_environment.h"
#include "trial.h"

namespace tessera::shim {
namespace {

using blas::Status;

enum class Policy : uint8_t { kUnread, kOff, kLikeDevices, kAnyDevice };

Policy policy() {
  static constinit std::atomic<Policy> known{Policy::kUnread};
  Policy value = known.load(std::memory_order_relaxed);
  if (value != Policy::kUnread) [[likely]]
    return value;
  const std::string& text = runtime().settings().library_calls;
  value = text == "same" ? Policy::kLikeDevices : text == "any" ? Policy::kAnyDevice : Policy::kOff;
  if (value == Policy::kOff && text != "off") {
    log_line(LogLevel::kWarn, "TESSERA_LIBRARY_CALLS=%s is none of off, same, any: off", text.c_str());
  }
  known.store(value, std::memory_order_relaxed);
  return value;
}

thread_local InsideCall* inside_call = nullptr;

/// What placement may tell calls of one class apart by.
class CallQuantities final : public Quantities {
 public:
  explicit CallQuantities(const ts_blas_call& call) : call_(call) {}

  std::optional<uint64_t> value(uint32_t quantity) const override {
    const bool is_lt = call_.function == TS_BLAS_cublasLtMatmul;
    switch (quantity) {
      case TS_CALL_M:
        return is_lt ? call_.d.rows : static_cast<uint64_t>(call_.m);
      case TS_CALL_N:
        return is_lt ? call_.d.columns : static_cast<uint64_t>(call_.n);
      case TS_CALL_K:
        if (!is_lt) return static_cast<uint64_t>(call_.k);
        return call_.transpose_a == blas::kPlain ? call_.a.columns : call_.a.rows;
      case TS_CALL_BATCHES:
        return static_cast<uint64_t>(is_lt ? call_.d.batches : call_.batches);
      default:
        return std::nullopt;
    }
  }

 private:
  const ts_blas_call& call_;
};

const char* type_name(uint32_t type) {
  switch (type) {
    case TS_BLAS_F32:
      return "f32";
    case TS_BLAS_F64:
      return "f64";
    case TS_BLAS_F16:
      return "f16";
    case TS_BLAS_BF16:
      return "bf16";
    case TS_BLAS_C32:
      return "c32";
    case TS_BLAS_C64:
      return "c64";
    case TS_BLAS_E4M3:
      return "e4m3";
    case TS_BLAS_E5M2:
      return "e5m2";
    default:
      return nullptr;
  }
}

std::string type_text(uint32_t type) {
  const char* name = type_name(type);
  return name != nullptr ? name : "type" + std::to_string(type);
}

/// Of the function as programs write it.
std::string base_name(uint32_t function) {
  static constexpr const char* kNames[] = {
#define TESSERA_BLAS(shape, name, type) #name,
#include "tessera/protocol/blas_functions.def"
#undef TESSERA_BLAS
      "cublasLtMatmul"};
  std::string name = kNames[function];
  if (name.ends_with("_v2")) name.resize(name.size() - 3);
  return name;
}

// A key from its lowest bit: function, transpositions, types, epilogue.
constexpr unsigned kFunctionBits = 6, kTransposeBits = 2, kTypeBits = 6;
constexpr uint64_t kPresent = uint64_t{1} << 63;

std::string name_of(uint64_t key) {
  const auto take = [&](unsigned bits) {
    const auto value = static_cast<uint32_t>(key & ((uint64_t{1} << bits) - 1));
    key >>= bits;
    return value;
  };
  key &= ~kPresent;
  const uint32_t function = take(kFunctionBits);
  constexpr char kOperations[] = "NTC?";
  const uint32_t ta = take(kTransposeBits), tb = take(kTransposeBits);
  const uint32_t a = take(kTypeBits), b = take(kTypeBits), c = take(kTypeBits), epilogue = take(16);
  std::string name = base_name(function);
  name.append(":").append(type_text(a));
  if (a != b || a != c) name.append(",").append(type_text(b)).append(",").append(type_text(c));
  name.append(":").append(1, kOperations[ta]).append(1, kOperations[tb]);
  if (epilogue > 1) name.append(":epilogue").append(std::to_string(epilogue));
  return name;
}

struct Classes {
  std::mutex mutex;
  HandleTable<CallClass> table;
};

Classes& classes() {
  static Classes* instance = new Classes;
  return *instance;
}

const void* as_handle(uint64_t key) {
  return reinterpret_cast<const void*>(key);  // NOLINT(performance-no-int-to-ptr)
}

/// Only what a library could take or refuse: no addresses but their alignment, and no scalars.
uint64_t validity_key(const ts_blas_call& call) {
  if (call.function != TS_BLAS_cublasLtMatmul) return 1;  // is_understood has checked all there is
  ts_blas_call shape = call;
  std::memset(shape.alpha, 0, sizeof shape.alpha);
  for (ts_blas_matrix* matrix : {&shape.a, &shape.b, &shape.c, &shape.d}) matrix->address &= 0xff;
  for (int32_t i = 0; i < shape.n_attributes; ++i) {
    const auto id = static_cast<int>(shape.attributes[i].id);
    if (id == blas::kBiasPointer || id == blas::kAuxPointer || (id >= blas::kScaleA && id <= blas::kScaleD)) {
      shape.attributes[i].value &= 0xff;
    }
  }
  static_assert(sizeof shape % sizeof(uint64_t) == 0);
  uint64_t sum = 0;
  for (size_t i = 0; i < sizeof shape; i += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, reinterpret_cast<const char*>(&shape) + i, sizeof word);
    sum = (sum ^ word) * 0x9e3779b97f4a7c15u;
    sum ^= sum >> 29;
  }
  return sum;
}

/// Whether a worker's device is of the kind that the current context's is.
bool is_like_home(const ts_device& device) {
  CUdevice home = 0;
  char name[sizeof device.name] = {};
  if (driver().cuCtxGetDevice(&home) != CUDA_SUCCESS) return false;
  if (driver().cuDeviceGetName(name, sizeof name, home) != CUDA_SUCCESS) return false;
  return compute_capability(home) == device.compute_capability &&
         std::strncmp(name, device.name, sizeof device.name) == 0;
}

/// The numbers that libraries have on workers, with the world's lock held. A worker attached anew has another link.
int64_t& number_on(const WorkerLink& worker, const HostLibrary& library) {
  static auto* numbers = new std::map<std::pair<const WorkerLink*, const HostLibrary*>, int64_t>;
  return numbers->try_emplace({&worker, &library}, KernelState::kNotLoaded).first->second;
}

class CallErrand final : public Errand {
 public:
  CallErrand(const PendingCall& pending, const ts_blas_call& call) : pending_(pending), call_(call) {}

  bool load(WorkerLink& worker) override {
    int64_t& number = number_on(worker, pending_.library);
    if (number == KernelState::kNotLoaded) {
      std::string reason;
      number = worker.load_library(pending_.library.kind, pending_.library.path, blas::library_settings(), &reason);
      if (number < 0) {
        number = KernelState::kRefused;
        log_line(LogLevel::kWarn, "calls of %s stay home: %s cannot make them (%s)", pending_.library.path.c_str(),
                 worker.name().c_str(), reason.c_str());
      }
    }
    return number >= 0;
  }

  bool send(WorkerLink& worker, int lane, uint32_t start, std::span<const ts_ring_range> ranges) override {
    constexpr uint32_t kNone[3] = {1, 1, 1};
    const std::span bytes(reinterpret_cast<const uint8_t*>(&call_), sizeof call_);
    const auto number = static_cast<uint32_t>(number_on(worker, pending_.library));
    return worker.launch(lane, start, ranges, {number, pending_.tally.slot(), kNone, kNone, 0, bytes, {}});
  }

  void count_bytes_in(uint32_t device, uint64_t bytes) override { pending_.tally.count_bytes_in(device, bytes); }

 private:
  const PendingCall& pending_;
  const ts_blas_call& call_;
};

bool in_one_context(const PendingCall& pending) {
  CUcontext current = nullptr;
  return driver().cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == pending.handle.context &&
         world().streams.get(pending.stream).context == current;
}

/// TS_STAY_PLACED: nothing but what the worker lacks keeps it home.
uint32_t obstacle_to(const PendingCall& pending, const Claims& claims) {
  if (runtime().unknown_function_seen()) return TS_STAY_UNKNOWN;
  if (!claims.known || trials_wanted()) return TS_STAY_PROPERTY;
  if (!claims.all_in_slot || world().is_in_flight(claims.all)) return TS_STAY_MEMORY;
  if (!in_one_context(pending) || !pending.kind.is_proven(validity_key(pending.call))) return TS_STAY_ATTRIBUTES;
  if (world().captures.load(std::memory_order_acquire) != 0) return TS_STAY_CAPTURE;
  if (world().host_waits.watched_beside(world().streams.get(pending.stream), claims.all)) return TS_STAY_MEMORY;
  return TS_STAY_PLACED;
}

Redirection try_to_move(const PendingCall& pending, uint32_t device, const Claims& claims) {
  if (const uint32_t obstacle = obstacle_to(pending, claims); obstacle != TS_STAY_PLACED) return {false, {}, obstacle};
  WorkerLink* worker = attached_worker(device);
  if (worker == nullptr) return {false, CUDA_SUCCESS, TS_STAY_WORKER};
  ts_blas_call call = pending.call;
  if (!is_like_home(worker->device())) {
    if (policy() != Policy::kAnyDevice) return {false, CUDA_SUCCESS, TS_STAY_WORKER};
    call.has_algorithm = 0;  // it was chosen for another device: the library chooses again
  }
  CallErrand errand(pending, call);
  return move(pending.stream, *worker, claims, errand);
}

}  // namespace

CallClass::CallClass(std::string name) : name_(std::move(name)) {
  const KernelAnswer answer = ask_call(name_);
  if (answer.status != TS_KERNEL_READY) return;
  kernel_id_ = answer.kernel_id;
  if (kernel_id_ >= TS_MAX_KERNELS) return;
  classes_ = std::make_unique<PlacedClasses>(kernel_id_);
  uint32_t slot = 0;
  if (ts_kernel_counters* row = counters_of(kernel_id_, &slot)) tally_.set_row(row, slot);
}

uint32_t CallClass::entry() const { return classes_ != nullptr ? entry_of(kernel_id_) : 0; }

CallClass::Place CallClass::place(const ts_blas_call& call, uint32_t entry) {
  if ((entry & TS_PLACED_BY_CLASS) == 0) return {entry, &tally_};
  const PlacedClasses::Place found = classes_->place_call(CallQuantities(call), entry);
  return {found.device, found.tally != nullptr ? found.tally : &tally_};
}

void CallClass::prove(uint64_t key) {
  constexpr size_t kMost = 65536;
  if (proven_.size() < kMost) proven_.insert(key);
}

uint64_t class_key(uint32_t function, int transpose_a, int transpose_b, int type_a, int type_b, int type_c,
                   uint32_t epilogue) {
  uint64_t key = kPresent;
  unsigned at = 0;
  const auto put = [&](uint32_t value, unsigned bits) {
    if (value >> bits != 0) key = 0;
    if (key != 0) key |= uint64_t{value} << at;
    at += bits;
  };
  put(function, kFunctionBits);
  put(static_cast<uint32_t>(transpose_a), kTransposeBits);
  put(static_cast<uint32_t>(transpose_b), kTransposeBits);
  for (const int type : {type_a, type_b, type_c}) put(static_cast<uint32_t>(type), kTypeBits);
  put(epilogue, 16);
  return key;
}

CallClass* call_class(uint64_t key) {
  if (key == 0) return nullptr;
  Classes& all = classes();
  if (CallClass* known = all.table.find(as_handle(key))) [[likely]]
    return known;
  const std::lock_guard lock(all.mutex);
  if (CallClass* known = all.table.find(as_handle(key))) return known;
  auto* made = new CallClass(name_of(key));  // lives as long as the process
  all.table.set(as_handle(key), made);
  return made;
}

bool follows_calls() { return policy() != Policy::kOff && runtime().active(); }

InsideCall::InsideCall() { inside_call = this; }
InsideCall::~InsideCall() { inside_call = nullptr; }
bool InsideCall::any() { return inside_call != nullptr; }

void InsideCall::touches(CUstream stream, Footprint footprint) {
  stream_ = stream;
  footprint_ = std::move(footprint);
  known_ = true;
}

const Footprint* footprint_of_call(CUstream stream) {
  const InsideCall* call = inside_call;
  return call != nullptr && call->known_ && call->stream_ == stream ? &call->footprint_ : nullptr;
}

CallOutcome place_call(const PendingCall& pending, uint32_t device, uint32_t reason, InsideCall& inside) {
  const std::lock_guard lock(world().mutex);
  if (is_capturing(pending.stream)) {
    count_call(pending.tally, 0, TS_STAY_CAPTURE);
    return {};
  }
  const Claims claims = pending.understood ? claims_of_call(pending.call) : Claims{};
  if (device != 0) {
    const Redirection redirection = try_to_move(pending, device, claims);
    if (redirection.moved) {
      if (redirection.result == CUDA_SUCCESS) count_call(pending.tally, device, 0);
      const bool failed = redirection.result != CUDA_SUCCESS || world().failure() != CUDA_SUCCESS;
      return {true, failed ? blas::kExecutionFailed : blas::kSuccess, false};
    }
    reason = redirection.reason;
  }
  count_call(pending.tally, 0, reason);
  if (!claims.known) return {};
  Footprint footprint = claims.footprint();
  if (pending.workspace.size() != 0) footprint.writes.push_back(pending.workspace);
  inside.touches(pending.stream, std::move(footprint));
  return {false, blas::kSuccess, device != 0};
}

void prove_call(const PendingCall& pending) {
  const std::lock_guard lock(world().mutex);
  pending.kind.prove(validity_key(pending.call));
}

bool read_handle(const HostLibrary& library, const HostHandle& handle, void* raw, ts_blas_call& call) {
  constexpr int kUsualMathModes = 3, kNoReducedPrecision = 16;
  constexpr uint64_t kAlignment = 256, kLargest = uint64_t{1} << 30;
  int pointers = 0, emulation = 0;
  if (library.pointer_mode(raw, &pointers) != 0 || pointers != blas::kHostPointers) return false;
  if (library.math_mode(raw, &call.math_mode) != 0 || library.atomics_mode(raw, &call.atomics_mode) != 0) return false;
  if (library.sm_count(raw, &call.sm_count) != 0) return false;
  if ((call.math_mode & ~(kUsualMathModes | kNoReducedPrecision)) != 0) return false;
  if (library.emulation_strategy != nullptr && (library.emulation_strategy(raw, &emulation) != 0 || emulation != 0)) {
    return false;
  }
  call.workspace_bytes = handle.workspace_bytes.load(std::memory_order_acquire);
  if (call.workspace_bytes == TS_BLAS_OWN_WORKSPACE) return std::getenv("CUBLAS_WORKSPACE_CONFIG") == nullptr;
  return call.workspace_bytes <= kLargest && handle.workspace.load(std::memory_order_acquire) % kAlignment == 0;
}

}  // namespace tessera::shim
