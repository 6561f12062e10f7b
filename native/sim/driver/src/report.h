// SPDX-License-Identifier: Apache-2.0
// What the simulated driver says about itself, on stderr only. A program's
// stdout is its own.
#pragma once

#include <string>

#include "api.h"

namespace tessera::sim {

/// The exported names, numbered (generated).
extern const char* const kStubNames[];
extern const unsigned kStubCount;

/// Counts one call of the unimplemented function number `stub` and gives its answer.
CUresult unsupported(unsigned stub);

/// Counts a use of an implemented function that asks for something it cannot do, and fails.
[[noreturn]] void fail_unsupported(const char* what);

/// One line on stderr, prefixed with the driver's name. For what a user must know (a kernel fault and where).
void diagnose(const std::string& line);

}  // namespace tessera::sim
