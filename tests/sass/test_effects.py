# SPDX-License-Identifier: Apache-2.0
"""Of a kernel that is not understood, everything is still known that would keep it at home."""

from __future__ import annotations

import pytest

pytest.importorskip("cuda.bindings")

from sass import images
from tessera import protocol
from tessera.analysis import Property
from tessera.sass import Grade, analyze_cubin

images.need_nvdisasm()

SOURCE = r"""
extern "C" int printf(const char*, ...);
__device__ int variable;
__device__ __noinline__ int twice(int x) { return x * 2 + variable; }
typedef int (*Function)(int);
extern "C" {
__global__ void follows(int** p) { p[0][threadIdx.x] = 1; }
__global__ void sine(float** p) { p[0][threadIdx.x] = sinf(p[1][threadIdx.x]); }
__global__ void clocks(long long** p) {
  p[0][threadIdx.x] = 1;
  __syncthreads();
  p[1][threadIdx.x] = clock64();
}
__global__ void reads(int** p) {
  p[0][threadIdx.x] = 1;
  __syncthreads();
  p[1][threadIdx.x] = variable;
}
__global__ void reads_in_a_function(int** p) {
  p[0][threadIdx.x] = 1;
  __syncthreads();
  p[1][threadIdx.x] = twice(p[0][3]);
}
__global__ void prints(int** p) {
  p[0][threadIdx.x] = 1;
  __syncthreads();
  printf("%d", p[1][0]);
}
__global__ void calls(int** p, Function f) {
  p[0][threadIdx.x] = 1;
  __syncthreads();
  p[1][threadIdx.x] = f(p[0][0]);
}
__global__ void talks(int** p) {
  p[0][threadIdx.x] = 1;
  __syncthreads();
  atomicAdd_system(p[1], 1);
}
}
"""
HOLDS = {
    "follows": Property(0),
    "sine": Property(0),
    "clocks": Property.DEVICE_DEPENDENT,
    "reads": Property.READS_GLOBALS,
    "reads_in_a_function": Property.READS_GLOBALS,
    "calls": Property.INDIRECT_CALLS,
    "talks": Property.SYSTEM_SCOPE,
}


@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_90a", "sm_100a", "sm_120"])
def test_what_only_home_can_do_is_seen_behind_what_is_not_understood(target: str) -> None:
    found = analyze_cubin(images.compile_source(SOURCE, target)[1])
    for name, summary in found.items():
        assert summary.grade is Grade.UNKNOWN, name
        properties = summary.summary.properties
        held = int(properties) & protocol.HOME_ONLY & ~protocol.KERNEL_UNKNOWN
        if name == "prints":
            assert held & (Property.PRINTS | Property.INDIRECT_CALLS), properties
        else:
            assert held == HOLDS[name], (name, properties)
