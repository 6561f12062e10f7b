// SPDX-License-Identifier: Apache-2.0
// The functions that programs reach instead of the library's. Whatever is not
// followed, or not understood, is passed on as it came.
#include <cstring>

#include "blas/calls.h"
#include "blas/lt.h"
#include "blas/operands.h"
#include "context.h"
#include "driver.h"
#include "runtime.h"
#include "seams.h"
#include "streams.h"

#define TESSERA_BLAS_ENTRY extern "C" __attribute__((visibility("default")))

namespace tessera::shim {
namespace {

using blas::Status;

const char* name_of(uint32_t number, bool wide) {
  static constexpr const char* kNames[][2] = {
#define TESSERA_BLAS(shape, name, type) {#name, #name "_64"},
#include "tessera/protocol/blas_functions.def"
#undef TESSERA_BLAS
      {"cublasLtMatmul", "cublasLtMatmul"}};
  return kNames[number][wide ? 1 : 0];
}

struct Route {
  HostHandle* handle = nullptr;          // null: pass the call on
  const HostLibrary* library = nullptr;  // whose function it is
  void* function = nullptr;              // the library's
};

Route route(uint32_t number, bool wide, const void* handle, const void* caller) {
  Route found;
  found.handle = find_handle(handle);
  if (found.handle != nullptr) {
    found.library = found.handle->library;
    const uint32_t kind = number == TS_BLAS_cublasLtMatmul ? TS_BLAS_LT_LIBRARY : TS_BLAS_LIBRARY;
    if (found.library->kind != kind) found.library = companion_of(*found.library);  // a handle serves both
    if (found.library != nullptr) found.function = found.library->functions[number][wide ? 1 : 0];
    if (found.function != nullptr) return found;
  }
  const uint32_t kind = number == TS_BLAS_cublasLtMatmul ? TS_BLAS_LT_LIBRARY : TS_BLAS_LIBRARY;
  return {nullptr, nullptr, find_target(kind, name_of(number, wide), caller).function};
}

bool is_followed(const Route& found, const void* caller) {
  return follows_calls() && found.handle != nullptr && found.library->usable && !InsideCall::any() &&
         !in_host_library(caller);
}

/// Makes the call, at home or elsewhere. `describe` fills in what the arguments say.
template <class Real, class Describe>
Status make_call(const Route& found, uint64_t key, CUstream stream, Range workspace, Real&& real, Describe&& describe) {
  CallClass* kind = call_class(key);
  if (kind == nullptr) return real();
  InsideCall inside;
  const uint32_t entry = kind->entry();
  if (entry == 0 && world().calm()) {
    count_call(kind->tally(), 0, TS_STAY_PLACED);
    return real();
  }
  ts_blas_call call{};
  const bool understood = describe(call) && is_understood(call);
  const uint32_t fallback = entry & ~uint32_t{TS_PLACED_BY_CLASS};
  const CallClass::Place place = understood ? kind->place(call, entry) : CallClass::Place{fallback, &kind->tally()};
  if (place.device == 0 && world().calm()) {
    count_call(*place.tally, 0, TS_STAY_PLACED);
    return real();
  }
  const PendingCall pending{*kind, *place.tally, *found.library, *found.handle, stream, understood, workspace, call};
  const CallOutcome outcome = place_call(pending, place.device, TS_STAY_PLACED, inside);
  if (outcome.moved) return outcome.status;
  const Status status = real();
  if (outcome.prove && status == blas::kSuccess) prove_call(pending);
  return status;
}

/// A call of cuBLAS proper.
template <class Real, class Describe>
Status blas_call(uint32_t number, bool wide, void* handle, const void* caller, uint64_t key, Real&& real,
                 Describe&& describe) {
  const Route found = route(number, wide, handle, caller);
  if (found.function == nullptr) return blas::kNotInitialised;
  const auto at_home = [&] { return real(found.function); };
  void* stream = nullptr;
  if (!is_followed(found, caller) || found.library->get_stream(handle, &stream) != blas::kSuccess) return at_home();
  const uint64_t bytes = found.handle->workspace_bytes.load(std::memory_order_acquire);
  const uint64_t begin = found.handle->workspace.load(std::memory_order_acquire);
  const Range workspace = bytes == TS_BLAS_OWN_WORKSPACE ? Range{} : Range{begin, begin + bytes};
  return make_call(found, key, normalized(static_cast<CUstream>(stream), false), workspace, at_home,
                   [&](ts_blas_call& call) {
                     call.function = number;
                     call.wide = wide ? 1 : 0;
                     call.batches = 1;
                     return read_handle(*found.library, *found.handle, handle, call) && describe(call);
                   });
}

ts_blas_matrix matrix(const void* address, int type, int64_t ld, int64_t stride = 0) {
  ts_blas_matrix made{};
  made.address = reinterpret_cast<uintptr_t>(address);
  made.ld = ld;
  made.stride = stride;
  made.type = type;
  return made;
}

/// What all products have.
bool describe_product(ts_blas_call& call, int ta, int tb, int64_t m, int64_t n, int64_t k, const void* alpha,
                      const void* beta, const ts_blas_matrix& a, const ts_blas_matrix& b, const ts_blas_matrix& c) {
  call.transpose_a = ta, call.transpose_b = tb;
  call.m = m, call.n = n, call.k = k;
  call.a = a, call.b = b, call.c = c;
  const uint32_t scalar = scalar_bytes(call);
  if (scalar == 0 || alpha == nullptr || beta == nullptr) return false;
  std::memcpy(call.alpha, alpha, scalar);
  std::memcpy(call.beta, beta, scalar);
  return true;
}

Status create_handle(uint32_t kind, const char* name, void** handle, const void* caller) {
  const Target target = find_target(kind, name, caller);
  if (target.function == nullptr) return blas::kNotInitialised;
  const Status status = reinterpret_cast<blas::Create>(target.function)(handle);
  if (status == blas::kSuccess && target.library != nullptr && !in_host_library(caller) && !runtime().disabled()) {
    add_handle(*handle, *target.library, current_context());
  }
  return status;
}

Status destroy_handle(uint32_t kind, const char* name, void* handle, const void* caller) {
  const HostHandle* known = find_handle(handle);
  const bool own = known != nullptr && known->library->kind == kind;
  void* function = own ? reinterpret_cast<void*>(known->library->destroy) : find_target(kind, name, caller).function;
  if (function == nullptr) return blas::kNotInitialised;
  remove_handle(handle);  // before: another one may get its address at once
  return reinterpret_cast<blas::Destroy>(function)(handle);
}

}  // namespace
}  // namespace tessera::shim

