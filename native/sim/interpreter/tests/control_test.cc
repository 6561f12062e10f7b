// SPDX-License-Identifier: Apache-2.0
// Divergence and reconvergence, barriers, calls, scheduling, and what becomes of
// programs that never end.
#include "support.h"

namespace tessera::sim::testing {
namespace {

using Words = std::vector<uint32_t>;

Words iota(uint32_t n, uint32_t from = 0) {
  Words out(n);
  for (uint32_t i = 0; i < n; ++i) out[i] = from + i;
  return out;
}

TEST_CASE(lanes_that_part_meet_again) {
  const Words out = run_body(
      "and.b32 %r1, %tid0, 1; setp.eq.u32 %p1, %r1, 0; @%p1 bra E; mov.u32 %r2, 100; bra J; E: mov.u32 %r2, 200; J: "
      "activemask.b32 %r3; popc.b32 %r3, %r3; add.u32 %r2, %r2, %r3; st.global.u32 [%mine], %r2;",
      32, Words(32));
  for (uint32_t i = 0; i < 32; ++i) CHECK_EQ(out[i], (i % 2 == 0 ? 200u : 100u) + 32);
}

TEST_CASE(loops_of_different_length) {
  const Words out = run_body(
      "mov.u32 %r1, 0; mov.u32 %r2, 0; L: setp.ge.u32 %p1, %r1, %tid0; @%p1 bra D; add.u32 %r2, %r2, %r1; add.u32 %r1, "
      "%r1, 1; bra L; D: activemask.b32 %r3; setp.eq.u32 %p2, %r3, -1; selp.u32 %r4, 1000, 0, %p2; add.u32 %r2, %r2, "
      "%r4; st.global.u32 [%mine], %r2;",
      32, Words(32));
  for (uint32_t i = 0; i < 32; ++i) CHECK_EQ(out[i], i * (i - 1) / 2 + 1000);
}

TEST_CASE(nested_divergence_with_continue_and_break) {
  // for i in 0..20: if i & 1: continue; if i > tid: break; for j in 0..i: sum += 1
  const Words out = run_body(
      "mov.u32 %r1, 0; mov.u32 %r2, 0;\n"
      "L: setp.ge.u32 %p1, %r1, 20; @%p1 bra D; and.b32 %r3, %r1, 1; setp.ne.u32 %p2, %r3, 0; @%p2 bra C; setp.gt.u32 "
      "%p3, %r1, %tid0; @%p3 bra D;\n"
      "mov.u32 %r4, 0; I: setp.ge.u32 %p4, %r4, %r1; @%p4 bra C; add.u32 %r2, %r2, 1; add.u32 %r4, %r4, 1; bra I;\n"
      "C: add.u32 %r1, %r1, 1; bra L; D: st.global.u32 [%mine], %r2;",
      32, Words(32));
  for (uint32_t t = 0; t < 32; ++t) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < 20 && (i % 2 == 1 || i <= t); ++i) sum += i % 2 == 1 ? 0 : i;
    CHECK_EQ(out[t], sum);
  }
}

TEST_CASE(an_indexed_branch_sends_lanes_to_their_targets) {
  const Words out = run_body(
      "T: .branchtargets A, B, C; and.b32 %r1, %tid0, 3; min.u32 %r1, %r1, 2; brx.idx %r1, T;\n"
      "A: mov.u32 %r2, 10; bra J; B: mov.u32 %r2, 20; bra J; C: mov.u32 %r2, 30; J: activemask.b32 %r3; popc.b32 %r3, "
      "%r3; add.u32 %r2, %r2, %r3; st.global.u32 [%mine], %r2;",
      8, Words(8));
  CHECK(out == (Words{18, 28, 38, 38, 18, 28, 38, 38}));
}

TEST_CASE(a_guarded_exit_leaves_the_others) {
  const Words out = run_body(
      "setp.gt.u32 %p1, %tid0, 4; @%p1 exit; setp.gt.u32 %p2, %tid0, 2; @!%p2 bra N; st.global.u32 [%mine], 7; ret; N: "
      "st.global.u32 [%mine], 8;",
      8, Words(8));
  CHECK(out == (Words{8, 8, 8, 7, 7, 0, 0, 0}));
}

