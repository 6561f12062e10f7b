// SPDX-License-Identifier: Apache-2.0
// The three ways by which a program finds driver functions: dlsym and dlvsym,
// cuGetProcAddress, and plain linking (the exported names themselves).
#pragma once

#include <cstdint>

namespace tessera::shim {

/// The C library's own dlopen and dlsym, past every interposer.
void* libc_dlopen(const char* file, int mode);
void* libc_dlsym(void* handle, const char* name);

/// The shim's function to give out instead of `found`, the driver's answer to
/// cuGetProcAddress(base, version, flags); `found` itself when it is not interposed.
void* instead_of(const char* base, void* found, int version, uint64_t flags);

}  // namespace tessera::shim
