// SPDX-License-Identifier: Apache-2.0
#include "streams.h"

#include <algorithm>
#include <atomic>

#include "context.h"
#include "driver.h"

namespace tessera::shim {
namespace {

bool is_special(CUstream stream) { return stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD; }

/// Of the calling thread, and of no other ever: thread ids of the system come again.
uint64_t thread_number() {
  static std::atomic<uint64_t> last{0};
  static thread_local const uint64_t mine = last.fetch_add(1, std::memory_order_relaxed) + 1;
  return mine;
}

CUcontext context_of(CUstream stream) {
  CUcontext context = nullptr;
  if (!is_special(stream) && driver().cuStreamGetCtx(stream, &context) == CUDA_SUCCESS) return context;
  return current_context();
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

bool StreamState::reachable() const { return thread == 0 || thread == thread_number(); }

Streams::Key Streams::key_of(CUstream stream) {
  if (!is_special(stream)) return {stream, nullptr, 0};
  return {stream, current_context(), stream == CU_STREAM_PER_THREAD ? thread_number() : 0};
}

StreamState& Streams::get(CUstream stream) {
  const Key key = key_of(stream);
  auto& state = states_[key];
  if (state == nullptr) {
    state = std::make_unique<StreamState>();
    state->id = next_id_++;
    state->thread = std::get<2>(key);
    state->handle = stream;
    state->context = context_of(stream);
    state->kind = kind_of(stream);
  }
  return *state;
}

StreamState* Streams::find(CUstream stream) {
  const auto it = states_.find(key_of(stream));
  return it == states_.end() ? nullptr : it->second.get();
}

bool Streams::any_unreachable() const {
  return std::any_of(states_.begin(), states_.end(), [](const auto& entry) { return !entry.second->reachable(); });
}

void Streams::erase(CUstream stream) { states_.erase(key_of(stream)); }

void Streams::erase_context(CUcontext context) {
  std::erase_if(states_, [&](const auto& entry) { return entry.second->context == context; });
}

}  // namespace tessera::shim