TEST_CASE(block_barriers_order_the_warps) {
  const Words out = run_body(
      ".shared .u32 s[256]; shl.b32 %r1, %tid0, 2; mov.u32 %r2, s; add.u32 %r3, %r2, %r1; st.shared.u32 [%r3], %tid0; "
      "barrier.sync 0;\n"
      "sub.u32 %r4, 255, %tid0; shl.b32 %r4, %r4, 2; add.u32 %r4, %r4, %r2; ld.shared.u32 %r5, [%r4]; bar.sync 1, 256; "
      "st.global.u32 [%mine], %r5;",
      256, Words(256));
  for (uint32_t i = 0; i < 256; ++i) CHECK_EQ(out[i], 255 - i);
}

TEST_CASE(a_barrier_counts_the_warps_that_are_left) {
  const Words out =
      run_body("setp.ge.u32 %p1, %tid0, 64; @%p1 ret; bar.sync 0; st.global.u32 [%mine], 1;", 128, Words(128));
  for (uint32_t i = 0; i < 128; ++i) CHECK_EQ(out[i], i < 64 ? 1u : 0u);
}

TEST_CASE(producers_arrive_and_consumers_wait) {
  // Warp 0 waits at barrier 2 for 64 threads; warp 1 only arrives.
  const Words out = run_body(
      ".shared .u32 s; setp.lt.u32 %p1, %tid0, 32; @%p1 bra C; st.shared.u32 [s], 42; bar.arrive 2, 64; bra D; C: "
      "bar.sync 2, 64; ld.shared.u32 %r1, [s]; st.global.u32 [%mine], %r1; D:",
      64, Words(64));
  CHECK_EQ(out[0], 42u);
  CHECK_EQ(out[31], 42u);
}

TEST_CASE(barrier_reductions) {
  const Words out = run_body(
      "setp.lt.u32 %p1, %tid0, 70; bar.red.popc.u32 %r1, 0, %p1; bar.red.and.pred %p2, 0, %p1; bar.red.or.pred %p3, 1, "
      "96, !%p1; selp.u32 %r2, 1000, 0, %p2; selp.u32 %r3, 10000, 0, %p3; add.u32 %r1, %r1, %r2; add.u32 %r1, %r1, "
      "%r3; st.global.u32 [%mine], %r1;",
      96, Words(96));
  for (uint32_t value : out) CHECK_EQ(value, 10070u);
}

TEST_CASE(a_barrier_on_both_sides_of_a_branch) {
  const Words out = run_body(
      ".shared .u32 s[2]; and.b32 %r1, %tid0, 1; setp.eq.u32 %p1, %r1, 0; @%p1 bra E; st.shared.u32 [s], 5; "
      "bar.warp.sync -1; ld.shared.u32 %r2, [s+4]; bra J;\n"
      "E: st.shared.u32 [s+4], 6; bar.warp.sync -1; ld.shared.u32 %r2, [s]; J: st.global.u32 [%mine], %r2;",
      32, Words(32));
  for (uint32_t i = 0; i < 32; ++i) CHECK_EQ(out[i], i % 2 == 0 ? 5u : 6u);
}

TEST_CASE(shuffles_wait_for_their_members) {
  // The two halves of the warp come to the one shuffle at different times.
  const Words out = run_body(
      "setp.lt.u32 %p1, %tid0, 16; mov.u32 %r1, %tid0; @%p1 bra S; mov.u32 %r2, 0; L: add.u32 %r2, %r2, 1; setp.lt.u32 "
      "%p2, %r2, 50; @%p2 bra L; add.u32 %r1, %r1, 100;\n"
      "S: shfl.sync.bfly.b32 %r3, %r1, 16, 31, -1; st.global.u32 [%mine], %r3;",
      32, Words(32));
  for (uint32_t i = 0; i < 32; ++i) CHECK_EQ(out[i], i < 16 ? i + 16 + 100 : i - 16);
}

