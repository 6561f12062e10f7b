/* SPDX-License-Identifier: Apache-2.0 */
/* One call of cuBLAS or cuBLASLt, as a program made it and a worker repeats it.
 * It travels as the parameters of a launch message whose function stands for a
 * library (TS_LIBRARY). Addresses are the program's, which are the worker's. */
#ifndef TESSERA_PROTOCOL_BLAS_CALL_H
#define TESSERA_PROTOCOL_BLAS_CALL_H
#include <stdint.h>

enum { /* cudaDataType */
       TS_BLAS_F32 = 0,
       TS_BLAS_F64 = 1,
       TS_BLAS_F16 = 2,
       TS_BLAS_C32 = 4,
       TS_BLAS_C64 = 5,
       TS_BLAS_BF16 = 14,
       TS_BLAS_E4M3 = 28,
       TS_BLAS_E5M2 = 29,
       TS_BLAS_GIVEN = -1
};

enum { /* ts_blas_call.function: the lines of blas_functions.def, and behind them */
#define TESSERA_BLAS(shape, name, type) TS_BLAS_##name,
#include "tessera/protocol/blas_functions.def"
#undef TESSERA_BLAS
       TS_BLAS_cublasLtMatmul,
       TS_BLAS_FUNCTIONS
};

enum { /* ts_library.kind, and which handle a call takes */ TS_BLAS_LIBRARY = 0, TS_BLAS_LT_LIBRARY = 1 };

/* Calls are known to the controller as kernels of an image that nobody has: this is its hash, and its size is 0. */
#define TS_LIBRARY_CALLS_HIGH UINT64_C(0x746573736572613a)
#define TS_LIBRARY_CALLS_LOW UINT64_C(0x6c6962726172793a)

#define TS_BLAS_OWN_WORKSPACE UINT64_MAX

typedef struct {
  uint64_t address;
  int64_t ld;             /* elements; of a vector: its increment */
  int64_t stride;         /* elements from one matrix of a batch to the next */
  int32_t type;           /* cudaDataType */
  int32_t order;          /* cuBLASLt: 0 columns, 1 rows */
  uint64_t rows, columns; /* cuBLASLt: as laid out in memory */
  int64_t batches;        /* cuBLASLt */
} ts_blas_matrix;

typedef struct { /* of a cuBLASLt operation, where it differs from the library's default */
  uint32_t id, size;
  uint64_t value;
} ts_blas_attribute;

enum { TS_BLAS_MOST_ATTRIBUTES = 24 };

typedef struct {
  uint32_t function;
  uint32_t wide; /* 1: the function with 64-bit sizes */
  /* of the handle */
  int32_t math_mode, atomics_mode, sm_count, reserved;
  uint64_t workspace_bytes; /* TS_BLAS_OWN_WORKSPACE: the library's own */
  /* arguments */
  int32_t transpose_a, transpose_b;
  int32_t compute_type, scale_type;
  int32_t algorithm, n_attributes;
  int64_t m, n, k, batches;
  uint8_t alpha[16], beta[16];
  ts_blas_matrix a, b, c, d; /* of GEMV: matrix, vector, result */
  /* cuBLASLt */
  uint64_t algorithm_words[8]; /* cublasLtMatmulAlgo_t */
  uint32_t has_algorithm, padding;
  ts_blas_attribute attributes[TS_BLAS_MOST_ATTRIBUTES];
} ts_blas_call;

#endif
