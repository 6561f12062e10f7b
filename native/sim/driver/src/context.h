// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "object.h"
#include "op.h"

namespace tessera::sim {

class Device;
class Module;
class Stream;

/// A context. A primary one keeps its handle when it is reset: each life is a generation,
/// and what was made in an earlier one is refused with CUDA_ERROR_CONTEXT_IS_DESTROYED.
class Context : public Object {
 public:
  static constexpr Tag kTag = Tag::kContext;

  Context(Device& device, bool primary);
  ~Context() override;

  Device& device() const { return device_; }
  bool primary() const { return primary_; }
  unsigned long long id() const { return id_; }

  void start(unsigned flags);
  /// Ends this life: drops queued waits, drains the streams, frees memory and modules.
  void tear_down();
  bool alive() const { return alive_.load(std::memory_order_acquire); }
  uint64_t generation() const { return generation_.load(std::memory_order_acquire); }
  void check_alive() const { require(alive(), CUDA_ERROR_CONTEXT_IS_DESTROYED); }
  void check_alive(uint64_t generation_then) const {
    require(alive() && generation() == generation_then, CUDA_ERROR_CONTEXT_IS_DESTROYED);
  }
  /// Waits inside streams give up when this is set.
  bool ending() const { return ending_.load(std::memory_order_acquire); }

  std::atomic<unsigned> flags{0};
  std::atomic<uint32_t> peers{0};  // devices whose memory this context may use
  std::atomic<CUfunc_cache> cache_config{CU_FUNC_CACHE_PREFER_NONE};
  /// As in the real driver: held together by copies that wait for pageable memory, and alone by whoever makes or
  /// destroys an event or registers host memory. Launches do not meet it.
  std::shared_mutex objects_mutex;
  std::mutex limits_mutex;
  std::array<size_t, CU_LIMIT_MAX> limits = {};

  Stream& legacy_stream();
  void add_stream(Stream& stream);
  void remove_stream(Stream& stream);
  std::vector<Ref<Stream>> streams() const;
  /// What the legacy default stream's rules make `stream`'s next operation wait for.
  void add_implicit_dependencies(Stream& stream, std::vector<Ref<Op>>& dependencies);
  std::vector<Ref<Op>> last_blocking_operations() const;
  void synchronize();

  void add_module(Module& module);
  void remove_module(Module& module);

  /// Device printf: kept until the host synchronizes, as on hardware.
  void print(const std::string& text);
  void flush_prints();

 private:
  void reset_limits();
  void free_memory();

  Device& device_;
  const bool primary_;
  const unsigned long long id_;
  std::atomic<bool> alive_{false}, ending_{false};
  std::atomic<uint64_t> generation_{0};

  mutable std::mutex mutex_;
  Ref<Stream> legacy_;
  std::atomic<Stream*> legacy_fast_{nullptr};
  std::vector<Ref<Stream>> streams_;  // created and per-thread ones
  std::vector<Ref<Module>> modules_;

  std::mutex prints_mutex_;
  std::string prints_;
};

}  // namespace tessera::sim
