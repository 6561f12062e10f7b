// SPDX-License-Identifier: Apache-2.0
// The handlers are compiled once per instruction set level, each in a namespace
// of its own, and one level is chosen at start. A function with external linkage
// that two levels share by name would let the linker put AVX code on the baseline
// path. So what the handlers use from shared headers is TS_INLINE (no symbol) or
// defined out of line in a file compiled for the baseline.
#pragma once

#ifndef TESSERA_SIM_ISA
#define TESSERA_SIM_ISA baseline
#endif

#define TS_INLINE inline __attribute__((always_inline))

// Lanes of one operation are independent, also where the destination is a source.
#if defined(__clang__)
#define TS_LANES _Pragma("clang loop vectorize(assume_safety)") for (int i = 0; i < kLanes; ++i)
#else
#define TS_LANES _Pragma("GCC ivdep") for (int i = 0; i < kLanes; ++i)
#endif
