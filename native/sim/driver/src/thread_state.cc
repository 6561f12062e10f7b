// SPDX-License-Identifier: Apache-2.0
#include "thread_state.h"

#include "device.h"

namespace tessera::sim {

ThreadState& thread_state() {
  thread_local ThreadState state;
  return state;
}

Context& ThreadState::current_alive() const {
  require(!contexts.empty(), CUDA_ERROR_INVALID_CONTEXT);
  Context& context = *contexts.back();
  context.check_alive();
  return context;
}

Context& ThreadState::current() const {
  Context& context = current_alive();
  context.device().check_fault();
  return context;
}

void ThreadState::set_current(Context* context) {
  if (!contexts.empty()) contexts.pop_back();
  if (context != nullptr) contexts.push_back(Ref<Context>::share(context));
}

Stream& ThreadState::per_thread_stream(Context& context) {
  Default& entry = per_thread_streams_[&context];
  if (!entry.stream || entry.generation != context.generation()) {
    entry.generation = context.generation();
    entry.stream = Ref<Stream>(new Stream(context, Stream::Kind::kPerThread, CU_STREAM_DEFAULT, 0));
    context.add_stream(*entry.stream);
  }
  return *entry.stream;
}

PerThreadDefault::PerThreadDefault() : before_(thread_state().per_thread_default) {
  thread_state().per_thread_default = true;
}

PerThreadDefault::~PerThreadDefault() { thread_state().per_thread_default = before_; }

}  // namespace tessera::sim
