// SPDX-License-Identifier: Apache-2.0
// What the interposition layer asks of the parts that move work. Each has a weak
// default, which holds where those parts are not linked in (tests of this layer).
#pragma once

#include <cuda.h>

#include <cstdint>

namespace tessera::shim {

class FunctionEntry;

/// Reaches the controller and sets up the session; called once, after cuInit
/// succeeded, by one thread. False: no controller. Default: false.
bool session_start();

/// Before work in `stream` of which nothing is known: everything that it could
/// touch is brought home in that stream. An error is the call's result. Default: nothing.
CUresult before_opaque(CUstream stream, bool per_thread);

/// After a call into the driver: the result to hand to the program, which is the
/// sticky error of a lost worker if there is one. Default: `result`.
CUresult after_call(CUresult result);

/// Makes a call that enqueues work in `stream` of which nothing is known: after
/// everything that it could touch is home, and with nothing becoming remote
/// between that and the call. Default: before_opaque, `call(argument)`, after_call.
CUresult opaque_call(CUstream stream, bool per_thread, CUresult (*call)(void*), void* argument);

template <class Call>
CUresult opaque(CUstream stream, bool per_thread, Call call) {
  return opaque_call(stream, per_thread, [](void* argument) { return (*static_cast<Call*>(argument))(); }, &call);
}

/// The module of `function` was unloaded: what `launch_state` holds may be let
/// go once no launch uses it. Called without a lock. Default: nothing.
void function_retired(FunctionEntry& function);

/// The shim's function that stands in for one of a host library (cuBLAS). Default: none.
struct LibraryFunction {
  void* ours = nullptr;
  uint32_t kind = 0;
};
LibraryFunction library_function(const char* name);
/// Whether a lookup of such a function, which found `found`, may be answered with the shim's. Default: no.
bool takes_lookup(uint32_t kind, const void* found);
/// Whether the address lies in such a library: it gets its own functions. Default: no.
bool in_followed_library(const void* address);

/// This process was forked from one with a session; no thread but this one lives in it. Default: nothing.
void process_forked();

}  // namespace tessera::shim
