// SPDX-License-Identifier: Apache-2.0
// Operations that may wait for something that the host does: host functions,
// waits for a value in memory, kernels that look at what others write. Nothing
// of ours may make another stream wait for such a stream when the program does
// not: the host may do its part only after that other stream has gone on.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/memory/directory.h"

namespace tessera::shim {

using memory::Range;
struct StreamState;

/// Guarded by the world's lock.
class HostWaits {
 public:
  /// The last operation of `stream`, just enqueued, is one, and looks at what others write to `watched` until it ends.
  /// Precondition: the stream is not captured.
  void add(const StreamState& stream, std::span<const Range> watched = {});
  /// Whether one in this stream has not ended. Precondition: nothing is captured.
  bool unfinished_in(const StreamState& stream);
  /// Whether one in another stream has not ended. Precondition: nothing is captured.
  bool unfinished_beside(const StreamState& stream);
  /// Whether one in another stream may be looking at any of these bytes. Precondition: nothing is captured.
  bool watched_beside(const StreamState& stream, std::span<const Range> ranges);

 private:
  struct Wait {
    uint64_t stream = 0;  // StreamState::id
    CUevent behind = nullptr;
    std::vector<Range> watched;  // sorted, without overlaps
  };
  void forget_ended();
  std::vector<Wait> waits_;
  bool lost_count_ = false;  // one could not be followed: there may always be one
};

}  // namespace tessera::shim
