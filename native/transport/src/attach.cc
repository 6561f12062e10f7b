// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "tessera/transport/shared_memory.h"
#include "tessera/transport/socket.h"
#include "tessera/transport/transport.h"

namespace tessera::transport {
namespace {

class SharedMemoryTransport final : public Transport {
 public:
  SharedMemoryTransport(Socket socket, SharedMemory memory, const ts_attached& attached,
                        std::chrono::milliseconds timeout)
      : socket_(std::move(socket)),
        // The socket alone is not enough: a fork of the worker's parent may hold its other end open.
        process_(open_process(socket_.peer().pid)),
        memory_(std::move(memory)),
        attached_(attached),
        timeout_(timeout),
        ring_(channel(), [this] { return hung_up(); }) {}

  ~SharedMemoryTransport() override { leave(); }

  void leave() override {
    std::atomic_ref<uint32_t>(channel()->header.closed).store(1);
    ring_.wake();
  }

  const ts_attached& attached() const override { return attached_; }

  uint64_t send_chunk(uint64_t address, uint64_t size, int memory) override {
    auto message = make_message<ts_chunk>(TS_CHUNK);
    message.address = address;
    message.size = size;
    return send(message, memory);
  }

  uint64_t send_image(const ts_image_hash& hash, uint64_t size, int image) override {
    auto message = make_message<ts_image>(TS_IMAGE);
    message.hash = hash;
    message.size = size;
    return send(message, image);
  }

  uint64_t send_function(const FunctionRequest& request) override {
    const std::vector<uint8_t> bytes = function_message(request, sequence_ + 1);
    socket_.send(bytes.data(), bytes.size(), {}, timeout_);
    return sent();
  }

  uint64_t send_library(const LibraryRequest& request) override {
    auto message = make_message<ts_library>(TS_LIBRARY);
    message.sequence = sequence_ + 1;
    message.function = request.function;
    message.kind = request.kind;
    message.path_size = static_cast<uint32_t>(request.path.size());
    message.environment_size = static_cast<uint32_t>(request.environment.size());
    const std::vector<uint8_t> bytes = with_texts(message, {request.path, request.environment});
    socket_.send(bytes.data(), bytes.size(), {}, timeout_);
    return sent();
  }

  uint64_t ask_room(uint64_t bytes) override {
    auto wanted = make_message<ts_room>(TS_ROOM);
    wanted.bytes = bytes;
    socket_.send(wanted, {}, timeout_);
    std::optional<Packet> packet = socket_.receive(timeout_);
    // An answer to a function that nobody waited for any more.
    while (packet && packet->type() == TS_FUNCTION_READY) packet = socket_.receive(timeout_);
    if (!packet) throw TransportError(Status::kTimeout, "the worker does not say what room it has");
    if (packet->type() != TS_ROOM_GRANTED) {
      throw TransportError(Status::kCorrupt, "the worker was asked for room and sent something else");
    }
    return packet->expect<ts_room>().bytes;
  }

  std::optional<ts_function_ready> receive_function_ready(std::chrono::milliseconds timeout) override {
    const std::optional<Packet> packet = socket_.receive(timeout);
    if (!packet) return std::nullopt;
    if (packet->type() != TS_FUNCTION_READY) {
      throw TransportError(Status::kCorrupt, "the worker sent message " + std::to_string(packet->type()) + " unasked");
    }
    auto ready = packet->expect<ts_function_ready>();
    ready.text[sizeof ready.text - 1] = '\0';
    return ready;
  }

  uint64_t sequence() const override { return sequence_; }
  Producer& ring() override { return ring_; }
  ts_lane* lanes() override { return channel()->lanes; }
  bool hung_up() const override { return socket_.hung_up() || process_ended(process_); }
  bool failed() const override { return channel_failed(channel()); }
  ChannelFailure failure() const override { return channel_failure(channel()); }

 private:
  ts_channel* channel() const { return memory_.as<ts_channel>(); }

  template <class T>
  uint64_t send(T& message, int fd) {
    message.sequence = sequence_ + 1;
    socket_.send(message, {&fd, 1}, timeout_);
    return sent();
  }

  uint64_t sent() {
    ring_.wake();
    return ++sequence_;
  }

  Socket socket_;
  UniqueFd process_;
  SharedMemory memory_;
  ts_attached attached_;
  std::chrono::milliseconds timeout_;
  uint64_t sequence_ = 0;
  Producer ring_;
};

/// The worker's answer may come from another version: its header is looked at before its size.
ts_attached read_answer(const Packet& packet) {
  const ts_message header = packet.header();
  if (header.version != TS_PROTOCOL_VERSION) {
    throw TransportError(Status::kRefused, "the worker speaks protocol " + std::to_string(header.version) +
                                               ", this program " + std::to_string(TS_PROTOCOL_VERSION) +
                                               ": install the same version of Tessera for both");
  }
  if (header.type != TS_ATTACHED) {
    throw TransportError(Status::kCorrupt, "the worker answered with message " + std::to_string(header.type));
  }
  auto answer = packet.expect<ts_attached>();
  answer.text[sizeof answer.text - 1] = '\0';
  answer.device.name[sizeof answer.device.name - 1] = '\0';
  return answer;
}

}  // namespace

std::vector<uint8_t> function_message(const FunctionRequest& request, uint64_t sequence) {
  auto message = make_message<ts_function>(TS_FUNCTION);
  message.sequence = sequence;
  message.function = request.function;
  message.name_size = static_cast<uint32_t>(request.name.size());
  message.image = request.image;
  message.parameter_size = request.parameter_size;
  message.max_dynamic_shared = request.max_dynamic_shared;
  message.shared_carveout = request.shared_carveout;
  return with_texts(message, {request.name});
}

std::unique_ptr<Transport> attach_shared_memory(const AttachRequest& request) {
  Socket socket = Socket::connect(request.socket, request.timeout);
  SharedMemory channel = SharedMemory::create("tessera-channel", sizeof(ts_channel));
  initialise_channel(channel.as<ts_channel>());
  auto message = make_message<ts_attach>(TS_ATTACH);
  message.arena_base = request.arena_base;
  message.arena_size = request.arena_size;
  message.pid = getpid();
  message.index = request.index;
  const int fds[] = {channel.fd().get(), request.counters};
  socket.send(message, fds, request.timeout);
  const std::optional<Packet> packet = socket.receive(request.timeout);
  if (!packet) throw TransportError(Status::kTimeout, "the worker at " + request.socket + " does not answer");
  const ts_attached answer = read_answer(*packet);
  if (answer.status != 0) throw TransportError(Status::kRefused, answer.text);
  return std::make_unique<SharedMemoryTransport>(std::move(socket), std::move(channel), answer, request.timeout);
}

}  // namespace tessera::transport
