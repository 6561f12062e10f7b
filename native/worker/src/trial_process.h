// SPDX-License-Identifier: Apache-2.0
// Trials: single launches with nothing mapped but what they claim, in a process
// of their own, for they may break its context.
#pragma once

#include <atomic>

#include "options.h"
#include "tessera/protocol/settings.h"
#include "tessera/transport/socket.h"

namespace tessera::worker {

/// Starts a process for trials on this worker's device, hands it the program's connection, and returns when it has
/// ended or `closing` is set; then it ends with its program. Throws TransportError when it cannot be started.
void hand_to_trial(transport::Socket socket, const Options& options, const std::atomic<bool>& closing);

/// The trial process: serves the program behind descriptor `options.trial` until it hangs up, or a kernel has broken
/// the device's context. Ends the process where something is still running on the device.
void serve_trials(const Options& options, const Settings& settings);

}  // namespace tessera::worker
