// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "scalar.h"

namespace tessera::sim {

/// Where the value of a special register comes from; a component or a kind is in MicroOp::imm.
enum class Special : u8 {
  kTid,
  kNtid,
  kCtaid,
  kNctaid,
  kLaneid,
  kLanemask,
  kWarpid,
  kNwarpid,
  kSmid,
  kNsmid,
  kGridid32,
  kGridid64,
  kClock32,
  kClock32High,
  kClock64,
  kDynamicShared,
  kTotalShared,
  kDynamicSharedBase,
  kClusterid,
  kNclusterid,
  kClusterCtaid,
  kClusterNctaid,
  kClusterCtarank,
  kClusterNctarank,
  kConstant32,
  kConstant64,
};

}  // namespace tessera::sim
