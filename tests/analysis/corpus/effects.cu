// SPDX-License-Identifier: Apache-2.0
// What kernels do beside reading and writing through their parameters.
extern "C" __device__ int printf(const char*, ...);
extern "C" __device__ void __assertfail(const char*, const char*, unsigned, const char*, size_t);
extern "C" __device__ void* malloc(size_t);
extern "C" __device__ void free(void*);
#define INDEX int i = blockIdx.x * blockDim.x + threadIdx.x
__constant__ float weights[64] = {1, 2, 3, 4, 5, 6, 7, 8};
__constant__ float set_by_host[64];
__device__ const int table[16] = {5, 4, 3, 2, 1, 0};
__device__ int counter;
__device__ float scratch[1024];
__device__ __noinline__ float scale(const float* a, int i, float by) { return i & 1 ? a[i] * by : a[i + 1]; }
__device__ __noinline__ const float* advance(const float* a, int by) { return a + by; }
__device__ __noinline__ void store(float* out, int i, float v) {
  if (i >= 0) out[i] = v;
}
struct Box {
  const float* a;
  int shift;
};
__device__ __noinline__ float boxed(Box box, int i) { return box.a[i + box.shift]; }
__device__ __noinline__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
__device__ __noinline__ float twice(float x) { return 2 * x; }
__device__ __noinline__ float thrice(float x) { return 3 * x; }
extern "C" {
__global__ void calls(float* out, const float* a, int n) {
  INDEX;
  if (i < n) store(out, i, scale(advance(a, 1), i, 2.0f) + scale(a, i, 3.0f));
}
__global__ void calls_with_struct(float* out, const float* a, int n) {
  INDEX;
  Box box = {a, n};
  if (i < n) out[i] = boxed(box, i);
}
__global__ void recursive(int* out, int n) { out[threadIdx.x] = fibonacci(n); }
__global__ void through_function_pointer(float* out, const float* a, int n, int which) {
  INDEX;
  float (*f)(float) = which ? twice : thrice;
  if (i < n) out[i] = f(a[i]);
}
__global__ void prints(int* out, int n) {
  INDEX;
  if (i == 0) printf("%d\n", n);
  out[i] = n;
}
__global__ void asserts(int* out, int n) {
  INDEX;
  if (n < 0) __assertfail("n >= 0", "effects.cu", 1, "asserts", 1);
  out[i] = n;
}
__global__ void allocates(int* out, int n) {
  int* p = (int*)malloc(4 * 16);
  p[threadIdx.x & 15] = n;
  out[threadIdx.x] = p[threadIdx.x & 15];
  free(p);
}
__global__ void traps(int* out, int n) {
  INDEX;
  if (n < 0) __trap();
  out[i] = n;
}
__global__ void timed(long long* out) { out[threadIdx.x] = clock64(); }
__global__ void on_multiprocessor(unsigned* out) {
  unsigned id;
  asm("mov.u32 %0, %%smid;" : "=r"(id));
  out[threadIdx.x] = id;
}
__global__ void reads_constant(float* out, int n) {
  INDEX;
  if (i < n) out[i] = weights[i & 63];
}
__global__ void reads_host_constant(float* out, int n) {
  INDEX;
  if (i < n) out[i] = set_by_host[i & 63];
}
__global__ void reads_table(int* out, int n) {
  INDEX;
  if (i < n) out[i] = table[i & 15];
}
__global__ void counts(int* out, int n) {
  INDEX;
  if (i < n) out[i] = atomicAdd(&counter, 1);
}
__global__ void fills_scratch(const float* a, int n) {
  INDEX;
  if (i < n) scratch[i] = a[i];
}
__global__ void reads_scratch(float* out, int n) {
  INDEX;
  if (i < n) out[i] = scratch[i];
}
__global__ void shared_sum(float* out, const float* a, int n) {
  __shared__ float s[256];
  INDEX;
  s[threadIdx.x] = i < n ? a[i] : 0.0f;
  __syncthreads();
  for (int k = blockDim.x / 2; k > 0; k /= 2) {
    if (threadIdx.x < k) s[threadIdx.x] += s[threadIdx.x + k];
    __syncthreads();
  }
  if (threadIdx.x == 0) out[blockIdx.x] = s[0];
}
__global__ void warp_sum(float* out, const float* a, int n) {
  INDEX;
  float v = i < n ? a[i] : 0.0f;
  for (int k = 16; k > 0; k /= 2) v += __shfl_down_sync(0xffffffffu, v, k);
  if ((threadIdx.x & 31) == 0) out[i / 32] = v;
}
__global__ void dynamic_shared(float* out, const float* a, int n) {
  extern __shared__ float s[];
  for (int k = threadIdx.x; k < n; k += blockDim.x) s[k] = a[k];
  __syncthreads();
  for (int k = threadIdx.x; k < n; k += blockDim.x) out[k] = s[n - 1 - k];
}
__global__ void system_atomics(int* flag) { atomicAdd_system(flag, 1); }
__global__ void volatile_read(int* out, volatile int* flag) { out[threadIdx.x] = *flag; }
__global__ void fenced(int* out, int n) {
  out[threadIdx.x] = n;
  __threadfence();
}
__global__ void async_copy(float* out, const float* a, int n) {
  __shared__ __align__(16) float s[256];
  unsigned to = (unsigned)__cvta_generic_to_shared(&s[threadIdx.x]);
  INDEX;
  int bytes = i < n ? 4 : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(a + i), "r"(bytes));
  asm volatile("cp.async.commit_group;");
  asm volatile("cp.async.wait_group 0;");
  __syncthreads();
  if (i < n) out[i] = s[threadIdx.x];
}
__global__ void read_only_cache(float* out, const float* __restrict__ a, int n) {
  INDEX;
  if (i < n) out[i] = __ldg(a + i);
}
__global__ void cached_otherwise(float* out, const float* a, int n) {
  INDEX;
  if (i >= n) return;
  float v;
  asm("ld.global.L1::no_allocate.f32 %0, [%1];" : "=f"(v) : "l"(a + i));
  asm volatile("prefetch.global.L2 [%0];" ::"l"(a + i + 1000000));
  asm volatile("st.global.cs.f32 [%0], %1;" ::"l"(out + i), "f"(v));
}
__global__ void reductions(int* out, int n) {
  INDEX;
  if (i < n) asm volatile("red.global.add.u32 [%0], 1;" ::"l"(out + (i >> 5)));
}
__global__ void matrix_fragments(float* out, const unsigned short* a, int stride) {
  int f[8];
  float d[8];
  asm volatile("wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%0,%1,%2,%3,%4,%5,%6,%7}, [%8], %9;"
               : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3]), "=r"(f[4]), "=r"(f[5]), "=r"(f[6]), "=r"(f[7])
               : "l"(a + blockIdx.x * 16), "r"(stride));
  for (int k = 0; k < 8; ++k) d[k] = (float)f[k];
  asm volatile("wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%0], {%1,%2,%3,%4,%5,%6,%7,%8}, %9;" ::"l"(
                   out + blockIdx.x * 16),
               "f"(d[0]), "f"(d[1]), "f"(d[2]), "f"(d[3]), "f"(d[4]), "f"(d[5]), "f"(d[6]), "f"(d[7]), "r"(stride));
}
}
