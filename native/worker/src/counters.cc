// SPDX-License-Identifier: Apache-2.0
#include "counters.h"

#include "tessera/transport/status.h"

namespace tessera::worker {

Counters::Counters(transport::UniqueFd fd, uint32_t index)
    : memory_(transport::SharedMemory::map(std::move(fd), sizeof(ts_counters_table))),
      index_(index),
      worker_(&table()->workers[index]) {
  if (table()->magic != TS_COUNTERS_MAGIC || table()->version != TS_PROTOCOL_VERSION) {
    throw transport::TransportError(transport::Status::kCorrupt,
                                    "the counters table is of another version, or none at all");
  }
}

}  // namespace tessera::worker
