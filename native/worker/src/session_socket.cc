// SPDX-License-Identifier: Apache-2.0
// What comes by the socket. Packets are read as they come, so that questions are
// answered soon; chunks wait until a ring message names them, since a chunk may
// lie where one was whose release still stands in the ring.
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "log.h"
#include "session.h"
#include "tessera/transport/shared_memory.h"

namespace tessera::worker {
namespace {

using transport::Packet;
using transport::Status;
using transport::TransportError;

constexpr std::chrono::milliseconds kNoWait{0};
constexpr uint32_t kMostFunctions = 1u << 20;
constexpr uint64_t kLargestImage = uint64_t{2} << 30;
constexpr size_t kMostPendingChunks = 65536;

[[noreturn]] void break_off(const std::string& text) { throw TransportError(Status::kCorrupt, text); }

}  // namespace

bool Session::read_socket() {
  if (!socket_.readable()) return false;
  std::optional<Packet> packet = socket_.receive(kNoWait);
  if (!packet) return false;
  take_packet(*packet);
  return true;
}

void Session::take_packet(const Packet& packet) {
  if (packet.header().version != TS_PROTOCOL_VERSION) break_off("a message of another version came");
  switch (packet.type()) {
    case TS_CHUNK:
      return take_chunk(packet);
    case TS_IMAGE:
      return take_image(packet);
    case TS_FUNCTION:
      return take_function(packet);
    case TS_LIBRARY:
      return take_library(packet);
    case TS_ROOM:
      return give_room(packet);
    default:
      break_off("message " + std::to_string(packet.type()) + " is none that a program sends a worker");
  }
}

void Session::take_sequence(uint64_t sequence) {
  if (sequence != last_sequence_ + 1) {
    break_off("message " + std::to_string(sequence) + " came behind message " + std::to_string(last_sequence_));
  }
  last_sequence_ = sequence;
}

void Session::take_chunk(const Packet& packet) {
  const auto chunk = packet.expect<ts_chunk>(1);
  take_sequence(chunk.sequence);
  if (chunk.size > slot_.size || !slot_.contains(chunk.address, chunk.address + chunk.size)) {
    break_off("a chunk lies outside the slot");
  }
  if (pending_chunks_.size() >= kMostPendingChunks) break_off("too many chunks are announced and not used");
  // Imported at once, so that no descriptor is kept.
  pending_chunks_.push_back(
      {chunk.sequence, chunk.address, chunk.size, MemoryHandle::import(device_, packet.fds[0].get())});
}

void Session::take_image(const Packet& packet) {
  const auto image = packet.expect<ts_image>(1);
  take_sequence(image.sequence);
  if (image.size == 0 || image.size > kLargestImage) break_off("an image is empty or too large");
  auto bytes = std::make_shared<std::vector<char>>(transport::read_whole(packet.fds[0], image.size));
  bytes->push_back('\0');  // PTX is text; what does not need the NUL does not mind it
  images_[{image.hash.low, image.hash.high}] = std::move(bytes);
}

void Session::take_function(const Packet& packet) {
  const auto message = packet.expect<ts_function>();
  take_sequence(message.sequence);
  std::string name = packet.text_behind(sizeof message, message.name_size);
  if (name.empty() || name.find('\0') != std::string::npos) break_off("a kernel's name is empty or has a NUL");
  if (message.parameter_size > TS_MAX_PARAMETERS) break_off("a function has too many parameter bytes");
  const auto image = images_.find({message.image.low, message.image.high});
  if (image == images_.end()) break_off("kernel " + name + " belongs to an image that was not sent");
  auto request = std::make_shared<LoadRequest>();
  request->hash = message.image;
  request->bytes = image->second;
  request->name = std::move(name);
  request->parameter_size = message.parameter_size;
  request->max_dynamic_shared = message.max_dynamic_shared;
  request->shared_carveout = message.shared_carveout;
  announce(message.function, std::move(request));
}

/// It becomes code of this process.
void Session::take_library(const Packet& packet) {
  const auto message = packet.expect<ts_library>();
  take_sequence(message.sequence);
  const std::string texts = packet.text_behind(sizeof message, size_t{message.path_size} + message.environment_size);
  if (socket_.peer().uid != ::geteuid()) break_off("libraries are opened for programs of the worker's own user alone");
  if (message.kind > TS_BLAS_LT_LIBRARY) break_off("a library is of an unknown kind");
  auto request = std::make_shared<LoadRequest>();
  request->library = texts.substr(0, message.path_size);
  request->environment = texts.substr(message.path_size);
  request->library_kind = message.kind;
  request->name = request->library;
  if (request->library.empty()) break_off("a library has no path");
  announce(message.function, std::move(request));
}

/// Has the loader load what function `number` stands for.
void Session::announce(uint32_t number, std::shared_ptr<LoadRequest> request) {
  if (number >= kMostFunctions) break_off("a function's number is too large");
  request->wake = [memory = memory_] { transport::wake_consumer(memory->as<ts_channel>()); };
  if (functions_.size() <= number) functions_.resize(number + 1);
  // Streams may still run what it stands for; only one that could not be loaded may be asked for again.
  const LoadRequest* before = functions_[number].request.get();
  if (before != nullptr && (!functions_[number].answered || before->status == CUDA_SUCCESS)) {
    break_off("function " + std::to_string(number) + " is announced twice");
  }
  functions_[number] = {request, false};
  unanswered_.push_back(number);
  worker_.loader.submit(std::move(request));
}

/// The budget is shared: what one program was promised no other gets, used or not.
void Session::give_room(const Packet& packet) {
  const auto wanted = packet.expect<ts_room>().bytes / TS_GRANULE * TS_GRANULE;
  auto granted = transport::make_message<ts_room>(TS_ROOM_GRANTED);
  granted.bytes = promise_.change(wanted);
  socket_.send(granted, {}, worker_.timing.timeout);
}

bool Session::answer_functions() {
  const size_t before = unanswered_.size();
  std::erase_if(unanswered_, [this](uint32_t number) {
    Function& function = functions_[number];
    if (!function.answered && !function.request->done.load()) return false;
    if (!function.answered) answer(number, function.request->status, function.request->text);
    function.answered = true;
    return true;
  });
  return unanswered_.size() != before;
}

void Session::answer(uint32_t function, CUresult status, const std::string& text) {
  auto ready = transport::make_message<ts_function_ready>(TS_FUNCTION_READY);
  ready.function = function;
  ready.status = static_cast<int32_t>(status);
  std::memcpy(ready.text, text.data(), std::min(text.size(), sizeof ready.text - 1));
  socket_.send(ready, {}, worker_.timing.timeout);
}

/// In a session that has failed: nobody shall wait for an answer.
void Session::answer_failed() {
  for (const uint32_t function : unanswered_) answer(function, failure_code_, failure_text_);
  unanswered_.clear();
  while (socket_.readable()) {
    const std::optional<Packet> packet = socket_.receive(kNoWait);
    if (!packet) return;
    if (packet->type() == TS_ROOM) give_room(*packet);
    if (packet->type() == TS_LIBRARY) answer(packet->expect<ts_library>().function, failure_code_, failure_text_);
    if (packet->type() == TS_FUNCTION) answer(packet->expect<ts_function>().function, failure_code_, failure_text_);
  }
}

}  // namespace tessera::worker
