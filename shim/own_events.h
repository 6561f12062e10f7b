// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>

#include <map>
#include <mutex>
#include <vector>

namespace tessera::shim {

/// The driver's events that the shim needs for itself. While a thread's copy to or from pageable memory waits in the
/// driver, the driver keeps a lock of the context that making and destroying events waits for, and the copy may wait
/// for what the maker would do next: meanwhile events come from a small stock, and unwanted ones are kept.
/// Any thread, with or without the world's lock.
class OwnEvents {
 public:
  /// As long as one lives, a copy may be waiting in the driver.
  class Copy {
   public:
    explicit Copy(OwnEvents& events);
    ~Copy();
    Copy(const Copy&) = delete;
    Copy& operator=(const Copy&) = delete;

   private:
    OwnEvents& events_;
  };

  /// An event of the current context that cannot be timed; when the stock is used up, as soon as the driver makes one.
  /// Null: it makes none.
  CUevent ordering();
  /// One that can be timed. Null: the driver makes none, or could not at once.
  CUevent timing();
  /// No longer wanted. One of a context that is gone may be given.
  void discard(CUevent event);
  /// The context is gone, and its events with it.
  void forget(CUcontext context);

 private:
  static constexpr size_t kStock = 16;  // of a context: streams that a launch waits for meanwhile
  void restock();
  CUevent from_stock();
  void destroy_discarded();

  std::mutex mutex_;
  size_t copies_ = 0;
  std::map<CUcontext, std::vector<CUevent>> stock_;
  std::vector<CUevent> discarded_;
};

OwnEvents& own_events();

}  // namespace tessera::shim
