// SPDX-License-Identifier: Apache-2.0
// Launches that behave alike, and what the arguments of a launch point to: all
// that there is to go by for a kernel whose code says too little.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "claims.h"

namespace tessera::shim {

/// The launch class within its kernel, the same in every run: shape, attributes, and the arguments, where each pointer
/// to device memory counts only by which of the launch's allocations it names and by its place within 16 bytes. Never
/// 0. Precondition: the world's lock is held.
uint64_t launch_class_of(const LaunchRequest& request, std::span<const uint8_t> parameters);

/// Every allocation that a word among the arguments points to, as read and written. This is what a kernel touches if it
/// follows no pointer that it loads from memory, and nothing shows that it does not. Precondition: the world's lock is
/// held.
Claims claims_of_words(std::span<const uint8_t> parameters);

/// The claims of a launch whose class has passed trials, where that is trusted; those of no knowledge otherwise. Fills
/// in the parameters. Precondition: the world's lock is held.
Claims claims_by_trial(const LaunchRequest& request, const KernelState& state, std::vector<uint8_t>& parameters);

}  // namespace tessera::shim
