// SPDX-License-Identifier: Apache-2.0
// Kernels made to mislead: each is to be told as what it is, or as unknown.
#define INDEX int i = blockIdx.x * blockDim.x + threadIdx.x
struct Node {
  Node* next;
  float value;
};
__device__ __noinline__ float load_from(const float* p, int i) { return p[i] + p[i + 1]; }
__device__ __noinline__ const float* pick(const float* a, const float* b, int k) { return k & 1 ? a + k : b; }
__device__ __noinline__ void put(float* p, int i, float v) {
  if (i > 3) p[i] = v;
}
__device__ float* hidden;
extern "C" {
__global__ void selected_by_data(float* out, const float* a, const float* b, const int* choice, int n) {
  INDEX;
  if (i < n) out[i] = (choice[i] ? a : b)[i];
}
__global__ void loaded_or_given(float* out, const float* a, const float* const* table, int n) {
  INDEX;
  const float* p = (n & 1) ? a : table[blockIdx.x];
  if (i < n) out[i] = p[i];
}
__global__ void loaded_after_loop(float* out, const float* a, const float* const* table, int n) {
  INDEX;
  const float* p = a;
  for (int k = 0; k < n; ++k)
    if (out[k] > 1.0f) p = table[k];
  out[i] = p[i];
}
__global__ void loaded_on_both_sides(float* out, const float* a, const float* const* table, int n) {
  INDEX;
  const float* p;
  if (a[i] < 1.0f) {
    p = a[i + 1] == 0.0f ? a : out;
  } else if (i <= n) {
    out[i + 1] = *a;
    p = table[i & 7];
  } else {
    p = table[i & 7];
  }
  out[i] = p[i];
}
__global__ void list(float* out, Node* node) {
  float s = 0.0f;
  while (node) {
    s += node->value;
    node = node->next;
  }
  out[threadIdx.x] = s;
}
__global__ void list_written(Node* node, float v) {
  for (; node; node = node->next) node->value = v;
}
__global__ void from_global_variable(int n) {
  INDEX;
  if (i < n) hidden[i] = 1.0f;
}
__global__ void in_shared(float* out, const float* a, const float* b, int n) {
  __shared__ const float* p[2];
  if (threadIdx.x == 0) {
    p[0] = a;
    p[1] = b;
  }
  __syncthreads();
  INDEX;
  if (i < n) out[i] = p[i & 1][i];
}
__global__ void loaded_in_shared(float* out, const float* const* table, int n) {
  __shared__ const float* p;
  if (threadIdx.x == 0) p = table[blockIdx.x];
  __syncthreads();
  INDEX;
  if (i < n) out[i] = p[i];
}
__global__ void in_local(float* out, const float* a, const float* b, const float* const* table, int n) {
  INDEX;
  const float* p[4] = {a, b, a + 7, table[0]};
  if (i < n) out[i] = p[i & 3][i];
}
__global__ void halves_of_two(unsigned a_low, unsigned a_high, unsigned b_low, unsigned b_high, int flag) {
  unsigned long long low = flag ? a_low : b_low, high = flag & 2 ? a_high : b_high;
  *(float*)(high << 32 | low) = 1.0f;
}
__global__ void halves_far_apart(unsigned low, int n, unsigned high) {
  *(float*)((unsigned long long)high << 32 | low) = (float)n;
}
__global__ void half_loaded(unsigned low, const unsigned* table) {
  *(float*)((unsigned long long)table[0] << 32 | low) = 1.0f;
}
__global__ void packed(float* out, const unsigned* table) { out[0] = *(const float*)((unsigned long long)table[0] << 4); }
__global__ void difference_applied(float* out, const char* a, const char* b, const char* const* table) {
  out[threadIdx.x] = *(const float*)(table[0] + (b - a));
}
__global__ void masked(float* out, unsigned long long tagged) { out[0] = *(const float*)(tagged & ~15ull); }
__global__ void exclusive_or(float* out, unsigned long long a, const unsigned long long* key) {
  out[0] = *(const float*)(a ^ key[0]);
}
__global__ void called(float* out, const float* a, const float* b, int n) {
  INDEX;
  if (i < n) put(out, i, load_from(pick(a, b, i), i) + load_from(b, i));
}
__global__ void called_with_loaded(float* out, const float* a, const float* const* table, int n) {
  INDEX;
  if (i < n) put(out, i, load_from(pick(a, table[0], i), i));
}
__global__ void advanced_in_loop(float* out, const float* a, long long stride, int n) {
  for (int k = 0; k < n; ++k) {
    out[k * blockDim.x + threadIdx.x] = a[threadIdx.x];
    a += stride;
  }
}
__global__ void swapped(float* a, float* b, float* c, int n) {
  for (int k = 0; k < n; ++k) {
    a[threadIdx.x] = b[threadIdx.x] + 1.0f;
    float* t = a;
    a = b;
    b = c;
    c = t;
    __syncthreads();
  }
}
__global__ void many_live(float* out, const float* a, const float* b, const float* c, const float* d, int n) {
  float s[24];
#pragma unroll
  for (int k = 0; k < 24; ++k) s[k] = a[k * n] * b[k + n];
  __syncthreads();
#pragma unroll
  for (int k = 0; k < 24; ++k) s[k] += c[k * n + (int)s[23 - k]] + d[k];
#pragma unroll
  for (int k = 0; k < 24; ++k) out[k * n + threadIdx.x] = s[k];
}
__global__ void exchanged(unsigned long long* cell, float* out, float* a) {
  float* p = (float*)atomicExch(cell, (unsigned long long)a);
  out[0] = *p;
}
__global__ void by_byte(float* out, const unsigned char* a, const long long* offset) {
  out[threadIdx.x] = (float)a[offset[threadIdx.x]];
}
}
