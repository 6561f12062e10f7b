// SPDX-License-Identifier: Apache-2.0
// Instructions that hardware brought over the years: shuffles, atomics, textures, tensor cores,
// asynchronous copies, clusters, small floats.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <mma.h>

extern "C" __global__ void warp_level(int* out, unsigned long long* wide) {
  int x = out[threadIdx.x];
  x += __shfl_down_sync(0xffffffff, x, 16);
  x += __shfl_xor_sync(0xffffffff, x, 3, 8);
  x += __ballot_sync(0xffffffff, x > 3) + __any_sync(0xffffffff, x) + __popcll(wide[0]) + __clz(x) + __ffs(x);
  x += __match_any_sync(0xffffffff, x) + __activemask() + __dp4a(x, 3, 4) + __byte_perm(x, 1, 0x5140);
#if __CUDA_ARCH__ >= 800
  x += __reduce_add_sync(0xffffffff, x);
#endif
  unsigned mask;
  asm("mov.u32 %0, %%lanemask_lt;" : "=r"(mask));
  out[threadIdx.x] = x + mask + clock() + (int)clock64();
}

extern "C" __global__ void atomics(int* i, float* f, double* d, __half2* h, unsigned long long* u, __nv_bfloat16* b) {
  __shared__ int bins[64];
  atomicAdd(&bins[threadIdx.x & 63], 1);
  atomicMax(i, bins[0]);
  atomicCAS(i, 1, 2);
  atomicExch(i + 1, 3);
  atomicAdd(f, 1.0f);
  atomicAdd(d, 1.0);
  atomicAdd(h, __floats2half2_rn(1, 2));
  atomicAdd(u, 5ull);
  atomicAdd_block(i, 1);
  atomicAdd_system(i, 1);
  atomicAdd(b, __float2bfloat16(1.0f));
  __threadfence();
  __threadfence_block();
  __threadfence_system();
}

extern "C" __global__ void textures(cudaTextureObject_t t, cudaSurfaceObject_t s, float4* out) {
  float4 v = tex2D<float4>(t, threadIdx.x + 0.5f, 0.25f);
  v.x += tex1Dfetch<float>(t, threadIdx.x) + tex3D<float>(t, 1, 2, 3) + tex2DLod<float>(t, 1, 2, 0.5f);
  v.y += surf2Dread<float>(s, threadIdx.x * 4, 1);
  surf2Dwrite(v, s, threadIdx.x * 16, 2);
  out[threadIdx.x] = v;
}

extern "C" __global__ void tensor_cores(const __half* a, const __half* b, float* c) {
#if __CUDA_ARCH__ >= 700
  using namespace nvcuda;
  wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> fb;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;
  wmma::fill_fragment(fc, 0.0f);
  wmma::load_matrix_sync(fa, a, 16);
  wmma::load_matrix_sync(fb, b, 16);
  wmma::mma_sync(fc, fa, fb, fc);
  wmma::store_matrix_sync(c, fc, 16, wmma::mem_row_major);
#endif
}

extern "C" __global__ void small_floats(__half* h, __nv_bfloat16* b, __nv_fp8_e4m3* f, float* out) {
  const int i = threadIdx.x;
  h[i] = __hfma(h[i], h[i], __float2half(1.5f)) + hexp(h[i]);
  b[i] = __hmul(b[i], __float2bfloat16(2.0f));
  f[i] = __nv_fp8_e4m3(out[i]);
  out[i] = __half2float(h[i]) + __bfloat162float(b[i]) + float(f[i]) + __expf(out[i]) + rsqrtf(out[i]) + __fdividef(1.0f, out[i]);
}

extern "C" __global__ void asynchronous(float4* out, const float4* in) {
#if __CUDA_ARCH__ >= 800
  __shared__ float4 tile[128];
  const unsigned target = (unsigned)__cvta_generic_to_shared(&tile[threadIdx.x]);
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(target), "l"(in + threadIdx.x), "r"(16));
  asm volatile("cp.async.commit_group;\ncp.async.wait_group 0;");
  __syncthreads();
  out[threadIdx.x] = __ldg(&in[threadIdx.x]);
  out[threadIdx.x + 1] = __ldcs(&in[threadIdx.x + 1]);
  __stwt(&out[threadIdx.x + 2], tile[threadIdx.x ^ 1]);
#endif
}

struct alignas(64) TensorMap {
  unsigned long long words[16];
};

#if __CUDA_ARCH__ >= 900
extern "C" __global__ void __cluster_dims__(2, 1, 1) clusters(int* out, const __grid_constant__ TensorMap map) {
  __shared__ int value;
  __shared__ alignas(8) unsigned long long barrier;
  value = threadIdx.x;
  const unsigned local = (unsigned)__cvta_generic_to_shared(&value), bar = (unsigned)__cvta_generic_to_shared(&barrier);
  unsigned remote, rank, done;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(local), "r"(rank ^ 1));
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(1));
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;");
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(local),
               "l"(&map), "r"(0), "r"(1), "r"(bar));
  asm volatile("{\n.reg .pred p;\nWAIT:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n@p bra DONE;\nbra WAIT;\nDONE:\nselp.u32 %0, 1, 0, p;\n}"
               : "=r"(done) : "r"(bar), "r"(0));
  int x;
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(x) : "r"(remote));
  out[threadIdx.x] = x + done;
}
#endif
