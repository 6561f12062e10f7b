// SPDX-License-Identifier: Apache-2.0
#include "blas/operands.h"

#include <algorithm>
#include <iterator>

#include "blas/extents.h"
#include "tessera/protocol/blas_abi.h"
#include "world.h"

namespace tessera::shim {
namespace {

using blas::element_bytes;
using blas::kPlain;

enum Shape { kGemm, kGemmStrided, kGemmEx, kGemmStridedEx, kSgemmEx, kGemv, kGemvStrided, kLt };

Shape shape_of(uint32_t function) {
  constexpr Shape kShapes[] = {
#define TESSERA_BLAS(shape, name, type) k##shape,
#include "tessera/protocol/blas_functions.def"
#undef TESSERA_BLAS
      kLt};
  return kShapes[function];
}

bool is_complex(int type) { return type == TS_BLAS_C32 || type == TS_BLAS_C64; }

bool is_all_zero(const uint8_t (&scalar)[16]) {
  return std::all_of(std::begin(scalar), std::end(scalar), [](uint8_t byte) { return byte == 0; });
}

bool is_single(int compute) {
  return compute == blas::kCompute32F || compute == blas::kCompute32FFast16F || compute == blas::kCompute32FFast16BF ||
         compute == blas::kCompute32FFastTF32;
}

/// Combinations of types that every version takes on every device.
bool is_usual(int a, int b, int c, int compute) {
  if (a != b) return false;
  if (compute == blas::kCompute16F) return a == TS_BLAS_F16 && c == TS_BLAS_F16;
  if (compute == blas::kCompute64F) return a == c && (a == TS_BLAS_F64 || a == TS_BLAS_C64);
  if (!is_single(compute)) return false;
  if (a == TS_BLAS_F32 || a == TS_BLAS_C32) return a == c;
  return compute == blas::kCompute32F && (a == TS_BLAS_F16 || a == TS_BLAS_BF16) && (c == a || c == TS_BLAS_F32);
}

bool is_operation(int transpose) { return transpose >= blas::kPlain && transpose <= blas::kConjugated; }

bool is_product(const ts_blas_call& call) {
  const int64_t rows_a = call.transpose_a == kPlain ? call.m : call.k;
  const int64_t rows_b = call.transpose_b == kPlain ? call.k : call.n;
  return call.m > 0 && call.n > 0 && call.k > 0 && call.batches > 0 && is_operation(call.transpose_a) &&
         is_operation(call.transpose_b) && call.a.ld >= rows_a && call.b.ld >= rows_b && call.c.ld >= call.m &&
         call.a.stride >= 0 && call.b.stride >= 0 && call.c.stride >= 0;
}

bool is_vector_product(const ts_blas_call& call) {
  return call.m > 0 && call.n > 0 && call.batches > 0 && is_operation(call.transpose_a) && call.a.ld >= call.m &&
         call.b.ld > 0 && call.c.ld > 0 && call.a.stride >= 0 && call.b.stride >= 0 && call.c.stride >= 0;
}

class Collector {
 public:
  Collector() { claims_.known = true; }

  /// One access to runs of elements.
  void add(uint8_t mode, uint64_t address, uint32_t bytes, uint64_t run, std::vector<Level> levels,
           bool writes_all = true) {
    Extents extents;
    if (!extents_of(address, bytes, run, std::move(levels), extents)) {
      claims_.known = false;
      return;
    }
    const DeviceMemory& memory = world().memory;
    std::vector<Range> live;
    for (const Range& range : extents.ranges) {
      const auto allocation = memory.find(range.begin);
      if (allocation && range.end <= allocation->end) {
        live.push_back(range);
      } else if (allocation || memory.in_slot(range.begin)) {
        claims_.known = false;  // beyond its memory: whose bytes those are nobody can say
      } else {
        claims_.all_in_slot = false;
      }
    }
    uint8_t promises = 0;
    if (extents.exact && writes_all) promises = TS_ACCESS_EXACT | TS_ACCESS_MUST_WRITE;
    claims_.add(mode, promises, live);
  }

  void add(uint8_t mode, const ts_blas_matrix& matrix, int64_t rows, int64_t columns, int64_t batches) {
    add(mode, matrix.address, element_bytes(matrix.type), static_cast<uint64_t>(rows),
        {{static_cast<uint64_t>(columns), static_cast<uint64_t>(matrix.ld)},
         {static_cast<uint64_t>(batches), static_cast<uint64_t>(matrix.stride)}});
  }

