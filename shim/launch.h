// SPDX-License-Identifier: Apache-2.0
// A launch. At home, with nothing remote, it costs a lookup of the function, one
// of its placement and one atomic load more than the driver's own.
#pragma once

#include <optional>

#include "claims.h"
#include "order.h"

namespace tessera::shim {

/// What every launch ends as: the driver's call, or a message to a worker.
template <class Real>
CUresult launch(const LaunchRequest& request, Real&& real);

namespace detail {

/// The driver's launch, timed if it is one of the kernel's first.
template <class Real>
CUresult launch_at_home(CUstream stream, Tally& tally, Real&& real) {
  // While anything is captured, anywhere, asking for an event's time would spoil the capture.
  if (tally.may_be_timed() && world().captures.load(std::memory_order_acquire) == 0) [[unlikely]] {
    if (ts_kernel_counters* counters = tally.to_be_timed()) return home_timer().time(stream, *counters, real);
  }
  return real();
}

/// A launch at home that needs no lock, as nothing is remote. None: something is.
template <class Real>
std::optional<CUresult> launch_in_calm(CUstream stream, Tally& tally, uint32_t reason, Real&& real) {
  const HomePass pass(stream);
  if (!world().calm()) [[unlikely]]
    return std::nullopt;
  tally.count(0, reason);
  return as_program_sees(launch_at_home(stream, tally, real));
}

using RealLaunch = CUresult (*)(void* context);
CUresult launch_slowly(const LaunchRequest& request, KernelState& state, uint32_t placed, uint32_t reason,
                       RealLaunch real, void* context);

}  // namespace detail

template <class Real>
CUresult launch(const LaunchRequest& request, Real&& real) {
  if (request.function == nullptr || !runtime().active()) return after_call(real());
  KernelState& state = kernel_state(request.function);
  uint32_t reason = TS_STAY_PLACED;
  const uint32_t placed = state.placed(&reason);
  if (placed == 0 && !(reason == TS_STAY_PROPERTY && state.watches_others())) {
    if (const auto done = detail::launch_in_calm(request.stream, state.tally(), reason, real)) [[likely]]
      return *done;
  }
  using Call = std::remove_reference_t<Real>;
  return detail::launch_slowly(
      request, state, placed, reason, [](void* context) { return (*static_cast<Call*>(context))(); }, &real);
}

}  // namespace tessera::shim
