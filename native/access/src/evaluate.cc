// SPDX-License-Identifier: Apache-2.0
// Evaluates a summary's nodes in one pass. Each value has a flag beside it,, "unbounded", that any overflow sets and
// every operation hands on: a range is given as bounded only when no step towards it could have wrapped.
#include "evaluate.h"

#include <cstring>

namespace tessera::access {
namespace {

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

}  // namespace

void evaluate_nodes(const ts_summary* header, const ts_launch_shape& launch, Values* values) {
  const ts_node* nodes = nodes_of(header);
  for (uint32_t i = 0; i < header->n_nodes; ++i) evaluate_node(nodes[i], launch, i, values);
}

}  // namespace tessera::access
