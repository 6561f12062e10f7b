// SPDX-License-Identifier: Apache-2.0
#include "submit.h"

#include "copy.h"
#include "graph.h"

namespace tessera::sim {
Ref<Op> submit(Stream& stream, TaskPtr task, bool on_caller) { return stream.submit(std::move(task), {}, on_caller); }
void record_event(Event& event, Stream& stream, unsigned) {
  event.set_record({stream.submit(MarkerTask::get()), {}, {}, false});
}
void wait_event(Stream& stream, const Event& event, unsigned) {
  if (Ref<Op> op = event.record().op) stream.submit(MarkerTask::get(), {op});
}
void check_capture_allows_unsafe_call() {}
void check_not_capturing(Stream&) {}
void check_legacy_allowed(Stream&) {}
void check_event_not_captured(const Event::Record&) {}
void abandon_capture(Stream&) {}
bool stream_is_capturing(Stream&) { return false; }
CUdeviceptr capture_allocation(Stream&, Pool&, size_t) { return 0; }
void capture_free(Stream&, const MemoryPtr&) {}
}  // namespace tessera::sim
