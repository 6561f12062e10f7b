// SPDX-License-Identifier: Apache-2.0
// A library with cuBLAS's interface, as far as the tests go, that multiplies with a kernel of its own. It stands for
// the real one where there is no GPU.
#include <cuda.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

namespace {

using Status = int;
constexpr Status kSuccess = 0, kNotInitialised = 1, kExecutionFailed = 13;

struct Handle {
  CUmodule module = nullptr;
  CUfunction product = nullptr;
  CUstream stream = nullptr;
  void* workspace = nullptr;
  size_t workspace_bytes = 0;
  int pointers = 0, math = 0, atomics = 0, sm_count = 0;
};

std::string text_of(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The math mode shows in the results: a handle elsewhere that lacks it gives others.
Status multiply(Handle* handle, int ta, int tb, int64_t m, int64_t n, int64_t k, const void* alpha, const void* a,
                int64_t lda, int64_t sa, const void* b, int64_t ldb, int64_t sb, const void* beta, void* c, int64_t ldc,
                int64_t sc, int64_t batches) {
  if (m <= 0 || n <= 0 || batches <= 0) return 7;
  long long l[] = {lda, ldb, ldc, sa, sb, sc};
  int d[] = {static_cast<int>(m), static_cast<int>(n), static_cast<int>(k), ta, tb};
  float scale[] = {*static_cast<const float*>(alpha) + static_cast<float>(handle->math) / 64,
                   *static_cast<const float*>(beta)};
  void* parameters[] = {&a,    &b,    &c,    &l[0], &l[1], &l[2], &l[3],     &l[4],
                        &l[5], &d[0], &d[1], &d[2], &d[3], &d[4], &scale[0], &scale[1]};
  const auto blocks = static_cast<unsigned>((m + 63) / 64);
  const CUresult result =
      cuLaunchKernel(handle->product, blocks, static_cast<unsigned>(n), static_cast<unsigned>(batches), 64, 1, 1, 0,
                     handle->stream, parameters, nullptr);
  if (const char* log = std::getenv("FAKE_CUBLAS_LOG")) {
    std::ofstream(log, std::ios::app) << "gemm " << m << " math " << handle->math << " workspace "
                                      << handle->workspace_bytes << "\n";
  }
  return result == CUDA_SUCCESS ? kSuccess : kExecutionFailed;
}

}  // namespace

#define FAKE extern "C" __attribute__((visibility("default"))) Status

static Status make_handle(void** out) {
  auto* handle = new Handle;
  const std::string ptx = text_of(FAKE_CUBLAS_PTX);
  if (cuModuleLoadData(&handle->module, ptx.c_str()) != CUDA_SUCCESS ||
      cuModuleGetFunction(&handle->product, handle->module, "product") != CUDA_SUCCESS) {
    delete handle;
    return kNotInitialised;
  }
  *out = handle;
  return kSuccess;
}
static Status end_handle(void* handle) {
  cuModuleUnload(static_cast<Handle*>(handle)->module);
  delete static_cast<Handle*>(handle);
  return kSuccess;
}

#ifdef FAKE_LT

namespace {

/// An operation or a layout: attributes by number, as many bytes each as the library has.
struct Object {
  uint64_t values[64] = {};
  uint32_t sizes[64] = {};
};

Status get(const void* object, int id, void* value, size_t bytes, size_t* written) {
  const auto* it = static_cast<const Object*>(object);
  if (id < 0 || id >= 64 || it->sizes[id] == 0) return 7;
  if (written != nullptr) *written = it->sizes[id];
  if (value == nullptr && bytes == 0) return kSuccess;
  if (bytes < it->sizes[id]) return 7;
  std::memcpy(value, &it->values[id], it->sizes[id]);
  return kSuccess;
}

Status set(void* object, int id, const void* value, size_t bytes) {
  auto* it = static_cast<Object*>(object);
  if (id < 0 || id >= 64 || it->sizes[id] != bytes) return 7;
  it->values[id] = 0;
  std::memcpy(&it->values[id], value, bytes);
  return kSuccess;
}

Status end_object(void* object) {
  delete static_cast<Object*>(object);
  return kSuccess;
}

}  // namespace

FAKE cublasLtCreate(void** out) { return make_handle(out); }
FAKE cublasLtDestroy(void* handle) { return end_handle(handle); }
extern "C" __attribute__((visibility("default"))) size_t cublasLtGetVersion() { return 130101; }
FAKE cublasLtMatmulDescCreate(void** out, int compute, int scale) {
  auto* made = new Object;
  for (const int id : {0, 1, 2, 3, 4, 7, 15, 40}) made->sizes[id] = 4;
  made->values[0] = static_cast<uint64_t>(compute), made->values[1] = static_cast<uint64_t>(scale);
  made->values[7] = 1;
  *out = made;
  return kSuccess;
}
FAKE cublasLtMatmulDescDestroy(void* object) { return end_object(object); }
FAKE cublasLtMatmulDescGetAttribute(const void* object, int id, void* value, size_t bytes, size_t* written) {
  return get(object, id, value, bytes, written);
}
FAKE cublasLtMatmulDescSetAttribute(void* object, int id, const void* value, size_t bytes) {
  return set(object, id, value, bytes);
}
FAKE cublasLtMatrixLayoutCreate(void** out, int type, uint64_t rows, uint64_t columns, int64_t ld) {
  auto* made = new Object;
  for (const int id : {0, 1, 5, 8}) made->sizes[id] = 4;
  for (const int id : {2, 3, 4, 6, 7}) made->sizes[id] = 8;
  made->values[0] = static_cast<uint64_t>(type), made->values[2] = rows, made->values[3] = columns;
  made->values[4] = static_cast<uint64_t>(ld), made->values[5] = 1;
  *out = made;
  return kSuccess;
}
FAKE cublasLtMatrixLayoutDestroy(void* object) { return end_object(object); }
FAKE cublasLtMatrixLayoutGetAttribute(const void* object, int id, void* value, size_t bytes, size_t* written) {
  return get(object, id, value, bytes, written);
}
FAKE cublasLtMatrixLayoutSetAttribute(void* object, int id, const void* value, size_t bytes) {
  return set(object, id, value, bytes);
}
/// C and D are one, as the kernel has it.
FAKE cublasLtMatmul(void* handle, const void* operation, const void* alpha, const void* a, const void* a_layout,
                    const void* b, const void* b_layout, const void* beta, const void* c, const void*, void* d,
                    const void* d_layout, const void*, void* workspace, size_t bytes, void* stream) {
  auto* own = static_cast<Handle*>(handle);
  const auto value = [](const void* object, int id) {
    return static_cast<int64_t>(static_cast<const Object*>(object)->values[id]);
  };
  if (c != d || (bytes != 0 && workspace == nullptr)) return 7;
  own->stream = static_cast<CUstream>(stream);
  own->workspace_bytes = bytes;
  const auto ta = static_cast<int>(value(operation, 3)), tb = static_cast<int>(value(operation, 4));
  return multiply(own, ta, tb, value(d_layout, 2), value(d_layout, 3), value(a_layout, ta != 0 ? 2 : 3), alpha, a,
                  value(a_layout, 4), value(a_layout, 6), b, value(b_layout, 4), value(b_layout, 6), beta, d,
                  value(d_layout, 4), value(d_layout, 6), value(d_layout, 5));
}

#else

FAKE cublasCreate_v2(void** out) { return make_handle(out); }
FAKE cublasDestroy_v2(void* handle) { return end_handle(handle); }
FAKE cublasGetVersion_v2(void*, int* version) {
  *version = 130101;
  return kSuccess;
}
FAKE cublasSetStream_v2(void* handle, void* stream) {
  static_cast<Handle*>(handle)->stream = static_cast<CUstream>(stream);
  static_cast<Handle*>(handle)->workspace_bytes = 0;
  return kSuccess;
}
FAKE cublasGetStream_v2(void* handle, void** stream) {
  *stream = static_cast<Handle*>(handle)->stream;
  return kSuccess;
}
FAKE cublasSetWorkspace_v2(void* handle, void* workspace, size_t bytes) {
  static_cast<Handle*>(handle)->workspace = workspace;
  static_cast<Handle*>(handle)->workspace_bytes = bytes;
  return kSuccess;
}

#define FAKE_STATE(name, suffix, member)                   \
  FAKE cublasSet##name##suffix(void* handle, int value) {  \
    static_cast<Handle*>(handle)->member = value;          \
    return kSuccess;                                       \
  }                                                        \
  FAKE cublasGet##name##suffix(void* handle, int* value) { \
    *value = static_cast<Handle*>(handle)->member;         \
    return kSuccess;                                       \
  }
