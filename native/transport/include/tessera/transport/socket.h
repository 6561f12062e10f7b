// SPDX-License-Identifier: Apache-2.0
// Unix SOCK_SEQPACKET sockets that carry one ts_message a packet, with up to
// kMaxFds file descriptors beside it.
//
// All functions throw TransportError, except where they say otherwise. Every
// wait is bounded by its timeout; zero does not wait.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/protocol/control.h"
#include "tessera/transport/status.h"
#include "tessera/transport/unique_fd.h"

namespace tessera::transport {

using Milliseconds = std::chrono::milliseconds;

constexpr size_t kMaxFds = 4;

/// One received packet: a whole ts_message with magic and size checked, and its descriptors (close-on-exec).
struct Packet {
  std::vector<uint8_t> bytes;
  std::vector<UniqueFd> fds;

  ts_message header() const;
  uint16_t type() const { return header().type; }

  /// The fixed part of the message. kCorrupt unless the packet has at least its size, and `n_fds` descriptors.
  template <class T>
  T expect(size_t n_fds = 0) const {
    T value;
    copy_fixed(&value, sizeof value, n_fds);
    return value;
  }
  /// The `size` bytes behind a fixed part of `offset` bytes. kCorrupt unless the packet ends exactly there.
  std::string text_behind(size_t offset, size_t size) const;

 private:
  void copy_fixed(void* into, size_t size, size_t n_fds) const;
};

struct PeerCredentials {
  int pid = 0;  ///< 0 when the peer lives in another process namespace
  unsigned uid = 0;
};

class Socket {
 public:
  Socket() = default;
  explicit Socket(UniqueFd fd) : fd_(std::move(fd)) {}

  /// Connects to the socket file `path`; kRefused says whether nobody listens or the peer has another user id.
  static Socket connect(const std::string& path, Milliseconds timeout);

  int fd() const { return fd_.get(); }
  explicit operator bool() const { return fd_.valid(); }
  void close() { fd_.reset(); }

  /// Sends one packet; `header.size` must be its length already. kHungUp, kTimeout, kTooLarge.
  void send(const void* message, size_t size, std::span<const int> fds, Milliseconds timeout) const;
  template <class T>
  void send(const T& message, std::span<const int> fds, Milliseconds timeout) const {
    send(&message, sizeof message, fds, timeout);
  }

  /// The next packet, or nothing when none came within `timeout`. kHungUp when the peer is gone, kCorrupt for a
  /// packet that was cut, is no ts_message of its claimed size, or brought too many descriptors (all are closed).
  std::optional<Packet> receive(Milliseconds timeout) const;

  /// Whether a packet (or a hang-up) waits to be read. Does not throw.
  bool readable() const;
  /// Whether the peer has closed its end or died, even while packets still wait. Does not throw.
  bool hung_up() const;
  PeerCredentials peer() const;

 private:
  UniqueFd fd_;
};

class Listener {
 public:
  /// Listens on `path`, for this user only. A socket file that nobody serves any more is replaced; kRefused when a
  /// live process listens there, or the path is too long or cannot be made.
  static Listener bind(const std::string& path);

  Listener(Listener&&) noexcept = default;
  Listener& operator=(Listener&& other) noexcept;
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  ~Listener() { close(); }

  int fd() const { return fd_.get(); }
  const std::string& path() const { return path_; }
  /// Removes the socket file and refuses further connections. May be called twice.
  void close();

  /// The next connection of a process of this user; others are closed and not returned. Nothing on timeout, or when
  /// the connection went away again.
  std::optional<Socket> accept(Milliseconds timeout) const;

 private:
  Listener(UniqueFd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}
  UniqueFd fd_;
  std::string path_;
};

/// A header for a message of `size` bytes.
ts_message make_header(uint16_t type, size_t size, uint32_t request = 0);

/// A value-initialised message with its header filled in.
template <class T>
T make_message(uint16_t type, uint32_t request = 0) {
  T message{};
  message.header = make_header(type, sizeof(T), request);
  return message;
}

/// The bytes of a message with texts behind it, one after the other. Its header tells the whole size.
template <class T>
std::vector<uint8_t> with_texts(T message, std::initializer_list<std::string_view> texts) {
  size_t size = sizeof message;
  for (const std::string_view text : texts) size += text.size();
  message.header.size = static_cast<uint32_t>(size);
  std::vector<uint8_t> bytes(size);
  std::memcpy(bytes.data(), &message, sizeof message);
  auto at = bytes.begin() + sizeof message;
  for (const std::string_view text : texts) at = std::copy(text.begin(), text.end(), at);
  return bytes;
}

}  // namespace tessera::transport
