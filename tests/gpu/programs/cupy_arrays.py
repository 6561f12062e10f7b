# SPDX-License-Identifier: Apache-2.0
"""CuPy: element-wise kernels, a reduction, sorting, a raw kernel."""

from common import run


def main() -> list[object]:
    import cupy

    raw = cupy.RawKernel(
        r"""extern "C" __global__ void twice(const float* x, float* y, int n) {
          int i = blockDim.x * blockIdx.x + threadIdx.x;
          if (i < n) y[i] = 2 * x[i];
        }""",
        "twice",
    )
    x = cupy.arange(100_000, dtype=cupy.float32)
    y = cupy.empty_like(x)
    raw((391,), (256,), (x, y, cupy.int32(x.size)))
    z = cupy.sin(y) * x + y.sum()
    return [cupy.asnumpy(part) for part in (y, z, cupy.sort(z), z.reshape(100, -1).max(axis=1))]


run(main)
