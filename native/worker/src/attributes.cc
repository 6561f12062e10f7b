// SPDX-License-Identifier: Apache-2.0
#include "attributes.h"

#include <cstddef>
#include <cstring>

#include "driver.h"
#include "tessera/transport/ring.h"

namespace tessera::worker {

static_assert(sizeof(CUlaunchAttribute) == transport::kLaunchAttributeBytes, "the ring carries them raw");

std::string attribute_objection(std::span<const std::byte> attributes) {
  for (size_t at = 0; at < attributes.size(); at += sizeof(CUlaunchAttribute)) {
    int id = 0;  // any value may come: it is no CUlaunchAttributeID before it is known to be one
    std::memcpy(&id, attributes.data() + at + offsetof(CUlaunchAttribute, id), sizeof id);
    switch (id) {
      case CU_LAUNCH_ATTRIBUTE_IGNORE:
      case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
      case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
      case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
      case CU_LAUNCH_ATTRIBUTE_PRIORITY:
      case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
      case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
      case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
      case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        break;
      default:
        return "launch attribute " + std::to_string(id) + " cannot be carried to another process";
    }
  }
  return "";
}

}  // namespace tessera::worker
