# SPDX-License-Identifier: Apache-2.0
"""Two kernels, launched in turn; one of them asserts.

    faulty.py [fault] [blind]

`fault`: its assertion fails in the last round. `blind`: a library is loaded in a way that
could hide calls of the driver.
"""

import ctypes
import os
import sys

import numpy as np
from cuda.bindings import driver
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

SOURCE = r"""
extern "C" __global__ void careful(float* out, int n, int worst) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i == worst) __assertfail("i != worst", "careful.cu", 7, "careful", size_t(1));
  if (i < n) out[i] = i;
}
extern "C" __global__ void steady(float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = out[i] + 1;
}
"""
ROUNDS, COUNT = 30, 1024


def main(options: list[str]) -> None:
    if "blind" in options:
        ctypes.CDLL("libutil.so.1", mode=os.RTLD_NOW | os.RTLD_DEEPBIND)
    device = Device(0)
    device.set_current()
    stream = device.create_stream()
    module = Program(SOURCE, "c++", ProgramOptions(arch="sm_80")).compile("ptx")
    careful, steady = (module.get_kernel(name) for name in ("careful", "steady"))
    buffer = device.memory_resource.allocate(4 * COUNT, stream=stream)
    config = LaunchConfig(grid=COUNT // 256, block=256)
    for i in range(ROUNDS):
        worst = 77 if i == ROUNDS - 1 and "fault" in options else -1
        launch(stream, config, careful, buffer, np.int32(COUNT), np.int32(worst))
        launch(stream, config, steady, buffer, np.int32(COUNT))
    stream.sync()
    out = np.empty(COUNT, np.float32)
    (result,) = driver.cuMemcpyDtoH(out.ctypes.data, int(buffer.handle), 4 * COUNT)
    assert result == driver.CUresult.CUDA_SUCCESS
    assert (out == np.arange(1, COUNT + 1)).all()
    print("right")


if __name__ == "__main__":
    main(sys.argv[1:])
