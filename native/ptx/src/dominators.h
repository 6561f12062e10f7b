// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace tessera::ptx {

using Adjacency = std::vector<std::vector<uint32_t>>;

constexpr uint32_t kNoNode = 0xffffffffu;

/// Immediate dominators from `root` (Lengauer and Tarjan; O(edges log nodes), no recursion).
/// kNoNode for the root and for what it does not reach.
std::vector<uint32_t> immediate_dominators(const Adjacency& successors, const Adjacency& predecessors, uint32_t root);

}  // namespace tessera::ptx
