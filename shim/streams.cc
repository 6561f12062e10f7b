// SPDX-License-Identifier: Apache-2.0
#include "streams.h"

#include <unistd.h>

#include "driver.h"

namespace tessera::shim {
namespace {

bool is_special(CUstream stream) { return stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD; }

CUcontext current_context() {
  CUcontext context = nullptr;
  return driver().cuCtxGetCurrent(&context) == CUDA_SUCCESS ? context : nullptr;
}

StreamState::Kind kind_of(CUstream stream) {
  if (stream == CU_STREAM_LEGACY) return StreamState::Kind::kLegacy;
  if (stream == CU_STREAM_PER_THREAD) return StreamState::Kind::kBlocking;
  unsigned flags = 0;
  // A stream whose flags cannot be had counts as blocking: that only orders more.
  if (driver().cuStreamGetFlags(stream, &flags) != CUDA_SUCCESS) return StreamState::Kind::kBlocking;
  return (flags & CU_STREAM_NON_BLOCKING) != 0 ? StreamState::Kind::kNonBlocking : StreamState::Kind::kBlocking;
}

}  // namespace

bool StreamState::synchronizes_with(const StreamState& other) const {
  const bool one_legacy = (kind == Kind::kLegacy) != (other.kind == Kind::kLegacy);
  return one_legacy && context == other.context && kind != Kind::kNonBlocking && other.kind != Kind::kNonBlocking;
}

Streams::Key Streams::key_of(CUstream stream) {
  if (!is_special(stream)) return {stream, nullptr, 0};
  return {stream, current_context(), stream == CU_STREAM_PER_THREAD ? gettid() : 0};
}

StreamState& Streams::get(CUstream stream) {
  const Key key = key_of(stream);
  auto& state = states_[key];
  if (state == nullptr) {
    state = std::make_unique<StreamState>();
    state->handle = stream;
    state->context = current_context();
    state->kind = kind_of(stream);
  }
  return *state;
}

StreamState* Streams::find(CUstream stream) {
  const auto it = states_.find(key_of(stream));
  return it == states_.end() ? nullptr : it->second.get();
}

void Streams::erase(CUstream stream) { states_.erase(key_of(stream)); }

void Streams::erase_context(CUcontext context) {
  std::erase_if(states_, [&](const auto& entry) { return entry.second->context == context; });
}

}  // namespace tessera::shim
