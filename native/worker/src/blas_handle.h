// SPDX-License-Identifier: Apache-2.0
// One program's handle of a library: its calls are made again on this device.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "blas_library.h"
#include "device.h"
#include "memory_handle.h"

namespace tessera::worker {

class BlasHandle {
 public:
  /// Makes the handle, which may wait for the device: call it where that stops nobody. `environment` is what the
  /// program's library was set to; another one here would choose other kernels. Throws DriverError.
  BlasHandle(const Device& device, const std::string& path, uint32_t kind, const std::string& environment);
  /// The same goes for its end. No stream uses it any more.
  ~BlasHandle();
  BlasHandle(const BlasHandle&) = delete;
  BlasHandle& operator=(const BlasHandle&) = delete;

  /// What is wrong with a call that came in a message; empty when it can be made.
  std::string objection(const ts_blas_call& call) const;
  /// Whether no call like this one was made yet: the library may load kernels for it, which waits for the device.
  bool is_new(const ts_blas_call& call) const { return !made_.contains(class_of(call)); }
  /// Makes the call in the lane's stream. Precondition: there is no objection. Throws DriverError.
  void enqueue(CUstream stream, uint32_t lane, const ts_blas_call& call);

  /// The context is broken: its end is left to that of the process.
  void abandon() { abandoned_ = true; }

 private:
  struct Workspace {
    Reservation addresses;
    MemoryHandle memory;
    uint64_t bytes = 0;
  };
  static uint64_t class_of(const ts_blas_call& call);
  void* workspace(uint32_t lane, uint64_t bytes);
  blas::Status call_blas(const ts_blas_call& call) const;
  template <class Size>
  blas::Status call_sized(const ts_blas_call& call) const;
  blas::Status call_lt(CUstream stream, void* workspace, const ts_blas_call& call) const;
  void prepare(CUstream stream, uint32_t lane, const ts_blas_call& call);

  const Device& device_;
  const BlasLibrary& library_;
  void* handle_ = nullptr;
  bool abandoned_ = false;
  std::unordered_set<uint64_t> made_;
  std::map<uint32_t, std::vector<Workspace>> workspaces_;  // by lane; the last one is the largest
};

}  // namespace tessera::worker
