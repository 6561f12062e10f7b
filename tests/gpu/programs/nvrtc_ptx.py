# SPDX-License-Identifier: Apache-2.0
"""CUDA C++ compiled by NVRTC to PTX, launched through the driver, on PyTorch's memory."""

import ctypes

from common import run, seeded_torch

torch = seeded_torch()
SOURCE = b"""
extern "C" __global__ void axpy(float* y, const float* x, float a, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}
extern "C" __global__ void blur(float* out, const float* in, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = (in[i ? i - 1 : 0] + in[i] + in[i + 1 < n ? i + 1 : n - 1]) / 3;
}
"""


def check(code: int, what: str) -> None:
    if code:
        raise SystemExit(f"{what}: error {code}")


def compile_ptx() -> bytes:
    nvrtc = ctypes.CDLL("libnvrtc.so.13")
    program = ctypes.c_void_p()
    check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), SOURCE, b"k.cu", 0, None, None), "create")
    option = (ctypes.c_char_p * 1)(b"--gpu-architecture=compute_80")
    check(nvrtc.nvrtcCompileProgram(program, 1, option), "compile")
    size = ctypes.c_size_t()
    check(nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size)), "size")
    text = ctypes.create_string_buffer(size.value)
    check(nvrtc.nvrtcGetPTX(program, text), "get")
    return text.raw


def main() -> list["torch.Tensor"]:
    n = 1 << 18
    x, y = torch.rand(n, device="cuda"), torch.rand(n, device="cuda")
    driver = ctypes.CDLL("libcuda.so.1")
    module, axpy, blur = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    check(driver.cuModuleLoadData(ctypes.byref(module), compile_ptx()), "load")
    check(driver.cuModuleGetFunction(ctypes.byref(axpy), module, b"axpy"), "axpy")
    check(driver.cuModuleGetFunction(ctypes.byref(blur), module, b"blur"), "blur")
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)

    def launch(function: ctypes.c_void_p, *values: object) -> None:
        pointers = (ctypes.c_void_p * len(values))(
            *(ctypes.cast(ctypes.byref(v), ctypes.c_void_p) for v in values)
        )
        check(
            driver.cuLaunchKernel(function, n // 256, 1, 1, 256, 1, 1, 0, stream, pointers, None),
            "launch",
        )

    count = ctypes.c_uint(n)
    for step in range(20):
        px, py = ctypes.c_uint64(x.data_ptr()), ctypes.c_uint64(y.data_ptr())
        launch(axpy, py, px, ctypes.c_float(0.01 * step), count)
        launch(blur, px, py, count)
    return [x, y, x + y]


run(main)
