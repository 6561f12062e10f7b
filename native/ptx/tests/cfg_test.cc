// SPDX-License-Identifier: Apache-2.0
#include "tessera/ptx/cfg.h"

#include <random>
#include <utility>

#include "../../testing/check.h"
#include "tessera/ptx/parser.h"

using namespace tessera::ptx;

namespace {

struct Parsed {
  ParseResult result;
  ControlFlowGraph graph;
};

Parsed graph_of(const std::string& body) {
  Parsed parsed;
  parsed.result =
      parse(".version 8.0\n.target sm_80\n.address_size 64\n.entry k() { .reg .pred p; .reg .b32 %r<9>; " + body + "}");
  REQUIRE(parsed.result.ok());
  parsed.graph = build_cfg(parsed.result.module.functions[0]);
  return parsed;
}

using Blocks = std::vector<uint32_t>;

/// The definition itself: b is dominated by a when no path from `root` reaches b without a.
bool dominates(const std::vector<Blocks>& edges, uint32_t root, uint32_t a, uint32_t b) {
  if (a == b) return true;
  std::vector<uint8_t> seen(edges.size(), 0);
  std::vector<uint32_t> work;
  if (root != a) work.push_back(root);
  while (!work.empty()) {
    const uint32_t node = work.back();
    work.pop_back();
    if (node == b) return false;
    if (std::exchange(seen[node], uint8_t{1}) != 0) continue;
    for (const uint32_t next : edges[node]) {
      if (next != a) work.push_back(next);
    }
  }
  return true;
}

bool reaches(const std::vector<Blocks>& edges, uint32_t from, uint32_t to) {
  return from == to || !dominates(edges, from, 0xfffffffe, to);
}

/// The nearest strict dominator by definition, kNoBlock for none.
uint32_t slow_immediate_dominator(const std::vector<Blocks>& edges, uint32_t root, uint32_t node) {
  if (node == root || !reaches(edges, root, node)) return kNoBlock;
  for (uint32_t candidate = 0; candidate < edges.size(); ++candidate) {
    if (candidate == node || !reaches(edges, root, candidate) || !dominates(edges, root, candidate, node)) continue;
    bool is_nearest = true;
    for (uint32_t other = 0; other < edges.size(); ++other) {
      if (other == node || other == candidate || !reaches(edges, root, other)) continue;
      if (dominates(edges, root, other, node) && !dominates(edges, root, other, candidate)) is_nearest = false;
    }
    if (is_nearest) return candidate;
  }
  return kNoBlock;
}

}  // namespace

TEST_CASE(straight_line_is_one_block) {
  const Parsed p = graph_of("add.u32 %r1, %r2, %r3; ret;");
  REQUIRE(p.graph.blocks.size() == 1);
  CHECK(p.graph.blocks[0].exits);
  CHECK(p.graph.blocks[0].successors.empty());
  CHECK_EQ(p.graph.immediate_dominator[0], kNoBlock);
  CHECK_EQ(p.graph.immediate_post_dominator[0], kNoBlock);
}

TEST_CASE(diamond_meets_at_its_join) {
  const Parsed p = graph_of("@p bra T; mov.u32 %r1, 1; bra J; T: mov.u32 %r1, 2; J: ret;");
  REQUIRE(p.graph.blocks.size() == 4);
  CHECK(p.graph.blocks[0].successors == (Blocks{2, 1}));  // the fall-through last
  CHECK_EQ(p.graph.immediate_dominator[3], 0u);
  CHECK_EQ(p.graph.immediate_post_dominator[0], 3u);
  CHECK_EQ(p.graph.immediate_post_dominator[1], 3u);
  CHECK(p.graph.blocks[3].predecessors.size() == 2);
}

TEST_CASE(loops_have_headers) {
  const Parsed p = graph_of("A: B: add.u32 %r1, %r1, 1; @p bra B; @!p bra A; ret;");
  REQUIRE(p.graph.blocks.size() == 3);
  CHECK_EQ(int(p.graph.is_loop_header[0]), 1);
  CHECK_EQ(int(p.graph.is_loop_header[1]), 0);
  CHECK_EQ(p.graph.immediate_post_dominator[0], 1u);
}

