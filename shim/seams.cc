// SPDX-License-Identifier: Apache-2.0
#include "seams.h"

namespace tessera::shim {

[[gnu::weak]] bool session_start() { return false; }
[[gnu::weak]] CUresult before_opaque(CUstream, bool) { return CUDA_SUCCESS; }
[[gnu::weak]] CUresult after_call(CUresult result) { return result; }
[[gnu::weak]] CUresult opaque_call(CUstream stream, bool per_thread, CUresult (*call)(void*), void* argument) {
  const CUresult ready = before_opaque(stream, per_thread);
  return ready == CUDA_SUCCESS ? after_call(call(argument)) : ready;
}
[[gnu::weak]] void function_retired(FunctionEntry&) {}
[[gnu::weak]] LibraryFunction library_function(const char*) { return {}; }
[[gnu::weak]] bool takes_lookup(uint32_t, const void*) { return false; }
[[gnu::weak]] bool in_followed_library(const void*) { return false; }
[[gnu::weak]] void process_forked() {}

}  // namespace tessera::shim
