// SPDX-License-Identifier: Apache-2.0
// Where pointers come from and what happens to them on the way to an access.
#define INDEX int i = blockIdx.x * blockDim.x + threadIdx.x
struct Pair {
  float* out;
  const float* a;
  int n;
  short first;
  unsigned char step;
};
struct Many {
  float* out;
  const float* in[4];
  int n;
};
struct Outer {
  int n;
  Pair inner;
  double scale;
};
struct Batch {
  const float* in[32];
  unsigned first[32];
  unsigned count[32];
};
struct Node {
  Node* next;
  float value;
};
extern "C" {
__global__ void in_struct(Pair p) {
  INDEX;
  if (i < p.n) p.out[i] = p.a[i + p.first] * p.step;
}
__global__ void in_nested_struct(Outer o) {
  INDEX;
  if (i < o.n) o.inner.out[i] = o.inner.a[i] * (float)o.scale;
}
__global__ void array_in_struct(Many m) {
  INDEX;
  if (i < m.n) m.out[i] = m.in[0][i] + m.in[3][i];
}
__global__ void array_in_struct_by_block(Many m) {
  INDEX;
  if (i < m.n) m.out[i] = m.in[blockIdx.y & 3][i];
}
__global__ void array_in_struct_loop(Many m) {
  INDEX;
  if (i >= m.n) return;
  float s = 0.0f;
#pragma unroll 1
  for (int k = 0; k < 4; ++k) s += m.in[k][i];
  m.out[i] = s;
}
__global__ void concatenated(float* out, Batch b) {
  const float* in = b.in[blockIdx.y];
  unsigned n = b.count[blockIdx.y];
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    out[b.first[blockIdx.y] + i] = in[i];
}
__global__ void joined(float* out, const float* a, const float* b, int n, int m) {
  INDEX;
  const float* p;
  int k;
  if (i < m) {
    if (out == a) return;
    p = a;
    k = i;
  } else {
    __threadfence_block();
    p = b + 3;
    k = i - m;
  }
  if (i < n) out[i] = p[k];
}
__global__ void pointer_table(float* out, const float* const* table, int n) {
  INDEX;
  if (i < n) out[i] = table[blockIdx.x][threadIdx.x];
}
__global__ void linked_list(float* out, const Node* node) {
  float s = 0.0f;
  while (node) {
    s += node->value;
    node = node->next;
  }
  out[threadIdx.x] = s;
}
__global__ void chosen_by_flag(float* a, float* b, int n, int flag) {
  INDEX;
  float* p = flag ? a : b;
  if (i < n) p[i] = 1.0f;
}
__global__ void chosen_by_thread(float* out, const float* a, const float* b, int n) {
  INDEX;
  const float* p = i & 1 ? a : b + 2;
  if (i < n) out[i] = p[i];
}
__global__ void chosen_in_branches(float* out, const float* a, const float* b, int n, int m) {
  INDEX;
  const float* p;
  int k;
  if (i < m) {
    p = a;
    k = i;
  } else {
    p = b;
    k = i - m;
  }
  if (i < n) out[i] = p[k];
}
__global__ void ping_pong(float* a, float* b, int n, int rounds) {
  INDEX;
  for (int r = 0; r < rounds; ++r) {
    if (i < n) b[i] = a[i] + 1.0f;
    float* t = a;
    a = b;
    b = t;
  }
}
__global__ void maybe_null(float* out, const float* a, const float* bias, int n) {
  INDEX;
  if (i < n) out[i] = a[i] + (bias ? bias[i] : 0.0f);
}
__global__ void aligned_down(char* out, const char* a, int n) {
  INDEX;
  const int* words = (const int*)((size_t)a & ~(size_t)15);
  if (i < n) out[i] = (char)words[i];
}
__global__ void byte_offset(char* out, const char* a, size_t offset, int n) {
  INDEX;
  if (i < n) *(float*)(out + 4 * i) = *(const float*)(a + offset + 4 * i);
}
__global__ void difference(float* out, const float* first, const float* last) {
  INDEX;
  if (i < last - first) out[i] = first[i];
}
__global__ void same_twice(float* a, int n) {
  INDEX;
  if (i < n) a[i] = a[i + n];
}
__global__ void as_integer(unsigned long long address, int n) {
  INDEX;
  if (i < n) ((float*)address)[i] = 1.0f;
}
__global__ void from_halves(unsigned low, unsigned high, int n) {
  INDEX;
  float* p = (float*)((unsigned long long)high << 32 | low);
  if (i < n) p[i] = 1.0f;
}
__global__ void local_array(float* out, const float* a, int n) {
  INDEX;
  float v[8];
  for (int k = 0; k < 8; ++k) v[k] = a[k];
  if (i < n) out[i] = v[i & 7];
}
__global__ void local_indices(float* out, const float* a, int n) {
  INDEX;
  int v[8];
  for (int k = 0; k < 8; ++k) v[k] = k * n;
  if (i < n) out[i] = a[v[i & 7]];
}
__global__ void local_pointers(float* out, const float* a, const float* b, int n) {
  INDEX;
  const float* p[2] = {a, b};
  if (i < n) out[i] = p[i & 1][i];
}
__global__ void through_shared(float* out, const float* a, int n) {
  __shared__ const float* p;
  if (threadIdx.x == 0) p = a;
  __syncthreads();
  INDEX;
  if (i < n) out[i] = p[i];
}
__global__ void through_generic(float* out, const float* a, int n, int from_shared) {
  __shared__ float tile[256];
  INDEX;
  tile[threadIdx.x & 255] = 1.0f;
  __syncthreads();
  const float* p = from_shared ? tile : a;
  if (i < n) out[i] = p[threadIdx.x & 255];
}
__global__ void stores_a_pointer(float** out, float* a) { out[threadIdx.x] = a + threadIdx.x; }
}
