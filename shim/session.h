// SPDX-License-Identifier: Apache-2.0
// The program's conversation with the controller, and what both share.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "placed_classes.h"
#include "registry.h"
#include "tessera/protocol/control.h"
#include "worker_link.h"

namespace tessera::shim {

/// What the controller knows of one kernel.
struct KernelAnswer {
  uint32_t status = TS_KERNEL_FAILED;
  uint32_t kernel_id = TS_MAX_KERNELS;
  std::vector<uint8_t> summary;
  std::vector<uint64_t> passed;  // launch classes of an unknown kernel that passed trials
  std::string reason;
};

/// Asks for a kernel's summary and number. Sends the image when it is wanted.
/// Waits at most the analysis time of the settings; PENDING when that was too short.
KernelAnswer ask_kernel(const Image& image, const std::string& name);

/// The number of a library's call, by its name. It has no summary: what it touches follows from its arguments.
KernelAnswer ask_call(const std::string& name);

/// The controller's, which it changes at any time; not to be written to.
ts_placement_table& placement_table();

/// Indices of the workers that are up. Lock-free enough for tests alone.
std::vector<uint32_t> known_workers();

/// What the controller last told of a worker that is up.
std::optional<ts_worker_info> worker_info(uint32_t index);

/// Tells the controller what a trial showed: `message` without its texts, which it is completed with.
void report_trial(ts_tried message, const std::string& name, const std::string& reason);

/// The addresses that this program's memory is served from.
Range slot_of_program();

/// Counters of one kernel; null when all are taken.
ts_kernel_counters* counters_of(uint32_t kernel_id, uint32_t* slot);
/// Counters of a launch class of a kernel, of which the controller is told; null when too many are taken. Once for each
/// class.
ts_kernel_counters* counters_of_class(uint32_t kernel_id, const ClassKey& key, uint32_t* slot);
/// The kernel of a slot of the counters; TS_MAX_KERNELS for none.
uint32_t kernel_of_counters(uint32_t slot);
void count_untracked_launch();
void count_graph_launch();
void report_arena(uint64_t mapped, uint64_t used);

/// The worker of that index, attached at first need; null when it cannot be had.
/// Precondition: the world's lock is held and the home context is current.
WorkerLink* attached_worker(uint32_t index);

/// Whether `pool` is the device's default one with its attributes untouched in
/// what matters: what comes from it may come from the slot instead.
bool is_default_pool(CUmemoryPool pool, CUdevice device);

}  // namespace tessera::shim
