// SPDX-License-Identifier: Apache-2.0
#include "lanes.h"

#include <algorithm>

namespace tessera::worker {

Lanes::Lanes(const Device& device, Gate& gate, ts_channel* channel)
    : device_(device), channel_(channel), waits_(gate, channel->lanes) {
  const Driver& driver = device_.driver();
  driver.check(driver.cuMemHostRegister_v2(channel->lanes, sizeof channel->lanes,
                                           CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP),
               "cuMemHostRegister");
  const CUresult code = driver.cuMemHostGetDevicePointer_v2(&flags_, channel->lanes, 0);
  if (code == CUDA_SUCCESS) return;
  driver.note(driver.cuMemHostUnregister(channel->lanes), "cuMemHostUnregister");
  driver.fail(code, "cuMemHostGetDevicePointer");
}

Lanes::~Lanes() {
  const Driver& driver = device_.driver();
  for (const uint32_t lane : open_) driver.note(driver.cuStreamDestroy_v2(lanes_[lane].stream), "cuStreamDestroy");
}

void unregister_flags(const Device& device, ts_channel* channel) {
  device.driver().note(device.driver().cuMemHostUnregister(channel->lanes), "cuMemHostUnregister");
}

void Lanes::abandon() { open_.clear(); }

CUstream Lanes::stream(uint32_t lane) {
  Lane& it = lanes_[lane];
  it.closing = false;
  if (it.stream != nullptr) return it.stream;
  device_.driver().check(device_.driver().cuStreamCreate(&it.stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  open_.push_back(lane);
  return it.stream;
}

void Lanes::submitted(uint32_t lane, uint32_t operations, const std::string* what) {
  Lane& it = lanes_[lane];
  if (it.depth == 0 && operations != 0) ++busy_;
  it.depth += operations;
  if (what != nullptr) it.last = what;
}

uint32_t Lanes::queued(uint32_t lane) {
  Lane& it = lanes_[lane];
  const uint32_t done = read_flag(channel_->lanes[lane].done);
  for (; !it.marks.empty() && reached(done, it.marks.front().done); it.marks.pop_front()) {
    it.ended = it.marks.front().depth;
  }
  return it.depth - it.ended;
}

bool Lanes::all_ended() {
  return std::all_of(open_.begin(), open_.end(), [this](uint32_t lane) { return queued(lane) == 0; });
}

bool Lanes::wait_start(uint32_t lane, uint32_t start) {
  if (waits_.has_come(lane, start)) return true;
  if (!waits_.announce(lane, start)) return false;
  const Driver& driver = device_.driver();
  const CUdeviceptr at = flag(lane, offsetof(ts_lane, start));
  submitted(lane, 1, nullptr);
  driver.check(driver.cuStreamWaitValue32_v2(stream(lane), at, start, CU_STREAM_WAIT_VALUE_GEQ), "cuStreamWaitValue32");
  return true;
}

void Lanes::write_done(uint32_t lane, uint32_t value) {
  const Driver& driver = device_.driver();
  const CUdeviceptr at = flag(lane, offsetof(ts_lane, done));
  submitted(lane, 1, nullptr);
  lanes_[lane].marks.push_back({value, lanes_[lane].depth});
  driver.check(driver.cuStreamWriteValue32_v2(stream(lane), at, value, CU_STREAM_WRITE_VALUE_DEFAULT),
               "cuStreamWriteValue32");
}

void Lanes::close(uint32_t lane) {
  if (lanes_[lane].stream != nullptr) lanes_[lane].closing = true;
}

void Lanes::poll() {
  for (size_t i = 0; i < open_.size();) {
    Lane& lane = lanes_[open_[i]];
    queued(open_[i]);  // forgets marks that have been reached
    if (lane.depth != 0) {
      const CUresult code = device_.driver().cuStreamQuery(lane.stream);
      if (code == CUDA_SUCCESS) {
        lane.depth = lane.ended = 0;
        lane.marks.clear();
        --busy_;
      } else if (code != CUDA_ERROR_NOT_READY) {
        device_.driver().fail(code, "a kernel or copy failed");
      }
    }
    if (lane.depth == 0 && lane.closing) {
      device_.driver().note(device_.driver().cuStreamDestroy_v2(lane.stream), "cuStreamDestroy");
      lane = Lane{};
      open_[i] = open_.back();
      open_.pop_back();
    } else {
      ++i;
    }
  }
}

std::string Lanes::running() const {
  constexpr size_t kEnough = 120;
  std::string names;
  for (const uint32_t lane : open_) {
    const Lane& it = lanes_[lane];
    if (it.depth == 0 || it.last == nullptr || names.find(*it.last) != std::string::npos) continue;
    if (names.size() > kEnough) return names + ", ...";
    names += (names.empty() ? "" : ", ") + *it.last;
  }
  return names;
}

void Lanes::release_home() const {
  for (ts_lane& lane : channel_->lanes) {
    const uint32_t requested = read_flag(lane.requested);
    if (!reached(read_flag(lane.done), requested)) std::atomic_ref<uint32_t>(lane.done).store(requested);
  }
}

}  // namespace tessera::worker
