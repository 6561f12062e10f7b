// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "api.h"
#include "device.h"
#include "proc_table.h"

namespace tessera::sim {
namespace {

struct Search {
  void* function = nullptr;
  bool name_known = false;
};

Search search(const char* name, int version, bool per_thread) {
  Search result;
  const ProcEntry* const end = kProcTable + kProcTableSize;
  const ProcEntry* entry = std::lower_bound(
      kProcTable, end, name, [](const ProcEntry& e, const char* wanted) { return std::strcmp(e.name, wanted) < 0; });
  void* plain = nullptr;
  for (; entry != end && std::strcmp(entry->name, name) == 0; ++entry) {
    result.name_known = true;
    if (entry->version > version) continue;
    (entry->per_thread ? result.function : plain) = entry->function;  // ascending: the newest that fits wins
  }
  if (!per_thread || result.function == nullptr) result.function = plain;
  return result;
}

CUresult look_up(const char* name, void** function, int version, cuuint64_t flags,
                 CUdriverProcAddressQueryResult* status) {
  constexpr cuuint64_t kKnownFlags = CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  // A minor version newer than ours gets what we have, one from another generation nothing.
  if (name == nullptr || function == nullptr || (flags & ~kKnownFlags) != 0 || flags == kKnownFlags ||
      version / 1000 > kDriverVersion / 1000) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const Search found = search(name, version, flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
  if (status != nullptr) {
    *status = found.function != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS
              : found.name_known        ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                        : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  *function = found.function;
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace tessera::sim

using namespace tessera::sim;

CUresult cuGetProcAddress(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags) {
  void* found = nullptr;
  const CUresult result = look_up(symbol, pfn == nullptr ? nullptr : &found, cudaVersion, flags, nullptr);
  if (result != CUDA_SUCCESS) return result;
  if (found == nullptr) return CUDA_ERROR_NOT_FOUND;
  *pfn = found;
  return CUDA_SUCCESS;
}

CUresult cuGetProcAddress_v2(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* symbolStatus) {
  return look_up(symbol, pfn, cudaVersion, flags, symbolStatus);
}

CUresult cuGetExportTable(const void** ppExportTable, const CUuuid* pExportTableId) {
  if (ppExportTable == nullptr || pExportTableId == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_ERROR_NOT_FOUND;
}
