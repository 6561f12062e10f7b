// SPDX-License-Identifier: Apache-2.0
#include "blas/lt.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "blas/calls.h"
#include "blas/operands.h"

namespace tessera::shim {
namespace {

using blas::kSuccess;

/// Those whose meaning operands.cc knows. Any other has to have its usual value.
constexpr int kUnderstood[] = {
    blas::kTransposeA,   blas::kTransposeB, blas::kEpilogue,  blas::kBiasPointer, blas::kBiasStride,
    blas::kAuxPointer,   blas::kAuxLd,      blas::kAuxStride, blas::kAuxType,     blas::kScaleA,
    blas::kScaleB,       blas::kScaleC,     blas::kScaleD,    blas::kBiasType,    blas::kFastAccumulation,
    blas::kSmCountTarget};

template <class Value>
bool get(blas::LtGetAttribute getter, const void* object, int id, Value& value) {
  size_t written = 0;
  return getter(object, id, &value, sizeof value, &written) == kSuccess && written == sizeof value;
}

bool read_layout(const HostLibrary& library, const void* layout, const void* address, ts_blas_matrix& matrix) {
  constexpr int kLayoutEnd = 16;  // none has been given a number near this
  const auto read = [&](int id, auto& value) { return get(library.get_layout, layout, id, value); };
  int32_t batches = 0;
  matrix.address = reinterpret_cast<uintptr_t>(address);
  const bool known = read(blas::kLayoutType, matrix.type) && read(blas::kLayoutOrder, matrix.order) &&
                     read(blas::kLayoutRows, matrix.rows) && read(blas::kLayoutColumns, matrix.columns) &&
                     read(blas::kLayoutLd, matrix.ld) && read(blas::kLayoutBatches, batches) &&
                     read(blas::kLayoutStride, matrix.stride);
  matrix.batches = batches;
  // Planes, batches of another kind, and whatever newer versions know: all zero, or not understood.
  for (int id = blas::kLayoutStride + 1; known && id < kLayoutEnd; ++id) {
    uint64_t value = 0;
    size_t size = 0;
    if (library.get_layout(layout, id, nullptr, 0, &size) != kSuccess || size == 0) continue;
    const bool fits = size <= sizeof value && library.get_layout(layout, id, &value, size, &size) == kSuccess;
    if (!fits || value != 0) return false;
  }
  return known;
}

bool read_attributes(const HostLibrary& library, const void* operation, ts_blas_call& call) {
  for (const HostLibrary::Attribute& attribute : library.attributes) {
    uint64_t value = 0;
    size_t written = 0;
    if (library.get_operation(operation, attribute.id, &value, attribute.size, &written) != kSuccess) return false;
    if (value == attribute.usual) continue;
    const bool understood =
        std::find(std::begin(kUnderstood), std::end(kUnderstood), attribute.id) != std::end(kUnderstood);
    if (!understood || call.n_attributes == TS_BLAS_MOST_ATTRIBUTES) return false;
    call.attributes[call.n_attributes++] = {static_cast<uint32_t>(attribute.id), attribute.size, value};
  }
  return true;
}

}  // namespace

uint64_t lt_class_key(const HostLibrary& library, const LtArguments& arguments) {
  int32_t ta = 0, tb = 0, types[3] = {};
  uint32_t epilogue = 0;
  const bool known = arguments.operation != nullptr && arguments.a_layout != nullptr && arguments.b_layout != nullptr &&
                     arguments.d_layout != nullptr &&
                     get(library.get_operation, arguments.operation, blas::kTransposeA, ta) &&
                     get(library.get_operation, arguments.operation, blas::kTransposeB, tb) &&
                     get(library.get_operation, arguments.operation, blas::kEpilogue, epilogue) &&
                     get(library.get_layout, arguments.a_layout, blas::kLayoutType, types[0]) &&
                     get(library.get_layout, arguments.b_layout, blas::kLayoutType, types[1]) &&
                     get(library.get_layout, arguments.d_layout, blas::kLayoutType, types[2]);
  return known ? class_key(TS_BLAS_cublasLtMatmul, ta, tb, types[0], types[1], types[2], epilogue) : 0;
}

bool describe_lt(const HostLibrary& library, const LtArguments& arguments, ts_blas_call& call) {
  constexpr uint64_t kAlignment = 256, kLargest = uint64_t{1} << 30;
  if (arguments.alpha == nullptr || arguments.beta == nullptr || arguments.c_layout == nullptr) return false;
  call.function = TS_BLAS_cublasLtMatmul;
  call.batches = 1;
  const bool known = get(library.get_operation, arguments.operation, blas::kComputeType, call.compute_type) &&
                     get(library.get_operation, arguments.operation, blas::kScaleType, call.scale_type) &&
                     read_attributes(library, arguments.operation, call) &&
                     read_layout(library, arguments.a_layout, arguments.a, call.a) &&
                     read_layout(library, arguments.b_layout, arguments.b, call.b) &&
                     read_layout(library, arguments.c_layout, arguments.c, call.c) &&
                     read_layout(library, arguments.d_layout, arguments.d, call.d);
  const uint32_t scalar = known ? scalar_bytes(call) : 0;
  if (scalar == 0) return false;
  std::memcpy(call.alpha, arguments.alpha, scalar);
  std::memcpy(call.beta, arguments.beta, scalar);
  call.workspace_bytes = arguments.workspace != nullptr ? arguments.bytes : 0;
  if (call.workspace_bytes > kLargest) return false;
  if (reinterpret_cast<uintptr_t>(arguments.workspace) % kAlignment != 0) return false;
  call.has_algorithm = arguments.algorithm != nullptr ? 1 : 0;
  if (call.has_algorithm != 0) std::memcpy(call.algorithm_words, arguments.algorithm, sizeof call.algorithm_words);
  return true;
}

}  // namespace tessera::shim
