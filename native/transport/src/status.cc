// SPDX-License-Identifier: Apache-2.0
#include "tessera/transport/status.h"

namespace tessera::transport {

const char* status_name(Status status) {
  switch (status) {
    case Status::kOk:
      return "ok";
    case Status::kEmpty:
      return "empty";
    case Status::kTimeout:
      return "timed out";
    case Status::kFailed:
      return "the worker failed";
    case Status::kHungUp:
      return "the other side is gone";
    case Status::kCorrupt:
      return "the other side broke the protocol";
    case Status::kTooLarge:
      return "too large";
    case Status::kRefused:
      return "refused";
  }
  return "unknown";
}

}  // namespace tessera::transport
