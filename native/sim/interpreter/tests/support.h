// SPDX-License-Identifier: Apache-2.0
// A device of plain host memory, and PTX text to launches, for the tests.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/ptx/parser.h"
#include "tessera/sim/interpreter.h"
#include "testing/check.h"

namespace tessera::sim::testing {

/// Memory that kernels may touch: exactly what was added.
class TestMemory : public AddressSpace, public GlobalAllocator {
 public:
  Extent find(uint64_t address) const override {
    const std::lock_guard lock(mutex_);
    auto entry = extents_.upper_bound(address);
    if (entry == extents_.begin()) return {};
    --entry;
    return address < entry->second.end ? entry->second : Extent{};
  }
  uint64_t allocate(const ptx::Variable&, uint64_t size, uint64_t alignment) override {
    return reserve(size, alignment, true);
  }

  /// Zeroed memory of its own.
  uint64_t reserve(uint64_t size, uint64_t alignment = 256, bool writable = true) {
    blocks_.emplace_back(size + alignment);
    uint64_t address = reinterpret_cast<uint64_t>(blocks_.back().data());
    address = (address + alignment - 1) / alignment * alignment;
    const std::lock_guard lock(mutex_);
    extents_[address] = {address, address + size, writable};
    return address;
  }
  template <class T>
  uint64_t upload(const std::vector<T>& values, bool writable = true) {
    const uint64_t address = reserve(values.size() * sizeof(T), 256, writable);
    std::memcpy(reinterpret_cast<void*>(address), values.data(), values.size() * sizeof(T));
    return address;
  }
  template <class T>
  std::vector<T> download(uint64_t address, size_t count) const {
    std::vector<T> out(count);
    std::memcpy(out.data(), reinterpret_cast<const void*>(address), count * sizeof(T));
    return out;
  }

 private:
  mutable std::mutex mutex_;
  std::map<uint64_t, Extent> extents_;
  std::vector<std::vector<uint8_t>> blocks_;
};

/// The kernel's parameters in order, each with the size of its C++ type.
class Arguments {
 public:
  template <class... Ts>
  explicit Arguments(const KernelInfo& info, const Ts&... values) : bytes_(info.parameter_block_size + 16) {
    size_t index = 0;
    (place(info, index++, values), ...);
  }
  const uint8_t* data() const { return bytes_.data(); }

 private:
  template <class T>
  void place(const KernelInfo& info, size_t index, const T& value) {
    if (index >= info.parameter_offsets.size() || sizeof(T) != info.parameter_sizes[index])
      throw std::runtime_error("argument " + std::to_string(index) + " does not fit");
    std::memcpy(bytes_.data() + info.parameter_offsets[index], &value, sizeof(T));
  }
  std::vector<uint8_t> bytes_;
};

constexpr const char* kHeader = ".version 8.6\n.target sm_90\n.address_size 64\n";

/// Loads PTX; a text without .version gets the usual header.
class TestModule {
 public:
  explicit TestModule(TestMemory& memory, const std::string& text, uint32_t capability = 90) : memory_(memory) {
    const bool whole = text.find(".version") != std::string::npos;
    parsed_ = ptx::parse(whole ? text : kHeader + text);
    if (!parsed_.ok())
      throw std::runtime_error("line " + std::to_string(parsed_.errors[0].location.line) + ": " +
                               parsed_.errors[0].message);
    DeviceTraits traits;
    traits.compute_capability = capability;
    program_ = load({&parsed_.module}, memory, traits);
  }
  const Program& program() const { return *program_; }
  const Kernel& kernel(std::string_view name) const {
    const Kernel* found = program_->find_kernel(name);
    if (found == nullptr) throw std::runtime_error("no kernel " + std::string(name));
    return *found;
  }

  template <class... Ts>
  LaunchOutcome run(std::string_view name, Launch launch, const Ts&... values) const {
    const Kernel& k = kernel(name);
    const Arguments arguments(k.info(), values...);
    launch.parameters = arguments.data();
    return k.run(launch, memory_);
  }
  /// As run(), for launches that must not fault.
  template <class... Ts>
  LaunchOutcome good(std::string_view name, const Launch& launch, const Ts&... values) const {
    LaunchOutcome outcome = run(name, launch, values...);
    if (outcome.fault.kind != Fault::Kind::kNone) throw std::runtime_error(outcome.fault.message);
    return outcome;
  }

 private:
  TestMemory& memory_;
  ptx::ParseResult parsed_;
  std::unique_ptr<Program> program_;
};

inline Launch shape(uint32_t grid, uint32_t block, uint32_t dynamic_shared = 0) {
  Launch launch;
  launch.grid.x = grid;
  launch.block.x = block;
  launch.dynamic_shared_bytes = dynamic_shared;
  return launch;
}

/// A kernel `k(p)` around a body in which %tid is in %tid0, p in %base and p + 4 tid in %mine; the usual registers are
/// declared.
inline std::string kernel_text(const std::string& body, const std::string& before = "") {
  return before +
         ".visible .entry k(.param .u64 p) {\n"
         ".reg .pred %p<10>; .reg .b16 %h<20>; .reg .b32 %r<40>; .reg .b64 %rd<20>; .reg .f32 %f<20>; .reg .f64 "
         "%fd<10>;\n"
         ".reg .b32 %tid0; .reg .b64 %base, %mine;\n"
         "ld.param.u64 %base, [p]; mov.u32 %tid0, %tid.x; mul.wide.u32 %mine, %tid0, 4; add.u64 %mine, %mine, "
         "%base;\n" +
         body + "\nret;\n}\n";
}

/// Runs `body` on one block; gives back the first `count` words of its buffer, which starts as `initial`.
inline std::vector<uint32_t> run_body(const std::string& body, uint32_t threads, std::vector<uint32_t> initial,
                                      const std::string& before = "") {
  TestMemory memory;
  const TestModule module(memory, kernel_text(body, before));
  const uint64_t buffer = memory.upload(initial);
  module.good("k", shape(1, threads), buffer);
  return memory.download<uint32_t>(buffer, initial.size());
}

}  // namespace tessera::sim::testing
