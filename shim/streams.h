// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

namespace tessera::shim {

/// The handle that names the same stream in every variant of a call: null means
/// the legacy stream, or the thread's own where `per_thread` is set.
inline CUstream normalized(CUstream stream, bool per_thread) {
  if (stream != nullptr) return stream;
  return per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
}

/// What Tessera knows of one home stream. Guarded by the world's lock.
struct StreamState {
  enum class Kind : uint8_t { kLegacy, kBlocking, kNonBlocking };

  uint64_t id = 0;              // never given to another stream, whatever becomes of the handle
  uint64_t thread = 0;          // whose per-thread stream it is; 0: any thread may name it
  CUstream handle = nullptr;    // normalised
  CUcontext context = nullptr;  // its own; of special handles, the one that is current
  Kind kind = Kind::kBlocking;
  uint16_t unjoined = 0;      // bit w: worker w's lane of this stream has operations the stream does not wait for yet
  int16_t lanes[16];          // by worker; -1: none yet
  CUevent barrier = nullptr;  // made at first need
  std::map<size_t, uint64_t> seen;  // activity slot -> count that this stream is already ordered after

  StreamState() { std::fill(std::begin(lanes), std::end(lanes), int16_t{-1}); }

  /// Whether an operation on one of the two waits for earlier ones on the other
  /// without being told: the legacy stream and the blocking streams of its context.
  bool synchronizes_with(const StreamState& other) const;
  /// Whether this thread's calls reach the stream: another thread's per-thread stream has no name here.
  bool reachable() const;
};

class Streams {
 public:
  /// The state of the stream in the current context. Precondition: `stream` is
  /// normalised, and a context is current where it is a special handle.
  StreamState& get(CUstream stream);
  /// Null when the stream was never seen.
  StreamState* find(CUstream stream);
  void erase(CUstream stream);
  void erase_context(CUcontext context);
  /// Whether another thread has a per-thread stream.
  bool any_unreachable() const;
  template <class Visit>
  void for_each(Visit&& visit) {
    for (auto& [key, state] : states_) visit(*state);
  }

 private:
  // The per-thread handle names one stream per thread; the special handles, one per context.
  using Key = std::tuple<CUstream, CUcontext, uint64_t>;
  static Key key_of(CUstream stream);
  uint64_t next_id_ = 1;
  std::map<Key, std::unique_ptr<StreamState>> states_;
};

}  // namespace tessera::shim
