// SPDX-License-Identifier: Apache-2.0
// Signatures of cuBLAS and cuBLASLt, as far as Tessera calls or stands in for
// them. They are the same in the libraries of CUDA 11, 12 and 13; enumerations
// are passed as int, handles and descriptors as pointers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera::blas {

using Status = int;
constexpr Status kSuccess = 0, kNotInitialised = 1, kExecutionFailed = 13;

constexpr int kHostPointers = 0;  // pointer mode of scalars
enum Operation : int { kPlain = 0, kTransposed = 1, kConjugated = 2 };
enum Compute : int {
  kCompute16F = 64,
  kCompute32F = 68,
  kCompute32FFast16F = 74,
  kCompute32FFast16BF = 75,
  kCompute32FFastTF32 = 77,
  kCompute64F = 70
};
constexpr int kDefaultAlgorithm = -1, kDefaultTensorAlgorithm = 99;

template <class Size>
struct Signatures {
  using Gemm = Status (*)(void* handle, int ta, int tb, Size m, Size n, Size k, const void* alpha, const void* a,
                          Size lda, const void* b, Size ldb, const void* beta, void* c, Size ldc);
  using GemmStrided = Status (*)(void* handle, int ta, int tb, Size m, Size n, Size k, const void* alpha, const void* a,
                                 Size lda, long long sa, const void* b, Size ldb, long long sb, const void* beta,
                                 void* c, Size ldc, long long sc, Size batches);
  using GemmEx = Status (*)(void* handle, int ta, int tb, Size m, Size n, Size k, const void* alpha, const void* a,
                            int at, Size lda, const void* b, int bt, Size ldb, const void* beta, void* c, int ct,
                            Size ldc, int compute, int algorithm);
  using GemmStridedEx = Status (*)(void* handle, int ta, int tb, Size m, Size n, Size k, const void* alpha,
                                   const void* a, int at, Size lda, long long sa, const void* b, int bt, Size ldb,
                                   long long sb, const void* beta, void* c, int ct, Size ldc, long long sc,
                                   Size batches, int compute, int algorithm);
  using SgemmEx = Status (*)(void* handle, int ta, int tb, Size m, Size n, Size k, const void* alpha, const void* a,
                             int at, Size lda, const void* b, int bt, Size ldb, const void* beta, void* c, int ct,
                             Size ldc);
  using Gemv = Status (*)(void* handle, int ta, Size m, Size n, const void* alpha, const void* a, Size lda,
                          const void* x, Size incx, const void* beta, void* y, Size incy);
  using GemvStrided = Status (*)(void* handle, int ta, Size m, Size n, const void* alpha, const void* a, Size lda,
                                 long long sa, const void* x, Size incx, long long sx, const void* beta, void* y,
                                 Size incy, long long sy, Size batches);
};

using Create = Status (*)(void** handle);
using Destroy = Status (*)(void* handle);
using SetStream = Status (*)(void* handle, void* stream);
using GetStream = Status (*)(void* handle, void** stream);
using SetWorkspace = Status (*)(void* handle, void* workspace, size_t bytes);
using GetInt = Status (*)(void* handle, int* value);
using SetInt = Status (*)(void* handle, int value);

using LtMatmul = Status (*)(void* handle, const void* operation, const void* alpha, const void* a, const void* a_layout,
                            const void* b, const void* b_layout, const void* beta, const void* c, const void* c_layout,
                            void* d, const void* d_layout, const void* algorithm, void* workspace, size_t bytes,
                            void* stream);
using LtCreateOperation = Status (*)(void** operation, int compute_type, int scale_type);
using LtCreateLayout = Status (*)(void** layout, int type, uint64_t rows, uint64_t columns, int64_t ld);
using LtGetAttribute = Status (*)(const void* object, int id, void* value, size_t bytes, size_t* written);
using LtSetAttribute = Status (*)(void* object, int id, const void* value, size_t bytes);

enum OperationAttribute : int {
  kComputeType = 0,
  kScaleType = 1,
  kPointerMode = 2,
  kTransposeA = 3,
  kTransposeB = 4,
  kEpilogue = 7,
  kBiasPointer = 8,
  kBiasStride = 10,
  kAuxPointer = 11,
  kAuxLd = 12,
  kAuxStride = 13,
  kSmCountTarget = 15,
  kScaleA = 17,
  kScaleB = 18,
  kScaleC = 19,
  kScaleD = 20,
  kAuxType = 22,
  kFastAccumulation = 25,
  kBiasType = 26,
  kAttributesEnd = 64  // none has been given a number near this
};
enum LayoutAttribute : int {
  kLayoutType = 0,
  kLayoutOrder = 1,
  kLayoutRows = 2,
  kLayoutColumns = 3,
  kLayoutLd = 4,
  kLayoutBatches = 5,
  kLayoutStride = 6
};

/// Bytes of an element; 0: of a type that is not modelled.
constexpr uint32_t element_bytes(int type) {
  switch (type) {
    case 0:  // float
      return 4;
    case 1:  // double
    case 4:  // complex float
      return 8;
    case 2:   // half
    case 14:  // bfloat16
      return 2;
    case 5:  // complex double
      return 16;
    case 28:  // e4m3
    case 29:  // e5m2
      return 1;
    default:
      return 0;
  }
}

}  // namespace tessera::blas
