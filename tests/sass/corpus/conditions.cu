// SPDX-License-Identifier: Apache-2.0
// A table of pointers is used in some launches alone: which ones, the parameters tell, or do not.
#define INDEX int i = blockIdx.x * blockDim.x + threadIdx.x
struct Given {
  float* out;
  const float* a;
  const float* const* table;
  int mode;
  unsigned char flag;
  short kind;
  long long wide;
  unsigned limit;
  int n;
};
__device__ __noinline__ const float* chosen(const float* a, const float* const* table, int mode) {
  return mode == 2 ? table[blockIdx.y] : a;
}
extern "C" {
#define PICK(NAME, WHEN)               \
  __global__ void NAME(Given g) {      \
    INDEX;                             \
    const float* p = g.a;              \
    if (WHEN) p = g.table[blockIdx.y]; \
    if (i < g.n) g.out[i] = p[i];      \
  }
PICK(equal, g.mode == 1)
PICK(different, g.mode != 1)
PICK(negative, g.mode < -2)
PICK(at_least, g.mode >= 7)
PICK(byte, g.flag)
PICK(small, g.kind < -3)
PICK(wide, g.wide == 0x500000007ll)
PICK(large, g.limit > 0xfffffff0u)
PICK(both, g.mode == 3 && g.limit < 7)
PICK(either, g.mode == 3 || g.limit < 7)
PICK(given, g.table)
// What is not the same for all threads, or not the parameters' alone.
PICK(by_thread, i == g.mode)
PICK(by_block, blockIdx.x == 2)
PICK(by_grid, gridDim.x == 2)
PICK(by_data, g.a[0] == 2.0f)
PICK(by_sum, g.mode + (int)g.limit == 2)
PICK(by_lanes, __any_sync(~0u, i == g.mode))
__global__ void changed(Given g) {
  INDEX;
  if (g.out[i] > 2.0f) g.mode = 1;
  const float* p = g.mode == 1 ? g.table[blockIdx.y] : g.a;
  if (i < g.n) g.out[i] = p[i];
}
__global__ void counted(Given g) {
  INDEX;
  const float* p = g.a;
  for (int k = 0; k < g.n; ++k, ++g.mode) {
    if (g.mode == 1) p = g.table[blockIdx.y + k];
    g.out[i + k] = p[i];
  }
}
__global__ void batched(Given g) {
  INDEX;
  if (i >= g.n) return;
  if (g.mode == 1) {
    *(float*)g.table[blockIdx.y] = g.table[blockIdx.y][i + 1] * 2.0f;
    return;
  }
  g.out[i] = g.a[i];
}
__global__ void left_early(Given g) {
  INDEX;
  g.out[i] = g.a[i];
  if (g.mode != 1) return;
  *(float*)g.table[i] = 1.0f;
}
__global__ void used_before_leaving(Given g) {
  INDEX;
  *(float*)g.table[i] = 1.0f;
  if (g.mode != 1) return;
  g.out[i] = g.a[i];
}
__global__ void called(Given g) {
  INDEX;
  const float* p = chosen(g.a, g.table, g.mode);
  if (i < g.n) g.out[i] = p[i];
}
__global__ void switched(Given g) {
  INDEX;
  const float* p;
  switch (g.mode) {
    case 0: p = g.a; break;
    case 1: p = g.out; break;
    case 2: p = g.a + 3; break;
    default: p = g.table[i];
  }
  if (i < g.n) g.out[i] = p[i];
}
__device__ float fixed[4] = {1.0f, 2.0f, 3.0f, 4.0f};
__global__ void reads_constants(Given g) { g.out[threadIdx.x] = fixed[threadIdx.x & 3]; }
}