using namespace tessera::shim;
using tessera::blas::Signatures;
using tessera::blas::Status;

#define TESSERA_BLAS_CALLER __builtin_return_address(0)

#define TESSERA_DEFINE_Gemm(name, number, type, Size, wide)                                                           \
  TESSERA_BLAS_ENTRY Status name(void* handle, int ta, int tb, Size m, Size n, Size k, const void* alpha,             \
                                 const void* a, Size lda, const void* b, Size ldb, const void* beta, void* c,         \
                                 Size ldc) {                                                                          \
    return blas_call(                                                                                                 \
        number, wide, handle, TESSERA_BLAS_CALLER, class_key(number, ta, tb, type, type, type),                       \
        [&](void* real) {                                                                                             \
          return reinterpret_cast<Signatures<Size>::Gemm>(real)(handle, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, \
                                                                c, ldc);                                              \
        },                                                                                                            \
        [&](ts_blas_call& call) {                                                                                     \
          return describe_product(call, ta, tb, m, n, k, alpha, beta, matrix(a, type, lda), matrix(b, type, ldb),     \
                                  matrix(c, type, ldc));                                                              \
        });                                                                                                           \
  }

#define TESSERA_DEFINE_GemmStrided(name, number, type, Size, wide)                                                    \
  TESSERA_BLAS_ENTRY Status name(void* handle, int ta, int tb, Size m, Size n, Size k, const void* alpha,             \
                                 const void* a, Size lda, long long sa, const void* b, Size ldb, long long sb,        \
                                 const void* beta, void* c, Size ldc, long long sc, Size batches) {                   \
    return blas_call(                                                                                                 \
        number, wide, handle, TESSERA_BLAS_CALLER, class_key(number, ta, tb, type, type, type),                       \
        [&](void* real) {                                                                                             \
          return reinterpret_cast<Signatures<Size>::GemmStrided>(real)(handle, ta, tb, m, n, k, alpha, a, lda, sa, b, \
                                                                       ldb, sb, beta, c, ldc, sc, batches);           \
        },                                                                                                            \
        [&](ts_blas_call& call) {                                                                                     \
          call.batches = batches;                                                                                     \
          return describe_product(call, ta, tb, m, n, k, alpha, beta, matrix(a, type, lda, sa),                       \
                                  matrix(b, type, ldb, sb), matrix(c, type, ldc, sc));                                \
        });                                                                                                           \
  }