TEST_CASE(a_conditional_return_leaves_and_goes_on) {
  const Parsed p = graph_of("@p ret; mov.u32 %r1, 1; ret;");
  REQUIRE(p.graph.blocks.size() == 2);
  CHECK(p.graph.blocks[0].exits);
  CHECK(p.graph.blocks[0].successors == Blocks{1});
  CHECK_EQ(p.graph.immediate_post_dominator[0], kNoBlock);
}

TEST_CASE(falling_off_the_end_and_branching_there_exit) {
  const Parsed p = graph_of("@p bra END; mov.u32 %r1, 1; END:");
  REQUIRE(p.graph.blocks.size() == 2);
  CHECK(p.graph.blocks[0].exits);
  CHECK(p.graph.blocks[1].exits);
}

TEST_CASE(unreachable_blocks_have_no_dominator) {
  const Parsed p = graph_of("bra END; D: mov.u32 %r1, 1; END: ret;");
  REQUIRE(p.graph.blocks.size() == 3);
  CHECK_EQ(p.graph.immediate_dominator[1], kNoBlock);
  CHECK(p.graph.reverse_post_order == (Blocks{0, 2}));
  CHECK_EQ(p.graph.immediate_post_dominator[1], 2u);
}

TEST_CASE(a_table_branch_goes_to_each_of_its_labels_once) {
  const Parsed p = graph_of("T: .branchtargets A, B, A; brx.idx %r1, T; A: mov.u32 %r1, 1; B: ret;");
  REQUIRE(p.graph.blocks.size() == 3);
  CHECK(p.graph.blocks[0].successors == (Blocks{1, 2}));
  CHECK(!p.graph.has_indirect_branch);
}

TEST_CASE(an_unknown_table_may_go_to_every_label) {
  ParseResult result = parse(
      ".version 8.0\n.target sm_80\n.global .b32 nowhere;\n.entry k() { .reg .b32 %r<3>; A: mov.u32 %r1, 1; "
      "brx.idx %r1, nowhere; B: ret; C: exit; }");
  REQUIRE(!result.ok() && result.broken.size() == 1);
  const ControlFlowGraph graph = build_cfg(result.module.functions[0]);
  CHECK(graph.has_indirect_branch);
  CHECK(graph.blocks[0].successors == (Blocks{0, 1, 2}));
}

TEST_CASE(branches_inside_an_endless_loop_still_meet) {
  const Parsed p = graph_of("F: @p bra X; mov.u32 %r1, 1; bra J; X: mov.u32 %r1, 2; J: bra F;");
  REQUIRE(p.graph.blocks.size() == 4);
  CHECK_EQ(p.graph.immediate_post_dominator[0], 3u);
}

TEST_CASE(random_graphs_agree_with_the_definition) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const int count = 2 + static_cast<int>(random() % 9);
    std::string body;
    for (int i = 0; i < count; ++i) {
      body += "L" + std::to_string(i) + ": mov.u32 %r1, 1; ";
      const std::string target = "L" + std::to_string(random() % static_cast<unsigned>(count));
      const unsigned kind = random() % 6;
      if (kind < 3) body += "@p bra " + target + "; ";
      if (kind == 3) body += "bra " + target + "; ";
      if (kind == 4) body += "@p exit; ";
    }
    const Parsed p = graph_of(body + "ret;");
    const uint32_t blocks = static_cast<uint32_t>(p.graph.blocks.size());
    std::vector<Blocks> forward(blocks), backward(blocks + 1);
    for (uint32_t i = 0; i < blocks; ++i) {
      forward[i] = p.graph.blocks[i].successors;
      for (const uint32_t to : forward[i]) backward[to].push_back(i);
      if (p.graph.blocks[i].exits) backward[blocks].push_back(i);
    }
    for (uint32_t i = 0; i < blocks; ++i) {
      CHECK_EQ(p.graph.immediate_dominator[i], slow_immediate_dominator(forward, 0, i));
      // Without a way out the virtual exit is tied to some block of the loop: only compare the others.
      if (!reaches(backward, blocks, i)) continue;
      const uint32_t expected = slow_immediate_dominator(backward, blocks, i);
      bool all_leave = true;
      for (uint32_t j = 0; j < blocks; ++j) {
        all_leave = all_leave && (!reaches(forward, i, j) || reaches(backward, blocks, j));
      }
      if (all_leave) CHECK_EQ(p.graph.immediate_post_dominator[i], expected == blocks ? kNoBlock : expected);
    }
  }
}

TEST_MAIN()
