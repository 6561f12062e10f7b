// SPDX-License-Identifier: Apache-2.0
// The three ways by which a program finds driver functions: dlsym and dlvsym,
// cuGetProcAddress, and plain linking (the exported names themselves).
#pragma once

#include <cstdint>

namespace tessera::shim {

/// The shim's function to give out instead of `found`, the driver's answer to
/// cuGetProcAddress(base, version, flags); `found` itself when it is not interposed.
void* instead_of(const char* base, void* found, int version, uint64_t flags);

/// Whether this build's cuda.h knows the name: what cuGetProcAddress is asked
/// for, or an exported symbol.
bool is_known_base(const char* base);
bool is_known_symbol(const char* symbol);

}  // namespace tessera::shim
