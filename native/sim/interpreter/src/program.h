// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>

#include "code.h"
#include "heap.h"
#include "tessera/sim/interpreter.h"

namespace tessera::sim {

struct FreeAligned {
  void operator()(u8* bytes) const;
};
using AlignedBytes = std::unique_ptr<u8[], FreeAligned>;
/// Zeroed, aligned to a cache line.
AlignedBytes allocate_aligned(size_t bytes);

class LoadedProgram;

class LoadedKernel : public Kernel {
 public:
  LoadedKernel(const LoadedProgram& program, u32 function) : program_(program), function_(function) {}
  const KernelInfo& info() const override { return info_; }
  LaunchOutcome run(const Launch& launch, const AddressSpace& memory) const override;

  const LoadedProgram& program() const { return program_; }
  u32 function() const { return function_; }
  KernelInfo info_;
  u32 dynamic_shared_base = 0;  // where dynamic shared memory begins
  u32 local_estimate = 0;       // bytes per thread, without recursion

 private:
  const LoadedProgram& program_;
  u32 function_;
};

class LoadedProgram : public Program {
 public:
  const std::vector<std::string>& kernel_names() const override { return names_; }
  const Kernel* find_kernel(std::string_view name) const override;
  const std::vector<ModuleGlobal>& globals() const override { return globals_; }

  std::vector<std::unique_ptr<Function>> functions;
  AlignedBytes constants;
  std::unique_ptr<Heap> heap;  // null where nothing calls malloc
  DeviceTraits traits;

  std::vector<std::string> names_;
  std::map<std::string, std::unique_ptr<LoadedKernel>, std::less<>> kernels_;
  std::vector<ModuleGlobal> globals_;
};

}  // namespace tessera::sim
