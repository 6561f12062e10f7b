// SPDX-License-Identifier: Apache-2.0
// A call of cuBLAS or cuBLASLt under way: passed on to the program's library, or
// made by a worker. Its arguments say exactly which bytes it reads and writes.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>

#include "blas/libraries.h"
#include "claims.h"
#include "placed_classes.h"
#include "tally.h"
#include "tessera/protocol/blas_call.h"
#include "tessera/protocol/control.h"

namespace tessera::shim {

/// Calls that are placed together: of one function, with one choice of types and transpositions.
class CallClass {
 public:
  explicit CallClass(std::string name);

  /// Such as "cublasGemmEx:f16:NT": placement rules name it so.
  const std::string& name() const { return name_; }
  /// Its entry in the placement table, or 0: at home.
  uint32_t entry() const;
  struct Place {
    uint32_t device;
    Tally* tally;  // what counts the call
  };
  /// Where a call goes that is understood, by its sizes where the entry says so.
  Place place(const ts_blas_call& call, uint32_t entry);
  /// What counts the calls that are not told apart.
  Tally& tally() { return tally_; }

  /// Whether the program's library has taken a call of this key (validity_key) before. A worker is asked for none that
  /// it might refuse. With the world's lock.
  bool is_proven(uint64_t key) const { return proven_.contains(key); }
  void prove(uint64_t key);

 private:
  std::string name_;
  uint32_t kernel_id_ = TS_MAX_KERNELS;
  Tally tally_;
  std::unique_ptr<PlacedClasses> classes_;  // once it has a number
  std::unordered_set<uint64_t> proven_;
};

/// Counts a call, where it has a row: what it launches inside is counted by itself.
inline void count_call(Tally& tally, uint32_t device, uint32_t stay_reason) {
  if (tally.has_row()) tally.count(device, stay_reason);
}

/// What makes a call's class; a call whose types are out of range has none. Never 0.
uint64_t class_key(uint32_t function, int transpose_a, int transpose_b, int type_a, int type_b, int type_c,
                   uint32_t epilogue = 0);
/// Null while the class is not known; asks the controller once.
CallClass* call_class(uint64_t key);

/// Whether calls are looked at at all: TESSERA_LIBRARY_CALLS, and a session. One load once that is known.
bool follows_calls();

/// The outermost call of this thread that is being made at home, for as long as this lives.
class InsideCall {
 public:
  InsideCall();
  ~InsideCall();
  InsideCall(const InsideCall&) = delete;
  InsideCall& operator=(const InsideCall&) = delete;
  static bool any();
  /// What its launches in `stream` touch, all of them together.
  void touches(CUstream stream, Footprint footprint);

 private:
  friend const Footprint* footprint_of_call(CUstream stream);
  CUstream stream_ = nullptr;
  bool known_ = false;
  Footprint footprint_;
};

/// One call, before it is made.
struct PendingCall {
  CallClass& kind;
  Tally& tally;
  const HostLibrary& library;
  const HostHandle& handle;
  CUstream stream;  // normalised
  bool understood;  // `call` says all
  Range workspace;  // the program's; empty: none
  const ts_blas_call& call;
};

/// What became of it.
struct CallOutcome {
  bool moved = false;
  blas::Status status = blas::kSuccess;  // when moved
  bool prove = false;                    // when not: should it succeed at home, others of its kind may move
};

/// Moves the call to `device` (0: home), or prepares for its being made at home.
CallOutcome place_call(const PendingCall& pending, uint32_t device, uint32_t reason, InsideCall& inside);
/// It succeeded at home, and was to be proven.
void prove_call(const PendingCall& pending);

/// The settings of a handle that a worker has to repeat; false: there is one that it could not.
bool read_handle(const HostLibrary& library, const HostHandle& handle, void* raw, ts_blas_call& call);

}  // namespace tessera::shim
