// SPDX-License-Identifier: Apache-2.0
// What the driver keeps for each thread of the program.
#pragma once

#include <map>
#include <vector>

#include "context.h"
#include "stream.h"

namespace tessera::sim {

struct ThreadState {
  std::vector<Ref<Context>> contexts;  // the stack; the last one is current
  bool per_thread_default = false;     // inside a _ptsz/_ptds variant
  bool in_host_function = false;       // driver calls are not permitted there
  CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

  /// The current context; fails with CUDA_ERROR_INVALID_CONTEXT where there is none,
  /// CUDA_ERROR_CONTEXT_IS_DESTROYED, or the device's fault.
  Context& current() const;
  /// Without the check for a fault.
  Context& current_alive() const;
  Context* current_or_null() const { return contexts.empty() ? nullptr : contexts.back().get(); }
  void set_current(Context* context);

  Stream& per_thread_stream(Context& context);

 private:
  struct Default {
    uint64_t generation;
    Ref<Stream> stream;
  };
  std::map<Context*, Default> per_thread_streams_;
};

ThreadState& thread_state();

inline Context& current_context() { return thread_state().current(); }

}  // namespace tessera::sim
