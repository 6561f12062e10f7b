// SPDX-License-Identifier: Apache-2.0
#include "tessera/transport/socket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <thread>

#include "clock.h"

namespace tessera::transport {
namespace {

constexpr int kBacklog = 64;

[[noreturn]] void fail(Status status, const std::string& text) { throw TransportError(status, text); }
[[noreturn]] void fail_errno(Status status, const std::string& what) {
  fail(status, what + ": " + std::strerror(errno));
}

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    fail(Status::kRefused, "the socket path '" + path + "' is empty or longer than " +
                               std::to_string(sizeof address.sun_path - 1) + " bytes; set TESSERA_RUNTIME_DIR");
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

UniqueFd new_socket() {
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) fail_errno(Status::kRefused, "cannot make a socket");
  return fd;
}

/// Waits until `events` or a hang-up; false on timeout.
bool wait_for(int fd, short events, Clock::time_point deadline) {
  for (;;) {
    pollfd item{fd, events, 0};
    const int ready = poll(&item, 1, milliseconds_until(deadline));
    if (ready > 0) return true;
    if (ready == 0 && Clock::now() >= deadline) return false;
    if (ready < 0 && errno != EINTR) fail_errno(Status::kHungUp, "cannot wait on a socket");
  }
}

PeerCredentials credentials_of(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    fail_errno(Status::kRefused, "cannot ask who is at the other end of a socket");
  }
  return {peer.pid, peer.uid};
}

bool is_gone(int error) { return error == EPIPE || error == ECONNRESET || error == ENOTCONN; }

/// Takes every descriptor out of the control data, so that none leaks whatever is wrong with the packet.
std::vector<UniqueFd> collect_fds(msghdr& message) {
  std::vector<UniqueFd> fds;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof fd);
      fds.emplace_back(fd);
    }
  }
  return fds;
}

void check_packet(const Packet& packet, int flags) {
  if ((flags & MSG_TRUNC) != 0) fail(Status::kCorrupt, "a packet is longer than any message of the protocol");
  if ((flags & MSG_CTRUNC) != 0 || packet.fds.size() > kMaxFds) {
    fail(Status::kCorrupt, "a packet brought more file descriptors than any message of the protocol");
  }
  if (packet.bytes.size() < sizeof(ts_message)) fail(Status::kCorrupt, "a packet is shorter than a message header");
  const ts_message header = packet.header();
  if (header.magic != TS_CONTROL_MAGIC) fail(Status::kCorrupt, "a packet is no Tessera message");
  if (header.size != packet.bytes.size()) {
    fail(Status::kCorrupt, "a message of " + std::to_string(packet.bytes.size()) + " bytes claims to have " +
                               std::to_string(header.size));
  }
}

/// Whether a process accepts connections on this socket file.
bool is_served(const sockaddr_un& address) {
  const UniqueFd probe = new_socket();
  if (::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return true;
  return errno == EAGAIN;  // its backlog is full
}

}  // namespace

ts_message make_header(uint16_t type, size_t size, uint32_t request) {
  return {TS_CONTROL_MAGIC, TS_PROTOCOL_VERSION, type, static_cast<uint32_t>(size), request};
}

ts_message Packet::header() const {
  ts_message header{};
  std::memcpy(&header, bytes.data(), std::min(sizeof header, bytes.size()));
  return header;
}

void Packet::copy_fixed(void* into, size_t size, size_t n_fds) const {
  if (bytes.size() < size) {
    fail(Status::kCorrupt, "message " + std::to_string(type()) + " has " + std::to_string(bytes.size()) +
                               " bytes, not the " + std::to_string(size) + " of its kind");
  }
  if (fds.size() != n_fds) {
    fail(Status::kCorrupt, "message " + std::to_string(type()) + " came with " + std::to_string(fds.size()) +
                               " file descriptors, not " + std::to_string(n_fds));
  }
  std::memcpy(into, bytes.data(), size);
}

std::string Packet::text_behind(size_t offset, size_t size) const {
  if (offset > bytes.size() || bytes.size() - offset != size) {
    fail(Status::kCorrupt, "message " + std::to_string(type()) + " does not end where its text ends");
  }
  return std::string(reinterpret_cast<const char*>(bytes.data()) + offset, size);
}

