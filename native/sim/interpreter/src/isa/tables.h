// SPDX-License-Identifier: Apache-2.0
// The tables of handlers of one instruction set level, one function per file.
#pragma once

#include "../op_key.h"

#define TESSERA_SIM_TABLES(X) \
  X(integer)                  \
  X(bits)                     \
  X(compare)                  \
  X(move)                     \
  X(float)                    \
  X(approximate)              \
  X(half)                     \
  X(convert_integer)          \
  X(convert_float)            \
  X(convert_small)            \
  X(memory)                   \
  X(atomic)                   \
  X(warp)                     \
  X(matrix)                   \
  X(fragment)                 \
  X(special)                  \
  X(barrier)                  \
  X(video)

namespace tessera::sim::TESSERA_SIM_ISA {

#define TESSERA_SIM_DECLARE(name) OpEntries name##_entries();
TESSERA_SIM_TABLES(TESSERA_SIM_DECLARE)
#undef TESSERA_SIM_DECLARE

OpTables all_tables();

}  // namespace tessera::sim::TESSERA_SIM_ISA
