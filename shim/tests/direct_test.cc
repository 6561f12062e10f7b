// SPDX-License-Identifier: Apache-2.0
// A program linked with the driver, as Triton's launcher is: neither dlsym nor
// cuGetProcAddress is involved.
#include "probe.h"
#include "stub_driver.h"
#include "testing/check.h"

using namespace probe;

TEST_CASE(linked_names) {
  CHECK_EQ(cuInit(0), CUDA_SUCCESS);
  CHECK_EQ(stub_calls("cuInit"), 1);
  CUdeviceptr pointer = 0;
  CHECK_EQ(cuMemAlloc_v2(&pointer, 8), CUDA_SUCCESS);
  CHECK_EQ(stub_calls("cuMemAlloc_v2"), 1);
  CHECK_EQ(cuMemPrefetchAsync_v2(0, 0, CUmemLocation{}, 0, nullptr), CUDA_SUCCESS);
  CHECK_EQ(stub_calls("cuMemPrefetchAsync_v2"), 1);
  // What the program bound; its own PLT address would not tell.
  CHECK(from_shim(dlsym(RTLD_DEFAULT, "cuInit")));
  CHECK(from_shim(dlsym(RTLD_DEFAULT, "cuMemPrefetchAsync_v2")));
  CHECK(from_driver(dlsym(RTLD_DEFAULT, "cuCtxGetDevice")));
}

TEST_CASE(first_call_is_no_init) {
  int version = 0;
  CHECK_EQ(cuDriverGetVersion(&version), CUDA_SUCCESS);
  CUmodule module = nullptr;
  CHECK_EQ(cuModuleLoadData(&module, ""), CUDA_SUCCESS);
  CHECK_EQ(stub_calls("cuModuleLoadData"), 1);
  CHECK_EQ(cuInit(0), CUDA_SUCCESS);
}

TEST_CASE(linked_driver_beats_the_setting) {
  CapturedStderr captured;
  CHECK_EQ(cuInit(0), CUDA_SUCCESS);
  CHECK_EQ(stub_calls("cuInit"), 1);
  CHECK_EQ(count(captured.restore(), "TESSERA_DRIVER"), 1);
}

TEST_MAIN()
