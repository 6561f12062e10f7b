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

inline bool has_unbounded(const ts_node& node, const Values& values) {
  return values.unbounded[node.a] | values.unbounded[node.b];
}

/// Gives `value`, and whether it is unbounded for other reasons than its operands. Every
/// operation may be done on what an unbounded operand happens to hold.
inline bool apply(const ts_node& node, const ts_launch_shape& launch, const Values& values, int64_t* value) {
  const auto a = [&] { return values.value[node.a]; };
  const auto b = [&] { return values.value[node.b]; };
  int64_t other = 0;
  switch (node.op) {
    case TS_OP_CONST:
      *value = node.value;
      return false;
    case TS_OP_PARAMETER:
      return !load_parameter(launch, node, value);
    case TS_OP_GRID:
      *value = launch.grid[node.a];
      return false;
    case TS_OP_BLOCK:
      *value = launch.block[node.a];
      return false;
    case TS_OP_CLUSTER:
      *value = launch.cluster[node.a];
      return false;
    case TS_OP_DYNAMIC_SHARED:
      *value = launch.dynamic_shared;
      return false;
    case TS_OP_BOUNDED:
      *value = !values.unbounded[node.a];
      return false;
    case TS_OP_SELECT: {
      const int32_t chosen = a() != 0 ? node.b : node.c;
      *value = values.value[chosen];
      return values.unbounded[node.a] || values.unbounded[chosen];
    }
    case TS_OP_ADD:
      return has_unbounded(node, values) | __builtin_add_overflow(a(), b(), value);
    case TS_OP_ADD_MUL: {
      int64_t product = 0;
      const bool wrapped = __builtin_mul_overflow(b(), values.value[node.c], &product);
      return has_unbounded(node, values) | values.unbounded[node.c] | wrapped |
             __builtin_add_overflow(a(), product, value);
    }
    case TS_OP_AND_LESS_EQUAL:
      *value = a() & static_cast<int64_t>(b() <= values.value[node.c]);
      return has_unbounded(node, values) | values.unbounded[node.c];
    case TS_OP_AND3:
      *value = a() & b() & values.value[node.c];
      return has_unbounded(node, values) | values.unbounded[node.c];
    case TS_OP_ADD3: {
      int64_t sum = 0;
      const bool wrapped = __builtin_add_overflow(b(), values.value[node.c], &sum);
      return has_unbounded(node, values) | values.unbounded[node.c] | wrapped | __builtin_add_overflow(a(), sum, value);
    }
    case TS_OP_MIN3: {
      const int64_t least = b() < values.value[node.c] ? b() : values.value[node.c];
      *value = a() < least ? a() : least;
      return has_unbounded(node, values) | values.unbounded[node.c];
    }
    case TS_OP_SUB:
      return has_unbounded(node, values) | __builtin_sub_overflow(a(), b(), value);
    case TS_OP_MUL:
      return has_unbounded(node, values) | __builtin_mul_overflow(a(), b(), value);
    case TS_OP_NEG:
      return values.unbounded[node.a] | __builtin_sub_overflow(int64_t{0}, a(), value);
    case TS_OP_FLOOR_DIV:
      return has_unbounded(node, values) || !floor_divide(a(), b(), value, &other);
    case TS_OP_FLOOR_MOD:
      return has_unbounded(node, values) || !floor_divide(a(), b(), &other, value);
    case TS_OP_TRUNC_DIV:
      return has_unbounded(node, values) || !truncated_divide(a(), b(), value, &other);
    case TS_OP_TRUNC_MOD:
      return has_unbounded(node, values) || !truncated_divide(a(), b(), &other, value);
    case TS_OP_SHL:
      return has_unbounded(node, values) || !shift_left(a(), b(), value);
    case TS_OP_MIN:
      *value = a() < b() ? a() : b();
      return has_unbounded(node, values);
    case TS_OP_MAX:
      *value = a() > b() ? a() : b();
      return has_unbounded(node, values);
    case TS_OP_SHR:
      *value = shift_right(a(), b());
      return has_unbounded(node, values);
    case TS_OP_AND:
      *value = a() & b();
      return has_unbounded(node, values);
    case TS_OP_OR:
      *value = a() | b();
      return has_unbounded(node, values);
    case TS_OP_XOR:
      *value = a() ^ b();
      return has_unbounded(node, values);
    case TS_OP_LESS:
      *value = a() < b();
      return has_unbounded(node, values);
    case TS_OP_LESS_EQUAL:
      *value = a() <= b();
      return has_unbounded(node, values);
    case TS_OP_EQUAL:
      *value = a() == b();
      return has_unbounded(node, values);
    case TS_OP_NOT_EQUAL:
      *value = a() != b();
      return has_unbounded(node, values);
    case TS_OP_NOT:
      *value = a() == 0;
      return values.unbounded[node.a];
    case TS_OP_WRAP:
      *value = wrap(a(), node.b, node.c == 1);
      return values.unbounded[node.a];
    default:
      *value = 0;
      return true;
  }
}

}  // namespace

void evaluate_nodes(const ts_summary* header, const ts_launch_shape& launch, Values* values) {
  const ts_node* nodes = nodes_of(header);
  uint32_t i = 0;
  for (; i < header->n_nodes && nodes[i].op == TS_OP_CONST; ++i) {  // the analysis puts them first
    values->value[i] = nodes[i].value;
    values->unbounded[i] = false;
  }
  for (; i < header->n_nodes; ++i) {
    values->value[i] = 0;  // what is read later is defined, whatever comes of the operation
    values->unbounded[i] = apply(nodes[i], launch, *values, &values->value[i]);
  }
}

}  // namespace tessera::access