TEST_CASE(a_subset_of_the_warp_may_shuffle_alone) {
  const Words out = run_body(
      "setp.ge.u32 %p1, %tid0, 8; @%p1 bra D; shfl.sync.idx.b32 %r1|%p2, %tid0, 3, 31, 255; vote.sync.ballot.b32 %r2, "
      "%p2, 255; mad.lo.u32 %r1, %r2, 1000, %r1; st.global.u32 [%mine], %r1; D:",
      32, Words(32));
  for (uint32_t i = 0; i < 32; ++i) CHECK_EQ(out[i], i < 8 ? 255003u : 0u);
}

TEST_CASE(lanes_that_exited_are_not_waited_for) {
  const Words out = run_body(
      "setp.ge.u32 %p1, %tid0, 20; @%p1 exit; match.any.sync.b32 %r1, 7, -1; redux.sync.add.u32 %r2, 1, -1; add.u32 "
      "%r1, %r1, %r2; st.global.u32 [%mine], %r1;",
      32, Words(32));
  CHECK_EQ(out[0], 0xfffffu + 20);
}

TEST_CASE(elect_chooses_one_lane) {
  const Words out =
      run_body("elect.sync %r1|%p1, -1; selp.u32 %r2, 1, 0, %p1; st.global.u32 [%mine], %r2;", 32, Words(32));
  uint32_t sum = 0;
  for (uint32_t value : out) sum += value;
  CHECK_EQ(sum, 1u);
}

// ---- calls ----

TEST_CASE(functions_take_and_give_memory_and_registers) {
  const std::string before =
      ".func (.param .b32 out) add3(.param .b32 a, .param .align 16 .b8 s[16]) { .reg .b32 %r<5>; ld.param.u32 %r1, "
      "[a]; ld.param.u32 %r2, [s+4]; ld.param.u32 %r3, [s+12]; add.u32 %r1, %r1, %r2; add.u32 %r1, %r1, %r3; "
      "st.param.b32 [out], %r1; ret; }\n"
      ".func (.reg .u32 %out) twice(.reg .u32 %in) { add.u32 %out, %in, %in; ret; }\n";
  const Words out = run_body(
      "{ .param .b32 p0; .param .align 16 .b8 p1[16]; .param .b32 r0; st.param.b32 [p0], %tid0; st.param.v4.b32 [p1], "
      "{1, 20, 3, 400}; call.uni (r0), add3, (p0, p1); ld.param.b32 %r1, [r0]; }\n"
      "call (%r2), twice, (%r1); call (%r3), twice, (5); add.u32 %r2, %r2, %r3; st.global.u32 [%mine], %r2;",
      4, Words(4), before);
  CHECK(out == (Words{850, 852, 854, 856}));
}

TEST_CASE(recursion_and_divergent_calls) {
  const std::string before =
      ".func (.param .b32 out) fact(.param .b32 n) { .reg .b32 %r<5>; .reg .pred %p; .local .u32 keep; ld.param.u32 "
      "%r1, [n]; st.local.u32 [keep], %r1; setp.lt.u32 %p, %r1, 2; @%p bra B;\n"
      "sub.u32 %r2, %r1, 1; { .param .b32 a; .param .b32 r; st.param.b32 [a], %r2; call (r), fact, (a); ld.param.b32 "
      "%r3, [r]; } ld.local.u32 %r1, [keep]; mul.lo.u32 %r3, %r3, %r1; st.param.b32 [out], %r3; ret; B: st.param.b32 "
      "[out], 1; ret; }\n";
  const Words out = run_body(
      "setp.eq.u32 %p1, %tid0, 3; mov.u32 %r1, 9; @%p1 bra D; { .param .b32 a; .param .b32 r; st.param.b32 [a], %tid0; "
      "call (r), fact, (a); ld.param.b32 %r1, [r]; } D: activemask.b32 %r2; popc.b32 %r2, %r2; add.u32 %r1, %r1, %r2; "
      "st.global.u32 [%mine], %r1;",
      8, Words(8), before);
  CHECK(out == (Words{9, 9, 10, 17, 32, 128, 728, 5048}));
}

