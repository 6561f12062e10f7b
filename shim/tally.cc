// SPDX-License-Identifier: Apache-2.0
#include "tally.h"

#include "session.h"

namespace tessera::shim {
namespace {

void add(uint64_t& counter, uint64_t value) { std::atomic_ref(counter).fetch_add(value, std::memory_order_relaxed); }

}  // namespace

void Tally::count_untracked() { count_untracked_launch(); }

void Tally::count_bytes_in(uint32_t device, uint64_t bytes) {
  if (row_ != nullptr && bytes != 0) add(row_->bytes_in[device], bytes);
}

}  // namespace tessera::shim