Socket Socket::connect(const std::string& path, Milliseconds timeout) {
  const sockaddr_un address = address_of(path);
  const Clock::time_point deadline = Clock::now() + timeout;
  UniqueFd fd = new_socket();
  // A Unix socket connects at once or says EAGAIN while the listener's backlog is full.
  while (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    if (errno == EINTR) continue;
    if (errno != EAGAIN) fail_errno(Status::kRefused, "cannot connect to " + path);
    if (Clock::now() >= deadline) fail(Status::kTimeout, path + " does not accept connections");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (credentials_of(fd.get()).uid != geteuid()) fail(Status::kRefused, path + " is served by another user");
  return Socket(std::move(fd));
}

void Socket::send(const void* message, size_t size, std::span<const int> fds, Milliseconds timeout) const {
  if (size > TS_MAX_MESSAGE || fds.size() > kMaxFds) {
    fail(Status::kTooLarge, "a message of " + std::to_string(size) + " bytes with " + std::to_string(fds.size()) +
                                " descriptors is over the protocol's limit");
  }
  iovec part{const_cast<void*>(message), size};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMaxFds)> control{};
  msghdr out{};
  out.msg_iov = &part;
  out.msg_iovlen = 1;
  if (!fds.empty()) {
    out.msg_control = control.data();
    out.msg_controllen = CMSG_SPACE(sizeof(int) * fds.size());
    cmsghdr* rights = CMSG_FIRSTHDR(&out);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
    std::memcpy(CMSG_DATA(rights), fds.data(), sizeof(int) * fds.size());
  }
  const Clock::time_point deadline = Clock::now() + timeout;
  while (sendmsg(fd_.get(), &out, MSG_NOSIGNAL) < 0) {
    if (errno == EINTR) continue;
    if (is_gone(errno)) fail(Status::kHungUp, "the other side of the socket is gone");
    if (errno != EAGAIN && errno != ENOBUFS && errno != ETOOMANYREFS) {
      fail_errno(Status::kRefused, "cannot send a message");
    }
    // ETOOMANYREFS: too many descriptors are in flight; it passes as the reader reads, and poll does not see it.
    if (errno == ETOOMANYREFS) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (Clock::now() >= deadline || !wait_for(fd_.get(), POLLOUT, deadline)) {
      fail(Status::kTimeout, "the other side of the socket does not read its messages");
    }
  }
}

std::optional<Packet> Socket::receive(Milliseconds timeout) const {
  const Clock::time_point deadline = Clock::now() + timeout;
  Packet packet;
  packet.bytes.resize(TS_MAX_MESSAGE);
  for (;;) {
    iovec part{packet.bytes.data(), packet.bytes.size()};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * (kMaxFds + 1))> control{};
    msghdr in{};
    in.msg_iov = &part;
    in.msg_iovlen = 1;
    in.msg_control = control.data();
    in.msg_controllen = control.size();
    const ssize_t got = recvmsg(fd_.get(), &in, MSG_CMSG_CLOEXEC);
    if (got > 0) {
      packet.bytes.resize(static_cast<size_t>(got));
      packet.fds = collect_fds(in);
      check_packet(packet, in.msg_flags);
      return packet;
    }
    if (got == 0 || is_gone(errno)) fail(Status::kHungUp, "the other side of the socket has hung up");
    if (errno == EINTR) continue;
    if (errno != EAGAIN) fail_errno(Status::kHungUp, "cannot receive a message");
    if (!wait_for(fd_.get(), POLLIN, deadline)) return std::nullopt;
  }
}

bool Socket::readable() const {
  pollfd item{fd_.get(), POLLIN, 0};
  return poll(&item, 1, 0) > 0;
}

bool Socket::hung_up() const {
  pollfd item{fd_.get(), POLLRDHUP, 0};
  return poll(&item, 1, 0) > 0 && (item.revents & (POLLHUP | POLLRDHUP | POLLERR | POLLNVAL)) != 0;
}

PeerCredentials Socket::peer() const { return credentials_of(fd_.get()); }

Listener& Listener::operator=(Listener&& other) noexcept {
  if (this != &other) {
    close();
    fd_ = std::move(other.fd_);
    path_ = std::move(other.path_);
  }
  return *this;
}

void Listener::close() {
  if (fd_) unlink(path_.c_str());
  fd_.reset();
}

Listener Listener::bind(const std::string& path) {
  const sockaddr_un address = address_of(path);
  UniqueFd fd = new_socket();
  const auto* where = reinterpret_cast<const sockaddr*>(&address);
  if (::bind(fd.get(), where, sizeof address) != 0) {
    if (errno != EADDRINUSE) fail_errno(Status::kRefused, "cannot listen on " + path);
    struct stat info{};
    if (lstat(path.c_str(), &info) == 0 && !S_ISSOCK(info.st_mode)) {
      fail(Status::kRefused, path + " exists and is no socket; remove it or choose another path");
    }
    if (is_served(address)) fail(Status::kRefused, "another process already listens on " + path);
    unlink(path.c_str());
    if (::bind(fd.get(), where, sizeof address) != 0) fail_errno(Status::kRefused, "cannot listen on " + path);
  }
  Listener listener(std::move(fd), path);
  // Between bind and chmod nobody can connect: the socket does not listen yet.
  if (chmod(path.c_str(), 0600) != 0) fail_errno(Status::kRefused, "cannot restrict " + path);
  if (listen(listener.fd(), kBacklog) != 0) fail_errno(Status::kRefused, "cannot listen on " + path);
  return listener;
}

std::optional<Socket> Listener::accept(Milliseconds timeout) const {
  const Clock::time_point deadline = Clock::now() + timeout;
  if (!wait_for(fd_.get(), POLLIN, deadline)) return std::nullopt;
  UniqueFd fd(accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd) {
    if (errno == EINTR || errno == EAGAIN || errno == ECONNABORTED) return std::nullopt;
    fail_errno(Status::kRefused, "cannot accept a connection on " + path_);
  }
  if (credentials_of(fd.get()).uid != geteuid()) return std::nullopt;
  return Socket(std::move(fd));
}

}  // namespace tessera::transport
