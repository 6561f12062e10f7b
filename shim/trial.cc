// SPDX-License-Identifier: Apache-2.0
#include "trial.h"

#include <chrono>
#include <map>
#include <set>
#include <thread>

#include "coherence.h"
#include "driver.h"
#include "launch_class.h"
#include "log.h"
#include "redirect.h"
#include "runtime.h"
#include "session.h"
#include "trial_link.h"
#include "world.h"

namespace tessera::shim {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// The first reads as no number and as -1, the second as a large one: what absorbs the one shows the other.
constexpr uint8_t kPoisons[] = {0xff, 0x7b};
constexpr uint32_t kTrials = 2;            // launches of one class that are tried
constexpr size_t kClasses = 256;           // classes of one kernel
constexpr milliseconds kAnalysis{120000};  // that a kernel's first launch waits for its analysis

/// What became of one kernel's launches in this process.
struct History {
  std::map<uint64_t, uint32_t> trials;  // by launch class
  std::set<std::string> told;           // reasons for which launches were not tried
  bool shown_wrong = false;
};

History& history_of(const KernelState& state) {
  static auto* histories = new std::map<const KernelState*, History>;
  return (*histories)[&state];
}

/// One trial process for each worker; null: to be started.
std::unique_ptr<TrialLink>& link_of(uint32_t worker) {
  static auto* links = new std::map<uint32_t, std::unique_ptr<TrialLink>>;
  return (*links)[worker];
}

const char* words(Difference::Kind kind) {
  switch (kind) {
    case Difference::Kind::kOutside:
      return "it writes what it does not claim to write";
    case Difference::Kind::kHomeOutside:
      return "at home it writes what it does not claim to write";
    default:
      return "with nothing else in memory its result is another one";
  }
}

}  // namespace

bool trials_wanted() {
  static const bool wanted = runtime().settings().flag(runtime().settings().verify);
  return wanted;
}

CUresult launch_and_try(const LaunchRequest& request, KernelState& state, CUresult (*real)(void* context),
                        void* context) {
  Trial trial(request, state);
  state.tally().count(0, TS_STAY_PLACED);
  activity().bump(request.stream);
  const CUresult result = real(context);
  if (result == CUDA_SUCCESS && state.watches_others()) world().host_waits.add(world().streams.get(request.stream));
  if (result == CUDA_SUCCESS) trial.judge(real, context);
  return result;
}

Trial::Trial(const LaunchRequest& request, KernelState& state) : request_(request), state_(state) {
  state_.await_analysis(kAnalysis);
  std::string why = objection();
  if (why.empty() && launch_class_ != 0 && is_due()) {
    if (const auto failed = prepare()) why = *failed;
  }
  if (why.empty() || !history_of(state_).told.insert(why).second) return;
  report({TS_VERDICT_NOT_TRIED, why}, false);
}

std::string Trial::obstacle_of_kernel() const {
  if (!state_.analysed()) return "nothing is known of its code";
  if ((state_.properties() & TS_KERNEL_HOME_ONLY & ~uint32_t{TS_KERNEL_UNKNOWN}) != 0) {
    return "it does what only home can";
  }
  return "";
}

std::string Trial::objection() {
  if (runtime().unknown_function_seen()) return "the program uses the driver in ways that are not known";
  if (world().captures.load(std::memory_order_acquire) != 0) return "streams are being captured";
  if (history_of(state_).shown_wrong) return "";  // that is enough
  if (std::string obstacle = obstacle_of_kernel(); !obstacle.empty()) return obstacle;
  if (!pack_parameters(request_, *state_.entry(), parameters_)) return "its arguments cannot be read";
  if (!claim()) return "it claims memory that cannot be shown to be all that it touches";
  if (obstacle_to(request_, state_, claims_) != TS_STAY_PLACED) return "launches like this one always stay home";
  if (!find_worker()) return "no worker runs its code";
  launch_class_ = launch_class_of(request_, parameters_);
  return "";
}

