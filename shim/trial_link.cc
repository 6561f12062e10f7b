// SPDX-License-Identifier: Apache-2.0
#include "trial_link.h"

#include <stdexcept>
#include <vector>

#include "runtime.h"
#include "tessera/transport/shared_memory.h"
#include "tessera/transport/transport.h"

namespace tessera::shim {
namespace {

using std::chrono::milliseconds;
using transport::Packet;
using transport::Status;
using transport::TransportError;

constexpr milliseconds kStart{60000};   // of a process that opens a device
constexpr milliseconds kLoad{120000};   // of a module, which may have to be compiled
constexpr milliseconds kCopies{60000};  // beside the kernel's own time

}  // namespace

TrialLink::TrialLink(const ts_worker_info& worker)
    : socket_(transport::Socket::connect(worker.socket, message_timeout())), device_(worker.device.name) {
  socket_.send(transport::make_header(TS_TRIAL, sizeof(ts_message)), {}, message_timeout());
  auto ready = answer(TS_TRIAL_READY, kStart).expect<ts_trial_ready>();
  ready.text[sizeof ready.text - 1] = '\0';
  if (ready.status != 0) throw std::runtime_error(ready.text);
}

Packet TrialLink::answer(uint16_t type, milliseconds timeout) {
  std::optional<Packet> packet = socket_.receive(timeout);
  if (!packet) throw TransportError(Status::kTimeout, "the trial process does not answer");
  if (packet->type() != type) {
    throw TransportError(Status::kCorrupt, "the trial process answers with " + std::to_string(packet->type()));
  }
  return std::move(*packet);
}

void TrialLink::send_image(const Image& image) {
  if (!images_.emplace(image.hash().low, image.hash().high).second) return;
  const transport::UniqueFd fd = transport::make_constant("tessera-image", image.bytes().data(), image.bytes().size());
  auto whole = transport::make_message<ts_image>(TS_IMAGE);
  whole.hash = image.hash();
  whole.size = image.bytes().size();
  const int fds[] = {fd.get()};
  socket_.send(whole, fds, message_timeout());
}

void TrialLink::load(const Image& image, const std::string& name, uint32_t parameter_size, int max_dynamic_shared,
                     int shared_carveout) {
  send_image(image);
  const std::vector<uint8_t> message =
      transport::function_message({0, image.hash(), parameter_size, max_dynamic_shared, shared_carveout, name}, 0);
  socket_.send(message.data(), message.size(), {}, message_timeout());
  auto ready = answer(TS_FUNCTION_READY, kLoad).expect<ts_function_ready>();
  ready.text[sizeof ready.text - 1] = '\0';
  if (ready.status != 0) throw std::runtime_error(ready.text);
}

ts_trial_done TrialLink::run(const ts_trial_run& request, int memory) {
  const int fds[] = {memory};
  socket_.send(request, fds, message_timeout());
  auto done = answer(TS_TRIAL_DONE, kCopies + milliseconds(request.timeout_ms)).expect<ts_trial_done>();
  done.text[sizeof done.text - 1] = '\0';
  return done;
}

}  // namespace tessera::shim
