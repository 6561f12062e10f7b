// SPDX-License-Identifier: Apache-2.0
// Pointers and descriptors inside the parameter block.
struct Inputs {
  const float* input[16];
  unsigned sizes[16];
};

extern "C" __global__ void by_block(float* out, Inputs inputs) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < inputs.sizes[blockIdx.y]) out[blockIdx.y * 1024 + i] = inputs.input[blockIdx.y][i];
}

extern "C" __global__ void by_data(float* out, const int* which, Inputs inputs) {
  out[threadIdx.x] = inputs.input[which[0] & 15][threadIdx.x];
}

extern "C" __global__ void by_block_and_loaded(float* out, const long long* differences, Inputs inputs) {
  out[threadIdx.x] = *(const float*)((const char*)inputs.input[blockIdx.y] + differences[threadIdx.x]);
}

#if __CUDA_ARCH__ >= 900
struct alignas(64) Map {
  unsigned long long words[16];
};

__device__ void fetch(void* shared, const Map* map, unsigned long long* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2}], [%3];" ::"r"(
          (unsigned)__cvta_generic_to_shared(shared)),
      "l"(map), "r"(0), "r"((unsigned)__cvta_generic_to_shared(barrier))
      : "memory");
}

__device__ void put(const Map* map, void* shared) {
  asm volatile("cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [%0, {%1}], [%2];" ::"l"(map), "r"(0),
               "r"((unsigned)__cvta_generic_to_shared(shared))
               : "memory");
}

extern "C" __global__ void maps_given(const __grid_constant__ Map from, float* extra, const __grid_constant__ Map to) {
  __shared__ alignas(128) float tile[256];
  __shared__ unsigned long long barrier;
  fetch(tile, &from, &barrier);
  __syncthreads();
  extra[threadIdx.x] = tile[threadIdx.x];
  put(&to, tile);
}

extern "C" __global__ void one_of_two_maps(const __grid_constant__ Map a, const __grid_constant__ Map b, int which) {
  __shared__ alignas(128) float tile[256];
  __shared__ unsigned long long barrier;
  fetch(tile, which ? &a : &b, &barrier);
}

extern "C" __global__ void map_in_memory(const Map* maps) {
  __shared__ alignas(128) float tile[256];
  __shared__ unsigned long long barrier;
  fetch(tile, maps + 1, &barrier);
}

extern "C" __global__ void map_chosen_by_data(const __grid_constant__ Map a, const Map* maps, const int* which) {
  __shared__ alignas(128) float tile[256];
  __shared__ unsigned long long barrier;
  fetch(tile, which[0] ? &a : maps, &barrier);
}
#endif