bool Trial::claim() {
  by_words_ = state_.summary() == nullptr;
  claims_ = by_words_ ? claims_of_words(parameters_) : claims_of(request_, state_, parameters_);
  CUdevice device = -1;
  if (!claims_.known || !claims_.all_in_slot || driver().cuCtxGetDevice(&device) != CUDA_SUCCESS) return false;
  for (const Range& range : claims_.all) {
    if (world().memory.device_of(range.begin) != device) return false;
  }
  return true;
}

bool Trial::is_due() const {
  const History& history = history_of(state_);
  const auto known = history.trials.find(launch_class_);
  return known == history.trials.end() ? history.trials.size() < kClasses : known->second < kTrials;
}

bool Trial::find_worker() {
  for (const uint32_t index : known_workers()) {
    const auto info = worker_info(index);
    if (!info || !runs_on(state_, info->device)) continue;
    worker_ = *info;
    return true;
  }
  return false;
}

/// All that the program has given the context's device so far has ended, and it is shown that waiting for it could not
/// be waiting for the program itself.
bool Trial::idle(std::string* why) {
  StreamState& stream = world().streams.get(request_.stream);
  *why = "work on the device may wait for the program";
  if (activity().overflowed() || world().host_waits.unfinished_in(stream) ||
      world().host_waits.unfinished_beside(stream)) {
    return false;
  }
  *why = "the driver does not let the device come to rest";
  if (world().driver_may_be_held()) return false;  // an event could not be made before the copy has ended
  CUevent end = nullptr;
  if (Coherence(world()).wait_for_other_streams(stream) != CUDA_SUCCESS) return false;
  if (driver().cuEventCreate(&end, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) return false;
  CUresult state = driver().cuEventRecord(end, stream.handle);
  const auto deadline = Clock::now() + message_timeout() * 4;
  while (state == CUDA_SUCCESS && (state = driver().cuEventQuery(end)) == CUDA_ERROR_NOT_READY) {
    if (Clock::now() > deadline) break;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    state = CUDA_SUCCESS;
  }
  driver().cuEventDestroy_v2(end);
  if (state == CUDA_ERROR_NOT_READY) *why = "the device has more to do than there was time to wait for";
  return state == CUDA_SUCCESS;
}

/// Takes the memory. Returns why that cannot be.
std::optional<std::string> Trial::prepare() {
  if (TrialMemory::bytes_of(claims_) > TrialMemory::kMostBytes) return "it claims more than 4 GiB";
  std::string why;
  if (!idle(&why)) return why;
  try {
    memory_ = std::make_unique<TrialMemory>(claims_);
    if (!memory_->write_launch(request_, parameters_))
      why = "its launch is too long to be sent";
    else if (memory_->take_before() != CUDA_SUCCESS)
      why = "its memory cannot be read";
    else
      return std::nullopt;
  } catch (const std::exception& error) {
    why = error.what();
  }
  memory_.reset();
  return why;
}

void Trial::judge(Launch again, void* context) {
  if (!memory_) return;
  ++history_of(state_).trials[launch_class_];
  const Verdict found = verdict(again, context);
  if (found.verdict == TS_VERDICT_WRONG) {
    history_of(state_).shown_wrong = true;
    const LogLevel level = by_words_ ? LogLevel::kInfo : LogLevel::kError;
    log_line(level, "%s: %s; it stays home", state_.entry()->name.c_str(), found.reason.c_str());
    state_.distrust();
  }
  report(found, true);
}

Trial::Verdict Trial::verdict(Launch again, void* context) {
  std::string why;
  if (!idle(&why)) return {TS_VERDICT_UNDECIDED, why};
  for (const uint8_t poison : kPoisons) {
    if (auto found = run_with(poison, again, context)) return *found;
  }
  return {TS_VERDICT_PASSED, ""};
}

/// One run of the trial. Nothing: it shows nothing.
std::optional<Trial::Verdict> Trial::run_with(uint8_t poison, Launch again, void* context) {
  std::unique_ptr<TrialLink>& link = link_of(worker_.index);
  ts_trial_done done{};
  try {
    if (link == nullptr) link = std::make_unique<TrialLink>(worker_);
    const FunctionEntry& entry = *state_.entry();
    const auto image = entry.image();
    if (image == nullptr) return Verdict{TS_VERDICT_UNDECIDED, "its image is gone"};
    link->load(*image, entry.name, entry.parameter_size, entry.max_dynamic_shared, entry.shared_carveout);
    auto request = transport::make_message<ts_trial_run>(TS_TRIAL_RUN);
    request.arena_base = slot_of_program().begin;
    request.arena_size = slot_of_program().size();
    request.size = memory_->size();
    request.poison = poison;
    request.timeout_ms = static_cast<uint32_t>(message_timeout().count() * 4);
    done = link->run(request, memory_->fd());
  } catch (const transport::TransportError& error) {
    link.reset();  // the next trial has a new process
    return Verdict{TS_VERDICT_UNDECIDED, error.what()};
  } catch (const std::exception& error) {
    return Verdict{TS_VERDICT_UNDECIDED, error.what()};
  }
  if (done.outcome == TS_TRIAL_FAULT || done.outcome == TS_TRIAL_ENDLESS) link.reset();
  if (done.outcome == TS_TRIAL_FAULT) {
    return Verdict{TS_VERDICT_WRONG, std::string("with nothing else in memory it fails: ") + done.text};
  }
  if (done.outcome != TS_TRIAL_RAN) return Verdict{TS_VERDICT_UNDECIDED, done.text};
  std::optional<Difference> difference;
  if (memory_->compare(poison, difference) != CUDA_SUCCESS) {
    return Verdict{TS_VERDICT_UNDECIDED, "its memory cannot be read"};
  }
  return difference ? std::optional(weigh(*difference, again, context)) : std::nullopt;
}

/// Whether a difference is evidence: not where results differ by themselves.
Trial::Verdict Trial::weigh(const Difference& difference, Launch again, void* context) {
  const std::string what = std::string(words(difference.kind)) + ": " + place_of(difference.address);
  if (difference.kind == Difference::Kind::kOutside) return {TS_VERDICT_WRONG, what};
  if (difference.kind == Difference::Kind::kResult && (state_.properties() & TS_KERNEL_ORDER_DEPENDENT) != 0) {
    return {TS_VERDICT_NOT_DETERMINISTIC, "its result depends on the order of its atomics"};
  }
  std::string why = "what else the program holds is too much to be kept aside";
  const std::optional<bool> same = memory_->repeats([&] { return again(context) == CUDA_SUCCESS && idle(&why); });
  if (!same) return {TS_VERDICT_UNDECIDED, what + "; it could not be repeated at home: " + why};
  if (!*same) return {TS_VERDICT_NOT_DETERMINISTIC, "at home its result differs from launch to launch"};
  return {TS_VERDICT_WRONG, what};
}

void Trial::report(const Verdict& verdict, bool of_class) {
  const auto image = state_.entry()->image();
  if (image == nullptr) return;
  auto message = transport::make_message<ts_tried>(TS_TRIED);
  message.image = image->hash();
  message.launch_class = of_class ? launch_class_ : 0;
  message.verdict = verdict.verdict;
  message.flags = by_words_ ? uint32_t{TS_TRIED_WORDS} : 0u;
  if (of_class) {
    std::copy_n(request_.grid, 3, message.grid);
    std::copy_n(request_.block, 3, message.block);
    message.dynamic_shared = request_.dynamic_shared;
  }
  report_trial(message, state_.entry()->name, verdict.reason);
}

}  // namespace tessera::shim
