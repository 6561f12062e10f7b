// SPDX-License-Identifier: Apache-2.0
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "conformance.h"

namespace conformance {

const char* current = "";

std::vector<Section>& sections() {
  static std::vector<Section> all;
  return all;
}

std::string error_name(CUresult code) {
  const char* name = nullptr;
  if (cuGetErrorName(code, &name) != CUDA_SUCCESS || name == nullptr) return "error " + std::to_string(code);
  return std::strncmp(name, "CUDA_", 5) == 0 ? name + 5 : name;
}

void line(const char* key, const std::string& value) {
  std::printf("%s.%s: %s\n", current, key, value.c_str());
  std::fflush(stdout);
}

void result(const char* key, CUresult code) { line(key, error_name(code)); }
void number(const char* key, long long value) { line(key, std::to_string(value)); }
void result_number(const char* key, CUresult code, long long value) {
  line(key, code == CUDA_SUCCESS ? std::to_string(value) : error_name(code));
}

static void must(const char* what, CUresult code) {
  if (code == CUDA_SUCCESS) return;
  line("setup failed", std::string(what) + " " + error_name(code));
  std::_Exit(3);
}

CUdevice start() {
  must("cuInit", cuInit(0));
  CUdevice device = -1;
  must("cuDeviceGet", cuDeviceGet(&device, 0));
  CUcontext context = nullptr;
  must("cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain(&context, device));
  must("cuCtxSetCurrent", cuCtxSetCurrent(context));
  return device;
}

CUstream new_stream(unsigned flags) {
  CUstream stream = nullptr;
  must("cuStreamCreate", cuStreamCreate(&stream, flags));
  return stream;
}

CUmodule load(const char* ptx) {
  CUmodule module = nullptr;
  must("cuModuleLoadData", cuModuleLoadData(&module, ptx));
  return module;
}

CUfunction function(CUmodule module, const char* name) {
  CUfunction found = nullptr;
  must("cuModuleGetFunction", cuModuleGetFunction(&found, module, name));
  return found;
}

CUdeviceptr device_bytes(size_t size) {
  CUdeviceptr pointer = 0;
  must("cuMemAlloc", cuMemAlloc_v2(&pointer, size));
  return pointer;
}

const char* const kBasicPtx = R"(
.version 7.0
.target sm_80
.address_size 64
.visible .global .align 4 .u32 counter = 7;
.visible .const .align 4 .u32 table[4] = {1, 2, 3, 4};
.visible .entry store_one(.param .u64 out, .param .u32 value) {
  .reg .b32 %r<2>; .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [value];
  cvta.to.global.u64 %rd2, %rd1;
  st.global.u32 [%rd2], %r1;
  ret;
}
.visible .entry add_one(.param .u64 data) {
  .reg .b32 %r<6>; .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [data];
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.u32 %r4, %r1, %r2, %r3;
  mul.wide.u32 %rd2, %r4, 4;
  add.u64 %rd3, %rd1, %rd2;
  ld.global.u32 %r5, [%rd3];
  add.u32 %r5, %r5, 1;
  st.global.u32 [%rd3], %r5;
  ret;
}
.visible .entry spin(.param .u64 flag) {
  .reg .b32 %r<2>; .reg .b64 %rd<2>; .reg .pred %p<2>;
  ld.param.u64 %rd1, [flag];
again:
  ld.volatile.global.u32 %r1, [%rd1];
  setp.eq.u32 %p1, %r1, 0;
  @%p1 bra again;
  ret;
}
.visible .entry params(.param .u8 a, .param .u64 b, .param .align 16 .b8 c[20], .param .u16 d) { ret; }
.visible .entry shared_user(.param .u64 out) {
  .reg .b32 %r<3>; .reg .b64 %rd<2>;
  .shared .align 4 .b8 buffer[4096];
  ld.param.u64 %rd1, [out];
  mov.u32 %r1, %tid.x;
  st.shared.u32 [buffer], %r1;
  ld.shared.u32 %r2, [buffer];
  st.global.u32 [%rd1], %r2;
  ret;
}
.visible .entry bounded(.param .u64 out) .maxntid 64, 1, 1 { ret; }
.visible .entry trap_now() { trap; }
.visible .entry empty() { ret; }
)";

}  // namespace conformance

int main(int argc, char** argv) {
  using namespace conformance;
  int failed = 0;
  for (const Section& section : sections()) {
    if (argc > 1 && std::strcmp(section.name, argv[1]) != 0) continue;
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);
      current = section.name;
      section.body();
      std::fflush(stdout);
      std::_Exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    current = section.name;
    if (WIFSIGNALED(status)) line("signal", std::to_string(WTERMSIG(status)));
    if (status != 0) ++failed;
  }
  return failed == 0 ? 0 : 1;
}
