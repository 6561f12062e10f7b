// SPDX-License-Identifier: Apache-2.0
// Indices that come from memory, and arithmetic that wraps around.
#define INDEX int i = blockIdx.x * blockDim.x + threadIdx.x
extern "C" {
__global__ void gather(float* out, const float* a, const int* index, int n) {
  INDEX;
  if (i < n) out[i] = a[index[i]];
}
__global__ void gather_long(float* out, const float* a, const long long* index, int n) {
  INDEX;
  if (i < n) out[i] = a[index[i]];
}
__global__ void scatter(float* out, const float* a, const int* index, int n) {
  INDEX;
  if (i < n) out[index[i]] = a[i];
}
__global__ void gather_rows(float* out, const float* a, const int* index, int rows, int columns) {
  int r = blockIdx.x;
  for (int c = threadIdx.x; c < columns; c += blockDim.x) out[r * columns + c] = a[index[r] * columns + c];
}
__global__ void lookup_byte(float* out, const float* table, const unsigned char* index, int n) {
  INDEX;
  if (i < n) out[i] = table[index[i]];
}
__global__ void lookup_masked(float* out, const float* table, const int* index, int n) {
  INDEX;
  if (i < n) out[i] = table[index[i] & 63];
}
__global__ void lookup_guarded(float* out, const float* table, const int* index, int n, int size) {
  INDEX;
  if (i >= n) return;
  int k = index[i];
  out[i] = k >= 0 && k < size ? table[k] : 0.0f;
}
__global__ void lookup_guarded_unsigned(float* out, const float* table, const int* index, int n, int size) {
  INDEX;
  if (i >= n) return;
  int k = index[i];
  out[i] = (unsigned)k < (unsigned)size ? table[k] : 0.0f;
}
__global__ void histogram(int* bins, const unsigned char* a, int n) {
  INDEX;
  if (i < n) atomicAdd(&bins[a[i]], 1);
}
__global__ void append(float* out, int* count, const float* a, int n) {
  INDEX;
  if (i < n && a[i] > 0.0f) out[atomicAdd(count, 1)] = a[i];
}
__global__ void float_atomics(float* sum, const float* a, int n) {
  INDEX;
  if (i < n) atomicAdd(sum, a[i]);
}
__global__ void compare_and_swap(unsigned* cell, int n) {
  INDEX;
  if (i < n) atomicCAS(cell + (i & 3), 0u, (unsigned)i);
}
__global__ void overflow_multiply(float* out, int n, int factor) {
  INDEX;
  if (i < n) out[(i * factor) & 1023] = 1.0f;
}
__global__ void overflow_index(float* out, int n, int factor) {
  INDEX;
  if (i < n) out[(unsigned)(i * factor) % 1000u] = 1.0f;
}
__global__ void overflow_widened(char* out, int i0, int n) {
  INDEX;
  int k = i0 + i;
  if (i < n && k < 0) out[(long long)k + 2147483648ll] = 1;
}
__global__ void hashed(float* out, const float* a, int n) {
  INDEX;
  if (i < n) out[i] = a[(i * 2654435761u) >> 24];
}
__global__ void narrow_index(float* out, const float* a, int n) {
  INDEX;
  unsigned char k = (unsigned char)i;
  if (i < n) out[i] = a[k];
}
__global__ void narrow_signed(float* out, const float* a, int n) {
  INDEX;
  signed char k = (signed char)i;
  if (i < n) out[i] = a[k + 128];
}
__global__ void ring(float* out, int first, int n, int size) {
  INDEX;
  if (i < n) out[(first + i) % size] = 1.0f;
}
__global__ void masked_ring(float* out, const float* a, int first, int n) {
  INDEX;
  if (i < n) out[i] = a[(3 * i - first) & 127];
}
__global__ void masked_after_widening(char* out, int first, int n) {
  INDEX;
  short k = (short)(first + i);
  if (i < n) out[k & 0x1ffff] = 1;
}
__global__ void short_arithmetic(float* out, short first, int n) {
  short k = first + (short)threadIdx.x;
  if (threadIdx.x < n) out[k & 255] = 1.0f;
}
__global__ void unsigned_below_zero(float* out, const float* a, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned k = i - 1;
  if (k < n) out[k] = a[i];
}
__global__ void swizzled(float* out, const float* a, int n) {
  INDEX;
  int k = i ^ ((i >> 3) & 7);
  if (i < n) out[i] = a[k];
}
__global__ void interleaved_bits(float* out, const float* a) {
  int k = (threadIdx.x & 7) << 4 | (threadIdx.x >> 3 & 15);
  out[blockIdx.x * 128 + k] = a[threadIdx.x];
}
__global__ void shifted_by(float* out, const float* a, int n, int shift) {
  INDEX;
  if (i < n) out[i] = a[i >> shift];
}
__global__ void mul_high(float* out, const float* a, int n, unsigned magic) {
  INDEX;
  if (i < n) out[i] = a[__umulhi(i, magic)];
}
__global__ void signed_division(float* out, const float* a, int n) {
  INDEX;
  if (i < n) out[i] = a[(i - 5) / 4 + 2];
}
__global__ void absolute(float* out, const float* a, int n) {
  INDEX;
  if (i < n) out[i] = a[abs(i - 50)];
}
__global__ void ternary(float* out, const float* a, int n) {
  INDEX;
  int k = i < 100 ? i : n - 1;
  if (i < n) out[i] = a[k];
}
__global__ void negative_steps(float* out, const float* a, int n, int stride) {
  INDEX;
  if (i < n) out[i] = a[i * stride];
}
__global__ void shuffled(float* out, const float* a, int n) {
  INDEX;
  int k = __shfl_xor_sync(0xffffffffu, i, 1);
  if (i < n) out[i] = a[k];
}
__global__ void voted(float* out, const float* a, int n) {
  INDEX;
  unsigned mask = __ballot_sync(0xffffffffu, i < n);
  out[i] = a[__popc(mask)];
}
}
