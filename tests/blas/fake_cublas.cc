// SPDX-License-Identifier: Apache-2.0
// A library with cuBLAS's interface, as far as the tests go, that multiplies with a kernel of its own. It stands for
// the real one where there is no GPU.
#include <cuda.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
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

FAKE cublasCreate_v2(void** out) {
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
FAKE cublasDestroy_v2(void* handle) {
  cuModuleUnload(static_cast<Handle*>(handle)->module);
  delete static_cast<Handle*>(handle);
  return kSuccess;
}
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
