// SPDX-License-Identifier: Apache-2.0
// Operations that touch memory at this moment. Taking memory away waits for
// them: on hardware a running kernel that loses its memory faults, here the
// process would die.
#pragma once

namespace tessera::sim {

/// While one lives, the calling thread may be touching any mapped memory.
class RunningScope {
 public:
  RunningScope();
  ~RunningScope();
  RunningScope(const RunningScope&) = delete;
  RunningScope& operator=(const RunningScope&) = delete;

 private:
  unsigned slot_ = 0;
};

/// Waits for the operations that run now, not for later ones. False when one of them still runs after 10 s.
bool wait_for_running();

}  // namespace tessera::sim
