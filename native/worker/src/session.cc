// SPDX-License-Identifier: Apache-2.0
#include "session.h"

#include <poll.h>

#include <thread>

#include "log.h"

namespace tessera::worker {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kPollEvery = 1ms;      // of streams and events while messages keep coming
constexpr auto kShortestNap = 500us;  // while streams are busy; doubles
constexpr auto kLongestBusyNap = 10ms;
constexpr auto kIdleNap = 50ms;  // a hang-up is seen so late at worst
constexpr auto kHoldNap = 50us;
constexpr int kRingRounds = 64;  // between two looks at the socket

}  // namespace

Session::Session(Worker& worker, Attachment attachment)
    : worker_(worker),
      device_(worker.device),
      driver_(worker.device.driver()),
      socket_(std::move(attachment.socket)),
      // A fork of the program may hold the socket open long after the program died.
      process_(transport::open_process(socket_.peer().pid)),
      pid_(socket_.peer().pid),
      memory_(std::make_shared<transport::SharedMemory>(std::move(attachment.channel))),
      channel_(memory_->as<ts_channel>()),
      ring_(channel_, worker.timing.spin),
      counters_(std::move(attachment.counters)),
      slot_(attachment.slot),
      promise_(worker),
      chunks_(device_, slot_),
      mirror_(device_, worker.status, slot_),
      lanes_(device_, worker.gate, channel_),
      samples_(device_, worker.status, counters_),
      reclaims_(device_, slot_, lanes_, chunks_, mirror_) {
  worker_.status.session_started();
}

Session::~Session() {
  worker_.status.session_ended();
  if (failed_) worker_.failed_sessions.fetch_sub(1);
  give_libraries_back();
  if (worker_.poisoned()) return;
  worker_.loader.defer([memory = memory_, &device = device_] { unregister_flags(device, memory->as<ts_channel>()); });
}

/// Their handles wait for the device when they go.
void Session::give_libraries_back() {
  for (const Function& function : functions_) {
    if (function.request == nullptr || !function.request->done.load() || function.request->blas == nullptr) continue;
    if (worker_.poisoned()) {
      function.request->blas->abandon();
    } else {
      worker_.loader.defer([blas = std::move(function.request->blas)]() mutable { blas.reset(); });
    }
  }
}

std::string Session::who() const { return "program " + std::to_string(pid_); }

void Session::run() {
  try {
    serve();
  } catch (const DriverError& error) {
    fail(error.code(), error.what());
  } catch (const transport::TransportError& error) {
    if (error.status() != transport::Status::kHungUp) fail(CUDA_ERROR_INVALID_VALUE, error.what());
  } catch (const std::exception& error) {
    fail(CUDA_ERROR_UNKNOWN, error.what());
  }
  if (failed_) stay_failed();
  log(LogLevel::kInfo, who() + " has left");
  wait_for_streams();
}

void Session::serve() {
  int rounds = 0;
  bool was_busy = true;
  while (!leaving_) {
    if (worker_.poisoned()) throw worker_.poison_error();
    if (worker_.stopping()) {
      throw DriverError(CUDA_ERROR_DEVICE_UNAVAILABLE,
                        "worker " + std::to_string(worker_.options.index) + " is shutting down");
    }
    bool progress = drain_ring();
    if (!progress || ++rounds >= kRingRounds) {
      rounds = 0;
      progress |= read_socket();
      progress |= answer_functions();
    }
    if (!progress || Clock::now() >= next_poll_) poll_device();
    if (progress) {
      was_busy = true;
      nap_ = kShortestNap;
      continue;
    }
    rest(was_busy);
    was_busy = false;
    if (gone()) leaving_ = true;
  }
}

/// Nothing to do now: waits for messages, or for what the message at hand needs.
void Session::rest(bool was_busy) {
  if (hold_ != Hold::kNone) {
    std::this_thread::sleep_for(kHoldNap);
    return;
  }
  const bool busy = !lanes_.idle() || samples_.pending() || reclaims_.pending();
  if (busy) nap_ = std::min<std::chrono::microseconds>(nap_ * 2, kLongestBusyNap);
  ring_.wait(busy ? nap_ : std::chrono::microseconds(kIdleNap), was_busy, [this] { return socket_.readable(); });
}

