// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/ptx/ir.h"

namespace tessera::ptx {

constexpr uint32_t kNoBlock = 0xffffffffu;

struct BasicBlock {
  uint32_t begin = 0, end = 0;       // instruction range [begin, end)
  std::vector<uint32_t> successors;  // block indices; fall-through last
  std::vector<uint32_t> predecessors;
  bool exits = false;  // control may leave the function at its end: ret, exit, or the last instruction
};

struct ControlFlowGraph {
  std::vector<BasicBlock> blocks;                  // in program order; block 0 is the entry
  std::vector<uint32_t> block_of;                  // instruction index -> block
  std::vector<uint32_t> immediate_dominator;       // kNoBlock for the entry and unreachable blocks
  std::vector<uint32_t> immediate_post_dominator;  // kNoBlock: the virtual exit (reconvergence at return)
  std::vector<uint8_t> is_loop_header;
  std::vector<uint32_t> reverse_post_order;  // reachable blocks only
  // A branch whose targets were not found (its successors then are all labels), or tables too large
  // to connect (then some blocks lack successors): where control goes is unknown.
  bool has_indirect_branch = false;
};

ControlFlowGraph build_cfg(const Function& function);

}  // namespace tessera::ptx
