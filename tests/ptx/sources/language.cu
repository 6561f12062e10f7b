// SPDX-License-Identifier: Apache-2.0
// Features of the language that shape PTX: tables of branches, calls, recursion, virtual functions,
// initialised data, local memory, inline assembly with scopes.
#ifdef __CUDACC_RTC__
extern "C" __device__ int printf(const char*, ...);
#else
#include <cstdio>
#endif

__constant__ float coefficients[5] = {1.0f, 0.5f, 0.25f, 0.125f, 0.0625f};
__device__ int counter = 7;
__device__ const char* const names[3] = {"one", "two", "three"};
__device__ double matrix[2][3] = {{1, 2, 3}, {4, 5, 6}};
__device__ int* into_counter = &counter;
__managed__ int managed_value = 3;
extern __shared__ float dynamic_tile[];

struct alignas(16) Pack {
  float* data;
  long long strides[3];
  int sizes[3];
  unsigned char flags[5];
};

struct Shape {
  __device__ virtual float area() const = 0;
  __device__ virtual ~Shape() {}
};

struct Square : Shape {
  float side;
  __device__ explicit Square(float s) : side(s) {}
  __device__ float area() const override { return side * side; }
};

struct Circle : Shape {
  float radius;
  __device__ explicit Circle(float r) : radius(r) {}
  __device__ float area() const override { return 3.14159f * radius * radius; }
};

__device__ __noinline__ float twice(float x) { return x + x; }
__device__ __noinline__ float square(float x) { return x * x; }
__device__ float (*const table[2])(float) = {twice, square};

__device__ __noinline__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
__device__ __noinline__ Pack make_pack(float* p, int n) { return Pack{p, {n, n, n}, {1, 2, 3}, {1, 2, 3, 4, 5}}; }

extern "C" __global__ void by_value(Pack pack, char c, short s, double d) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < pack.sizes[0]) pack.data[i * pack.strides[1]] = coefficients[pack.flags[i % 5] % 5] + c + s + (float)d;
}

extern "C" __global__ void switches(int* out, int n) {
  const int i = threadIdx.x;
  switch (out[i] & 15) {
    case 0: out[i] = n; break;
    case 1: out[i] += 3; break;
    case 2: out[i] *= 5; break;
    case 3: out[i] ^= 7;
    case 4: out[i] -= 9; break;
    case 5: out[i] = __popc(out[i]); break;
    case 6: out[i] = atomicAdd(out + n, 4); break;
    case 7: out[i] /= n; break;
    case 8: out[i] = managed_value; break;
    default: out[i] = -1;
  }
}

extern "C" __global__ void indirect_calls(float* out, int which) {
  const int i = threadIdx.x;
  out[i] = table[which & 1](out[i]);
  Square square_shape(out[i]);
  Circle circle(out[i]);
  const Shape* const shape = which > 3 ? static_cast<const Shape*>(&square_shape) : &circle;
  out[i] += shape->area() + (float)fibonacci(which);
  out[i] += make_pack(out, which).data[2];
}

extern "C" __global__ void prints(const char* text, int n, double d) {
  if (n == 0) printf("nothing\n");
  printf("%s %d %f %s\n", text, n, d, names[n % 3]);
  if (n > 5) asm volatile("trap;");
}

extern "C" __global__ void assembly(unsigned* out, const unsigned* in) {
  unsigned a = in[threadIdx.x], b;
  asm volatile("{ .reg .b32 t; .reg .pred p; setp.ne.u32 p, %1, 0; @p add.u32 t, %1, 1; @!p mov.u32 t, 0; mov.u32 %0, t; }"
               : "=r"(b) : "r"(a));
  asm volatile("{\n .reg .b32 t<4>;\n mov.b32 t1, %1;\n LOOP: add.u32 t1, t1, 3;\n mov.u32 %0, t1;\n}\n" : "=r"(a) : "r"(b));
  asm volatile("{ .reg .b64 %%wide; mul.wide.u32 %%wide, %1, 8; cvt.u32.u64 %0, %%wide; }" : "=r"(b) : "r"(a));
  asm volatile("{ .reg .b32 t; { .reg .b32 t; mov.b32 t, %1; mov.b32 %0, t; } mov.b32 t, 0; }" : "=r"(a) : "r"(b));
  out[threadIdx.x] = a + b;
}

extern "C" __global__ void local_arrays(float* out, int n) {
  float scratch[64];
  for (int i = 0; i < 64; ++i) scratch[i] = out[i * n];
  float sum = 0;
  for (int i = 0; i < n; ++i) sum += scratch[(i * 7) & 63] * (float)matrix[i & 1][i % 3];
  dynamic_tile[threadIdx.x] = sum;
  __syncthreads();
  out[threadIdx.x] = dynamic_tile[(threadIdx.x + 1) % blockDim.x] + *into_counter;
}

extern "C" __global__ void __launch_bounds__(128, 2) early_exit(double* out, long long n) {
  for (long long i = threadIdx.x; i < n; i += blockDim.x) {
    if (out[i] < 0) return;
    if (out[i] > 1e300) continue;
    while (out[i] > 1.0) out[i] = sqrt(out[i]) - 1e-3;
    out[i] = sin(out[i]) + exp(out[i]) / fma(out[i], 2.0, 1.0);
  }
}

template <typename T, int kSteps>
__global__ void templated(T* out) {
#pragma unroll 1
  for (int i = 0; i < kSteps; ++i) out[i] = out[i] * T(3) + T(1);
}
template __global__ void templated<float, 3>(float*);
template __global__ void templated<unsigned char, 300>(unsigned char*);
template __global__ void templated<long long, 7>(long long*);
