// SPDX-License-Identifier: Apache-2.0
// What a launch touched in global memory: the distinct 32-byte sectors, always,
// and the exact bytes read and written, on request. Both are bitmaps over pages,
// so that repeated accesses cost nothing and memory is bounded by the footprint.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "isa.h"
#include "scalar.h"
#include "tessera/sim/interpreter.h"

namespace tessera::sim {

/// Bitmap pages by number, with a small direct-mapped cache in front. Past
/// `max_pages` it forgets everything, as a finite cache would.
template <int kWords>
class PagedBitmap {
 public:
  struct Page {
    u64 words[kWords] = {};
  };

  explicit PagedBitmap(size_t max_pages) : max_pages_(max_pages) {}
  TS_INLINE u64* page(u64 number) {
    Slot& slot = cache_[number % kSlots];
    if (slot.number != number) [[unlikely]]
      fill(slot, number);
    return slot.page->words;
  }
  const auto& pages() const { return pages_; }

 private:
  static constexpr u64 kSlots = 64;
  struct Slot {
    u64 number = ~u64{0};
    Page* page = nullptr;
  };
  void fill(Slot& slot, u64 number);

  size_t max_pages_;
  Slot cache_[kSlots];
  std::unordered_map<u64, std::unique_ptr<Page>> pages_;
};

class AccessTracker {
 public:
  explicit AccessTracker(bool record) : record_(record) {}

  TS_INLINE void read(u64 begin, u64 end) { touch(begin, end, 0); }
  TS_INLINE void write(u64 begin, u64 end) { touch(begin, end, 1); }

  u64 distinct_sector_bytes() const { return sectors_touched_ * kSectorBytes; }
  AccessRecord take_record() const;

 private:
  static constexpr u64 kSectorBytes = 32;
  static constexpr u64 kSectorsPerPage = 2048;  // 64 KiB
  static constexpr u64 kBytesPerPage = 4096;
  static constexpr size_t kMaxSectorPages = size_t{1} << 18;  // 16 GiB of footprint, 64 MiB of bitmaps

  TS_INLINE void touch(u64 begin, u64 end, int direction) {
    const u64 first = begin / kSectorBytes, last = (end - 1) / kSectorBytes;
    if (first / 64 == last / 64) [[likely]] {
      mark_sectors(first, last);
    } else {
      touch_sectors_slowly(first, last);
    }
    if (record_) [[unlikely]]
      record_bytes(begin, end, direction);
  }
  TS_INLINE void mark_sectors(u64 first, u64 last) {  // both in one word
    u64& word = sectors_.page(first / kSectorsPerPage)[first % kSectorsPerPage / 64];
    const u64 bits = (~u64{0} >> (63 - (last - first))) << (first % 64);
    sectors_touched_ += static_cast<u64>(__builtin_popcountll(bits & ~word));
    word |= bits;
  }
  void touch_sectors_slowly(u64 first, u64 last);
  void record_bytes(u64 begin, u64 end, int direction);

  bool record_;
  u64 sectors_touched_ = 0;
  PagedBitmap<kSectorsPerPage / 64> sectors_{kMaxSectorPages};
  PagedBitmap<kBytesPerPage / 64> bytes_[2] = {PagedBitmap<kBytesPerPage / 64>{~size_t{0}},
                                               PagedBitmap<kBytesPerPage / 64>{~size_t{0}}};  // read, written
};

}  // namespace tessera::sim
