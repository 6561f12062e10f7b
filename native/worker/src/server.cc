// SPDX-License-Identifier: Apache-2.0
#include "server.h"

#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "log.h"
#include "session.h"
#include "tessera/protocol/trial.h"
#include "trial_process.h"

namespace tessera::worker {
namespace {

using namespace std::chrono_literals;
using transport::make_message;
using transport::Packet;
using transport::Socket;
using transport::Status;
using transport::TransportError;
using Clock = std::chrono::steady_clock;

constexpr auto kTick = 200ms;
constexpr auto kStopGrace = 2000ms;     // for programs to leave after SIGTERM
constexpr auto kTellGrace = 1000ms;     // for sessions to tell their programs of the end
constexpr auto kSlotPatience = 1000ms;  // for a slot whose last program is just leaving
constexpr size_t kMostConnections = 1024;
constexpr uint64_t kLargestSlot = uint64_t{1} << 46;

std::string hexadecimal(uint64_t value) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

std::string both_versions(uint32_t theirs) {
  return "the other side speaks protocol " + std::to_string(theirs) + ", this worker " +
         std::to_string(TS_PROTOCOL_VERSION) + ": install the same version of Tessera for both, and restart";
}

/// Reads and checks an attachment. Throws DriverError or TransportError with the reason of the refusal.
Attachment read_attachment(Socket socket, Packet packet, uint32_t index) {
  const auto message = packet.expect<ts_attach>(2);
  if (message.index != index) {
    throw DriverError(CUDA_ERROR_INVALID_VALUE, "the program looks for worker " + std::to_string(message.index) +
                                                    ", this is worker " + std::to_string(index));
  }
  const Slot slot{message.arena_base, message.arena_size};
  if (slot.base == 0 || slot.size == 0 || slot.size > kLargestSlot || slot.base % TS_GRANULE != 0 ||
      slot.size % TS_GRANULE != 0 || slot.base > UINT64_MAX - slot.size) {
    throw DriverError(CUDA_ERROR_INVALID_VALUE, "the slot " + hexadecimal(slot.base) + " + " + hexadecimal(slot.size) +
                                                    " is not a range of whole granules");
  }
  transport::SharedMemory channel = transport::SharedMemory::map(std::move(packet.fds[0]), sizeof(ts_channel));
  std::string why;
  if (!transport::channel_matches(channel.as<ts_channel>(), &why)) throw DriverError(CUDA_ERROR_INVALID_VALUE, why);
  return {std::move(socket), std::move(channel), Counters(std::move(packet.fds[1]), index), slot};
}

}  // namespace

bool Slots::claim(const Slot& slot, std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  const auto is_free = [&] {
    for (const Slot& other : taken_) {
      if (slot.overlaps(other)) return false;
    }
    return true;
  };
  if (!freed_.wait_for(lock, patience, is_free)) return false;
  taken_.push_back(slot);
  return true;
}

void Slots::release(const Slot& slot) {
  const std::lock_guard lock(mutex_);
  std::erase_if(taken_, [&](const Slot& other) { return other.base == slot.base && other.size == slot.size; });
  freed_.notify_all();
}

Server::Server(Worker& worker, transport::Listener listener, int signals)
    : worker_(worker), listener_(std::move(listener)), signals_(signals), parent_(getppid()) {}

Server::~Server() {
  closing_ = true;
  for (Connection& connection : connections_) connection.thread.join();
}

Server::End Server::run() {
  for (;;) {
    pollfd items[] = {{listener_.fd(), POLLIN, 0}, {signals_, POLLIN, 0}};
    poll(items, 2, static_cast<int>(std::chrono::milliseconds(kTick).count()));
    reap();
    if (worker_.poisoned()) {
      listener_.close();
      wait_until_told(kTellGrace);
      return End::kPoisoned;
    }
    if ((items[1].revents & POLLIN) != 0) return stop_sessions();
    if ((items[0].revents & POLLIN) != 0) accept_one();
    if (alone_for_too_long()) return End::kAlone;
  }
}

void Server::accept_one() {
  try {
    std::optional<Socket> socket = listener_.accept(0ms);
    if (!socket) return;
    if (connections_.size() >= kMostConnections) {
      refuse(*socket, CUDA_ERROR_DEVICE_UNAVAILABLE, "this worker has too many connections");
      return;
    }
    Connection& connection = connections_.emplace_back();
    connection.thread = std::thread([this, &connection, accepted = std::move(*socket)]() mutable {
      serve(std::move(accepted));
      connection.done = true;
    });
  } catch (const std::exception& error) {
    log(LogLevel::kWarn, error.what());
    std::this_thread::sleep_for(50ms);  // out of descriptors or threads: not at full speed
  }
}

void Server::reap() {
  connections_.remove_if([](Connection& connection) {
    if (!connection.done) return false;
    connection.thread.join();
    return true;
  });
}

/// One connection, in a thread of its own; nothing that happens in it reaches the others.
void Server::serve(Socket socket) {
  try {
    std::optional<Packet> packet = socket.receive(worker_.timing.timeout);
    if (!packet) return;
    const ts_message header = packet->header();
    if (header.version != TS_PROTOCOL_VERSION) {
      refuse(socket, CUDA_ERROR_NOT_SUPPORTED, both_versions(header.version));
    } else if (header.type == TS_OBSERVE) {
      observe(socket);
    } else if (header.type == TS_TRIAL) {
      hand_to_trial(std::move(socket), worker_.options, closing_);
    } else if (header.type == TS_ATTACH) {
      attach(std::move(socket), std::move(*packet));
    } else {
      refuse(socket, CUDA_ERROR_INVALID_VALUE, "the first message to a worker must be an attachment");
    }
  } catch (const std::exception& error) {
    log(LogLevel::kInfo, std::string("a connection ends: ") + error.what());
  }
}

void Server::observe(const Socket& socket) {
  const ts_message answer = transport::make_header(TS_OBSERVED, sizeof(ts_message));
  const int fd = worker_.status.fd().get();
  socket.send(answer, {&fd, 1}, worker_.timing.timeout);
  observers_.fetch_add(1);
  while (!socket.hung_up() && !closing_) {
    pollfd item{socket.fd(), POLLRDHUP, 0};
    poll(&item, 1, static_cast<int>(std::chrono::milliseconds(kTick).count()));
  }
  observers_.fetch_sub(1);
}

void Server::refuse(const Socket& socket, CUresult code, const std::string& text) {
  log(LogLevel::kInfo, "refused a connection: " + text);
  auto answer = make_message<ts_attached>(TS_ATTACHED);
  answer.status = static_cast<int32_t>(code);
  answer.device = worker_.device.description();
  std::memcpy(answer.text, text.data(), std::min(text.size(), sizeof answer.text - 1));
  socket.send(answer, {}, worker_.timing.timeout);
}

void Server::attach(Socket socket, Packet packet) {
  // The refusal needs the socket after the attachment has taken it.
  const Socket answer_to(transport::UniqueFd(dup(socket.fd())));
  worker_.live_sessions.fetch_add(1);
  std::optional<Slot> claimed;
  try {
    worker_.device.make_current();
    Attachment attachment = read_attachment(std::move(socket), std::move(packet), worker_.options.index);
    if (!slots_.claim(attachment.slot, kSlotPatience)) {
      throw DriverError(CUDA_ERROR_INVALID_VALUE, "the addresses " + hexadecimal(attachment.slot.base) + " + " +
                                                      hexadecimal(attachment.slot.size) +
                                                      " belong to another program on this worker");
    }
    claimed = attachment.slot;
    Session session(worker_, std::move(attachment));
    auto answer = make_message<ts_attached>(TS_ATTACHED);
    answer.memory_budget = worker_.status.budget();
    answer.device = worker_.device.description();
    session.socket().send(answer, {}, worker_.timing.timeout);
    session.run();
  } catch (const DriverError& error) {
    refuse(answer_to, error.code(), error.what());
  } catch (const TransportError& error) {
    if (error.status() != Status::kHungUp) refuse(answer_to, CUDA_ERROR_INVALID_VALUE, error.what());
  }
  if (claimed) slots_.release(*claimed);
  worker_.live_sessions.fetch_sub(1);
}

/// The controller has died or let go of us, and so have all programs, for the linger time.
bool Server::alone_for_too_long() {
  const bool alone = getppid() != parent_ && observers_ == 0 && worker_.live_sessions == 0;
  if (!alone) {
    alone_since_.reset();
    return false;
  }
  if (!alone_since_) alone_since_ = Clock::now();
  return Clock::now() - *alone_since_ >= worker_.options.linger;
}

Server::End Server::stop_sessions() {
  listener_.close();
  closing_ = true;
  log(LogLevel::kInfo, "asked to stop");
  const auto deadline = Clock::now() + kStopGrace;
  while (has_sessions() && Clock::now() < deadline && !worker_.poisoned()) std::this_thread::sleep_for(5ms);
  if (has_sessions()) {
    worker_.stop();
    wait_until_told(kTellGrace);
  }
  return worker_.poisoned() ? End::kPoisoned : End::kAsked;
}

void Server::wait_until_told(std::chrono::milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  while (worker_.failed_sessions < worker_.live_sessions && Clock::now() < deadline) std::this_thread::sleep_for(2ms);
  // A program that has just asked for another done value gets it too.
  if (has_sessions()) std::this_thread::sleep_for(20ms);
}

}  // namespace tessera::worker
