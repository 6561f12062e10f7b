// SPDX-License-Identifier: Apache-2.0
// What the descriptors of a cuBLASLt call say, by the library's own getters.
#pragma once

#include "blas/libraries.h"

namespace tessera::shim {

struct LtArguments {
  const void *operation, *alpha, *a, *a_layout, *b, *b_layout, *beta, *c, *c_layout;
  void* d;
  const void *d_layout, *algorithm;
  void* workspace;
  size_t bytes;
};

/// The call's class, or 0 when the library does not say.
uint64_t lt_class_key(const HostLibrary& library, const LtArguments& arguments);

/// False: something is set that Tessera does not know the meaning of.
bool describe_lt(const HostLibrary& library, const LtArguments& arguments, ts_blas_call& call);

}  // namespace tessera::shim
