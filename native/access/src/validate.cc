// SPDX-License-Identifier: Apache-2.0
#include "layout.h"

namespace tessera::access {
namespace {

constexpr uint32_t kKnownProperties = 0xffff;
constexpr uint32_t kKnownFlags = TS_ACCESS_UNBOUNDED | TS_ACCESS_EXACT | TS_ACCESS_INDIRECT | TS_ACCESS_MUST_WRITE |
                                 TS_ACCESS_MAYBE | TS_ACCESS_ANYTHING;
constexpr uint32_t kMaxParameterBlock = 1u << 20;  // CUDA's own limit is 32,764 bytes

/// Operands that are node indices, or -1: no such op.
int operand_count(int32_t op) {
  switch (op) {
    case TS_OP_CONST:
    case TS_OP_PARAMETER:
    case TS_OP_GRID:
    case TS_OP_BLOCK:
    case TS_OP_CLUSTER:
    case TS_OP_DYNAMIC_SHARED:
      return 0;
    case TS_OP_NEG:
    case TS_OP_NOT:
    case TS_OP_WRAP:
    case TS_OP_BOUNDED:
      return 1;
    case TS_OP_ADD:
    case TS_OP_SUB:
    case TS_OP_MUL:
    case TS_OP_FLOOR_DIV:
    case TS_OP_FLOOR_MOD:
    case TS_OP_MIN:
    case TS_OP_MAX:
    case TS_OP_SHL:
    case TS_OP_SHR:
    case TS_OP_AND:
    case TS_OP_OR:
    case TS_OP_XOR:
    case TS_OP_LESS:
    case TS_OP_LESS_EQUAL:
    case TS_OP_EQUAL:
    case TS_OP_NOT_EQUAL:
    case TS_OP_TRUNC_DIV:
    case TS_OP_TRUNC_MOD:
      return 2;
    case TS_OP_SELECT:
    case TS_OP_AND_LESS_EQUAL:
    case TS_OP_ADD_MUL:
    case TS_OP_AND3:
    case TS_OP_ADD3:
    case TS_OP_MIN3:
      return 3;
    default:
      return -1;
  }
}

bool is_before(int32_t operand, uint32_t index) { return operand >= 0 && static_cast<uint32_t>(operand) < index; }

bool literal_operands_hold(const ts_node& node, uint32_t parameter_block_size) {
  switch (node.op) {
    case TS_OP_PARAMETER: {
      if (node.b != 1 && node.b != 2 && node.b != 4 && node.b != 8) return false;
      if (node.a < 0 || (node.c != 0 && node.c != 1)) return false;
      return static_cast<uint64_t>(node.a) + static_cast<uint64_t>(node.b) <= parameter_block_size;
    }
    case TS_OP_GRID:
    case TS_OP_BLOCK:
    case TS_OP_CLUSTER:
      return node.a >= 0 && node.a < 3;
    case TS_OP_WRAP:
      return (node.b == 8 || node.b == 16 || node.b == 32) && (node.c == 0 || node.c == 1);
    default:
      return true;
  }
}

bool node_holds(const ts_node& node, uint32_t index, uint32_t parameter_block_size) {
  const int operands = operand_count(node.op);
  if (operands < 0) return false;
  if (operands >= 1 && !is_before(node.a, index)) return false;
  if (operands >= 2 && !is_before(node.b, index)) return false;
  if (operands >= 3 && !is_before(node.c, index)) return false;
  return literal_operands_hold(node, parameter_block_size);
}

bool levels_hold(const ts_access& access, uint32_t n_nodes) {
  if (access.n_levels > TS_SUMMARY_MAX_LEVELS) return false;
  if (access.n_levels != 0 && (access.flags & TS_ACCESS_UNBOUNDED) != 0) return false;
  for (uint32_t i = 0; i < TS_SUMMARY_MAX_LEVELS; ++i) {
    if (i >= access.n_levels) {
      if (access.pitch[i] != TS_NO_NODE || access.count[i] != TS_NO_NODE) return false;
    } else if (!is_before(access.pitch[i], n_nodes) || !is_before(access.count[i], n_nodes)) {
      return false;
    }
  }
  return true;
}

bool access_holds(const ts_access& access, const ts_summary& header) {
  if (access.mode == 0 || (access.mode & ~(TS_ACCESS_READ | TS_ACCESS_WRITE)) != 0) return false;
  if ((access.flags & ~kKnownFlags) != 0 || access.reserved != 0) return false;
  if ((access.flags & TS_ACCESS_MUST_WRITE) != 0 && (access.mode & TS_ACCESS_WRITE) == 0) return false;
  if (uint64_t{access.parameter_offset} + 8 > header.parameter_block_size) return false;
  if (access.guard != TS_NO_NODE && !is_before(access.guard, header.n_nodes)) return false;
  if (!levels_hold(access, header.n_nodes)) return false;
  if ((access.flags & TS_ACCESS_ANYTHING) != 0 && (access.flags & TS_ACCESS_UNBOUNDED) == 0) return false;
  if ((access.flags & TS_ACCESS_UNBOUNDED) != 0) {
    return access.lo == TS_NO_NODE && access.hi == TS_NO_NODE &&
           (access.flags & (TS_ACCESS_EXACT | TS_ACCESS_MUST_WRITE)) == 0;
  }
  return is_before(access.lo, header.n_nodes) && is_before(access.hi, header.n_nodes);
}

bool header_holds(const ts_summary& header, size_t size) {
  if (header.magic != TS_SUMMARY_MAGIC || header.version != TS_SUMMARY_VERSION) return false;
  if (header.n_nodes > TS_SUMMARY_MAX_NODES || header.n_accesses > TS_SUMMARY_MAX_ACCESSES) return false;
  if ((header.properties & ~kKnownProperties) != 0 || header.parameter_block_size > kMaxParameterBlock) return false;
  const size_t expected = sizeof(ts_summary) + header.n_nodes * sizeof(ts_node) + header.n_accesses * sizeof(ts_access);
  return header.size == expected && expected <= size;
}

}  // namespace
}  // namespace tessera::access

extern "C" __attribute__((visibility("default"))) int ts_summary_validate(const void* blob, size_t size) {
  using namespace tessera::access;
  if (blob == nullptr || size < sizeof(ts_summary) || reinterpret_cast<uintptr_t>(blob) % alignof(ts_node) != 0) {
    return TS_EVALUATE_MALFORMED;
  }
  const ts_summary* header = header_of(blob);
  if (!header_holds(*header, size)) return TS_EVALUATE_MALFORMED;
  const ts_node* nodes = nodes_of(header);
  for (uint32_t i = 0; i < header->n_nodes; ++i) {
    if (!node_holds(nodes[i], i, header->parameter_block_size)) return TS_EVALUATE_MALFORMED;
  }
  const ts_access* accesses = accesses_of(header);
  for (uint32_t i = 0; i < header->n_accesses; ++i) {
    if (!access_holds(accesses[i], *header)) return TS_EVALUATE_MALFORMED;
  }
  return TS_EVALUATE_OK;
}