bool Session::gone() {
  return std::atomic_ref<uint32_t>(channel_->header.closed).load() != 0 || socket_.hung_up() ||
         transport::process_ended(process_);
}

void Session::poll_device() {
  next_poll_ = Clock::now() + kPollEvery;
  lanes_.poll();
  samples_.poll();
  reclaims_.poll();
}

/// Tells the program, for good. Its streams must never hang, whatever became of ours.
void Session::fail(CUresult code, const std::string& text) {
  closing_.reset();
  const bool broken = worker_.poisoned() || device_.is_poisoned(code);
  if (broken) worker_.poison(code, text);
  if (broken && lanes_.all_ended()) {
    // A kernel of another program broke the context while nothing of ours ran: this worker is merely gone.
    log(LogLevel::kWarn, who() + " loses this worker by the fault of another program");
    return;
  }
  failed_ = true;
  failure_code_ = code;
  failure_text_ = "worker " + std::to_string(worker_.options.index) + ": " + text;
  const std::string running = worker_.poisoned() ? lanes_.running() : "";
  if (!running.empty()) failure_text_ += "; this program was running " + running;
  transport::fail_channel(channel_, static_cast<int32_t>(code), failure_text_);
  lanes_.release_home();
  worker_.failed_sessions.fetch_add(1);
  worker_.status.add_error();
  log(LogLevel::kWarn, who() + " is given up: " + failure_text_);
}

/// Until the program leaves: it may still ask for done values, and what our streams write may undo ours.
void Session::stay_failed() {
  const auto start = Clock::now();
  while (!gone()) {
    lanes_.release_home();
    pollfd items[] = {{socket_.fd(), POLLIN | POLLRDHUP, 0}, {process_.get(), POLLIN, 0}};
    const bool fresh = Clock::now() - start < 1s;
    poll(items, process_ ? 2 : 1, fresh ? 2 : 20);
    try {
      answer_failed();
    } catch (const transport::TransportError&) {
      return;  // it broke the protocol or hung up: nothing is owed to it any more
    }
  }
}

/// The program is gone: its streams run out without it, then its memory can go.
void Session::wait_for_streams() {
  closing_.reset();
  auto pause = std::chrono::microseconds(200);
  for (uint32_t round = 0; !worker_.poisoned(); ++round) {
    lanes_.release_starts(round);
    try {
      lanes_.poll();
    } catch (const DriverError& error) {
      if (device_.is_poisoned(error.code())) worker_.poison(error.code(), error.what());
      break;
    }
    if (lanes_.idle()) return;
    std::this_thread::sleep_for(pause);
    pause = std::min<std::chrono::microseconds>(pause * 2, 20ms);
  }
  abandon();
}

void Session::abandon() {
  samples_.abandon();
  reclaims_.abandon();
  lanes_.abandon();
  mirror_.abandon();
  chunks_.abandon();
  pending_chunks_.clear();
}

void Worker::poison(CUresult code, const std::string& text) {
  {
    const std::lock_guard lock(mutex_);
    if (poison_code_ != CUDA_SUCCESS) return;
    poison_code_ = code;
    poison_text_ = text;
  }
  status.set_failed(text);
  poisoned_.store(true);
}

uint64_t Worker::promise(uint64_t before, uint64_t wanted) {
  const std::lock_guard lock(mutex_);
  const uint64_t others = promised_ - before;
  const uint64_t left = status.budget() - std::min(status.budget(), others);
  const uint64_t granted = std::min(wanted, left);
  promised_ = others + granted;
  return granted;
}

DriverError Worker::poison_error() const {
  const std::lock_guard lock(mutex_);
  return DriverError(poison_code_, poison_text_);
}

}  // namespace tessera::worker
