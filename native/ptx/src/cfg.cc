// SPDX-License-Identifier: Apache-2.0
#include "tessera/ptx/cfg.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "dominators.h"

namespace tessera::ptx {

namespace {

/// Edges of tables in one function. Over that, what remains to be connected is called indirect and gets none.
constexpr size_t kMaxTableEdges = size_t{1} << 20;

bool is_exit(const Instruction& instruction) { return instruction.opcode == "ret" || instruction.opcode == "exit"; }
bool is_branch(const Instruction& instruction) { return instruction.opcode == "bra" || instruction.opcode == "brx"; }

/// Where control may go from one instruction, apart from falling through.
struct Targets {
  std::vector<uint32_t> instructions;  // may hold instructions.size(): the end of the function
  bool is_indirect = false;            // its list was not found: every label is possible
};

class Builder {
 public:
  explicit Builder(const Function& function)
      : function_(function), count_(static_cast<uint32_t>(function.instructions.size())) {
    for (size_t i = 0; i < function.target_lists.size(); ++i) lists_.emplace(function.target_lists[i].name, i);
  }

  ControlFlowGraph build() {
    split();
    connect();
    dominate();
    post_dominate();
    return std::move(graph_);
  }

 private:
  Targets targets_of(const Instruction& instruction) const {
    Targets targets;
    if (instruction.opcode == "bra") {
      for (const Operand& operand : instruction.operands) {
        if (operand.kind == Operand::Kind::kLabel) targets.instructions.push_back(operand.label);
      }
      targets.is_indirect = targets.instructions.empty();
    } else if (const BranchTargets* const list = list_of(instruction); list != nullptr) {
      targets.instructions = list->label_indices;
    } else {
      targets.is_indirect = true;
    }
    if (targets.is_indirect) {
      for (const Label& label : function_.labels) targets.instructions.push_back(label.index);
    }
    return targets;
  }

  static bool has_label(const Instruction& branch) {
    return std::any_of(branch.operands.begin(), branch.operands.end(),
                       [](const Operand& operand) { return operand.kind == Operand::Kind::kLabel; });
  }

  const BranchTargets* list_of(const Instruction& brx) const {
    for (const Operand& operand : brx.operands) {
      if (operand.kind != Operand::Kind::kSymbol) continue;
      const auto found = lists_.find(operand.text);
      if (found != lists_.end()) return &function_.target_lists[found->second];
    }
    return nullptr;
  }

  /// Blocks begin at the entry, at labels and after whatever may leave the straight line.
  void split() {
    std::vector<uint8_t> begins(count_ + 1, 0);
    begins[0] = 1;
    for (const Label& label : function_.labels) begins[std::min(label.index, count_)] = 1;
    for (uint32_t i = 0; i < count_; ++i) {
      const Instruction& instruction = function_.instructions[i];
      if (is_branch(instruction) || is_exit(instruction)) begins[i + 1] = 1;
    }
    graph_.block_of.resize(count_);
    for (uint32_t i = 0; i < count_; ++i) {
      if (begins[i] != 0) graph_.blocks.push_back({i, i, {}, {}, false});
      graph_.blocks.back().end = i + 1;
      graph_.block_of[i] = static_cast<uint32_t>(graph_.blocks.size() - 1);
    }
  }

  void connect() {
    for (uint32_t index = 0; index < graph_.blocks.size(); ++index) {
      const Instruction& last = function_.instructions[graph_.blocks[index].end - 1];
      const bool always = last.guard == kNoRegister;
      bool falls_through = true;
      if (is_branch(last)) {
        connect_branch(index, last);
        falls_through = !always;
      } else if (is_exit(last)) {
        graph_.blocks[index].exits = true;
        falls_through = !always;
      }
      if (falls_through) add_edge(index, graph_.blocks[index].end, true);
    }
    for (uint32_t index = 0; index < graph_.blocks.size(); ++index) {
      for (const uint32_t successor : graph_.blocks[index].successors) {
        graph_.blocks[successor].predecessors.push_back(index);
      }
    }
  }

  void connect_branch(uint32_t index, const Instruction& branch) {
    if (table_edges_ > kMaxTableEdges) {
      const bool is_plain = branch.opcode == "bra" && has_label(branch);
      graph_.has_indirect_branch |= !is_plain;
      if (!is_plain) return;
    }
    const Targets targets = targets_of(branch);
    graph_.has_indirect_branch |= targets.is_indirect;
    if (targets.instructions.size() > 1) table_edges_ += targets.instructions.size();
    for (const uint32_t target : targets.instructions) add_edge(index, target);
  }

