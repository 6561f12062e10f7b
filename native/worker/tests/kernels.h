// SPDX-License-Identifier: Apache-2.0
// The kernels that the tests launch.
#pragma once

namespace tessera::worker::testing {

inline const char* const kKernels = R"(
.version 7.0
.target sm_80
.address_size 64

// data[i] += amount for i < n
.visible .entry add(.param .u64 data, .param .u32 n, .param .u32 amount) {
  .reg .b32 %r<8>; .reg .b64 %rd<4>; .reg .pred %p<2>;
  ld.param.u64 %rd1, [data];
  ld.param.u32 %r1, [n];
  ld.param.u32 %r2, [amount];
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mov.u32 %r5, %tid.x;
  mad.lo.u32 %r6, %r3, %r4, %r5;
  setp.ge.u32 %p1, %r6, %r1;
  @%p1 ret;
  mul.wide.u32 %rd2, %r6, 4;
  add.u64 %rd3, %rd1, %rd2;
  ld.global.u32 %r7, [%rd3];
  add.u32 %r7, %r7, %r2;
  st.global.u32 [%rd3], %r7;
  ret;
}

// out[i] = 3 * a[i] + b[i], one block
.visible .entry combine(.param .u64 out, .param .u64 a, .param .u64 b) {
  .reg .b32 %r<6>; .reg .b64 %rd<8>;
  ld.param.u64 %rd1, [out];
  ld.param.u64 %rd2, [a];
  ld.param.u64 %rd3, [b];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd4, %r1, 4;
  add.u64 %rd5, %rd1, %rd4;
  add.u64 %rd6, %rd2, %rd4;
  add.u64 %rd7, %rd3, %rd4;
  ld.global.u32 %r2, [%rd6];
  ld.global.u32 %r3, [%rd7];
  mad.lo.u32 %r4, %r2, 3, %r3;
  st.global.u32 [%rd5], %r4;
  ret;
}

// *table[i] += 1: the pointers lie in device memory
.visible .entry follow(.param .u64 table) {
  .reg .b32 %r<4>; .reg .b64 %rd<6>;
  ld.param.u64 %rd1, [table];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd2, %r1, 8;
  add.u64 %rd3, %rd1, %rd2;
  ld.global.u64 %rd4, [%rd3];
  ld.global.u32 %r2, [%rd4];
  add.u32 %r2, %r2, 1;
  st.global.u32 [%rd4], %r2;
  ret;
}

// waits until *flag is not 0
.visible .entry spin(.param .u64 flag) {
  .reg .b32 %r<2>; .reg .b64 %rd<2>; .reg .pred %p<2>;
  ld.param.u64 %rd1, [flag];
again:
  ld.volatile.global.u32 %r1, [%rd1];
  setp.eq.u32 %p1, %r1, 0;
  @%p1 bra again;
  ret;
}

// out[0] = the last word of a block by value
.visible .entry wide(.param .u64 out, .param .align 8 .b8 block[600]) {
  .reg .b32 %r<2>; .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [block+596];
  st.global.u32 [%rd1], %r1;
  ret;
}

// out[tid] = tid, through dynamic shared memory
.extern .shared .align 4 .b8 dynamic[];
.visible .entry shared_user(.param .u64 out, .param .u32 offset) {
  .reg .b32 %r<6>; .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [offset];
  mov.u32 %r2, dynamic;
  add.u32 %r2, %r2, %r1;
  mov.u32 %r3, %tid.x;
  shl.b32 %r4, %r3, 2;
  add.u32 %r2, %r2, %r4;
  st.shared.u32 [%r2], %r3;
  ld.shared.u32 %r5, [%r2];
  mul.wide.u32 %rd2, %r3, 4;
  add.u64 %rd3, %rd1, %rd2;
  st.global.u32 [%rd3], %r5;
  ret;
}

.visible .entry local_user(.param .u64 out) {
  .reg .b32 %r<4>; .reg .b64 %rd<4>;
  .local .align 4 .b8 array[4096];
  ld.param.u64 %rd1, [out];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd2, %r1, 4;
  mov.u64 %rd3, array;
  add.u64 %rd3, %rd3, %rd2;
  st.local.u32 [%rd3], %r1;
  ld.local.u32 %r2, [%rd3];
  add.u64 %rd2, %rd1, %rd2;
  st.global.u32 [%rd2], %r2;
  ret;
}

.visible .entry ignore(.param .u64 a, .param .u64 b) { ret; }

.visible .entry trap_now() { trap; }
)";

/// A module that no sm_80 device can run.
inline const char* const kNewerKernels = R"(
.version 8.0
.target sm_90
.address_size 64
.visible .entry nothing() { ret; }
)";

}  // namespace tessera::worker::testing