#define TESSERA_DEFINE_GemmEx(name, number, type, Size, wide)                                                        \
  TESSERA_BLAS_ENTRY Status name(void* handle, int ta, int tb, Size m, Size n, Size k, const void* alpha,            \
                                 const void* a, int at, Size lda, const void* b, int bt, Size ldb, const void* beta, \
                                 void* c, int ct, Size ldc, int compute, int algorithm) {                            \
    return blas_call(                                                                                                \
        number, wide, handle, TESSERA_BLAS_CALLER, class_key(number, ta, tb, at, bt, ct),                            \
        [&](void* real) {                                                                                            \
          return reinterpret_cast<Signatures<Size>::GemmEx>(real)(handle, ta, tb, m, n, k, alpha, a, at, lda, b, bt, \
                                                                  ldb, beta, c, ct, ldc, compute, algorithm);        \
        },                                                                                                           \
        [&](ts_blas_call& call) {                                                                                    \
          call.compute_type = compute, call.algorithm = algorithm;                                                   \
          return describe_product(call, ta, tb, m, n, k, alpha, beta, matrix(a, at, lda), matrix(b, bt, ldb),        \
                                  matrix(c, ct, ldc));                                                               \
        });                                                                                                          \
  }

#define TESSERA_DEFINE_GemmStridedEx(name, number, type, Size, wide)                                                  \
  TESSERA_BLAS_ENTRY Status name(void* handle, int ta, int tb, Size m, Size n, Size k, const void* alpha,             \
                                 const void* a, int at, Size lda, long long sa, const void* b, int bt, Size ldb,      \
                                 long long sb, const void* beta, void* c, int ct, Size ldc, long long sc,             \
                                 Size batches, int compute, int algorithm) {                                          \
    return blas_call(                                                                                                 \
        number, wide, handle, TESSERA_BLAS_CALLER, class_key(number, ta, tb, at, bt, ct),                             \
        [&](void* real) {                                                                                             \
          return reinterpret_cast<Signatures<Size>::GemmStridedEx>(real)(handle, ta, tb, m, n, k, alpha, a, at, lda,  \
                                                                         sa, b, bt, ldb, sb, beta, c, ct, ldc, sc,    \
                                                                         batches, compute, algorithm);                \
        },                                                                                                            \
        [&](ts_blas_call& call) {                                                                                     \
          call.compute_type = compute, call.algorithm = algorithm, call.batches = batches;                            \
          return describe_product(call, ta, tb, m, n, k, alpha, beta, matrix(a, at, lda, sa), matrix(b, bt, ldb, sb), \
                                  matrix(c, ct, ldc, sc));                                                            \
        });                                                                                                           \
  }

#define TESSERA_DEFINE_SgemmEx(name, number, type, Size, wide)                                                        \
  TESSERA_BLAS_ENTRY Status name(void* handle, int ta, int tb, Size m, Size n, Size k, const void* alpha,             \
                                 const void* a, int at, Size lda, const void* b, int bt, Size ldb, const void* beta,  \
                                 void* c, int ct, Size ldc) {                                                         \
    return blas_call(                                                                                                 \
        number, wide, handle, TESSERA_BLAS_CALLER, class_key(number, ta, tb, at, bt, ct),                             \
        [&](void* real) {                                                                                             \
          return reinterpret_cast<Signatures<Size>::SgemmEx>(real)(handle, ta, tb, m, n, k, alpha, a, at, lda, b, bt, \
                                                                   ldb, beta, c, ct, ldc);                            \
        },                                                                                                            \
        [&](ts_blas_call& call) {                                                                                     \
          return describe_product(call, ta, tb, m, n, k, alpha, beta, matrix(a, at, lda), matrix(b, bt, ldb),         \
                                  matrix(c, ct, ldc));                                                                \
        });                                                                                                           \
  }

