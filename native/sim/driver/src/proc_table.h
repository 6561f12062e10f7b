// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tessera::sim {

/// One variant of a driver function: what cuGetProcAddress gives from CUDA `version` on.
struct ProcEntry {
  const char* name;
  int version;  // 12030 is CUDA 12.3
  bool per_thread;
  void* function;
};

extern const ProcEntry kProcTable[];  // sorted by name, per_thread, version
extern const unsigned kProcTableSize;

}  // namespace tessera::sim