TEST_CASE(function_pointers_in_tables) {
  const std::string before =
      ".func (.param .b32 o) f1(.param .b32 a) { .reg .b32 %r; ld.param.b32 %r, [a]; add.u32 %r, %r, 1; st.param.b32 "
      "[o], %r; ret; }\n"
      ".func (.param .b32 o) f2(.param .b32 a) { .reg .b32 %r; ld.param.b32 %r, [a]; mul.lo.u32 %r, %r, 10; "
      "st.param.b32 [o], %r; ret; }\n.global .u64 table[2] = {f1, f2};\n";
  const Words out = run_body(
      "P: .callprototype (.param .b32 _) _ (.param .b32 _);\n and.b32 %r1, %tid0, 1; mul.wide.u32 %rd1, %r1, 8; "
      "mov.u64 %rd2, table; add.u64 %rd2, %rd2, %rd1; ld.global.u64 %rd3, [%rd2];\n"
      "{ .param .b32 a; .param .b32 r; st.param.b32 [a], %tid0; call (r), %rd3, (a), P; ld.param.b32 %r2, [r]; } "
      "st.global.u32 [%mine], %r2;",
      4, Words(4), before);
  CHECK(out == (Words{1, 10, 3, 30}));
}

TEST_CASE(an_exit_within_a_function_ends_the_thread) {
  const std::string before =
      ".func f(.param .b32 a) { .reg .b32 %r; .reg .pred %p; ld.param.b32 %r, [a]; setp.gt.u32 %p, %r, 2; @%p exit; "
      "ret; }\n";
  const Words out = run_body(
      "{ .param .b32 a; st.param.b32 [a], %tid0; call f, (a); } activemask.b32 %r1; st.global.u32 [%mine], %r1;", 8,
      Words(8), before);
  CHECK(out == (Words{7, 7, 7, 0, 0, 0, 0, 0}));
}

TEST_CASE(endless_recursion_is_a_fault) {
  TestMemory memory;
  const std::string before = ".func f() { .local .b8 big[256]; st.local.u8 [big], 1; call f; ret; }\n";
  const TestModule module(memory, kernel_text("call f;", before));
  CHECK(module.run("k", shape(1, 32), memory.reserve(64)).fault.kind == Fault::Kind::kIllegalAddress);
}

TEST_CASE(a_call_through_nonsense_is_a_fault) {
  TestMemory memory;
  const TestModule module(memory, kernel_text("P: .callprototype _ (); call %base, P;"));
  CHECK(module.run("k", shape(1, 32), memory.reserve(64)).fault.kind == Fault::Kind::kIllegalInstruction);
}

// ---- programs that do not end ----

TEST_CASE(an_endless_loop_runs_out_of_budget) {
  TestMemory memory;
  const TestModule module(memory, kernel_text("L: bra L;"));
  Launch launch = shape(4, 64);
  launch.step_budget = 100000;
  const Fault fault = module.run("k", launch, memory.reserve(64)).fault;
  CHECK(fault.kind == Fault::Kind::kLaunchTimeout);
}

TEST_CASE(a_deadlock_is_found) {
  TestMemory memory;
  const TestModule counted(memory, kernel_text("bar.sync 3, 96;"));
  const Fault fault = counted.run("k", shape(1, 64), memory.reserve(64)).fault;
  CHECK(fault.kind == Fault::Kind::kLaunchTimeout);
  CHECK(fault.message.find("deadlock") != std::string::npos);
}

TEST_CASE(traps_and_asserts_end_the_launch) {
  TestMemory memory;
  const TestModule module(memory, kernel_text("setp.eq.u32 %p1, %tid0, 5; @%p1 trap;"));
  const Fault fault = module.run("k", shape(1, 32), memory.reserve(64)).fault;
  CHECK(fault.kind == Fault::Kind::kTrap);
  CHECK(fault.message.find("thread (5,0,0)") != std::string::npos);
}