FAKE_STATE(PointerMode, _v2, pointers)
FAKE_STATE(MathMode, , math)
FAKE_STATE(AtomicsMode, , atomics)
FAKE_STATE(SmCountTarget, , sm_count)

FAKE cublasSgemm_v2(void* handle, int ta, int tb, int m, int n, int k, const void* alpha, const void* a, int lda,
                    const void* b, int ldb, const void* beta, void* c, int ldc) {
  return multiply(static_cast<Handle*>(handle), ta, tb, m, n, k, alpha, a, lda, 0, b, ldb, 0, beta, c, ldc, 0, 1);
}
FAKE cublasGemmEx(void* handle, int ta, int tb, int m, int n, int k, const void* alpha, const void* a, int, int lda,
                  const void* b, int, int ldb, const void* beta, void* c, int, int ldc, int, int) {
  return multiply(static_cast<Handle*>(handle), ta, tb, m, n, k, alpha, a, lda, 0, b, ldb, 0, beta, c, ldc, 0, 1);
}
FAKE cublasGemmStridedBatchedEx(void* handle, int ta, int tb, int m, int n, int k, const void* alpha, const void* a,
                                int, int lda, long long sa, const void* b, int, int ldb, long long sb, const void* beta,
                                void* c, int, int ldc, long long sc, int batches, int, int) {
  return multiply(static_cast<Handle*>(handle), ta, tb, m, n, k, alpha, a, lda, sa, b, ldb, sb, beta, c, ldc, sc,
                  batches);
}

#endif
