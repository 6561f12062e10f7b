# SPDX-License-Identifier: Apache-2.0
"""A hot plate cools down: the heat equation in CUDA C++, through cuda.core and NVRTC.

Two kernels: a five-point step, and a reduction in shared memory that finds the
largest change of a step. Steps are compared with NumPy bit for bit: the kernel
is compiled without fused multiply-add, so both do the same float32 arithmetic.

    python examples/heat_core.py --size 128 --steps 60
"""

import argparse
import sys
from typing import Any

import numpy as np
import numpy.typing as npt
from cuda.bindings import driver
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, Stream, launch

Array = npt.NDArray[np.float32]

SOURCE = r"""
extern "C" __global__ void heat_step(const float* now, float* next, int size, float rate) {
  const int column = blockIdx.x * blockDim.x + threadIdx.x;
  const int row = blockIdx.y * blockDim.y + threadIdx.y;
  if (column >= size || row >= size) return;
  const int here = row * size + column;
  const bool edge = row == 0 || column == 0 || row == size - 1 || column == size - 1;
  if (edge) {
    next[here] = now[here];
    return;
  }
  const float around = (now[here - size] + now[here + size]) + (now[here - 1] + now[here + 1]);
  next[here] = now[here] + rate * (around - 4.0f * now[here]);
}

extern "C" __global__ void largest_change(const float* a, const float* b, float* partial,
                                          int count) {
  __shared__ float best[256];
  float mine = 0.0f;
  for (int i = blockIdx.x * 256 + threadIdx.x; i < count; i += gridDim.x * 256) {
    mine = fmaxf(mine, fabsf(a[i] - b[i]));
  }
  best[threadIdx.x] = mine;
  for (int half = 128; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) best[threadIdx.x] = fmaxf(best[threadIdx.x], best[threadIdx.x + half]);
  }
  if (threadIdx.x == 0) partial[blockIdx.x] = best[0];
}
"""
RATE = np.float32(0.2)
BLOCKS = 8  # of the reduction


def checked(result: tuple[Any, ...]) -> None:
    """Raise RuntimeError when a driver call failed."""
    if result[0] != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"CUDA driver call failed: {result[0]!r}")


def starting_plate(size: int) -> Array:
    """Cold, with a hot square in the middle and one hot edge."""
    plate = np.zeros((size, size), np.float32)
    plate[size // 3 : size // 2, size // 3 : size // 2] = 100.0
    plate[0] = 50.0
    return plate


def on_host(plate: Array, steps: int) -> tuple[Array, float]:
    """The plate after `steps` steps, and the largest change in the last."""
    before = plate
    for _ in range(steps):
        before = plate
        plate = before.copy()
        middle = before[1:-1, 1:-1]
        around = (before[:-2, 1:-1] + before[2:, 1:-1]) + (before[1:-1, :-2] + before[1:-1, 2:])
        plate[1:-1, 1:-1] = middle + RATE * (around - np.float32(4.0) * middle)
    return plate, float(np.abs(plate - before).max())


def on_device(device: Device, stream: Stream, plate: Array, steps: int) -> tuple[Array, float]:
    """The same on the GPU."""
    options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}", fma=False)
    module = Program(SOURCE, code_type="c++", options=options).compile("ptx")
    step, change = module.get_kernel("heat_step"), module.get_kernel("largest_change")

    size = plate.shape[0]
    now, following = (device.allocate(plate.nbytes, stream=stream) for _ in range(2))
    partial = device.allocate(4 * BLOCKS, stream=stream)
    handle = int(stream.handle)
    checked(driver.cuMemcpyHtoDAsync(int(now.handle), plate.ctypes.data, plate.nbytes, handle))

    side = -(-size // 16)
    tiles = LaunchConfig(grid=(side, side), block=(16, 16))
    for _ in range(steps):
        launch(stream, tiles, step, now, following, size, RATE)
        now, following = following, now
    reduction = LaunchConfig(grid=BLOCKS, block=256)
    launch(stream, reduction, change, now, following, partial, size * size)

    result, largest = np.empty_like(plate), np.empty(BLOCKS, np.float32)
    checked(driver.cuMemcpyDtoHAsync(result.ctypes.data, int(now.handle), result.nbytes, handle))
    checked(
        driver.cuMemcpyDtoHAsync(largest.ctypes.data, int(partial.handle), largest.nbytes, handle)
    )
    stream.sync()
    for buffer in (now, following, partial):
        buffer.close(stream)
    return result, float(largest.max())


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--size", type=int, default=128, help="the plate's side, in cells")
    parser.add_argument("--steps", type=int, default=60)
    options = parser.parse_args(arguments)

    device = Device(0)
    device.set_current()
    stream = device.create_stream()
    plate = starting_plate(options.size)
    result, change = on_device(device, stream, plate, options.steps)
    expected, expected_change = on_host(plate, options.steps)
    if result.tobytes() != expected.tobytes() or change != expected_change:
        raise SystemExit(f"WRONG: {int((result != expected).sum())} cells differ from NumPy")
    print(
        f"{options.size} x {options.size} cells after {options.steps} steps on {device.name}: "
        f"equal to NumPy bit for bit; the last step changed a cell by {change:.4f} at most"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