// ---- blocks ----

TEST_CASE(a_block_may_wait_for_a_later_one) {
  // Block 0 spins until block 5 has written: not a cooperative launch.
  TestMemory memory;
  const TestModule module(memory, kernel_text("mov.u32 %r1, %ctaid.x; setp.eq.u32 %p1, %r1, 0; @%p1 bra W; setp.ne.u32 "
                                              "%p2, %r1, 5; @%p2 ret; st.release.gpu.global.u32 [%base], 1; ret;\n"
                                              "W: ld.acquire.gpu.global.u32 %r2, [%base]; setp.eq.u32 %p3, %r2, 0; "
                                              "@%p3 bra W; st.global.u32 [%base+4], 9;"));
  const uint64_t buffer = memory.reserve(64);
  module.good("k", shape(6, 32), buffer);
  CHECK(memory.download<uint32_t>(buffer, 2) == (Words{1, 9}));
}

TEST_CASE(a_cooperative_grid_meets_at_a_barrier) {
  TestMemory memory;
  const TestModule module(
      memory,
      kernel_text(
          "bar.sync 0; setp.ne.u32 %p1, %tid0, 0; @%p1 bra S; red.release.gpu.global.add.u32 [%base], 1; mov.u32 %r2, "
          "%nctaid.x; W: ld.acquire.gpu.global.u32 %r1, [%base]; setp.lt.u32 %p2, %r1, %r2; @%p2 bra W;\n"
          "S: bar.sync 0; @%p1 ret; ld.volatile.global.u32 %r3, [%base]; red.global.add.u32 [%base+4], %r3;"));
  const uint64_t buffer = memory.reserve(64);
  Launch launch = shape(40, 64);
  launch.cooperative = true;
  module.good("k", launch, buffer);
  CHECK(memory.download<uint32_t>(buffer, 2) == (Words{40, 1600}));
}

TEST_CASE(clusters_share_memory_and_barriers) {
  TestMemory memory;
  const TestModule module(memory,
                          ".visible .entry k(.param .u64 p) { .reg .b32 %r<12>; .reg .b64 %rd<5>; .reg .pred %p1; "
                          ".shared .u32 s; ld.param.u64 %rd1, [p]; mov.u32 %r1, %cluster_ctarank; mov.u32 %r2, "
                          "%ctaid.x; add.u32 %r3, %r2, 50; st.shared.u32 [s], %r3;\n"
                          "barrier.cluster.arrive.release; barrier.cluster.wait.acquire; xor.b32 %r4, %r1, 1; mov.u32 "
                          "%r5, s; mapa.shared::cluster.u32 %r6, %r5, %r4; ld.shared::cluster.u32 %r7, [%r6]; "
                          "getctarank.shared::cluster.u32 %r8, %r6;\n"
                          "barrier.cluster.arrive; barrier.cluster.wait; mad.lo.u32 %r7, %r8, 1000, %r7; mov.u32 %r9, "
                          "%cluster_nctarank; mad.lo.u32 %r7, %r9, 10000, %r7; mul.wide.u32 %rd2, %r2, 4; add.u64 "
                          "%rd1, %rd1, %rd2; st.global.u32 [%rd1], %r7; ret; }");
  const uint64_t buffer = memory.reserve(64);
  Launch launch = shape(4, 64);
  launch.cluster.x = 2;
  module.good("k", launch, buffer);
  CHECK(memory.download<uint32_t>(buffer, 4) == (Words{21051, 20050, 21053, 20052}));
}

