// SPDX-License-Identifier: Apache-2.0
#include "tables.h"

namespace tessera::sim::TESSERA_SIM_ISA {

OpTables all_tables() {
#define TESSERA_SIM_COLLECT(name) name##_entries(),
  static const OpEntries kAll[] = {TESSERA_SIM_TABLES(TESSERA_SIM_COLLECT)};
#undef TESSERA_SIM_COLLECT
  return {kAll, sizeof kAll / sizeof kAll[0]};
}

}  // namespace tessera::sim::TESSERA_SIM_ISA
