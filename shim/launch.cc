// SPDX-License-Identifier: Apache-2.0
#include "launch.h"

#include "blas/inside.h"
#include "launch_class.h"
#include "recording.h"
#include "redirect.h"
#include "trial.h"

namespace tessera::shim::detail {
namespace {

/// Made when it is first wanted: nothing of the library runs at load.
const std::vector<Range>& all_memory() {
  static const auto* all = new std::vector<Range>{{0, UINT64_MAX}};
  return *all;
}

struct Place {
  uint32_t device;
  Tally& tally;  // what counts the launch
};

/// By its class, where the table or a recording tells its kernel's launches apart; else as the kernel.
Place place(const LaunchRequest& request, KernelState& state, uint32_t placed) {
  if ((placed & TS_PLACED_BY_CLASS) == 0 && !recording().is_on()) [[likely]]
    return {placed, state.tally()};
  const PlacedClasses::Place found = state.classes().place(request, *state.entry(), placed);
  return {found.device, found.tally != nullptr ? *found.tally : state.tally()};
}

}  // namespace

CUresult launch_slowly(const LaunchRequest& request, KernelState& state, uint32_t placed, uint32_t reason,
                       RealLaunch real, void* context) {
  const auto [device, tally] = place(request, state, placed);
  if (device == 0 && placed != 0) {  // its class is at home, and nothing else has brought it here
    if (const auto done = launch_in_calm(request.stream, tally, reason, [&] { return real(context); })) return *done;
  }
  const std::lock_guard lock(world().mutex);
  if (is_capturing(request.stream)) {
    tally.count(0, TS_STAY_CAPTURE);
    return after_call(real(context));
  }
  if (trials_wanted()) [[unlikely]]
    return after_call(launch_and_try(request, state, real, context));
  std::vector<uint8_t> parameters;
  const bool evaluates = state.summary() != nullptr && pack_parameters(request, *state.entry(), parameters);
  const Claims by_trial = evaluates ? Claims{} : claims_by_trial(request, state, parameters);
  const Claims& claims = evaluates ? claims_of(request, state, parameters) : by_trial;
  recording().launched(tally.slot(), request.stream, claims);
  if (device != 0) {
    const Redirection redirection = redirect(request, state, tally, device, claims, parameters);
    if (redirection.moved) {
      if (redirection.result == CUDA_SUCCESS) tally.count(device, 0);
      return after_call(redirection.result);
    }
    reason = redirection.reason;
  }
  tally.count(0, reason);
  Footprint footprint = claims.footprint();
  if (footprint.everything) {
    if (const Footprint* of_call = footprint_of_call(request.stream)) footprint = *of_call;
  }
  footprint.everything = footprint.everything || state.watches_others();
  if (const CUresult ready = prepare_home(request.stream, footprint); ready != CUDA_SUCCESS) return after_call(ready);
  activity().bump(request.stream);
  // Once anything is remote every launch comes by here: those at home are to be timed all the same.
  const CUresult result = launch_at_home(request.stream, tally, [&] { return real(context); });
  if (result == CUDA_SUCCESS) Coherence(world()).after_home(footprint);
  if (result == CUDA_SUCCESS && state.watches_others()) {
    // What other streams write there from now on may be what it waits for: that has to happen at home while it runs.
    world().host_waits.add(world().streams.get(request.stream), claims.known ? claims.all : all_memory());
  }
  return after_call(result);
}

}  // namespace tessera::shim::detail