TEST_CASE(mbarriers_complete_by_arrivals_and_bytes) {
  const Words out = run_body(
      ".shared .b64 m; .shared .align 16 .b8 s[64]; setp.eq.u32 %p1, %tid0, 0; @%p1 mbarrier.init.shared.b64 [m], 64; "
      "bar.sync 0;\n"
      "@!%p1 bra A; mbarrier.arrive.expect_tx.shared.b64 %rd1, [m], 32; mov.u32 %r1, s; "
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%base], 32, [m]; bra W;\n"
      "A: mbarrier.arrive.shared.b64 %rd1, [m]; W: mbarrier.try_wait.parity.shared.b64 %p2, [m], 0; @!%p2 bra W; "
      "mbarrier.test_wait.shared.b64 %p3, [m], %rd1; selp.u32 %r3, 100, 0, %p3;\n"
      "and.b32 %r4, %tid0, 7; shl.b32 %r4, %r4, 2; mov.u32 %r5, s; add.u32 %r5, %r5, %r4; ld.shared.u32 %r6, [%r5]; "
      "add.u32 %r6, %r6, %r3; st.global.u32 [%mine+32], %r6;",
      64, [] {
        Words w = iota(8, 1);
        w.resize(72);
        return w;
      }());
  for (uint32_t i = 0; i < 64; ++i) CHECK_EQ(out[8 + i], i % 8 + 1 + 100);
}

TEST_CASE(indices_of_threads_and_blocks) {
  TestMemory memory;
  const TestModule module(
      memory,
      ".visible .entry k(.param .u64 p) { .reg .b32 %r<20>; .reg .b64 %rd<4>; ld.param.u64 %rd1, [p]; mov.u32 %r1, "
      "%tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %tid.z; mov.u32 %r4, %ntid.x; mov.u32 %r5, %ntid.y; mov.u32 %r6, "
      "%ctaid.x; mov.u32 %r7, %ctaid.y; mov.u32 %r8, %ctaid.z; mov.u32 %r9, %nctaid.x; mov.u32 %r10, %nctaid.y; "
      "mov.u32 %r15, %ntid.z;\n"
      "mad.lo.u32 %r11, %r3, %r5, %r2; mad.lo.u32 %r11, %r11, %r4, %r1; mad.lo.u32 %r12, %r8, %r10, %r7; mad.lo.u32 "
      "%r12, %r12, %r9, %r6; mul.lo.u32 %r13, %r4, %r5; mul.lo.u32 %r13, %r13, %r15; mad.lo.u32 %r12, %r12, %r13, "
      "%r11;\n"
      "mul.wide.u32 %rd2, %r12, 4; add.u64 %rd1, %rd1, %rd2; mov.u32 %r16, %laneid; mov.u32 %r17, %warpid; mad.lo.u32 "
      "%r16, %r17, 32, %r16; sub.u32 %r16, %r16, %r11; add.u32 %r12, %r12, %r16; st.global.u32 [%rd1], %r12; ret; }");
  Launch launch;
  launch.grid = {2, 3, 2};
  launch.block = {5, 4, 3};
  const uint64_t buffer = memory.reserve(12 * 60 * 4);
  module.good("k", launch, buffer);
  CHECK(memory.download<uint32_t>(buffer, 720) == iota(720));
}

TEST_CASE(launches_that_cannot_be_are_refused) {
  TestMemory memory;
  const TestModule module(memory,
                          ".visible .entry k() .maxntid 64 { ret; }\n.visible .entry r() .reqntid 32, 2 { ret; }");
  const auto kind = [&](const char* name, const Launch& launch) { return module.run(name, launch).fault.kind; };
  CHECK(kind("k", shape(1, 64)) == Fault::Kind::kNone);
  CHECK(kind("k", shape(1, 65)) == Fault::Kind::kInvalidConfig);
  CHECK(kind("k", shape(0, 64)) == Fault::Kind::kInvalidConfig);
  CHECK(kind("r", shape(1, 64)) == Fault::Kind::kInvalidConfig);
  Launch launch = shape(3, 32);
  launch.cluster.x = 2;
  CHECK(kind("k", launch) == Fault::Kind::kInvalidConfig);
}

}  // namespace
}  // namespace tessera::sim::testing

TEST_MAIN()