  void add_edge(uint32_t from, uint32_t instruction, bool is_fall_through = false) {
    BasicBlock& block = graph_.blocks[from];
    if (instruction >= count_) {
      block.exits = true;
      return;
    }
    // A list may name a label often. The fall-through comes last even where a branch leads there too.
    const uint32_t to = graph_.block_of[instruction];
    seen_.resize(graph_.blocks.size());
    if (seen_[to] == from + 1) {
      if (!is_fall_through) return;
      std::erase(block.successors, to);
    }
    seen_[to] = from + 1;
    block.successors.push_back(to);
  }

  Adjacency forward() const {
    Adjacency out;
    out.reserve(graph_.blocks.size() + 1);
    for (const BasicBlock& block : graph_.blocks) out.push_back(block.successors);
    return out;
  }

  Adjacency backward() const {
    Adjacency out;
    out.reserve(graph_.blocks.size() + 1);
    for (const BasicBlock& block : graph_.blocks) out.push_back(block.predecessors);
    return out;
  }

  void dominate() {
    const size_t count = graph_.blocks.size();
    graph_.is_loop_header.assign(count, 0);
    if (count == 0) return;
    graph_.immediate_dominator = immediate_dominators(forward(), backward(), 0);
    // Post-order by depth first search. An edge to a block that is still open closes a cycle, also in
    // irreducible graphs: every cycle holds at least one header.
    enum : uint8_t { kNew, kOpen, kDone };
    std::vector<uint8_t> state(count, kNew);
    std::vector<std::pair<uint32_t, size_t>> stack{{0, 0}};
    state[0] = kOpen;
    while (!stack.empty()) {
      auto& [block, next] = stack.back();
      if (next == graph_.blocks[block].successors.size()) {
        state[block] = kDone;
        graph_.reverse_post_order.push_back(block);
        stack.pop_back();
        continue;
      }
      const uint32_t successor = graph_.blocks[block].successors[next++];
      if (state[successor] == kOpen) graph_.is_loop_header[successor] = 1;
      if (state[successor] != kNew) continue;
      state[successor] = kOpen;
      stack.emplace_back(successor, 0);
    }
    std::reverse(graph_.reverse_post_order.begin(), graph_.reverse_post_order.end());
  }

  /// Post-dominators are the dominators of the reversed graph from a virtual exit. A loop without an
  /// end gets an edge there from its last block, so that branches inside it still have a place to meet.
  void post_dominate() {
    const uint32_t exit = static_cast<uint32_t>(graph_.blocks.size());
    Adjacency successors = forward(), predecessors = backward();
    successors.emplace_back();
    predecessors.emplace_back();
    const auto leave = [&](uint32_t block) {
      successors[block].push_back(exit);
      predecessors[exit].push_back(block);
    };
    std::vector<uint8_t> reaches(exit + 1, 0);
    for (uint32_t block = 0; block < exit; ++block) {
      if (!graph_.blocks[block].exits) continue;
      leave(block);
      mark_backwards(block, predecessors, reaches);
    }
    for (auto block = graph_.reverse_post_order.rbegin(); block != graph_.reverse_post_order.rend(); ++block) {
      if (reaches[*block] != 0) continue;
      leave(*block);
      mark_backwards(*block, predecessors, reaches);
    }
    graph_.immediate_post_dominator = immediate_dominators(predecessors, successors, exit);
    graph_.immediate_post_dominator.resize(exit);
    for (uint32_t& block : graph_.immediate_post_dominator) {
      if (block == exit) block = kNoBlock;
    }
  }

  static void mark_backwards(uint32_t from, const Adjacency& predecessors, std::vector<uint8_t>& marks) {
    std::vector<uint32_t> work{from};
    while (!work.empty()) {
      const uint32_t block = work.back();
      work.pop_back();
      if (std::exchange(marks[block], uint8_t{1}) != 0) continue;
      for (const uint32_t predecessor : predecessors[block]) work.push_back(predecessor);
    }
  }

  const Function& function_;
  const uint32_t count_;
  std::unordered_map<std::string_view, size_t> lists_;
  size_t table_edges_ = 0;
  std::vector<uint32_t> seen_;  // seen_[to] == from + 1: the edge is there
  ControlFlowGraph graph_;
};

}  // namespace

ControlFlowGraph build_cfg(const Function& function) { return Builder(function).build(); }

}  // namespace tessera::ptx