#define TESSERA_DEFINE_Gemv(name, number, type, Size, wide)                                                        \
  TESSERA_BLAS_ENTRY Status name(void* handle, int ta, Size m, Size n, const void* alpha, const void* a, Size lda, \
                                 const void* x, Size incx, const void* beta, void* y, Size incy) {                 \
    return blas_call(                                                                                              \
        number, wide, handle, TESSERA_BLAS_CALLER, class_key(number, ta, 0, type, type, type),                     \
        [&](void* real) {                                                                                          \
          return reinterpret_cast<Signatures<Size>::Gemv>(real)(handle, ta, m, n, alpha, a, lda, x, incx, beta, y, \
                                                                incy);                                             \
        },                                                                                                         \
        [&](ts_blas_call& call) {                                                                                  \
          return describe_product(call, ta, 0, m, n, 0, alpha, beta, matrix(a, type, lda), matrix(x, type, incx),  \
                                  matrix(y, type, incy));                                                          \
        });                                                                                                        \
  }

#define TESSERA_DEFINE_GemvStrided(name, number, type, Size, wide)                                                   \
  TESSERA_BLAS_ENTRY Status name(void* handle, int ta, Size m, Size n, const void* alpha, const void* a, Size lda,   \
                                 long long sa, const void* x, Size incx, long long sx, const void* beta, void* y,    \
                                 Size incy, long long sy, Size batches) {                                            \
    return blas_call(                                                                                                \
        number, wide, handle, TESSERA_BLAS_CALLER, class_key(number, ta, 0, type, type, type),                       \
        [&](void* real) {                                                                                            \
          return reinterpret_cast<Signatures<Size>::GemvStrided>(real)(handle, ta, m, n, alpha, a, lda, sa, x, incx, \
                                                                       sx, beta, y, incy, sy, batches);              \
        },                                                                                                           \
        [&](ts_blas_call& call) {                                                                                    \
          call.batches = batches;                                                                                    \
          return describe_product(call, ta, 0, m, n, 0, alpha, beta, matrix(a, type, lda, sa),                       \
                                  matrix(x, type, incx, sx), matrix(y, type, incy, sy));                             \
        });                                                                                                          \
  }

#define TESSERA_BLAS(shape, name, type)                          \
  TESSERA_DEFINE_##shape(name, TS_BLAS_##name, type, int, false) \
      TESSERA_DEFINE_##shape(name##_64, TS_BLAS_##name, type, int64_t, true)
#include "tessera/protocol/blas_functions.def"
#undef TESSERA_BLAS

TESSERA_BLAS_ENTRY Status cublasLtMatmul(void* handle, const void* operation, const void* alpha, const void* a,
                                         const void* a_layout, const void* b, const void* b_layout, const void* beta,
                                         const void* c, const void* c_layout, void* d, const void* d_layout,
                                         const void* algorithm, void* workspace, size_t bytes, void* stream) {
  const Route found = route(TS_BLAS_cublasLtMatmul, false, handle, TESSERA_BLAS_CALLER);
  if (found.function == nullptr) return tessera::blas::kNotInitialised;
  const auto real = [&] {
    return reinterpret_cast<tessera::blas::LtMatmul>(found.function)(handle, operation, alpha, a, a_layout, b, b_layout,
                                                                     beta, c, c_layout, d, d_layout, algorithm,
                                                                     workspace, bytes, stream);
  };
  if (!is_followed(found, TESSERA_BLAS_CALLER)) return real();
  const LtArguments arguments{operation, alpha,    a, a_layout, b,         b_layout,  beta,
                              c,         c_layout, d, d_layout, algorithm, workspace, bytes};
  const auto begin = reinterpret_cast<uintptr_t>(workspace);
  return make_call(found, lt_class_key(*found.library, arguments), normalized(static_cast<CUstream>(stream), false),
                   workspace != nullptr ? Range{begin, begin + bytes} : Range{}, real,
                   [&](ts_blas_call& call) { return describe_lt(*found.library, arguments, call); });
}

