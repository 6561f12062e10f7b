// SPDX-License-Identifier: Apache-2.0
// The one door into streams: a capturing stream takes what is submitted as graph
// nodes, another one runs it. Capture's errors are the CUDA_ERROR_STREAM_CAPTURE_* ones.
#pragma once

#include "event.h"
#include "stream.h"
#include "tasks.h"

namespace tessera::sim {

/// Submits or captures. The result is null when the task was captured.
Ref<Op> submit(Stream& stream, TaskPtr task, bool on_caller = false);

void record_event(Event& event, Stream& stream, unsigned flags);
void wait_event(Stream& stream, const Event& event, unsigned flags);

/// Fails where this thread's capture mode forbids calls that could disturb a capture
/// under way (allocation, synchronization, queries); such a call invalidates the captures.
void check_capture_allows_unsafe_call();
/// Fails where `stream` is capturing (synchronization, queries, what cannot be captured); invalidates that capture.
void check_not_capturing(Stream& stream);
/// Fails where some stream of the context is capturing; invalidates those captures.
void check_context_not_capturing(const Context& context);
/// Fails where the legacy stream would have to wait for a capturing blocking stream of the context.
void check_legacy_allowed(Stream& stream);
/// Fails with CUDA_ERROR_CAPTURED_EVENT where the event was last recorded in a capture.
void check_event_not_captured(const Event::Record& record);
/// The stream is being destroyed: a capture that began in it ends unfinished.
void abandon_capture(Stream& stream);

}  // namespace tessera::sim
