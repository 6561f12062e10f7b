// SPDX-License-Identifier: Apache-2.0
#include "dominators.h"

#include <cstddef>
#include <utility>

namespace tessera::ptx {

namespace {

class Solver {
 public:
  Solver(const Adjacency& successors, const Adjacency& predecessors)
      : successors_(successors), predecessors_(predecessors), number_(successors.size(), kNoNode) {}

  std::vector<uint32_t> solve(uint32_t root) {
    number_nodes(root);
    const uint32_t count = static_cast<uint32_t>(node_.size());
    semi_.resize(count);
    label_.resize(count);
    ancestor_.assign(count, kNoNode);
    idom_.assign(count, 0);
    bucket_.resize(count);
    for (uint32_t i = 0; i < count; ++i) semi_[i] = label_[i] = i;
    for (uint32_t w = count; w-- > 1;) visit(w);
    std::vector<uint32_t> out(successors_.size(), kNoNode);
    for (uint32_t w = 1; w < count; ++w) {
      if (idom_[w] != semi_[w]) idom_[w] = idom_[idom_[w]];
      out[node_[w]] = node_[idom_[w]];
    }
    return out;
  }

 private:
  /// Depth-first numbers; all other arrays are indexed by them.
  void number_nodes(uint32_t root) {
    std::vector<std::pair<uint32_t, std::size_t>> stack;
    const auto enter = [&](uint32_t node, uint32_t parent) {
      number_[node] = static_cast<uint32_t>(node_.size());
      node_.push_back(node);
      parent_.push_back(parent);
      stack.emplace_back(node, 0);
    };
    enter(root, 0);
    while (!stack.empty()) {
      auto& [node, next] = stack.back();
      if (next == successors_[node].size()) {
        stack.pop_back();
        continue;
      }
      const uint32_t parent = number_[node];
      const uint32_t successor = successors_[node][next++];
      if (number_[successor] == kNoNode) enter(successor, parent);
    }
  }

  void visit(uint32_t w) {
    for (const uint32_t predecessor : predecessors_[node_[w]]) {
      if (number_[predecessor] == kNoNode) continue;
      const uint32_t u = evaluate(number_[predecessor]);
      if (semi_[u] < semi_[w]) semi_[w] = semi_[u];
    }
    bucket_[semi_[w]].push_back(w);
    ancestor_[w] = parent_[w];
    for (const uint32_t v : bucket_[parent_[w]]) {
      const uint32_t u = evaluate(v);
      idom_[v] = semi_[u] < semi_[v] ? u : parent_[w];
    }
    bucket_[parent_[w]].clear();
  }

  /// The node of least semidominator on the path from `v` to its forest root, compressing the path.
  uint32_t evaluate(uint32_t v) {
    if (ancestor_[v] == kNoNode) return label_[v];
    path_.clear();
    for (uint32_t at = v; ancestor_[ancestor_[at]] != kNoNode; at = ancestor_[at]) path_.push_back(at);
    while (!path_.empty()) {
      const uint32_t at = path_.back();
      path_.pop_back();
      const uint32_t above = ancestor_[at];
      if (semi_[label_[above]] < semi_[label_[at]]) label_[at] = label_[above];
      ancestor_[at] = ancestor_[above];
    }
    return label_[v];
  }

  const Adjacency& successors_;
  const Adjacency& predecessors_;
  std::vector<uint32_t> number_;  // node -> depth-first number
  std::vector<uint32_t> node_, parent_, semi_, label_, ancestor_, idom_, path_;
  std::vector<std::vector<uint32_t>> bucket_;
};

}  // namespace

std::vector<uint32_t> immediate_dominators(const Adjacency& successors, const Adjacency& predecessors, uint32_t root) {
  return Solver(successors, predecessors).solve(root);
}

}  // namespace tessera::ptx
