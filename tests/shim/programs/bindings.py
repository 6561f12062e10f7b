# SPDX-License-Identifier: Apache-2.0
"""A cuda-bindings program: module, function, memory, stream, event, launch. Prints results."""

import ctypes

import numpy as np
from cuda.bindings import driver

PTX = b""".version 7.8
.target sm_80
.address_size 64
.visible .entry scale(.param .u64 data, .param .u32 factor) {
  .reg .b32 %r<4>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [data];
  ld.param.u32 %r1, [factor];
  cvta.to.global.u64 %rd1, %rd1;
  mov.u32 %r2, %tid.x;
  mul.wide.u32 %rd2, %r2, 4;
  add.s64 %rd3, %rd1, %rd2;
  ld.global.u32 %r3, [%rd3];
  mul.lo.s32 %r3, %r3, %r1;
  st.global.u32 [%rd3], %r3;
  ret;
}
\0"""


def check(answer):
    assert answer[0] == driver.CUresult.CUDA_SUCCESS, answer
    return answer[1] if len(answer) == 2 else answer[1:]


check(driver.cuInit(0))
device = check(driver.cuDeviceGet(0))
print(check(driver.cuDeviceGetName(64, device)).rstrip(b"\0").decode())
context = check(driver.cuDevicePrimaryCtxRetain(device))
check(driver.cuCtxSetCurrent(context))
stream = check(driver.cuStreamCreate(0))
module = check(driver.cuModuleLoadData(PTX))
function = check(driver.cuModuleGetFunction(module, b"scale"))
print([check(driver.cuFuncGetParamInfo(function, i)) for i in range(2)])

data = np.arange(32, dtype=np.int32)
pointer = check(driver.cuMemAlloc(data.nbytes))
check(driver.cuMemcpyHtoDAsync(pointer, data.ctypes.data, data.nbytes, stream))
arguments = ((int(pointer), 3), (ctypes.c_void_p, ctypes.c_uint))
for _ in range(2):
    check(driver.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, arguments, 0))
check(driver.cuMemcpyDtoHAsync(data.ctypes.data, pointer, data.nbytes, stream))
check(driver.cuStreamSynchronize(stream))
print(data.tolist())

# Errors are results too.
print(driver.cuModuleGetFunction(module, b"nothing")[0])
print(driver.cuMemFree(12345)[0])
print(driver.cuLaunchKernel(function, 0, 1, 1, 1, 1, 1, 0, stream, arguments, 0)[0])
check(driver.cuMemFree(pointer))
check(driver.cuModuleUnload(module))
check(driver.cuStreamDestroy(stream))
