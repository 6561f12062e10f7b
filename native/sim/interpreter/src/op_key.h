// SPDX-License-Identifier: Apache-2.0
// The table of handlers. Lowering parses an instruction into an operation, its
// types and its modifiers, and asks for the handler; what is not in the table is
// not supported, and the module does not load.
#pragma once

#include "isa.h"
#include "micro_op.h"
#include "tessera/ptx/ir.h"

namespace tessera::sim {

using ptx::Type;

enum class Op : u16 {
  // integer
  kAdd,
  kSub,
  kAddSat,
  kSubSat,
  kMulLo,
  kMulHi,
  kMulWide,
  kMadLo,
  kMadHi,
  kMadHiSat,
  kMadWide,
  kMul24Lo,
  kMul24Hi,
  kMad24Lo,
  kMad24Hi,
  kMad24HiSat,
  kSad,
  kDiv,
  kRem,
  kAbs,
  kNeg,
  kMin,
  kMax,
  kPopc,
  kClz,
  kBfind,
  kBfindShift,
  kFns,
  kBrev,
  kBfe,
  kBfi,
  kBmskClamp,
  kBmskWrap,
  kSzextClamp,
  kSzextWrap,
  kDp4a,
  kDp2aLo,
  kDp2aHi,
  kAnd,
  kOr,
  kXor,
  kNot,
  kCnot,
  kLop3,
  kShl,
  kShr,
  kShfLeftClamp,
  kShfLeftWrap,
  kShfRightClamp,
  kShfRightWrap,
  kPrmt,
  kAddCc,
  kAddcCc,
  kSubCc,
  kSubcCc,
  kMadLoCc,
  kMadHiCc,
  kMadcLoCc,
  kMadcHiCc,
  kVideo,
  kVideoSimd,
  // comparison and selection
  kSetpEq,
  kSetpNe,
  kSetpLt,
  kSetpLe,
  kSetpNan,
  kSetpHalf2,
  kSelp,
  kSlct,
  kPackMask16,
  kTestp,
  // moves
  kMov,
  kPackHalves,
  kUnpackHalves,
  kPackWords,
  kUnpackWords,
  kPackDoubles,
  kUnpackDoubles,
  kPackBytes,
  kUnpackBytes,
  kResize,
  // floating point
  kFadd,
  kFsub,
  kFmul,
  kFfma,
  kFdiv,
  kFdivApprox,
  kFdivFull,
  kRcp,
  kSqrt,
  kRsqrt,
  kRcpApprox64,
  kRsqrtApprox64,
  kSin,
  kCos,
  kLg2,
  kEx2,
  kTanh,
  kCopysign,
  kFabs,
  kFneg,
  kFmin,
  kFmax,
  kFmin3,
  kFmax3,
  // conversion
  kCvt,
  kCvtSat,
  kCvtRound,
  kCvtPair,
  kCvtPack,
  kCvtExpand,
  // memory
  kLoad,
  kStore,
  kLoadParam,
  kAtom,
  kAtomCas,
  kRed,
  kVectorRed,
  kVectorAtom,
  kCpAsync,
  kBulkCopy,
  kPrefetch,
  kLdmatrix,
  kStmatrix,
  kMovmatrix,
  // matrices
  kMma,
  kWmmaLoad,
  kWmmaStore,
  // warp
  kShfl,
  kVoteAll,
  kVoteAny,
  kVoteUni,
  kVoteBallot,
  kMatchAny,
  kMatchAll,
  kActivemask,
  kRedux,
  kElect,
  // the machine
  kSpecial,
  kCvta,
  kCvtaTo,
  kIsspacep,
  kLocalAddress,
  kMapa,
  kGetctarank,
  kMbarrierInit,
  kMbarrierInval,
  kMbarrierArrive,
  kMbarrierExpectTx,
  kMbarrierCompleteTx,
  kMbarrierTestWait,
  kMbarrierPendingCount,
  kNop,
  kPrintf,
  kMalloc,
  kFree,
  kAssertFail,
  kTrap,
};

enum OpFlags : u8 {
  kFtz = 1,
  kSat = 2,
  kRelu = 4,
  kNan = 8,
  kXorSign = 16,
  kSatFinite = 32,
  kUnsignedOther = 64,
};

/// Rounding of a result; the first four also name an integer rounding of cvt.
enum class Rounding : u8 { kNearestEven, kZero, kDown, kUp, kNearestAway, kNone };

constexpr u64 op_key(Op op, Type type = Type::kNone, Type type2 = Type::kNone, u8 flags = 0, u8 variant = 0) {
  return u64{static_cast<u16>(op)} << 32 | u64{static_cast<u8>(type)} << 24 | u64{static_cast<u8>(type2)} << 16 |
         u64{flags} << 8 | variant;
}

struct OpEntry {
  u64 key;
  Handler run;
};

struct OpEntries {
  const OpEntry* data;
  size_t count;
};

/// One instruction set level's tables, one per file of handlers.
struct OpTables {
  const OpEntries* data;
  size_t count;
};

/// The handler for `key` at the level of this machine, or null.
Handler find_handler(u64 key);

/// "avx512", "avx2" or "baseline"; TESSERA_SIM_ISA in the environment may ask for a lower one.
const char* instruction_set_name();

}  // namespace tessera::sim
