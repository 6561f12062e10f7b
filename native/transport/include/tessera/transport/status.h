// SPDX-License-Identifier: Apache-2.0
// How this room reports: the control path (attach, sockets, mappings) throws
// TransportError with a text for the user, the data path (ring) returns Status.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace tessera::transport {

enum class Status : uint8_t {
  kOk,
  kEmpty,     ///< nothing to read
  kTimeout,   ///< the other side did not make room or answer in time
  kFailed,    ///< the worker has set `failed` in the channel
  kHungUp,    ///< the other side is gone
  kCorrupt,   ///< the other side wrote something that the protocol forbids
  kTooLarge,  ///< a message beyond the limits of the protocol
  kRefused,   ///< the worker, or the system, said no: the text says why
};

const char* status_name(Status status);

class TransportError : public std::runtime_error {
 public:
  TransportError(Status status, const std::string& text) : std::runtime_error(text), status_(status) {}
  Status status() const { return status_; }

 private:
  Status status_;
};

}  // namespace tessera::transport
