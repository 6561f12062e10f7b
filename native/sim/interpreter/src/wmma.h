// SPDX-License-Identifier: Apache-2.0
// wmma fragments. Their layout is the machine's own affair: here element e of the
// matrix, counted by rows, belongs to lane e / n, as its value e % n, where n is
// the number of elements per lane. Registers beyond those repeat the values.
#pragma once

#include "isa.h"
#include "scalar.h"

namespace tessera::sim {

struct FragmentShape {
  u32 rows = 0, columns = 0;
  u32 bytes = 4;            // of an element; 4- and 1-bit elements are handled by words
  bool by_columns = false;  // in memory
  u32 registers = 0;
};
constexpr u32 pack_fragment(const FragmentShape& f) {
  return f.rows | f.columns << 8 | f.bytes << 16 | (f.by_columns ? 1u << 20 : 0u) | f.registers << 24;
}
TS_INLINE FragmentShape unpack_fragment(u32 word) {
  FragmentShape f;
  f.rows = word & 0xff;
  f.columns = word >> 8 & 0xff;
  f.bytes = word >> 16 & 15;
  f.by_columns = (word >> 20 & 1) != 0;
  f.registers = word >> 24;
  return f;
}

}  // namespace tessera::sim
