// SPDX-License-Identifier: Apache-2.0
// Loops: up, down, by steps, rotated, unrolled, nested, and without a bound.
#define INDEX int i = blockIdx.x * blockDim.x + threadIdx.x
extern "C" {
__global__ void grid_stride(float* out, const float* a, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) out[i] = a[i] + 1.0f;
}
__global__ void grid_stride_unsigned(float* out, const float* a, unsigned n) {
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) out[i] = a[i] + 1.0f;
}
__global__ void grid_stride_size(float* out, const float* a, size_t n) {
  for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
    out[i] = a[i] + 1.0f;
}
__global__ void block_stride(float* out, const float* a, int n) {
  const float* row = a + blockIdx.x * n;
  float* to = out + blockIdx.x * n;
  for (int i = threadIdx.x; i < n; i += blockDim.x) to[i] = row[i] * 0.5f;
}
__global__ void row_sum(float* out, const float* a, int rows, int columns) {
  INDEX;
  if (i >= rows) return;
  float s = 0.0f;
  for (int c = 0; c < columns; ++c) s += a[i * columns + c];
  out[i] = s;
}
__global__ void column_sum(float* out, const float* a, int rows, int columns) {
  INDEX;
  if (i >= columns) return;
  float s = 0.0f;
  for (int r = 0; r < rows; ++r) s += a[r * columns + i];
  out[i] = s;
}
__global__ void no_unroll(float* out, const float* a, int n) {
  float s = 0.0f;
#pragma unroll 1
  for (int c = 0; c < n; ++c) s += a[c];
  out[threadIdx.x] = s;
}
__global__ void do_while(float* out, const float* a, int n) {
  int c = 0;
  float s = 0.0f;
#pragma unroll 1
  do {
    s += a[c];
    ++c;
  } while (c < n);
  out[threadIdx.x] = s;
}
__global__ void count_down(float* out, const float* a, int n) {
  float s = 0.0f;
#pragma unroll 1
  for (int c = n - 1; c >= 0; --c) s += a[c];
  out[threadIdx.x] = s;
}
__global__ void count_down_unsigned(float* out, const float* a, unsigned n) {
  float s = 0.0f;
#pragma unroll 1
  for (unsigned c = n; c-- > 0;) s += a[c];
  out[threadIdx.x] = s;
}
__global__ void count_down_unrolled(float* out, unsigned n) {
  for (unsigned c = n; c-- > 0;) out[c] = 1.0f;
}
__global__ void by_steps(float* out, const float* a, int n, int step) {
  float s = 0.0f;
  for (int c = threadIdx.x; c < n; c += step) s += a[c];
  out[threadIdx.x] = s;
}
__global__ void by_four(float* out, const float* a, int n) {
  float s = 0.0f;
#pragma unroll 1
  for (int c = 0; c < n; c += 4) s += a[c] + a[c + 1] + a[c + 2] + a[c + 3];
  out[threadIdx.x] = s;
}
__global__ void not_equal(float* out, const float* a, int n) {
  float s = 0.0f;
#pragma unroll 1
  for (int c = 0; c != n; ++c) s += a[c];
  out[threadIdx.x] = s;
}
__global__ void pointer_walk(float* out, const float* a, int n) {
  float s = 0.0f;
#pragma unroll 1
  for (const float* p = a; p < a + n; ++p) s += *p;
  out[threadIdx.x] = s;
}
__global__ void pointer_walk_not_equal(float* out, const float* first, const float* last) {
  float s = 0.0f;
#pragma unroll 1
  for (const float* p = first; p != last; ++p) s += *p;
  out[threadIdx.x] = s;
}
__global__ void fixed_trips(float* out, const float* a, int n) {
  INDEX;
  float s = 0.0f;
  for (int c = 0; c < 8; ++c)
    if (i * 8 + c < n) s += a[i * 8 + c];
  if (i < n) out[i] = s;
}
__global__ void fixed_trips_rolled(float* out, const float* a) {
  INDEX;
  float s = 0.0f;
#pragma unroll 1
  for (int c = 0; c < 100; ++c) s += a[c * 3];
  out[i] = s;
}
__global__ void nested(float* out, const float* a, int rows, int columns, int depth) {
  INDEX;
  if (i >= depth) return;
  float s = 0.0f;
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < columns; ++c) s += a[(r * columns + c) * depth + i];
  out[i] = s;
}
__global__ void triangle(float* out, const float* a, int n) {
  INDEX;
  if (i >= n) return;
  float s = 0.0f;
  for (int c = 0; c <= i; ++c) s += a[i * n + c];
  out[i] = s;
}
__global__ void early_exit(float* out, const float* a, int n) {
  float s = 0.0f;
#pragma unroll 1
  for (int c = 0; c < n; ++c) {
    if (a[c] < 0.0f) break;
    s += a[c];
  }
  out[threadIdx.x] = s;
}
__global__ void skipping(float* out, const float* a, const float* b, int n) {
  float s = 0.0f;
#pragma unroll 1
  for (int c = 0; c < n; ++c) {
    if (a[c] < 0.0f) continue;
    s += b[c];
  }
  out[threadIdx.x] = s;
}
__global__ void until_found(float* out, const float* a) {
  int c = 0;
  while (a[c] != 0.0f) ++c;
  out[threadIdx.x] = (float)c;
}
__global__ void rows_of_lists(float* out, const int* first, const int* column, const float* value, const float* x,
                              int rows) {
  INDEX;
  if (i >= rows) return;
  float s = 0.0f;
  for (int k = first[i]; k < first[i + 1]; ++k) s += value[k] * x[column[k]];
  out[i] = s;
}
__global__ void halving(float* a, int n) {
  for (int s = n / 2; s > 0; s /= 2) {
    if (threadIdx.x < s) a[threadIdx.x] += a[threadIdx.x + s];
    __syncthreads();
  }
}
__global__ void two_in_a_row(float* out, const float* a, int n, int m) {
  float s = 0.0f;
  int c = 0;
#pragma unroll 1
  for (; c < n; ++c) s += a[c];
#pragma unroll 1
  for (; c < m; ++c) s -= a[c];
  out[threadIdx.x] = s;
}
__global__ void conditional_step(float* out, const float* a, int n) {
  float s = 0.0f;
  int c = 0;
#pragma unroll 1
  for (int t = 0; t < n; ++t) {
    s += a[c];
    if (s > 1.0f) ++c;
  }
  out[threadIdx.x] = s;
}
__global__ void matmul(float* c, const float* a, const float* b, int m, int n, int k) {
  int row = blockIdx.y * blockDim.y + threadIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= m || column >= n) return;
  float s = 0.0f;
  for (int i = 0; i < k; ++i) s += a[row * k + i] * b[i * n + column];
  c[row * n + column] = s;
}
__global__ void matmul_tiled(float* c, const float* a, const float* b, int m, int n, int k) {
  __shared__ float ta[16][16], tb[16][16];
  int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
  float s = 0.0f;
  for (int t = 0; t < (k + 15) / 16; ++t) {
    int ka = t * 16 + threadIdx.x, kb = t * 16 + threadIdx.y;
    ta[threadIdx.y][threadIdx.x] = row < m && ka < k ? a[row * k + ka] : 0.0f;
    tb[threadIdx.y][threadIdx.x] = kb < k && column < n ? b[kb * n + column] : 0.0f;
    __syncthreads();
    for (int i = 0; i < 16; ++i) s += ta[threadIdx.y][i] * tb[i][threadIdx.x];
    __syncthreads();
  }
  if (row < m && column < n) c[row * n + column] = s;
}
__global__ void batched(float* out, const float* a, const float* b, int m, int n, long long stride_a) {
  const float* mine = a + blockIdx.z * stride_a;
  int row = blockIdx.y * blockDim.y + threadIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
  if (row < m && column < n) out[(blockIdx.z * m + row) * n + column] = mine[row * n + column] + b[column];
}
__global__ void convolution(float* out, const float* image, const float* filter, int height, int width, int size) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
  float s = 0.0f;
  for (int dy = 0; dy < size; ++dy)
    for (int dx = 0; dx < size; ++dx) {
      int sy = y + dy - size / 2, sx = x + dx - size / 2;
      if (sy >= 0 && sy < height && sx >= 0 && sx < width) s += image[sy * width + sx] * filter[dy * size + dx];
    }
  out[y * width + x] = s;
}
__global__ void overrunning_rows(float* out, const float* a, int n) {
  for (int base = blockIdx.x * blockDim.x; base < n; base += gridDim.x * blockDim.x) {
    int i = base + threadIdx.x;
    if (i < n) out[i] = a[i];
  }
}
}