TESSERA_BLAS_ENTRY Status cublasCreate_v2(void** handle) {
  return create_handle(TS_BLAS_LIBRARY, "cublasCreate_v2", handle, TESSERA_BLAS_CALLER);
}
TESSERA_BLAS_ENTRY Status cublasLtCreate(void** handle) {
  return create_handle(TS_BLAS_LT_LIBRARY, "cublasLtCreate", handle, TESSERA_BLAS_CALLER);
}
TESSERA_BLAS_ENTRY Status cublasDestroy_v2(void* handle) {
  return destroy_handle(TS_BLAS_LIBRARY, "cublasDestroy_v2", handle, TESSERA_BLAS_CALLER);
}
TESSERA_BLAS_ENTRY Status cublasLtDestroy(void* handle) {
  return destroy_handle(TS_BLAS_LT_LIBRARY, "cublasLtDestroy", handle, TESSERA_BLAS_CALLER);
}

// A handle's workspace is the one thing that it does not tell.
TESSERA_BLAS_ENTRY Status cublasSetStream_v2(void* handle, void* stream) {
  HostHandle* known = find_handle(handle);
  void* function = known != nullptr && known->library->set_stream != nullptr
                       ? reinterpret_cast<void*>(known->library->set_stream)
                       : find_target(TS_BLAS_LIBRARY, "cublasSetStream_v2", TESSERA_BLAS_CALLER).function;
  if (function == nullptr) return tessera::blas::kNotInitialised;
  const Status status = reinterpret_cast<tessera::blas::SetStream>(function)(handle, stream);
  // It takes the handle back to the library's own workspace.
  if (known != nullptr && status == tessera::blas::kSuccess) known->workspace_bytes.store(TS_BLAS_OWN_WORKSPACE);
  return status;
}
TESSERA_BLAS_ENTRY Status cublasSetWorkspace_v2(void* handle, void* workspace, size_t bytes) {
  HostHandle* known = find_handle(handle);
  void* function = known != nullptr && known->library->set_workspace != nullptr
                       ? reinterpret_cast<void*>(known->library->set_workspace)
                       : find_target(TS_BLAS_LIBRARY, "cublasSetWorkspace_v2", TESSERA_BLAS_CALLER).function;
  if (function == nullptr) return tessera::blas::kNotInitialised;
  const Status status = reinterpret_cast<tessera::blas::SetWorkspace>(function)(handle, workspace, bytes);
  if (known != nullptr && status == tessera::blas::kSuccess) {
    known->workspace.store(reinterpret_cast<uintptr_t>(workspace));
    known->workspace_bytes.store(workspace != nullptr ? bytes : 0);
  }
  return status;
}

namespace tessera::shim {

LibraryFunction library_function(const char* name) {
  struct Entry {
    const char* name;
    void* ours;
    uint32_t kind;
  };
  static const Entry kEntries[] = {
#define TESSERA_BLAS(shape, name, type)                       \
  {#name, reinterpret_cast<void*>(&::name), TS_BLAS_LIBRARY}, \
      {#name "_64", reinterpret_cast<void*>(&::name##_64), TS_BLAS_LIBRARY},
#include "tessera/protocol/blas_functions.def"
#undef TESSERA_BLAS
#define TESSERA_HANDLE(name, kind) {#name, reinterpret_cast<void*>(&::name), kind},
      TESSERA_HANDLE(cublasCreate_v2, TS_BLAS_LIBRARY) TESSERA_HANDLE(cublasDestroy_v2, TS_BLAS_LIBRARY)
          TESSERA_HANDLE(cublasSetStream_v2, TS_BLAS_LIBRARY) TESSERA_HANDLE(cublasSetWorkspace_v2, TS_BLAS_LIBRARY)
              TESSERA_HANDLE(cublasLtCreate, TS_BLAS_LT_LIBRARY) TESSERA_HANDLE(cublasLtDestroy, TS_BLAS_LT_LIBRARY)
                  TESSERA_HANDLE(cublasLtMatmul, TS_BLAS_LT_LIBRARY)
#undef TESSERA_HANDLE
  };
  for (const Entry& entry : kEntries) {
    if (std::strcmp(entry.name, name) == 0) return {entry.ours, entry.kind};
  }
  return {};
}

bool takes_lookup(uint32_t kind, const void* found) { return note_lookup(kind, found); }
bool in_followed_library(const void* address) { return in_host_library(address); }

}  // namespace tessera::shim
