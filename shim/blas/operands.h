// SPDX-License-Identifier: Apache-2.0
// What one call of the library reads and writes, from its arguments alone.
#pragma once

#include "claims.h"
#include "tessera/protocol/blas_call.h"

namespace tessera::shim {

/// Bytes of the scalars alpha and beta; 0: of a call whose arithmetic is not modelled.
uint32_t scalar_bytes(const ts_blas_call& call);

/// Whether the library surely takes these arguments, and its documentation says which bytes it touches. In doubt the
/// program's own library is asked: the call stays home.
bool is_understood(const ts_blas_call& call);

/// Precondition: is_understood. Guarded by the world's lock. Claims that are not known: an operand leaves its memory.
Claims claims_of_call(const ts_blas_call& call);

}  // namespace tessera::shim
