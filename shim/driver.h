// SPDX-License-Identifier: Apache-2.0
// The driver underneath: one typed pointer for each function of functions.def.
//
// `driver().cuLaunchKernel(...)` may be called at any time from any thread; the
// first call finds the library. A function that the library lacks is a stub
// that returns CUDA_ERROR_NOT_SUPPORTED, never null. Inside the shim always call
// through driver(): the plain name is the shim's own, interposed function.
//
// Names here are exact symbols (cuMemAlloc is the 32-bit one of CUDA 2.0,
// cuMemAlloc_v2 today's): the shim is compiled with __CUDA_API_VERSION_INTERNAL.
#pragma once

#ifndef __CUDA_API_VERSION_INTERNAL
#error "The shim is compiled with -D__CUDA_API_VERSION_INTERNAL: names are exact symbols."
#endif

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "driver_declarations.h"  // generated; includes cuda.h

/// Before each definition of an interposed driver function.
#define TESSERA_DRIVER_ENTRY extern "C" __attribute__((visibility("default")))

namespace tessera::shim {

struct Driver {
#define TESSERA_DRIVER_FUNCTION(kind, base, symbol, version, per_thread) decltype(&::symbol) symbol;
#include "functions.def"
#undef TESSERA_DRIVER_FUNCTION
};

namespace detail {
extern std::atomic<const Driver*> driver_table;
}

inline const Driver& driver() { return *detail::driver_table.load(std::memory_order_acquire); }

/// One line of functions.def that is interposed, or was looked at and left alone.
struct Interposed {
  const char* base;
  const char* symbol;
  int version;
  bool per_thread;
  void* ours;     // the shim's function; null for PASS
  size_t offset;  // of its pointer in Driver
};
std::span<const Interposed> interposed_functions();  // CUSTOM, ORDERED and PASS

/// The pointer of one entry in a table.
inline void* real_pointer(const Driver& table, const Interposed& entry) {
  return *reinterpret_cast<void* const*>(reinterpret_cast<const char*>(&table) + entry.offset);
}

/// The library that the table was filled from.
struct DriverLibrary {
  const char* path;      // as the loader names it; empty: none was found
  uintptr_t begin, end;  // where it is mapped
  int version;           // cuDriverGetVersion; 0 when it failed
  bool contains(const void* address) const {
    return reinterpret_cast<uintptr_t>(address) >= begin && reinterpret_cast<uintptr_t>(address) < end;
  }
};

/// Finds the library and fills the table, once; later calls only return it.
/// Takes no lock: threads that race do the work twice and one result is kept.
const DriverLibrary& load_driver();

/// Whether a driver library is in the process already. Loads nothing.
bool driver_is_mapped();

/// Keeps the library in the process for good. Takes the loader's lock: call it
/// only where the program itself is in a loader call, or in cuInit.
void pin_driver();

/// Whether `caller` belongs to the driver, or to an interposer between the shim
/// and the driver: such code asks for the real functions and must get them.
bool is_beneath(const void* caller);

}  // namespace tessera::shim
