// SPDX-License-Identifier: Apache-2.0
#include "device.h"
#include "tasks.h"
#include "thread_state.h"
#include "vmm.h"

namespace tessera::sim {
namespace {

class HostFunctionScope {
 public:
  HostFunctionScope() { thread_state().in_host_function = true; }
  ~HostFunctionScope() { thread_state().in_host_function = false; }
};

}  // namespace

VirtualTime HostTask::run(Execution& execution) const {
  const HostFunctionScope scope;
  execution.ends_now = true;
  function(user_data);
  return 0;
}

VirtualTime CallbackTask::run(Execution& execution) const {
  const HostFunctionScope scope;
  execution.ends_now = true;
  function_(stream_, execution.device.fault(), user_data_);
  return 0;
}

const TaskPtr& MarkerTask::get() {
  static const TaskPtr* const one = new TaskPtr(std::make_shared<MarkerTask>());
  return *one;
}

VirtualTime FreeTask::run(Execution&) const {
  release_memory(memory);
  return 0;
}

}  // namespace tessera::sim
