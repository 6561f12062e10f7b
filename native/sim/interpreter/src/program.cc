// SPDX-License-Identifier: Apache-2.0
#include "program.h"

#include <cstdlib>
#include <cstring>
#include <new>

#include "lower/linker.h"

namespace tessera::sim {

void FreeAligned::operator()(u8* bytes) const { std::free(bytes); }

AlignedBytes allocate_aligned(size_t bytes) {
  const size_t rounded = (bytes + 63) / 64 * 64;
  void* memory = std::aligned_alloc(64, rounded == 0 ? 64 : rounded);
  if (memory == nullptr) throw std::bad_alloc();
  std::memset(memory, 0, rounded);
  return AlignedBytes(static_cast<u8*>(memory));
}

const Kernel* LoadedProgram::find_kernel(std::string_view name) const {
  const auto found = kernels_.find(name);
  return found == kernels_.end() ? nullptr : found->second.get();
}

std::unique_ptr<Program> load(const std::vector<const ptx::Module*>& modules, GlobalAllocator& globals,
                              const DeviceTraits& traits) {
  return Linker(modules, globals, traits).link();
}

}  // namespace tessera::sim
