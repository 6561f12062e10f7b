// SPDX-License-Identifier: Apache-2.0
#include "tessera/transport/socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <array>
#include <chrono>
#include <fstream>
#include <thread>

#include "support.h"
#include "tessera/protocol/channel.h"

namespace tessera::transport {
namespace {

using namespace std::chrono_literals;

struct Pair {
  Socket a, b;
  Pair() {
    int fds[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
    a = Socket(UniqueFd(fds[0]));
    b = Socket(UniqueFd(fds[1]));
  }
};

/// Sends raw bytes with `count` copies of stdin's descriptor beside them.
void send_raw(const Socket& socket, const void* bytes, size_t size, size_t count) {
  iovec part{const_cast<void*>(bytes), size};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * 16)> control{};
  msghdr out{};
  out.msg_iov = &part;
  out.msg_iovlen = 1;
  if (count != 0) {
    out.msg_control = control.data();
    out.msg_controllen = CMSG_SPACE(sizeof(int) * count);
    cmsghdr* rights = CMSG_FIRSTHDR(&out);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int) * count);
    for (size_t i = 0; i < count; ++i) std::memset(CMSG_DATA(rights) + i * sizeof(int), 0, sizeof(int));
  }
  REQUIRE(sendmsg(socket.fd(), &out, 0) == static_cast<ssize_t>(size));
}

TEST_CASE(a_message_arrives_with_its_descriptors) {
  const Pair pair;
  const int fds[] = {0, 1, 2, 0};
  for (size_t count = 0; count <= kMaxFds; ++count) {
    auto message = make_message<ts_chunk>(TS_CHUNK, 7);
    message.address = 0x1234;
    pair.a.send(message, {fds, count}, 1s);
    const auto packet = pair.b.receive(1s);
    REQUIRE(packet);
    CHECK_EQ(packet->type(), TS_CHUNK);
    CHECK_EQ(packet->header().request, 7u);
    CHECK_EQ(packet->expect<ts_chunk>(count).address, uint64_t{0x1234});
    for (const UniqueFd& fd : packet->fds) CHECK((fcntl(fd.get(), F_GETFD) & FD_CLOEXEC) != 0);
    CHECK_EQ(status_of([&] { packet->expect<ts_chunk>(count + 1); }), Status::kCorrupt);
    CHECK_EQ(status_of([&] { packet->expect<ts_attach>(count); }),
             sizeof(ts_attach) > sizeof(ts_chunk) ? Status::kCorrupt : Status::kOk);
  }
}

TEST_CASE(too_many_descriptors_are_an_error_and_closed) {
  const Pair pair;
  const int before = open_descriptors();
  for (const size_t count : {5u, 16u}) {
    const ts_message message = make_header(TS_OBSERVE, sizeof message);
    send_raw(pair.a, &message, sizeof message, count);
    CHECK_EQ(status_of([&] { pair.b.receive(1s); }), Status::kCorrupt);
    CHECK_EQ(open_descriptors(), before);
  }
}

TEST_CASE(malformed_packets_are_errors) {
  const Pair pair;
  const auto bad = [&](const void* bytes, size_t size) {
    send_raw(pair.a, bytes, size, 1);
    const int before = open_descriptors();
    CHECK_EQ(status_of([&] { pair.b.receive(1s); }), Status::kCorrupt);
    CHECK_EQ(open_descriptors(), before);
  };
  ts_message message = make_header(TS_OBSERVE, sizeof message);
  bad(&message, sizeof message - 1);
  bad("x", 1);
  message.size += 1;
  bad(&message, sizeof message);
  message = make_header(TS_OBSERVE, sizeof message);
  message.magic ^= 1;
  bad(&message, sizeof message);
  const int large = 1 << 20;
  setsockopt(pair.a.fd(), SOL_SOCKET, SO_SNDBUF, &large, sizeof large);
  std::vector<char> huge(TS_MAX_MESSAGE + 1);
  bad(huge.data(), huge.size());
  pair.a.send(make_header(TS_OBSERVE, sizeof message), {}, 1s);  // and the socket still works
  CHECK(pair.b.receive(1s).has_value());
}

TEST_CASE(the_largest_message_passes) {
  const Pair pair;
  std::vector<uint8_t> bytes(TS_MAX_MESSAGE, 0x5a);
  const ts_message header = make_header(TS_STATUS, bytes.size());
  std::memcpy(bytes.data(), &header, sizeof header);
  pair.a.send(bytes.data(), bytes.size(), {}, 1s);
  const auto packet = pair.b.receive(1s);
  REQUIRE(packet);
  CHECK(packet->bytes == bytes);
  CHECK_EQ(packet->text_behind(sizeof header, bytes.size() - sizeof header).size(), bytes.size() - sizeof header);
  CHECK_EQ(status_of([&] { packet->text_behind(sizeof header, 5); }), Status::kCorrupt);
  CHECK_EQ(status_of([&] { packet->text_behind(bytes.size() + 1, 0); }), Status::kCorrupt);
  CHECK_EQ(status_of([&] { pair.a.send(bytes.data(), bytes.size() + 1, {}, 1s); }), Status::kTooLarge);
}

