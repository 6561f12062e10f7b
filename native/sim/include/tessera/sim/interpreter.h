// SPDX-License-Identifier: Apache-2.0
// The seam between the two halves of the simulated GPU: the driver (API,
// memory, streams, clock) and the interpreter (PTX to executed work).
//
// Device pointers are host addresses: the driver maps simulated device memory
// into the process at the device address. The interpreter asks the AddressSpace
// before it touches global memory, so that a stray pointer becomes
// CUDA_ERROR_ILLEGAL_ADDRESS and not a signal.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/ptx/ir.h"

namespace tessera::sim {

struct Dim3 {
  uint32_t x = 1, y = 1, z = 1;
};

/// Answers which global addresses a kernel may touch. Called by the interpreter's
/// thread only; the interpreter caches the last extents that it was given.
class AddressSpace {
 public:
  struct Extent {
    uint64_t begin = 0, end = 0;  // half-open; begin == end: no mapping holds the address
    bool writable = false;
  };
  virtual ~AddressSpace() = default;
  virtual Extent find(uint64_t address) const = 0;
};

/// Where module-scope variables live. The driver allocates device memory for
/// .global and .const variables; the address is a host address too.
class GlobalAllocator {
 public:
  virtual ~GlobalAllocator() = default;
  virtual uint64_t allocate(const ptx::Variable& variable, uint64_t size, uint64_t alignment) = 0;
};

/// A module that cannot be loaded: `what()` names the instruction and its line.
class LoadError : public std::runtime_error {
 public:
  enum class Reason { kInvalidPtx, kUnsupportedInstruction, kUnresolvedSymbol, kUnsupportedTarget };
  LoadError(Reason why, const std::string& message) : std::runtime_error(message), reason(why) {}
  Reason reason;
};

struct KernelInfo {
  std::string name;
  uint32_t parameter_block_size = 0;
  std::vector<uint32_t> parameter_offsets, parameter_sizes;
  uint32_t static_shared_bytes = 0;
  uint32_t local_bytes = 0;
  uint32_t registers = 0;                 // an estimate, for occupancy queries
  uint32_t max_threads_per_block = 1024;  // from .maxntid/.reqntid
  uint32_t required_threads[3] = {0, 0, 0};
  uint32_t required_cluster[3] = {0, 0, 0};
};

struct ModuleGlobal {
  std::string name;
  uint64_t address = 0, size = 0;
};

/// What one launch did: the roofline clock turns it into a duration.
struct Work {
  uint64_t warp_instructions = 0;
  uint64_t lane_instructions = 0;  // active lanes, summed over warp instructions
  uint64_t fp32_flops = 0, fp64_flops = 0, fp16_flops = 0, integer_ops = 0;  // outside the matrix units
  uint64_t tensor_flops_f16 = 0, tensor_flops_bf16 = 0, tensor_flops_tf32 = 0, tensor_flops_f64 = 0, tensor_ops_i8 = 0;
  uint64_t global_bytes_read = 0, global_bytes_written = 0;  // bytes requested by lanes
  uint64_t dram_bytes = 0;  // bytes of distinct 32-byte sectors touched (an infinite cache's misses)
};

struct ByteRange {
  uint64_t begin = 0, end = 0;
};

/// True accesses of one launch, sorted and merged: the oracle. Atomics are in both.
struct AccessRecord {
  std::vector<ByteRange> reads, writes;
};

struct Fault {
  enum class Kind {
    kNone,
    kIllegalAddress,
    kMisaligned,
    kTrap,
    kAssert,
    kIllegalInstruction,
    kLaunchTimeout,
    kInvalidConfig
  } kind = Kind::kNone;
  std::string message;  // kernel, PTX line, thread, address
};

struct DeviceTraits {
  uint32_t compute_capability = 80;  // major * 10 + minor: %-registers and target checks
  uint32_t multiprocessors = 108;    // %nsmid
  uint32_t device_index = 0;
};

struct Launch {
  Dim3 grid, block, cluster;
  uint32_t dynamic_shared_bytes = 0;
  const uint8_t* parameters = nullptr;  // parameter_block_size bytes
  uint64_t grid_id = 0;
  bool record_accesses = false;
  bool cooperative = false;  // every block is resident at once, so that blocks may wait for each other
  uint64_t step_budget = 0;  // warp instructions until kLaunchTimeout; 0: kDefaultStepBudget
};

constexpr uint64_t kDefaultStepBudget = 20'000'000'000;  // minutes of interpretation

struct LaunchOutcome {
  Fault fault;
  Work work;
  AccessRecord accesses;      // filled when record_accesses
  std::string printf_output;  // device printf, in order of execution
};

class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual const KernelInfo& info() const = 0;
  /// Runs the whole grid on the calling thread. Thread-compatible: one Kernel
  /// may run on several threads at once. Never throws; a fault is an outcome.
  virtual LaunchOutcome run(const Launch& launch, const AddressSpace& memory) const = 0;
};

class Program {
 public:
  virtual ~Program() = default;
  virtual const std::vector<std::string>& kernel_names() const = 0;
  virtual const Kernel* find_kernel(std::string_view name) const = 0;  // null when absent
  virtual const std::vector<ModuleGlobal>& globals() const = 0;        // initialised by load()
};

/// Compiles every function of the module(s); several modules are linked (cuLink,
/// extern functions). Throws LoadError. An unknown instruction is an error that
/// names it, at load.
std::unique_ptr<Program> load(const std::vector<const ptx::Module*>& modules, GlobalAllocator& globals,
                              const DeviceTraits& traits);

}  // namespace tessera::sim
