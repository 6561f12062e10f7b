// SPDX-License-Identifier: Apache-2.0
#include "own_events.h"

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

OwnEvents::Copy::Copy(OwnEvents& events) : events_(events) {
  const std::lock_guard lock(events_.mutex_);
  if (events_.copies_ == 0) events_.restock();
  ++events_.copies_;
}

OwnEvents::Copy::~Copy() {
  const std::lock_guard lock(events_.mutex_);
  if (--events_.copies_ == 0) events_.destroy_discarded();
}

CUevent OwnEvents::ordering() {
  {
    const std::lock_guard lock(mutex_);
    if (copies_ == 0) return made(CU_EVENT_DISABLE_TIMING);
    if (const CUevent event = from_stock()) return event;
  }
  return made(CU_EVENT_DISABLE_TIMING);  // most copies wait for nobody: better late than an error
}

CUevent OwnEvents::from_stock() {
  CUcontext context = nullptr;
  if (driver().cuCtxGetCurrent(&context) != CUDA_SUCCESS) return nullptr;
  const auto found = stock_.find(context);
  if (found == stock_.end() || found->second.empty()) return nullptr;
  const CUevent event = found->second.back();
  found->second.pop_back();
  return event;
}

CUevent OwnEvents::timing() {
  const std::lock_guard lock(mutex_);
  return copies_ == 0 ? made(CU_EVENT_DEFAULT) : nullptr;
}

void OwnEvents::discard(CUevent event) {
  const std::lock_guard lock(mutex_);
  discarded_.push_back(event);
  if (copies_ == 0) destroy_discarded();
}

void OwnEvents::forget(CUcontext context) {
  const std::lock_guard lock(mutex_);
  stock_.erase(context);
  discarded_.clear();  // whose they are is not known, and a handle may come back as a new event of the program
}

void OwnEvents::restock() {
  CUcontext context = nullptr;
  if (driver().cuCtxGetCurrent(&context) != CUDA_SUCCESS || context == nullptr) return;
  std::vector<CUevent>& stock = stock_[context];
  while (stock.size() < kStock) {
    const CUevent event = made(CU_EVENT_DISABLE_TIMING);
    if (event == nullptr) return;  // who needs one hears of it
    stock.push_back(event);
  }
}

void OwnEvents::destroy_discarded() {
  for (const CUevent event : discarded_) driver().cuEventDestroy_v2(event);
  discarded_.clear();
}

}  // namespace tessera::shim
