// SPDX-License-Identifier: Apache-2.0
// One element per thread, and what guards look like.
#define INDEX int i = blockIdx.x * blockDim.x + threadIdx.x
extern "C" {
__global__ void add(float* out, const float* a, const float* b, int n) {
  INDEX;
  if (i < n) out[i] = a[i] + b[i];
}
__global__ void add_long(float* out, const float* a, long long n) {
  long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a[i] + 1.0f;
}
__global__ void add_unsigned(float* out, const float* a, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a[i] + 1.0f;
}
__global__ void add_size(double* out, const double* a, size_t n) {
  size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  out[i] = a[i] + 1.0;
}
__global__ void unguarded(float* out, const float* a) {
  INDEX;
  out[i] = a[i] * 2.0f;
}
__global__ void window(float* out, const float* a, int first, int last) {
  INDEX;
  if (i >= first && i < last) out[i] = a[i];
}
__global__ void window_unsigned(float* out, const float* a, int first, int count) {
  INDEX;
  if ((unsigned)(i - first) < (unsigned)count) out[i] = a[i];
}
__global__ void shifted(float* out, const float* a, int n, int shift) {
  INDEX;
  if (i < n) out[i + shift] = a[i + 3];
}
__global__ void strided(float* out, const float* a, int n, int stride) {
  INDEX;
  if (i < n) out[i * stride] = a[i * stride + 1];
}
__global__ void reversed(float* out, const float* a, int n) {
  INDEX;
  if (i < n) out[i] = a[n - 1 - i];
}
__global__ void vectors(float4* out, const float4* a, int n) {
  INDEX;
  if (i < n) {
    float4 v = a[i];
    v.x += 1.0f;
    out[i] = v;
  }
}
__global__ void two_each(float2* out, const float* a, int n) {
  INDEX;
  if (2 * i + 1 < n) out[i] = make_float2(a[2 * i], a[2 * i + 1]);
}
__global__ void bytes(unsigned char* out, const signed char* a, int n) {
  INDEX;
  if (i < n) out[i] = (unsigned char)(a[i] + 1);
}
__global__ void plane(float* out, const float* a, int width, int height) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < width && y < height) out[y * width + x] = a[y * width + x] + 1.0f;
}
__global__ void pitched(float* out, const float* a, int width, int height, int pitch) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
  out[y * pitch + x] = a[y * pitch + x] + 1.0f;
}
__global__ void transpose(float* out, const float* a, int width, int height) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < width && y < height) out[x * height + y] = a[y * width + x];
}
__global__ void volume(float* out, const float* a, int nx, int ny, int nz) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  int z = blockIdx.z * blockDim.z + threadIdx.z;
  if (x < nx && y < ny && z < nz) out[(z * ny + y) * nx + x] = a[(z * ny + y) * nx + x] + 1.0f;
}
__global__ void stencil(float* out, const float* a, int n) {
  INDEX;
  if (i > 0 && i < n - 1) out[i] = a[i - 1] + a[i] + a[i + 1];
}
__global__ void clamped(float* out, const float* a, int n) {
  INDEX;
  if (i >= n) return;
  int left = max(i - 1, 0), right = min(i + 1, n - 1);
  out[i] = a[left] + a[right];
}
__global__ void wrapped(float* out, const float* a, int n) {
  INDEX;
  if (i < n) out[i] = a[(i + 7) % n];
}
__global__ void wrapped_constant(float* out, const float* a) {
  INDEX;
  out[i] = a[i % 100];
}
__global__ void divided(float* out, const float* a, int n, int rows) {
  INDEX;
  if (i < n) out[i] = a[i / rows];
}
__global__ void divided_constant(float* out, const float* a, int n) {
  INDEX;
  if (i < n) out[i] = a[i / 12];
}
__global__ void rows_and_columns(float* out, const float* a, int rows, int columns, int stride) {
  INDEX;
  if (i >= rows * columns) return;
  int r = i / columns, c = i % columns;
  out[r * columns + c] = a[r * stride + c];
}
__global__ void broadcast(float* out, const float* row, const float* scale, int n, int columns) {
  INDEX;
  if (i < n) out[i] = row[i % columns] * scale[0];
}
__global__ void flagged(float* out, const float* a, const float* b, int n, int use_b) {
  INDEX;
  if (i >= n) return;
  float v = a[i];
  if (use_b) v += b[i];
  out[i] = v;
}
__global__ void only_first(float* out, const float* a) {
  if (threadIdx.x == 0 && blockIdx.x == 0) out[0] = a[5];
}
__global__ void one_per_block(float* out, const float* a) {
  if (threadIdx.x == 0) out[blockIdx.x] = a[blockIdx.x * blockDim.x];
}
__global__ void even_only(float* out, int n) {
  INDEX;
  if (i < n && i % 2 == 0) out[i] = 1.0f;
}
__global__ void data_guard(float* out, const float* a, int n) {
  INDEX;
  if (i < n && a[i] > 0.0f) out[i] = 1.0f;
}
__global__ void clamped_below(float* out, const float* a, int n) {
  INDEX;
  if (i < n) out[i] = a[max(i - 5, 2)];
}
// Digits that are not independent, or that do not all occur.
__global__ void overlapping_digits(float* out) {
  int i = threadIdx.x;
  out[(i & 7) + 8 * ((i >> 2) & 7)] = 1.0f;
}
__global__ void cut_digits(float* out) {
  unsigned t = threadIdx.x % 12;
  out[(t / 8) * 8 + threadIdx.x % 8] = 1.0f;
}
__global__ void turned_digits(float* out, int n, int columns, int rows) {
  INDEX;
  if (i < n) out[(i % columns) * rows + i / columns] = 1.0f;
}
__global__ void long_digits(float* out, int n, int columns, int pitch) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    out[(i / columns) * pitch + i % columns] = 1.0f;
}
__global__ void predicated(float* out, int n) {
  INDEX;
  asm volatile("{ .reg .pred p; setp.lt.s32 p, %1, %2; @p st.global.f32 [%0], %3; }" ::"l"(out + i), "r"(i), "r"(n),
               "f"(1.0f)
               : "memory");
}
__global__ void predicated_by_data(float* out, const float* a, int n) {
  INDEX;
  if (i < n)
    asm volatile("{ .reg .pred p; setp.gt.f32 p, %1, 0f00000000; @p st.global.f32 [%0], %1; }" ::"l"(out + i), "f"(a[i])
                 : "memory");
}
__global__ void two_guards(float* out, int n, int m) {
  INDEX;
  if (i < n) out[2 * (i >> 2)] = 1.0f;
  if (i < m) out[2 * (i >> 2) + 1] = 1.0f;
}
// One block, one half of the columns: the other half is another one's.
__global__ void half_of_the_columns(float* out, const float* a, int columns, int rows, int first, int count) {
  int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
  if (c < count && r < rows) out[r * columns + first + c] = a[r * columns + first + c];
}
}
