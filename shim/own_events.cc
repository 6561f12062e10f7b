// SPDX-License-Identifier: Apache-2.0
#include "own_events.h"

#include "context.h"
#include "driver.h"

namespace tessera::shim {
namespace {

CUevent made(unsigned flags) {
  CUevent event = nullptr;
  return driver().cuEventCreate(&event, flags) == CUDA_SUCCESS ? event : nullptr;
}

}  // namespace

OwnEvents& own_events() {
  static OwnEvents* events = new OwnEvents;  // never freed: threads may outlive the program's end
  return *events;
}

OwnEvents::Copy::Copy(OwnEvents& events) : events_(events), context_(current_context()) {
  if (context_ == nullptr) return;
  const std::lock_guard lock(events_.mutex_);
  Context& here = events_.contexts_[context_];
  if (here.copies == 0) fill(here);
  ++here.copies;
}

OwnEvents::Copy::~Copy() {
  if (context_ == nullptr) return;
  const std::lock_guard lock(events_.mutex_);
  const auto found = events_.contexts_.find(context_);
  if (found == events_.contexts_.end() || found->second.copies == 0) return;  // the context went meanwhile
  Context& here = found->second;
  if (--here.copies != 0) return;
  for (; here.stock.size() > kStock; here.stock.pop_back()) driver().cuEventDestroy_v2(here.stock.back());
}

CUresult OwnEvents::ordering(CUevent* event) {
  const CUcontext context = current_context();
  *event = ready(context);
  if (*event != nullptr) return CUDA_SUCCESS;
  // Without the lock: others go on meanwhile. The error, if there is one, is the driver's own.
  const CUresult result = driver().cuEventCreate(event, CU_EVENT_DISABLE_TIMING);
  if (result != CUDA_SUCCESS) return result;
  const std::lock_guard lock(mutex_);
  lent_[*event] = context;
  return CUDA_SUCCESS;
}

CUevent OwnEvents::ordering_at_hand() { return ready(current_context()); }

/// Null: the driver makes none now, or would have to be waited for.
CUevent OwnEvents::ready(CUcontext context) {
  if (context == nullptr) return nullptr;
  const std::lock_guard lock(mutex_);
  Context& here = contexts_[context];
  CUevent event = nullptr;
  if (here.copies == 0) {
    event = made(CU_EVENT_DISABLE_TIMING);
  } else if (!here.stock.empty()) {
    event = here.stock.back();
    here.stock.pop_back();
  }
  if (event != nullptr) lent_[event] = context;
  return event;
}

CUevent OwnEvents::timing() {
  const CUcontext context = current_context();
  const std::lock_guard lock(mutex_);
  const auto found = contexts_.find(context);
  return found == contexts_.end() || found->second.copies == 0 ? made(CU_EVENT_DEFAULT) : nullptr;
}

void OwnEvents::discard(CUevent event) {
  const std::lock_guard lock(mutex_);
  const auto lent = lent_.find(event);
  if (lent == lent_.end()) return;
  Context& there = contexts_[lent->second];
  lent_.erase(lent);
  if (there.copies == 0) {
    driver().cuEventDestroy_v2(event);
  } else {
    there.stock.push_back(event);  // who waits for it has taken what it stood for, and it may be recorded anew
  }
}

void OwnEvents::forget(CUcontext context) {
  const std::lock_guard lock(mutex_);
  contexts_.erase(context);
  std::erase_if(lent_, [&](const auto& entry) { return entry.second == context; });
}

void OwnEvents::fill(Context& context) {
  while (context.stock.size() < kStock) {
    const CUevent event = made(CU_EVENT_DISABLE_TIMING);
    if (event == nullptr) return;  // who needs one hears of it
    context.stock.push_back(event);
  }
}

}  // namespace tessera::shim
