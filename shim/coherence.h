// SPDX-License-Identifier: Apache-2.0
// The rules by which every operation sees the last written bytes in program
// order, whichever device wrote them:
//
// 1. The directory changes in the order in which the program enqueues.
// 2. An operation in a stream first waits for every unfinished remote operation
//    of another lane that touched its bytes (Touch), and home operations first
//    join their own stream's lanes.
// 3. Bytes move home by a push of the worker that holds them, to a worker by a
//    pull from home.
// Claimed ranges may be larger than the true ones; rule 2 then orders more than
// the program asked for, and never less.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/memory/directory.h"
#include "world.h"

namespace tessera::shim {

/// What a home operation touches in device memory.
struct Footprint {
  std::vector<Range> reads;
  std::vector<Range> writes;
  bool may_keep = false;    // writes may leave old bytes: they are needed too
  bool everything = false;  // anything at all
};

/// All with the world's lock held. Every function returns the first driver
/// error, with what was ordered before it still in effect.
class Coherence {
 public:
  explicit Coherence(World& world) : world_(world) {}

  /// `stream` waits for all that its own lanes, and the lanes of streams that it
  /// synchronizes with, have been sent. Precondition, here and below: it is reachable.
  CUresult join(StreamState& stream);
  /// Joins every stream of the current context.
  CUresult join_all();

  /// Before a home operation: joins, orders, brings home what it reads.
  CUresult before_home(StreamState& stream, const Footprint& footprint);
  /// After a home operation was enqueued: its writes are valid at home alone.
  void after_home(const Footprint& footprint);

  /// Copies home whatever of `ranges` lies elsewhere, in `stream`'s order.
  CUresult bring_home(StreamState& stream, std::span<const Range> ranges);
  CUresult bring_all_home(StreamState& stream);

  /// Makes `stream` wait for unfinished operations of other lanes on `ranges`.
  CUresult wait_for_touches(StreamState& stream, std::span<const Range> ranges);

  /// Makes `stream` wait for all that other streams have been given so far.
  CUresult wait_for_other_streams(StreamState& stream);

  /// The value that a message of this lane has to wait for: raises the start
  /// flag in the home stream unless nothing happened at home since. 0: no wait.
  CUresult gate(StreamState& stream, WorkerLink& worker, uint32_t* start);

  /// Joins what `stream` has on other workers than `except`.
  CUresult join_other_workers(StreamState& stream, uint32_t except);
  /// Streams that synchronize with `stream` by themselves are joined first.
  CUresult join_related(StreamState& stream);
  /// Forgets touches that have ended, so that the world can come to rest.
  void settle();
  void mark_unjoined(StreamState& stream, uint32_t worker);

 private:
  CUresult join_lane(StreamState& stream, uint32_t worker, StreamState& waiting);
  /// `waiting` waits for what `stream` has sent to all workers but `except`. Where that is another stream, `stream`
  /// still has to be joined itself, by the thread that can reach it.
  CUresult join_lanes(StreamState& stream, uint32_t except, StreamState& waiting);
  CUresult join_lanes(StreamState& stream, uint32_t except) { return join_lanes(stream, except, stream); }
  void mark_joined(StreamState& stream, uint32_t worker);
  CUresult wait_for(StreamState& stream, WorkerLink& worker, int lane, uint32_t serial);
  CUresult wait_for_touch(StreamState& stream, const memory::Touch& touch);
  CUresult push(StreamState& stream, uint32_t worker, std::vector<Range>& ranges);
  bool finished(const memory::Touch& touch);
  void settle_joins();

  World& world_;
};

}  // namespace tessera::shim
