// SPDX-License-Identifier: Apache-2.0
// The levels at which the handlers are compiled.
#pragma once

#include "op_key.h"

namespace tessera::sim {

namespace baseline {
OpTables all_tables();
}
#if defined(TESSERA_SIM_HAS_AVX2)
namespace avx2 {
OpTables all_tables();
}
#endif
#if defined(TESSERA_SIM_HAS_AVX512)
namespace avx512 {
OpTables all_tables();
}
#endif

/// Functions of the runtime that kernels call: printf, malloc, ...
OpEntries intrinsic_entries();

}  // namespace tessera::sim
