// SPDX-License-Identifier: Apache-2.0
// State spaces, vector accesses, faults, the record of accesses, atomics.
#include <atomic>
#include <thread>

#include "support.h"

namespace tessera::sim::testing {
namespace {

using Words = std::vector<uint32_t>;

Fault fault_of(const std::string& body, uint64_t buffer, TestMemory& memory, uint32_t threads = 32) {
  return TestModule(memory, kernel_text(body)).run("k", shape(1, threads), buffer).fault;
}

TEST_CASE(loads_extend_by_their_type) {
  const Words out = run_body(
      "ld.global.s8 %r1, [%base]; ld.global.u8 %r2, [%base]; ld.global.s16 %r3, [%base]; ld.global.u16 %r4, [%base];\n"
      "ld.global.s8 %rd1, [%base]; ld.global.s32 %rd2, [%base+4]; ld.global.s8 %h1, [%base]; cvt.u32.u16 %r5, %h1;\n"
      "mov.b64 {%r6, %r7}, %rd1; mov.b64 {%r8, %r9}, %rd2;\n"
      "st.global.v4.u32 [%base+16], {%r1, %r2, %r3, %r4}; st.global.v4.u32 [%base+32], {%r5, %r7, %r8, %r9};",
      1, {0x9876f0f1, 0x80000000, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  CHECK(out == (Words{0x9876f0f1, 0x80000000, 0, 0, 0xfffffff1, 0xf1, 0xfffff0f1, 0xf0f1, 0xfff1, 0xffffffff,
                      0x80000000, 0xffffffff}));
}

TEST_CASE(narrow_stores_touch_only_their_bytes) {
  const Words out = run_body(
      "mov.u32 %r1, 0x11223344; st.global.u8 [%base+1], %r1; st.global.u16 [%base+6], %r1; mov.u64 %rd1, 0x5566; "
      "st.global.b8 [%base+8], %rd1;",
      1, {~0u, ~0u, ~0u});
  CHECK(out == (Words{0xffff44ff, 0x3344ffff, 0xffffff66}));
}

TEST_CASE(vectors_of_every_length_and_element) {
  const Words out = run_body(
      "shl.b32 %r1, %tid0, 5; cvt.u64.u32 %rd1, %r1; add.u64 %rd1, %rd1, %base;\n"
      "ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%rd1]; ld.global.v2.u64 {%rd2, %rd3}, [%rd1+16];\n"
      "st.global.v2.u64 [%rd1], {%rd3, %rd2}; st.global.v4.u32 [%rd1+16], {%r5, %r4, %r3, %r2};",
      2, {0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 13, 14, 15, 16, 17});
  CHECK(out == (Words{6, 7, 4, 5, 3, 2, 1, 0, 16, 17, 14, 15, 13, 12, 11, 10}));
  const Words bytes = run_body(
      "ld.global.v4.u8 {%h1, %h2, %h3, %h4}, [%base]; st.global.v4.u8 [%base+4], {%h4, %h3, %h2, %h1};\n"
      "ld.global.v2.b16 {%h5, _}, [%base]; st.global.v2.b16 [%base+8], {%h5, %h5};\n"
      "ld.global.v8.b32 {%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}, [%base+32]; add.u32 %r9, %r1, %r8; st.global.u32 "
      "[%base+12], %r9;",
      1, {0x04030201, 0, 0, 0, 0, 0, 0, 0, 100, 0, 0, 0, 0, 0, 0, 23});
  CHECK_EQ(bytes[1], 0x01020304u);
  CHECK_EQ(bytes[2], 0x02010201u);
  CHECK_EQ(bytes[3], 123u);
}

TEST_CASE(shared_local_and_generic_addresses) {
  const std::string before = ".global .u32 g[4] = {7, 8, 9, 10};\n.const .u32 c[2] = {100, 200};\n";
  const Words out = run_body(
      ".shared .align 8 .b8 s[256]; .local .align 8 .b8 l[64];\n"
      "mov.u64 %rd1, s; cvta.shared.u64 %rd2, %rd1; mul.wide.u32 %rd3, %tid0, 4; add.u64 %rd2, %rd2, %rd3;\n"
      "add.u32 %r1, %tid0, 1000; st.u32 [%rd2], %r1; bar.sync 0;\n"
      "xor.b32 %r2, %tid0, 1; shl.b32 %r2, %r2, 2; mov.u32 %r3, s; add.u32 %r3, %r3, %r2; ld.shared.u32 %r4, "
      "[%r3];\n"  // the neighbour's
      "mov.u64 %rd4, l; cvta.local.u64 %rd5, %rd4; st.u32 [%rd5+8], %r4; ld.local.u32 %r5, [l+8];\n"
      "cvta.global.u64 %rd6, g; ld.u32 %r6, [%rd6+8]; ld.const.u32 %r7, [c+4]; add.u32 %r5, %r5, %r6; add.u32 %r5, "
      "%r5, %r7;\n"
      "isspacep.shared %p1, %rd2; isspacep.local %p2, %rd5; isspacep.global %p3, %rd6; isspacep.global %p4, %rd2;\n"
      "selp.u32 %r8, 10000, 0, %p1; @%p2 add.u32 %r8, %r8, 20000; @%p3 add.u32 %r8, %r8, 40000; @%p4 add.u32 %r8, "
      "%r8, 80000;\n"
      "add.u32 %r5, %r5, %r8; st.global.u32 [%mine], %r5;",
      4, {0, 0, 0, 0}, before);
  CHECK(out == (Words{71210, 71209, 71212, 71211}));
}

TEST_CASE(lanes_may_point_into_different_spaces) {
  const Words out = run_body(
      ".shared .u32 s[1]; .local .u32 l[1];\n mov.u64 %rd1, s; cvta.shared.u64 %rd1, %rd1; mov.u64 %rd2, l; "
      "cvta.local.u64 %rd2, %rd2;\n"
      "st.shared.u32 [s], 5; st.local.u32 [l], 6; setp.eq.u32 %p1, %tid0, 0; setp.eq.u32 %p2, %tid0, 1;\n"
      "mov.u64 %rd3, %mine; @%p1 mov.u64 %rd3, %rd1; @%p2 mov.u64 %rd3, %rd2; ld.u32 %r1, [%rd3]; st.global.u32 "
      "[%mine], %r1;",
      3, {1, 2, 3});
  CHECK(out == (Words{5, 6, 3}));
}

TEST_CASE(local_memory_belongs_to_its_thread) {
  const Words out = run_body(
      ".local .align 4 .b8 l[16]; and.b32 %r1, %tid0, 3; shl.b32 %r1, %r1, 2; mov.u32 %r2, l; add.u32 %r2, %r2, %r1;\n"
      "st.local.u32 [l], 90; st.local.u32 [l+4], 91; st.local.u32 [l+8], 92; st.local.u32 [l+12], 93;\n"
      "st.local.u32 [%r2], %tid0; ld.local.u32 %r3, [l]; ld.local.u32 %r4, [l+12]; mad.lo.u32 %r5, %r3, 100, %r4; "
      "st.global.u32 [%mine], %r5;",
      5, {0, 0, 0, 0, 0});
  CHECK(out == (Words{93, 9093, 9093, 9003, 493}));
}

TEST_CASE(parameters_of_every_kind) {
  TestMemory memory;
  const TestModule module(
      memory,
      ".visible .entry k(.param .u64 p, .param .u8 a, .param .align 8 .b8 s[24], .param .f64 d, .param .u16 h) {\n"
      ".reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .b16 %h<3>; .reg .f64 %fd<2>;\n"
      "ld.param.u64 %rd1, [p]; ld.param.u8 %r1, [a]; ld.param.v2.u32 {%r2, %r3}, [s+8]; ld.param.f64 %fd1, [d]; "
      "ld.param.u16 %h1, [h];\n"
      "mov.b64 %rd2, s; cvta.param.u64 %rd3, %rd2; ld.u32 %r4, [%rd3+16]; ld.param.u32 %r5, [%rd2+20]; cvt.rzi.u32.f64 "
      "%r6, %fd1; cvt.u32.u16 %r7, %h1;\n"
      "st.global.v4.u32 [%rd1], {%r1, %r2, %r3, %r4}; st.global.u32 [%rd1+16], %r5; st.global.u32 [%rd1+20], %r6; "
      "st.global.u32 [%rd1+24], %r7; ret; }");
  const KernelInfo& info = module.kernel("k").info();
  CHECK(info.parameter_offsets == (Words{0, 8, 16, 40, 48}));
  CHECK(info.parameter_sizes == (Words{8, 1, 24, 8, 2}));
  CHECK_EQ(info.parameter_block_size, 50u);
  struct Bytes {
    uint32_t words[6];
  };
  const uint64_t buffer = memory.upload(Words(7));
  module.good("k", shape(1, 1), buffer, uint8_t{200}, Bytes{{1, 2, 3, 4, 5, 6}}, 12.75, uint16_t{65535});
  CHECK(memory.download<uint32_t>(buffer, 7) == (Words{200, 3, 4, 5, 6, 12, 65535}));
}

TEST_CASE(an_illegal_address_is_a_fault_that_names_it) {
  TestMemory memory;
  const uint64_t buffer = memory.upload(Words(40));
  const Fault fault = fault_of("ld.global.u32 %r1, [%mine];", buffer, memory, 64);
  CHECK(fault.kind == Fault::Kind::kIllegalAddress);
  CHECK(fault.message.find("thread (40,0,0)") != std::string::npos);
  CHECK(fault.message.find("kernel 'k'") != std::string::npos);
  CHECK(fault.message.find("read of 4 bytes") != std::string::npos);
  CHECK(fault_of("mov.u64 %rd1, 0; st.global.u32 [%rd1], 1;", buffer, memory).kind == Fault::Kind::kIllegalAddress);
  CHECK(fault_of("mov.u64 %rd1, 0xfffffffffffffffc; ld.global.u32 %r1, [%rd1];", buffer, memory).kind ==
        Fault::Kind::kIllegalAddress);
  CHECK(fault_of("mov.u64 %rd1, 0x0001f00000000000; ld.u32 %r1, [%rd1];", buffer, memory).kind ==
        Fault::Kind::kIllegalAddress);
  CHECK(fault_of(".shared .u32 s[4]; ld.shared.u32 %r1, [s+16];", buffer, memory).kind == Fault::Kind::kIllegalAddress);
  CHECK(fault_of(".local .u32 l[4]; ld.local.u32 %r1, [l+4096];", buffer, memory).kind == Fault::Kind::kIllegalAddress);
}

TEST_CASE(an_access_must_be_aligned) {
  TestMemory memory;
  const uint64_t buffer = memory.upload(Words(64));
  CHECK(fault_of("ld.global.u32 %r1, [%base+2];", buffer, memory).kind == Fault::Kind::kMisaligned);
  CHECK(fault_of("ld.global.v2.u32 {%r1, %r2}, [%base+4];", buffer, memory).kind == Fault::Kind::kMisaligned);
  CHECK(fault_of("atom.global.add.u64 %rd1, [%base+4], 1;", buffer, memory).kind == Fault::Kind::kMisaligned);
  CHECK(fault_of(".shared .align 16 .b8 s[64]; st.shared.u16 [s+1], 1;", buffer, memory).kind ==
        Fault::Kind::kMisaligned);
}

TEST_CASE(a_store_to_read_only_memory_is_a_fault) {
  TestMemory memory;
  const uint64_t buffer = memory.upload(Words(64), false);
  CHECK(fault_of("ld.global.u32 %r1, [%base];", buffer, memory).kind == Fault::Kind::kNone);
  CHECK(fault_of("st.global.u32 [%base], 1;", buffer, memory).kind == Fault::Kind::kIllegalAddress);
  CHECK(fault_of("ld.global.u32 %r1, [%base]; st.global.u32 [%base], 1;", buffer, memory).kind ==
        Fault::Kind::kIllegalAddress);
  CHECK(fault_of("red.global.add.u32 [%base], 1;", buffer, memory).kind == Fault::Kind::kIllegalAddress);
}

TEST_CASE(inactive_lanes_touch_nothing) {
  TestMemory memory;
  const uint64_t buffer = memory.upload(Words(4));
  const Fault fault = fault_of(
      "setp.lt.u32 %p1, %tid0, 4; @%p1 st.global.u32 [%mine], %tid0; @%p1 ld.global.u32 %r1, [%mine];", buffer, memory);
  CHECK(fault.kind == Fault::Kind::kNone);
  CHECK(memory.download<uint32_t>(buffer, 4) == (Words{0, 1, 2, 3}));
}

TEST_CASE(the_record_of_accesses_is_exact) {
  TestMemory memory;
  const TestModule module(
      memory,
      kernel_text(
          "mul.wide.u32 %rd1, %tid0, 8; add.u64 %rd1, %rd1, %base; ld.global.u32 %r1, [%rd1];\n"  // every other word
          "setp.eq.u32 %p1, %tid0, 31; @%p1 st.global.u8 [%rd1+1000], 1; @%p1 atom.global.add.u32 %r2, [%base+2000], "
          "1;\n"
          "add.u64 %rd2, %base, 4096; mul.wide.u32 %rd3, %tid0, 16; add.u64 %rd2, %rd2, %rd3; st.global.v4.u32 [%rd2], "
          "{%r1, %r1, %r1, %r1};"));
  const uint64_t buffer = memory.reserve(16384);
  Launch launch = shape(1, 32);
  launch.record_accesses = true;
  const LaunchOutcome outcome = module.good("k", launch, buffer);
  const auto& reads = outcome.accesses.reads;
  const auto& writes = outcome.accesses.writes;
  CHECK_EQ(reads.size(), 33u);
  for (size_t i = 0; i < 32 && i < reads.size(); ++i)
    CHECK(reads[i].begin == buffer + 8 * i && reads[i].end == buffer + 8 * i + 4);
  CHECK(reads.back().begin == buffer + 2000 && reads.back().end == buffer + 2004);
  CHECK_EQ(writes.size(), 3u);
  CHECK(writes[0].begin == buffer + 31 * 8 + 1000 && writes[0].end == writes[0].begin + 1);
  CHECK(writes[1].begin == buffer + 2000 && writes[1].end == buffer + 2004);
  CHECK(writes[2].begin == buffer + 4096 && writes[2].end == buffer + 4096 + 512);
  CHECK_EQ(outcome.work.global_bytes_read, 32u * 4 + 4);
  CHECK_EQ(outcome.work.global_bytes_written, 512u + 1 + 4);
  // 8 sectors of 256 bytes read, one for the byte, one for the atomic, 16 for the stores
  CHECK_EQ(outcome.work.dram_bytes, 32u * (8 + 1 + 1 + 16));
}

TEST_CASE(accesses_over_page_borders_are_one_range) {
  TestMemory memory;
  const TestModule module(memory,
                          ".visible .entry k(.param .u64 p) { .reg .b32 %r<9>; .reg .b64 %rd<9>; ld.param.u64 %rd1, "
                          "[p]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x;\n"
                          "mad.lo.u32 %r1, %r2, %r3, %r1; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd1, %rd1, %rd2; "
                          "ld.global.u32 %r4, [%rd1]; add.u32 %r4, %r4, 1; st.global.u32 [%rd1], %r4; ret; }");
  const uint64_t buffer = memory.reserve(256 * 256 * 4);
  Launch launch = shape(256, 256);
  launch.record_accesses = true;
  const LaunchOutcome outcome = module.good("k", launch, buffer);
  CHECK_EQ(outcome.accesses.reads.size(), 1u);
  CHECK(outcome.accesses.reads[0].begin == buffer && outcome.accesses.reads[0].end == buffer + 262144);
  CHECK_EQ(outcome.accesses.writes.size(), 1u);
  CHECK_EQ(outcome.work.dram_bytes, 262144u);
}

TEST_CASE(atomics_return_the_old_value) {
  const Words out = run_body(
      ".shared .u32 s[2]; st.shared.u32 [s], 0; bar.sync 0; atom.shared.add.u32 %r1, [s], 1; st.global.u32 [%mine], "
      "%r1; bar.sync 0;\n"
      "setp.ne.u32 %p1, %tid0, 0; @%p1 ret;\n"
      "add.u64 %rd9, %base, 128; atom.global.cas.b32 %r2, [%rd9], 5, 77; atom.global.cas.b32 %r3, [%rd9], 6, 88; "
      "st.global.u32 [%rd9+4], %r2; st.global.u32 [%rd9+8], %r3;\n"
      "atom.global.inc.u32 %r4, [%rd9+12], 3; atom.global.dec.u32 %r4, [%rd9+16], 9; atom.global.exch.b32 %r4, "
      "[%rd9+20], 4; st.global.u32 [%rd9+24], %r4;\n"
      "red.global.min.s32 [%rd9+28], -5; red.global.max.u32 [%rd9+32], 0xf0000000; atom.global.and.b32 %r5, [%rd9+36], "
      "12; red.global.or.b32 [%rd9+40], 12; red.global.xor.b32 [%rd9+44], 12;\n"
      "red.global.add.f32 [%rd9+48], 0f3FC00000; atom.global.add.noftz.f16x2 %r6, [%rd9+52], 0x3c004000; "
      "red.global.add.u64 [%rd9+56], 0x100000000;\n"
      "atom.global.cas.b16 %h1, [%rd9+64], 9, 10; atom.global.add.f64 %fd1, [%rd9+72], 0d3FF8000000000000; "
      "red.global.v2.f32.add [%rd9+80], {%f1, %f1};",
      32, [] {
        Words w(32 + 24);
        w[32] = 5;
        w[35] = 3;
        w[36] = 0;
        w[37] = 8;
        w[39] = 2;
        w[40] = 1;
        w[41] = 0xff;
        w[42] = 3;
        w[43] = 5;
        w[44] = 0x3f800000;
        w[45] = 0x3c003c00;
        w[48] = 9;
        return w;
      }());
  uint32_t seen = 0;
  for (int i = 0; i < 32; ++i) seen |= 1u << out[static_cast<size_t>(i)];
  CHECK_EQ(seen, 0xffffffffu);
  const Words rest(out.begin() + 32, out.end());
  CHECK(Words(rest.begin(), rest.begin() + 7) == (Words{77, 5, 77, 0, 9, 4, 8}));
  CHECK_EQ(rest[7], static_cast<uint32_t>(-5));
  CHECK_EQ(rest[8], 0xf0000000u);
  CHECK_EQ(rest[9], 12u);
  CHECK_EQ(rest[10], 15u);
  CHECK_EQ(rest[11], 9u);
  CHECK_EQ(rest[12], 0x40200000u);
  CHECK_EQ(rest[13], 0x40004200u);
  CHECK_EQ(rest[15], 1u);
  CHECK_EQ(rest[16], 10u);
  CHECK_EQ(rest[19], 0x3ff80000u);
}

TEST_CASE(launches_on_several_threads_share_atomics) {
  TestMemory memory;
  const TestModule module(
      memory, kernel_text("mov.u32 %r1, 0; L: red.global.add.u32 [%base], 1; atom.global.add.f32 %f1, [%base+4], "
                          "0f3F800000; add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 200; @%p1 bra L;"));
  const uint64_t buffer = memory.reserve(64);
  std::vector<std::thread> threads;
  std::atomic<int> faults{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back(
        [&] { faults += module.run("k", shape(2, 64), buffer).fault.kind != Fault::Kind::kNone ? 1 : 0; });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK_EQ(faults.load(), 0);
  CHECK_EQ(memory.download<uint32_t>(buffer, 1)[0], 4u * 2 * 64 * 200);
  CHECK_EQ(memory.download<float>(buffer, 2)[1], 102400.0f);
}

TEST_CASE(asynchronous_copies_fill_with_zeros) {
  const Words out = run_body(
      ".shared .align 16 .b8 s[128]; setp.ne.u32 %p1, %tid0, 0; @%p1 bra D;\n"
      "mov.u32 %r1, s; st.shared.u32 [s+4], 99; cp.async.ca.shared.global [%r1], [%base], 4; cp.async.ca.shared.global "
      "[%r1+8], [%base], 8, 4;\n"
      "mov.u32 %r2, 0; cp.async.cg.shared.global [%r1+16], [%base], 16, %r2; st.shared.u32 [s+32], 7; "
      "cp.async.cg.shared.global.L2::128B [s+32], [%base], 16;\n"
      "cp.async.commit_group; cp.async.wait_group 0; cp.async.wait_all;\n"
      "D: bar.sync 0; shl.b32 %r3, %tid0, 2; mov.u32 %r4, s; add.u32 %r4, %r4, %r3; ld.shared.u32 %r5, [%r4]; "
      "st.global.u32 [%mine+64], %r5;",
      12, {11, 12, 13, 14, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1});
  CHECK(Words(out.begin() + 16, out.end()) == (Words{11, 99, 11, 0, 0, 0, 0, 0, 11, 12, 13, 14}));
}

TEST_CASE(wide_values_of_128_bits) {
  const Words out = run_body(
      ".reg .b128 %q<3>; ld.global.b128 %q1, [%base]; mov.b128 {%rd1, %rd2}, %q1; add.u64 %rd1, %rd1, 1; mov.b128 %q2, "
      "{%rd2, %rd1}; st.global.b128 [%base+16], %q2;",
      1, {1, 2, 3, 4, 0, 0, 0, 0});
  CHECK(out == (Words{1, 2, 3, 4, 3, 4, 2, 2}));
}

}  // namespace
}  // namespace tessera::sim::testing

TEST_MAIN()
