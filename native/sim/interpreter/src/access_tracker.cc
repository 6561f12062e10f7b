// SPDX-License-Identifier: Apache-2.0
#include "access_tracker.h"

#include <algorithm>
#include <bit>

namespace tessera::sim {

template <int kWords>
void PagedBitmap<kWords>::fill(Slot& slot, u64 number) {
  if (pages_.size() >= max_pages_) {
    pages_.clear();
    for (Slot& cached : cache_) cached = Slot{};
  }
  std::unique_ptr<Page>& page = pages_[number];
  if (!page) page = std::make_unique<Page>();
  slot = {number, page.get()};
}
template class PagedBitmap<32>;
template class PagedBitmap<64>;

namespace {

/// Appends the runs of set bits of one page, joining a run that continues the last one.
void append_runs(const u64* words, size_t count, u64 base, std::vector<ByteRange>& out) {
  const u64 bits = count * 64;
  u64 at = 0;
  while (at < bits) {
    const u64 word = words[at / 64] >> (at % 64);
    if (word == 0) {
      at = (at / 64 + 1) * 64;
      continue;
    }
    at += static_cast<u64>(std::countr_zero(word));
    const u64 run = static_cast<u64>(std::countr_one(words[at / 64] >> (at % 64)));
    const u64 begin = base + at, end = begin + run;
    if (!out.empty() && out.back().end == begin) {
      out.back().end = end;
    } else {
      out.push_back({begin, end});
    }
    at += run;
  }
}

template <int kWords>
std::vector<ByteRange> ranges_of(const PagedBitmap<kWords>& bitmap) {
  std::vector<std::pair<u64, const u64*>> pages;
  pages.reserve(bitmap.pages().size());
  for (const auto& [number, page] : bitmap.pages()) pages.emplace_back(number, page->words);
  std::sort(pages.begin(), pages.end());
  std::vector<ByteRange> out;
  for (const auto& [number, words] : pages) append_runs(words, kWords, number * kWords * 64, out);
  return out;
}

}  // namespace

void AccessTracker::touch_sectors_slowly(u64 first, u64 last) {
  while (first <= last) {
    const u64 stop = std::min(last, first | 63);
    mark_sectors(first, stop);
    first = stop + 1;
  }
}

void AccessTracker::record_bytes(u64 begin, u64 end, int direction) {
  while (begin < end) {
    u64* words = bytes_[direction].page(begin / kBytesPerPage);
    const u64 stop = std::min(end, (begin | 63) + 1);
    words[begin % kBytesPerPage / 64] |= (~u64{0} >> (64 - (stop - begin))) << (begin % 64);
    begin = stop;
  }
}

AccessRecord AccessTracker::take_record() const { return {ranges_of(bytes_[0]), ranges_of(bytes_[1])}; }

}  // namespace tessera::sim
