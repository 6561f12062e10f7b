// SPDX-License-Identifier: Apache-2.0
// Evaluates a summary in one pass over its nodes. Each value has a flag beside
// it, "unbounded", that any overflow sets and every operation hands on: a range
// is given as bounded only when no step towards it could have wrapped.
#include <cstring>

#include "layout.h"

namespace tessera::access {
namespace {

struct Values {
  int64_t value[TS_SUMMARY_MAX_NODES];
  bool unbounded[TS_SUMMARY_MAX_NODES];
};

bool load_parameter(const ts_launch_shape& launch, const ts_node& node, int64_t* value) {
  uint64_t bits = 0;  // little-endian, as the device is
  std::memcpy(&bits, launch.parameters + node.a, static_cast<size_t>(node.b));
  const int unused = 64 - 8 * node.b;
  if (node.c == 1) {
    *value = static_cast<int64_t>(bits << unused) >> unused;
    return true;
  }
  *value = static_cast<int64_t>(bits);
  return *value >= 0;
}

bool truncated_divide(int64_t a, int64_t b, int64_t* quotient, int64_t* remainder) {
  if (b == 0 || (a == INT64_MIN && b == -1)) return false;
  *quotient = a / b;
  *remainder = a % b;
  return true;
}

bool floor_divide(int64_t a, int64_t b, int64_t* quotient, int64_t* remainder) {
  if (!truncated_divide(a, b, quotient, remainder)) return false;
  if (*remainder != 0 && ((*remainder < 0) != (b < 0))) {
    --*quotient;
    *remainder += b;
  }
  return true;
}

bool shift_left(int64_t a, int64_t count, int64_t* value) {
  if (count < 0 || count > 62) return false;
  return !__builtin_mul_overflow(a, int64_t{1} << count, value);
}

int64_t shift_right(int64_t a, int64_t count) {
  const bool outside = count < 0 || count > 63;  // a negative count is a large unsigned one
  return a >> (outside ? 63 : count);
}

int64_t wrap(int64_t a, int bits, bool is_signed) {
  const int unused = 64 - bits;
  const uint64_t shifted = static_cast<uint64_t>(a) << unused;
  return is_signed ? static_cast<int64_t>(shifted) >> unused : static_cast<int64_t>(shifted >> unused);
}

/// False when the result is unbounded. Operands are bounded.
inline bool apply(const ts_node& node, int64_t a, int64_t b, int64_t* value) {
  int64_t other = 0;
  switch (node.op) {
    case TS_OP_ADD:
      return !__builtin_add_overflow(a, b, value);
    case TS_OP_SUB:
      return !__builtin_sub_overflow(a, b, value);
    case TS_OP_MUL:
      return !__builtin_mul_overflow(a, b, value);
    case TS_OP_NEG:
      return !__builtin_sub_overflow(int64_t{0}, a, value);
    case TS_OP_FLOOR_DIV:
      return floor_divide(a, b, value, &other);
    case TS_OP_FLOOR_MOD:
      return floor_divide(a, b, &other, value);
    case TS_OP_TRUNC_DIV:
      return truncated_divide(a, b, value, &other);
    case TS_OP_TRUNC_MOD:
      return truncated_divide(a, b, &other, value);
    case TS_OP_SHL:
      return shift_left(a, b, value);
    case TS_OP_MIN:
      *value = a < b ? a : b;
      return true;
    case TS_OP_MAX:
      *value = a > b ? a : b;
      return true;
    case TS_OP_SHR:
      *value = shift_right(a, b);
      return true;
    case TS_OP_AND:
      *value = a & b;
      return true;
    case TS_OP_OR:
      *value = a | b;
      return true;
    case TS_OP_XOR:
      *value = a ^ b;
      return true;
    case TS_OP_LESS:
      *value = a < b;
      return true;
    case TS_OP_LESS_EQUAL:
      *value = a <= b;
      return true;
    case TS_OP_EQUAL:
      *value = a == b;
      return true;
    case TS_OP_NOT_EQUAL:
      *value = a != b;
      return true;
    case TS_OP_NOT:
      *value = a == 0;
      return true;
    case TS_OP_WRAP:
      *value = wrap(a, node.b, node.c == 1);
      return true;
    default:
      return false;
  }
}

void evaluate_node(const ts_node& node, const ts_launch_shape& launch, uint32_t index, Values* values) {
  int64_t* value = &values->value[index];
  bool bounded = true;
  *value = 0;
  switch (node.op) {
    case TS_OP_CONST:
      *value = node.value;
      break;
    case TS_OP_PARAMETER:
      bounded = load_parameter(launch, node, value);
      break;
    case TS_OP_GRID:
      *value = launch.grid[node.a];
      break;
    case TS_OP_BLOCK:
      *value = launch.block[node.a];
      break;
    case TS_OP_CLUSTER:
      *value = launch.cluster[node.a];
      break;
    case TS_OP_DYNAMIC_SHARED:
      *value = launch.dynamic_shared;
      break;
    case TS_OP_BOUNDED:
      *value = !values->unbounded[node.a];
      break;
    case TS_OP_SELECT: {
      const int32_t chosen = values->value[node.a] != 0 ? node.b : node.c;
      *value = values->value[chosen];
      bounded = !values->unbounded[node.a] && !values->unbounded[chosen];
      break;
    }
    case TS_OP_NEG:
    case TS_OP_NOT:
    case TS_OP_WRAP:
      bounded = !values->unbounded[node.a] && apply(node, values->value[node.a], 0, value);
      break;
    default:
      bounded = !values->unbounded[node.a] && !values->unbounded[node.b] &&
                apply(node, values->value[node.a], values->value[node.b], value);
  }
  values->unbounded[index] = !bounded;
}

/// False when the access surely touches nothing.
bool make_range(const ts_access& access, const ts_launch_shape& launch, const Values& values, ts_range* range) {
  uint8_t flags = access.flags;
  if (access.guard != TS_NO_NODE) {
    if (values.unbounded[access.guard]) {
      flags &= static_cast<uint8_t>(~(TS_ACCESS_EXACT | TS_ACCESS_MUST_WRITE));
    } else if (values.value[access.guard] == 0) {
      return false;
    }
  }
  std::memcpy(&range->pointer, launch.parameters + access.parameter_offset, sizeof(range->pointer));
  range->mode = access.mode;
  range->begin = range->end = range->pointer;
  bool bounded = (flags & TS_ACCESS_UNBOUNDED) == 0 && !values.unbounded[access.lo] && !values.unbounded[access.hi];
  if (bounded) {
    const int64_t lo = values.value[access.lo], hi = values.value[access.hi];
    if (lo >= hi) return false;
    uint64_t begin = 0, end = 0;
    // A sum of a pointer and an offset that leaves 64 bits is no address: fall back to the allocation.
    bounded = !__builtin_add_overflow(range->pointer, lo, &begin) && !__builtin_add_overflow(range->pointer, hi, &end);
    if (bounded) {
      range->begin = begin;
      range->end = end;
    }
  }
  if (!bounded) {
    flags |= TS_ACCESS_UNBOUNDED;
    flags &= static_cast<uint8_t>(~(TS_ACCESS_EXACT | TS_ACCESS_MUST_WRITE));
  }
  range->flags = flags;
  return true;
}

}  // namespace
}  // namespace tessera::access

extern "C" __attribute__((visibility("default"))) int ts_summary_evaluate(const void* blob,
                                                                          const ts_launch_shape* launch,
                                                                          ts_range* ranges, uint32_t capacity,
                                                                          uint32_t* n_ranges) {
  using namespace tessera::access;
  *n_ranges = 0;
  const ts_summary* header = header_of(blob);
  if (launch->parameter_size < header->parameter_block_size) return TS_EVALUATE_PARAMETERS;
  const ts_node* nodes = nodes_of(header);
  Values values;  // each entry is written before it is read: nodes are in topological order
  for (uint32_t i = 0; i < header->n_nodes; ++i) evaluate_node(nodes[i], *launch, i, &values);
  const ts_access* accesses = accesses_of(header);
  uint32_t count = 0;
  for (uint32_t i = 0; i < header->n_accesses; ++i) {
    ts_range range{};
    if (!make_range(accesses[i], *launch, values, &range)) continue;
    if (count == capacity) return TS_EVALUATE_CAPACITY;
    ranges[count++] = range;
  }
  *n_ranges = count;
  return TS_EVALUATE_OK;
}
