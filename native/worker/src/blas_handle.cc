// SPDX-License-Identifier: Apache-2.0
#include "blas_handle.h"

#include <array>

#include "log.h"
#include "tessera/protocol/blas_environment.h"

namespace tessera::worker {
namespace {

using blas::Signatures;
using blas::Status;

constexpr size_t kMostClasses = 65536;  // remembered: more are rather asked to be alone once more
constexpr uint64_t kLargestWorkspace = uint64_t{1} << 30;

/// Addresses of the program, which lie in the mirror.
void* memory_at(const ts_blas_matrix& matrix) {
  return reinterpret_cast<void*>(matrix.address);  // NOLINT(performance-no-int-to-ptr)
}

/// A descriptor of cuBLASLt.
class Object {
 public:
  explicit Object(blas::Destroy destroy) : destroy_(destroy) {}
  ~Object() {
    if (object_ != nullptr) destroy_(object_);
  }
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  void** out() { return &object_; }
  void* get() const { return object_; }

 private:
  blas::Destroy destroy_;
  void* object_ = nullptr;
};

Status make_layout(const BlasLibrary& library, const ts_blas_matrix& matrix, Object& layout) {
  Status status = library.create_layout(layout.out(), matrix.type, matrix.rows, matrix.columns, matrix.ld);
  const auto set = [&](int id, const auto& value) {
    if (status == blas::kSuccess) status = library.set_layout(layout.get(), id, &value, sizeof value);
  };
  const auto batches = static_cast<int32_t>(matrix.batches);
  set(blas::kLayoutOrder, matrix.order);
  set(blas::kLayoutBatches, batches);
  set(blas::kLayoutStride, matrix.stride);
  return status;
}

}  // namespace

BlasHandle::BlasHandle(const Device& device, const std::string& path, uint32_t kind, const std::string& environment)
    : device_(device), library_(BlasLibrary::open(path, kind)) {
  if (environment != blas::library_settings()) {
    throw DriverError(CUDA_ERROR_NOT_SUPPORTED,
                      "the program has cuBLAS settings in its environment that the worker has not, or the other way "
                      "round: set them for `tessera-ctl up`, too");
  }
  if (const Status status = library_.create(&handle_); status != blas::kSuccess) {
    throw DriverError(CUDA_ERROR_NOT_INITIALIZED, path + " gives no handle (status " + std::to_string(status) + ")");
  }
}

BlasHandle::~BlasHandle() {
  if (abandoned_) {
    for (auto& [lane, all] : workspaces_) {
      for (Workspace& it : all) it.addresses.abandon();
    }
    return;
  }
  if (const Status status = library_.destroy(handle_); status != blas::kSuccess) {
    log(LogLevel::kWarn, "a cuBLAS handle cannot be given back (status " + std::to_string(status) + ")");
  }
  for (auto& [lane, all] : workspaces_) {
    for (Workspace& it : all)
      device_.driver().note(device_.driver().cuMemUnmap(it.addresses.address(), it.bytes), "cuMemUnmap");
  }
}

std::string BlasHandle::objection(const ts_blas_call& call) const {
  if (call.function >= TS_BLAS_FUNCTIONS) return "it is unknown";
  const bool is_lt = call.function == TS_BLAS_cublasLtMatmul;
  if (is_lt != (library_.kind() == TS_BLAS_LT_LIBRARY)) return "it belongs to another library";
  if (library_.function(call.function, call.wide != 0) == nullptr) return "the worker's library lacks it";
  if (call.n_attributes < 0 || call.n_attributes > TS_BLAS_MOST_ATTRIBUTES) return "it has too many attributes";
  for (int32_t i = 0; i < call.n_attributes; ++i) {
    if (call.attributes[i].size > sizeof call.attributes[i].value) return "an attribute is too large";
  }
  if (call.workspace_bytes != TS_BLAS_OWN_WORKSPACE && call.workspace_bytes > kLargestWorkspace) {
    return "its workspace is too large";
  }
  return "";
}

/// All but scalars and addresses, of which only the alignment matters.
uint64_t BlasHandle::class_of(const ts_blas_call& call) {
  uint64_t sum = 0xcbf29ce484222325u;
  const auto add = [&](uint64_t value) {
    sum = (sum ^ value) * 0x9e3779b97f4a7c15u;
    sum ^= sum >> 32;
  };
  for (const int64_t value :
       {int64_t{call.function}, int64_t{call.wide}, int64_t{call.math_mode}, int64_t{call.atomics_mode},
        int64_t{call.sm_count}, int64_t{call.transpose_a}, int64_t{call.transpose_b}, int64_t{call.compute_type},
        int64_t{call.scale_type}, int64_t{call.algorithm}, call.m, call.n, call.k, call.batches}) {
    add(static_cast<uint64_t>(value));
  }
  add(call.workspace_bytes);
  for (const ts_blas_matrix* matrix : {&call.a, &call.b, &call.c, &call.d}) {
    add(matrix->address & 0xff);
    add(static_cast<uint64_t>(matrix->ld));
    add(static_cast<uint64_t>(matrix->stride));
    add(static_cast<uint64_t>(matrix->type));
    add(matrix->rows ^ matrix->columns << 32);
  }
  for (const uint64_t word : call.algorithm_words) add(word);
  for (int32_t i = 0; i < call.n_attributes; ++i) add(call.attributes[i].id);
  for (const uint8_t byte : call.beta) add(byte);
  return sum;
}

/// The stream's own: calls of two streams run side by side. An outgrown one may still be in use.
void* BlasHandle::workspace(uint32_t lane, uint64_t bytes) {
  if (bytes == 0) return nullptr;
  std::vector<Workspace>& all = workspaces_[lane];
  if (all.empty() || all.back().bytes < bytes) {
    Workspace fresh;
    fresh.bytes = (bytes + TS_GRANULE - 1) / TS_GRANULE * TS_GRANULE;
    fresh.addresses = Reservation(device_, 0, fresh.bytes);
    fresh.memory = MemoryHandle::create(device_, fresh.bytes);
    fresh.memory.map(device_, fresh.addresses.address(), fresh.bytes);
    all.push_back(std::move(fresh));
  }
  return reinterpret_cast<void*>(all.back().addresses.address());  // NOLINT(performance-no-int-to-ptr)
}

template <class Size>
Status BlasHandle::call_sized(const ts_blas_call& call) const {
  using Shapes = Signatures<Size>;
  void* function = library_.function(call.function, sizeof(Size) == sizeof(int64_t));
  const auto size = [](int64_t value) { return static_cast<Size>(value); };
  const ts_blas_matrix &a = call.a, &b = call.b, &c = call.c;
  const auto Gemm = [&] {
    return reinterpret_cast<typename Shapes::Gemm>(function)(
        handle_, call.transpose_a, call.transpose_b, size(call.m), size(call.n), size(call.k), call.alpha, memory_at(a),
        size(a.ld), memory_at(b), size(b.ld), call.beta, memory_at(c), size(c.ld));
  };
  const auto GemmStrided = [&] {
    return reinterpret_cast<typename Shapes::GemmStrided>(function)(
        handle_, call.transpose_a, call.transpose_b, size(call.m), size(call.n), size(call.k), call.alpha, memory_at(a),
        size(a.ld), a.stride, memory_at(b), size(b.ld), b.stride, call.beta, memory_at(c), size(c.ld), c.stride,
        size(call.batches));
  };
  const auto GemmEx = [&] {
    return reinterpret_cast<typename Shapes::GemmEx>(function)(
        handle_, call.transpose_a, call.transpose_b, size(call.m), size(call.n), size(call.k), call.alpha, memory_at(a),
        a.type, size(a.ld), memory_at(b), b.type, size(b.ld), call.beta, memory_at(c), c.type, size(c.ld),
        call.compute_type, call.algorithm);
  };
  const auto GemmStridedEx = [&] {
    return reinterpret_cast<typename Shapes::GemmStridedEx>(function)(
        handle_, call.transpose_a, call.transpose_b, size(call.m), size(call.n), size(call.k), call.alpha, memory_at(a),
        a.type, size(a.ld), a.stride, memory_at(b), b.type, size(b.ld), b.stride, call.beta, memory_at(c), c.type,
        size(c.ld), c.stride, size(call.batches), call.compute_type, call.algorithm);
  };
  const auto SgemmEx = [&] {
    return reinterpret_cast<typename Shapes::SgemmEx>(function)(
        handle_, call.transpose_a, call.transpose_b, size(call.m), size(call.n), size(call.k), call.alpha, memory_at(a),
        a.type, size(a.ld), memory_at(b), b.type, size(b.ld), call.beta, memory_at(c), c.type, size(c.ld));
  };
  const auto Gemv = [&] {
    return reinterpret_cast<typename Shapes::Gemv>(function)(handle_, call.transpose_a, size(call.m), size(call.n),
                                                             call.alpha, memory_at(a), size(a.ld), memory_at(b),
                                                             size(b.ld), call.beta, memory_at(c), size(c.ld));
  };
  const auto GemvStrided = [&] {
    return reinterpret_cast<typename Shapes::GemvStrided>(function)(
        handle_, call.transpose_a, size(call.m), size(call.n), call.alpha, memory_at(a), size(a.ld), a.stride,
        memory_at(b), size(b.ld), b.stride, call.beta, memory_at(c), size(c.ld), c.stride, size(call.batches));
  };
  switch (call.function) {
#define TESSERA_BLAS(shape, name, type) \
  case TS_BLAS_##name:                  \
    return shape();
#include "tessera/protocol/blas_functions.def"
#undef TESSERA_BLAS
    default:
      return blas::kNotInitialised;
  }
}

Status BlasHandle::call_blas(const ts_blas_call& call) const {
  return call.wide != 0 ? call_sized<int64_t>(call) : call_sized<int>(call);
}

Status BlasHandle::call_lt(CUstream stream, void* scratch, const ts_blas_call& call) const {
  Object operation(library_.destroy_operation);
  Status status = library_.create_operation(operation.out(), call.compute_type, call.scale_type);
  for (int32_t i = 0; i < call.n_attributes && status == blas::kSuccess; ++i) {
    const ts_blas_attribute& attribute = call.attributes[i];
    status = library_.set_operation(operation.get(), static_cast<int>(attribute.id), &attribute.value, attribute.size);
  }
  const ts_blas_matrix* matrices[] = {&call.a, &call.b, &call.c, &call.d};
  std::array<Object, 4> layouts{Object(library_.destroy_layout), Object(library_.destroy_layout),
                                Object(library_.destroy_layout), Object(library_.destroy_layout)};
  for (size_t i = 0; i < layouts.size() && status == blas::kSuccess; ++i) {
    status = make_layout(library_, *matrices[i], layouts[i]);
  }
  if (status != blas::kSuccess) return status;
  const auto matmul = reinterpret_cast<blas::LtMatmul>(library_.function(call.function, false));
  return matmul(handle_, operation.get(), call.alpha, memory_at(call.a), layouts[0].get(), memory_at(call.b),
                layouts[1].get(), call.beta, memory_at(call.c), layouts[2].get(), memory_at(call.d), layouts[3].get(),
                call.has_algorithm != 0 ? call.algorithm_words : nullptr, scratch, call.workspace_bytes, stream);
}

/// Gives the handle the state that the program's has.
void BlasHandle::prepare(CUstream stream, uint32_t lane, const ts_blas_call& call) {
  // The stream first: it takes the library back to its own workspace.
  Status status = library_.set_stream(handle_, stream);
  if (status == blas::kSuccess && call.workspace_bytes != TS_BLAS_OWN_WORKSPACE) {
    status = library_.set_workspace(handle_, workspace(lane, call.workspace_bytes), call.workspace_bytes);
  }
  if (status == blas::kSuccess) status = library_.set_math_mode(handle_, call.math_mode);
  if (status == blas::kSuccess) status = library_.set_atomics_mode(handle_, call.atomics_mode);
  if (status == blas::kSuccess) status = library_.set_sm_count(handle_, call.sm_count);
  if (status == blas::kSuccess) return;
  throw DriverError(CUDA_ERROR_INVALID_VALUE,
                    "a cuBLAS handle does not take the program's settings (status " + std::to_string(status) + ")");
}

void BlasHandle::enqueue(CUstream stream, uint32_t lane, const ts_blas_call& call) {
  Status status = blas::kSuccess;
  if (library_.kind() == TS_BLAS_LT_LIBRARY) {
    status = call_lt(stream, workspace(lane, call.workspace_bytes), call);
  } else {
    prepare(stream, lane, call);
    status = call_blas(call);
  }
  if (status != blas::kSuccess) {
    throw DriverError(CUDA_ERROR_LAUNCH_FAILED, std::string(blas_function_name(call.function)) +
                                                    " fails on the worker (status " + std::to_string(status) + ")");
  }
  if (made_.size() >= kMostClasses) made_.clear();
  made_.insert(class_of(call));
}

}  // namespace tessera::worker