  /// Elements `increment` apart.
  void add_vector(uint8_t mode, const ts_blas_matrix& vector, int64_t count, int64_t batches) {
    add(mode, vector.address, element_bytes(vector.type), 1,
        {{static_cast<uint64_t>(count), static_cast<uint64_t>(vector.ld)},
         {static_cast<uint64_t>(batches), static_cast<uint64_t>(vector.stride)}});
  }

  /// As cuBLASLt lays it out.
  void add_layout(uint8_t mode, const ts_blas_matrix& matrix) {
    const bool by_rows = matrix.order != 0;
    add(mode, matrix, static_cast<int64_t>(by_rows ? matrix.columns : matrix.rows),
        static_cast<int64_t>(by_rows ? matrix.rows : matrix.columns), matrix.batches);
  }

  Claims take() {
    claims_.finish();
    return std::move(claims_);
  }

 private:
  Claims claims_;
};

uint64_t attribute(const ts_blas_call& call, int id, uint64_t otherwise = 0) {
  for (int32_t i = 0; i < call.n_attributes; ++i) {
    if (call.attributes[i].id == static_cast<uint32_t>(id)) return call.attributes[i].value;
  }
  return otherwise;
}

constexpr uint64_t kRelu = 2, kBias = 4, kGradient = 8 | 64, kBiasGradient = 16 | 256 | 512, kOfB = 512, kAux = 128,
                   kGelu = 32, kEpilogues = 1 | kRelu | kBias | kGradient | kBiasGradient | kAux | kGelu;

/// Type of what the bias pointer leads to.
int bias_type(const ts_blas_call& call) {
  const uint64_t given = attribute(call, blas::kBiasType, UINT32_MAX);
  return given == UINT32_MAX ? call.d.type : static_cast<int>(given);
}

bool is_understood_epilogue(const ts_blas_call& call) {
  const uint64_t epilogue = attribute(call, blas::kEpilogue, 1);
  if ((epilogue & ~kEpilogues) != 0 || (epilogue & kGradient) == kGradient) return false;
  const bool has_bias = (epilogue & (kBias | kBiasGradient)) != 0;
  if (has_bias && attribute(call, blas::kBiasPointer) == 0) return false;
  // Its type where none is given depends on the version for the narrow types.
  if (has_bias &&
      (element_bytes(bias_type(call)) < 2 || static_cast<int64_t>(attribute(call, blas::kBiasStride)) < 0)) {
    return false;
  }
  if ((epilogue & kAux) == 0) return true;
  const auto ld = static_cast<int64_t>(attribute(call, blas::kAuxLd));
  const auto stride = static_cast<int64_t>(attribute(call, blas::kAuxStride));
  const uint64_t type = attribute(call, blas::kAuxType, UINT32_MAX);
  return attribute(call, blas::kAuxPointer) != 0 && ld >= static_cast<int64_t>(call.d.rows) && stride >= 0 &&
         call.d.order == 0 && element_bytes(call.d.type) >= 2 &&
         (type == UINT32_MAX || element_bytes(static_cast<int>(type)) != 0);
}

bool is_understood_layout(const ts_blas_matrix& matrix) {
  const uint64_t run = matrix.order == 0 ? matrix.rows : matrix.columns;
  return element_bytes(matrix.type) != 0 && (matrix.order == 0 || matrix.order == 1) && matrix.rows > 0 &&
         matrix.columns > 0 && run <= INT64_MAX && matrix.ld >= static_cast<int64_t>(run) && matrix.batches > 0 &&
         matrix.stride >= 0;
}

void add_epilogue(const ts_blas_call& call, Collector& collect) {
  const uint64_t epilogue = attribute(call, blas::kEpilogue, 1);
  const auto batches = static_cast<uint64_t>(call.d.batches);
  if ((epilogue & (kBias | kBiasGradient)) != 0) {
    const bool gradient = (epilogue & kBiasGradient) != 0;
    const uint64_t length = (epilogue & kOfB) != 0 ? call.d.columns : call.d.rows;
    // A gradient may be added up in place.
    collect.add(gradient ? TS_ACCESS_READ | TS_ACCESS_WRITE : TS_ACCESS_READ, attribute(call, blas::kBiasPointer),
                element_bytes(bias_type(call)), length, {{batches, attribute(call, blas::kBiasStride)}});
  }
  if ((epilogue & kAux) == 0) return;
  const bool mask = (epilogue & (kRelu | 8)) != 0;  // a bit for an element
  const uint8_t mode = (epilogue & kGradient) != 0 ? TS_ACCESS_READ : TS_ACCESS_READ | TS_ACCESS_WRITE;
  const uint64_t type = attribute(call, blas::kAuxType, UINT32_MAX);
  const uint64_t unit = mask ? 8 : 1;
  const uint32_t bytes = mask ? 1 : element_bytes(type == UINT32_MAX ? call.d.type : static_cast<int>(type));
  const uint64_t ld = attribute(call, blas::kAuxLd) / unit;
  collect.add(mode, attribute(call, blas::kAuxPointer), bytes, mask ? ld : call.d.rows,
              {{call.d.columns, ld}, {batches, attribute(call, blas::kAuxStride) / unit}}, false);
}

Claims claims_of_lt(const ts_blas_call& call) {
  Collector collect;
  collect.add_layout(TS_ACCESS_READ, call.a);
  collect.add_layout(TS_ACCESS_READ, call.b);
  if (!is_all_zero(call.beta)) collect.add_layout(TS_ACCESS_READ, call.c);
  collect.add_layout(TS_ACCESS_WRITE, call.d);
  for (const int id : {blas::kScaleA, blas::kScaleB, blas::kScaleC, blas::kScaleD}) {
    if (const uint64_t scale = attribute(call, id); scale != 0)
      collect.add(TS_ACCESS_READ, scale, sizeof(float), 1, {});
  }
  add_epilogue(call, collect);
  return collect.take();
}

}  // namespace

uint32_t scalar_bytes(const ts_blas_call& call) {
  switch (shape_of(call.function)) {
    case kGemm:
    case kGemmStrided:
    case kGemv:
    case kGemvStrided:
      return element_bytes(call.a.type);
    case kSgemmEx:
      return sizeof(float);
    case kLt:
      return element_bytes(call.scale_type);
    default:
      if (call.compute_type == blas::kCompute16F) return 2;
      if (is_single(call.compute_type)) return is_complex(call.c.type) ? 8 : 4;
      return call.compute_type != blas::kCompute64F ? 0 : is_complex(call.c.type) ? 16 : 8;
  }
}

bool is_understood(const ts_blas_call& call) {
  // What is multiplied by zero need not be read.
  if (scalar_bytes(call) == 0 || is_all_zero(call.alpha)) return false;
  switch (shape_of(call.function)) {
    case kLt:
      return is_understood_layout(call.a) && is_understood_layout(call.b) && is_understood_layout(call.c) &&
             is_understood_layout(call.d) && is_understood_epilogue(call);
    case kGemv:
    case kGemvStrided:
      return is_vector_product(call);
    case kGemmEx:
    case kGemmStridedEx:
      if (call.algorithm != blas::kDefaultAlgorithm && call.algorithm != blas::kDefaultTensorAlgorithm) return false;
      return is_usual(call.a.type, call.b.type, call.c.type, call.compute_type) && is_product(call);
    case kSgemmEx:
      return is_usual(call.a.type, call.b.type, call.c.type, blas::kCompute32F) && !is_complex(call.a.type) &&
             is_product(call);
    default:
      return is_product(call);
  }
}

Claims claims_of_call(const ts_blas_call& call) {
  const Shape shape = shape_of(call.function);
  if (shape == kLt) return claims_of_lt(call);
  Collector collect;
  const uint8_t result = is_all_zero(call.beta) ? TS_ACCESS_WRITE : TS_ACCESS_READ | TS_ACCESS_WRITE;
  if (shape == kGemv || shape == kGemvStrided) {
    const bool plain = call.transpose_a == kPlain;
    collect.add(TS_ACCESS_READ, call.a, call.m, call.n, call.batches);
    collect.add_vector(TS_ACCESS_READ, call.b, plain ? call.n : call.m, call.batches);
    collect.add_vector(result, call.c, plain ? call.m : call.n, call.batches);
    return collect.take();
  }
  const bool plain_a = call.transpose_a == kPlain, plain_b = call.transpose_b == kPlain;
  collect.add(TS_ACCESS_READ, call.a, plain_a ? call.m : call.k, plain_a ? call.k : call.m, call.batches);
  collect.add(TS_ACCESS_READ, call.b, plain_b ? call.k : call.n, plain_b ? call.n : call.k, call.batches);
  collect.add(result, call.c, call.m, call.n, call.batches);
  return collect.take();
}

}  // namespace tessera::shim