TEST_CASE(waits_end) {
  const Pair pair;
  const auto start = std::chrono::steady_clock::now();
  CHECK(!pair.b.receive(30ms).has_value());
  CHECK(std::chrono::steady_clock::now() - start >= 30ms);
  const ts_message message = make_header(TS_OBSERVE, sizeof message);
  CHECK_EQ(status_of([&] {
             for (;;) pair.a.send(message, {}, 20ms);
           }),
           Status::kTimeout);
}

TEST_CASE(a_hang_up_is_seen_at_both_calls) {
  Pair pair;
  const ts_message message = make_header(TS_OBSERVE, sizeof message);
  pair.a.send(message, {}, 1s);
  CHECK(!pair.b.hung_up());
  pair.a.close();
  CHECK(pair.b.hung_up());
  CHECK(pair.b.receive(1s).has_value());  // what was sent before is still there
  CHECK_EQ(status_of([&] { pair.b.receive(1s); }), Status::kHungUp);
  CHECK_EQ(status_of([&] { pair.b.send(message, {}, 1s); }), Status::kHungUp);
}

TEST_CASE(connect_and_accept) {
  const TemporaryFolder folder;
  CHECK_EQ(status_of([&] { Socket::connect(folder / "none", 100ms); }), Status::kRefused);
  const Listener listener = Listener::bind(folder / "s");
  struct stat info{};
  REQUIRE(stat((folder / "s").c_str(), &info) == 0);
  CHECK_EQ(info.st_mode & 0777, 0600u);
  CHECK(!listener.accept(10ms).has_value());
  const Socket client = Socket::connect(folder / "s", 1s);
  const auto server = listener.accept(1s);
  REQUIRE(server);
  CHECK_EQ(server->peer().pid, getpid());
  CHECK_EQ(client.peer().uid, geteuid());
}

TEST_CASE(a_client_that_leaves_at_once_does_not_stop_accepting) {
  const TemporaryFolder folder;
  const Listener listener = Listener::bind(folder / "s");
  for (int i = 0; i < 10; ++i) Socket::connect(folder / "s", 1s);
  const Socket good = Socket::connect(folder / "s", 1s);
  const ts_message message = make_header(TS_OBSERVE, sizeof message);
  good.send(message, {}, 1s);
  int served = 0;
  while (auto server = listener.accept(100ms)) {
    if (status_of([&] { server->receive(100ms); }) == Status::kOk) ++served;
  }
  CHECK_EQ(served, 1);
}

TEST_CASE(a_full_backlog_ends_in_a_timeout) {
  const TemporaryFolder folder;
  const Listener listener = Listener::bind(folder / "s");
  std::vector<Socket> waiting;
  CHECK_EQ(status_of([&] {
             for (int i = 0; i < 5000; ++i) waiting.push_back(Socket::connect(folder / "s", 50ms));
           }),
           Status::kTimeout);
  CHECK(waiting.size() > 1);
}

TEST_CASE(socket_files) {
  const TemporaryFolder folder;
  const std::string path = folder / "s";
  {
    const Listener listener = Listener::bind(path);
    CHECK_EQ(status_of([&] { Listener::bind(path); }), Status::kRefused);  // a live one is not robbed
    Socket::connect(path, 1s);
  }
  CHECK(access(path.c_str(), F_OK) != 0);  // and is removed at the end
  {
    Listener listener = Listener::bind(path);
    std::ofstream(folder / "file") << "keep me";
    CHECK_EQ(status_of([&] { Listener::bind(folder / "file"); }), Status::kRefused);
    CHECK(access((folder / "file").c_str(), F_OK) == 0);
  }
  // A stale file, as after kill -9.
  const UniqueFd stale(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{AF_UNIX, {}};
  std::memcpy(address.sun_path, path.data(), path.size());
  REQUIRE(bind(stale.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  const Listener listener = Listener::bind(path);
  Socket::connect(path, 1s);
  CHECK_EQ(status_of([&] { Listener::bind(folder / std::string(200, 'x')); }), Status::kRefused);
  CHECK_EQ(status_of([&] { Listener::bind(folder / "no/such/folder"); }), Status::kRefused);
}

}  // namespace
}  // namespace tessera::transport

TEST_MAIN()
