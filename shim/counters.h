// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "placed_classes.h"
#include "tessera/protocol/control.h"
#include "tessera/transport/shared_memory.h"

namespace tessera::shim {

/// The table of counters that the program shares with the controller and the workers, and who has which of its rows.
/// Any thread, once it is made.
class Counters {
 public:
  /// Makes the table, with no row taken.
  void create();
  ts_counters_table& table() { return *memory_.as<ts_counters_table>(); }
  int fd() const { return memory_.fd().get(); }

  /// The row of one kernel; null when all are taken.
  ts_kernel_counters* of_kernel(uint32_t kernel_id, uint32_t* slot);
  /// A new row for a launch class of a kernel; null when too many are taken. Once for each class.
  ts_kernel_counters* of_class(uint32_t kernel_id, const ClassKey& key, uint32_t* slot);
  /// What tells the launches of the classes apart that came since this was last asked.
  std::vector<ts_class> take_untold();

 private:
  ts_kernel_counters* take_row(uint32_t kernel_id, uint32_t* slot);

  transport::SharedMemory memory_;
  std::mutex mutex_;
  std::map<uint32_t, uint32_t> slots_;  // by kernel id
  uint32_t taken_ = 0;                  // by kernels and by classes
  std::vector<ts_class> untold_;
};

}  // namespace tessera::shim
