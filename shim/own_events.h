// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>

#include <cstddef>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace tessera::shim {

/// The driver's events that the shim needs for itself. While a thread's copy to or from pageable memory waits in the
/// driver, the driver keeps a lock of the context that making and destroying events waits for, and the copy may wait
/// for what the maker would do next: meanwhile events come from a stock of the context, and go back to it.
/// Any thread, with or without the world's lock.
class OwnEvents {
 public:
  /// As long as one lives, a copy may be waiting in the driver, in the context that was current when it was made.
  class Copy {
   public:
    explicit Copy(OwnEvents& events);
    ~Copy();
    Copy(const Copy&) = delete;
    Copy& operator=(const Copy&) = delete;

   private:
    OwnEvents& events_;
    CUcontext context_ = nullptr;
  };

  /// An event of the current context that cannot be timed, or the driver's error. When the stock is used up the
  /// driver makes one, however long that takes.
  CUresult ordering(CUevent* event);
  /// The same, but null instead of waiting.
  CUevent ordering_at_hand();
  /// One that can be timed, of which the caller keeps account. Null: the driver makes none, or could not at once.
  CUevent timing();
  /// An ordering event that is no longer wanted. Nothing happens to one whose context is gone.
  void discard(CUevent event);
  /// The context is gone, and its events with it.
  void forget(CUcontext context);

 private:
  static constexpr size_t kStock = 64;
  struct Context {
    size_t copies = 0;
    std::vector<CUevent> stock;
  };
  CUevent ready(CUcontext context);
  static void fill(Context& context);

  std::mutex mutex_;
  std::map<CUcontext, Context> contexts_;
  std::unordered_map<CUevent, CUcontext> lent_;
};

OwnEvents& own_events();

}  // namespace tessera::shim
