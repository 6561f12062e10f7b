// SPDX-License-Identifier: Apache-2.0
// What happens when something fails: nobody hangs, and everybody is told.
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fake_home.h"
#include "kernels.h"
#include "tessera/transport/socket.h"
#include "testing/check.h"
#include "worker_process.h"

extern char** environ;

namespace tessera::worker::testing {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr uint32_t kAdd = 0, kTrap = 1, kSpin = 2;

void prepare(FakeHome& home) {
  home.add_chunk(home.base(), 4 * kGranule);
  CHECK_EQ(home.load(kAdd, "add", kKernels, 16), std::string());
  CHECK_EQ(home.load(kTrap, "trap_now", kKernels, 0), std::string());
  CHECK_EQ(home.load(kSpin, "spin", kKernels, 8), std::string());
}

uint64_t data(const FakeHome& home, uint32_t lane) { return home.base() + lane * 256ull; }

/// Adds 1 to 64 words of the lane's own.
Launch add(const FakeHome& home, uint32_t lane = 0) {
  Launch launch;
  launch.function = kAdd;
  launch.lane = lane;
  launch.block = 64;
  launch.parameters = pack(data(home, lane), uint32_t{64}, uint32_t{1});
  launch.ranges = {{data(home, lane), 256}};
  return launch;
}

bool works(FakeHome& home) {
  home.write(home.base(), std::vector<uint32_t>(64, 8));
  return home.run(add(home), {{home.base(), 256}}) && home.read(home.base(), 64) == std::vector<uint32_t>(64, 9);
}

WorkerProcess::Setup with_faults(const std::string& faults) {
  WorkerProcess::Setup setup;
  setup.faults = faults;
  return setup;
}

TEST_CASE(a_kernel_that_fails_ends_the_worker_and_nobody_hangs) {
  WorkerProcess worker;
  FakeHome home(worker.socket()), bystander(worker.socket(), kSlotBase + kSlotSize);
  prepare(home);
  prepare(bystander);
  CHECK(works(bystander));
  const transport::SharedMemory status = worker.observe();
  Launch trap;
  trap.function = kTrap;
  trap.start = home.write_start(0);
  home.launch(trap);
  home.wait_done(0, home.join(0, {}));
  CHECK(home.synchronize(0, 5000));
  CHECK(home.wait_failed(5000));
  // Whose work had all ended only loses the worker.
  CHECK(bystander.wait_hung_up(5000));
  CHECK(!bystander.link().failed());
  CHECK(home.link().failure().code != CUDA_SUCCESS);
  CHECK(home.link().failure().text.find("trap_now") != std::string::npos);
  CHECK(worker.ends_with(3, 5s));
  CHECK_EQ(status.as<ts_worker_status>()->state, 2u);
  CHECK(status.as<ts_worker_status>()->error_text[0] != '\0');
  CHECK(home.wait_hung_up(5000));
  CHECK(access(worker.socket().c_str(), F_OK) != 0);
}

TEST_CASE(a_failing_kernel_among_busy_lanes_releases_all_of_them) {
  WorkerProcess worker;
  FakeHome home(worker.socket());
  prepare(home);
  std::vector<uint32_t> lanes;
  for (uint32_t lane = 0; lane < 16; ++lane) {
    Launch launch = add(home, lane);
    launch.start = home.unwritten_start(lane);
    home.launch(launch);
    home.wait_done(lane, home.join(lane, {}));
  }
  Launch trap;
  trap.function = kTrap;
  trap.lane = 20;
  home.launch(trap);
  for (uint32_t lane = 0; lane < 16; ++lane) CHECK(home.synchronize(lane, 5000));
  CHECK(worker.ends_with(3, 5s));
}

TEST_CASE(a_done_value_asked_for_after_the_failure_is_given_too) {
  WorkerProcess worker(with_faults("cuMemcpyDtoDAsync_v2=2@1x1"));
  FakeHome home(worker.socket());
  prepare(home);
  home.launch(add(home));
  CHECK(home.wait_failed());
  for (uint32_t lane = 0; lane < 40; lane += 3) {
    home.wait_done(lane, home.done(lane) + 1);
    std::atomic_ref<uint32_t>(home.link().lanes()[lane].requested).store(home.done(lane) + 1);
    CHECK(home.synchronize(lane, 3000));
  }
  // A question is answered as well.
  transport::FunctionRequest request;
  request.name = "add";
  home.link().send_function(request);
  const auto ready = home.link().receive_function_ready(5s);
  REQUIRE(ready);
  CHECK_EQ(ready->status, CUDA_ERROR_OUT_OF_MEMORY);
  home.detach();
  // The worker itself is well: the context was not broken.
  FakeHome next(worker.socket(), kSlotBase + kSlotSize);
  prepare(next);
  CHECK(works(next));
  CHECK(worker.running());
}

TEST_CASE(each_failing_driver_call_reaches_the_program_and_only_it) {
  const char* const faults[] = {"cuMemCreate=2@1x1",
                                "cuMemMap=1@2x1",
                                "cuMemSetAccess=2@2x1",
                                "cuMemcpyDtoDAsync_v2=999@1x1",
                                "cuStreamCreate=2@2x1",
                                "cuLaunchKernel=701@1x1",
                                "cuEventCreate=2@1x1",
                                "cuEventRecord=400@1x1",
                                "cuEventElapsedTime=400@1x1",
                                "cuStreamWriteValue32_v2=801@1x1",
                                "cuMemImportFromShareableHandle=304@1x1"};
  for (const char* fault : faults) {
    std::printf("  %s\n", fault);
    WorkerProcess worker(with_faults(fault));
    REQUIRE(worker.ready());
    FakeHome home(worker.socket());
    home.add_chunk(home.base(), 4 * kGranule);
    if (std::strncmp(fault, "cuMemImport", 11) != 0) {
      CHECK_EQ(home.load(kAdd, "add", kKernels, 16), std::string());
      home.launch(add(home));
    }
    home.wait_done(0, home.join_if_alive(0));
    CHECK(home.wait_failed(5000));
    CHECK(home.synchronize(0, 5000));
    CHECK_EQ(home.link().failure().code, std::strtol(std::strchr(fault, '=') + 1, nullptr, 10));
    CHECK(home.link().failure().text.find("worker 1: ") == 0);
    home.detach();
    const transport::SharedMemory status = worker.observe();
    CHECK(eventually([&] {
      return std::atomic_ref(status.as<ts_worker_status>()->memory_used).load() == 0 &&
             std::atomic_ref(status.as<ts_worker_status>()->sessions).load() == 0;
    }));
    CHECK_EQ(status.as<ts_worker_status>()->errors, 1u);
    FakeHome next(worker.socket(), kSlotBase + kSlotSize);
    prepare(next);
    CHECK(works(next));
    next.detach();
    worker.signal(SIGTERM);
    CHECK(worker.ends_with(0, 10s));
  }
}

TEST_CASE(a_failing_attachment_is_refused_with_the_reason) {
  for (const char* fault : {"cuMemAddressReserve=2@1x1", "cuMemAddressReserve=2@2x1", "cuMemHostRegister_v2=712@1x1",
                            "cuMemHostGetDevicePointer_v2=1@1x1"}) {
    std::printf("  %s\n", fault);
    const WorkerProcess worker(with_faults(fault));
    try {
      FakeHome home(worker.socket());
      CHECK(false);
    } catch (const transport::TransportError& error) {
      CHECK_EQ(static_cast<int>(error.status()), static_cast<int>(transport::Status::kRefused));
      CHECK(std::strstr(error.what(), "CUDA_ERROR") != nullptr);
    }
    FakeHome next(worker.socket());
    prepare(next);
    CHECK(works(next));
  }
}

TEST_CASE(a_module_that_fails_to_load_once_can_be_asked_for_again) {
  const WorkerProcess worker(with_faults("cuModuleLoadDataEx=2@1x1"));
  FakeHome home(worker.socket());
  CHECK(home.load(kAdd, "add", kKernels, 16).find("OUT_OF_MEMORY") != std::string::npos);
  prepare(home);
  CHECK(works(home));
}

TEST_CASE(a_worker_that_cannot_start_says_why) {
  for (const char* fault : {"cuInit=100@1", "cuDeviceGetCount=3@1", "cuDevicePrimaryCtxRetain=2@1",
                            "cuDeviceGetAttribute=1@1", "cuMemGetInfo_v2=2@1", "cuStreamCreate=2@1"}) {
    std::printf("  %s\n", fault);
    WorkerProcess::Setup setup = with_faults(fault);
    setup.memory_mib = 0;
    WorkerProcess worker(setup);
    CHECK(!worker.ready());
    CHECK(worker.ends_with(1, 5s));
    CHECK(worker.errors().find("CUDA_ERROR") != std::string::npos);
    CHECK(access(worker.socket().c_str(), F_OK) != 0);
  }
}

TEST_CASE(a_killed_worker_is_noticed) {
  WorkerProcess worker;
  FakeHome home(worker.socket());
  prepare(home);
  CHECK(works(home));
  CHECK(!home.link().hung_up());
  worker.signal(SIGKILL);
  CHECK(home.wait_hung_up(3000));
  void* at = nullptr;
  transport::Status status = transport::Status::kOk;
  for (int i = 0; i < 10 && status == transport::Status::kOk; ++i) {
    status = home.link().ring().reserve(transport::kMaxRingMessage, 3s, &at);
    if (status != transport::Status::kOk) break;
    std::memset(static_cast<char*>(at) + 4, 0, 28);
    home.link().ring().commit();
  }
  CHECK_EQ(static_cast<int>(status), static_cast<int>(transport::Status::kHungUp));
}

/// This program again, as a process that can be killed: `victim` names what it does.
pid_t start_victim(const std::string& victim, const std::string& socket) {
  std::string self = "/proc/self/exe", option = "--victim", name = victim, path = socket;
  char* arguments[] = {self.data(), option.data(), name.data(), path.data(), nullptr};
  pid_t pid = -1;
  REQUIRE(posix_spawn(&pid, "/proc/self/exe", nullptr, nullptr, arguments, environ) == 0);
  return pid;
}

/// What the victim does before it is killed. Prints nothing; never returns.
[[noreturn]] void be_victim(const std::string& what, const std::string& socket) {
  alarm(60);
  FakeHome home(socket);
  prepare(home);
  if (what == "waiting") {  // streams that wait for starts which never come
    for (uint32_t lane = 0; lane < 10; ++lane) {
      Launch launch = add(home, lane);
      launch.start = home.unwritten_start(lane);
      home.launch(launch);
      home.join(lane, {{data(home, lane), 256}});
    }
  }
  for (;;) {
    if (what == "busy") home.run(add(home), {{home.base(), 256}});
    if (what == "forked" && fork() == 0) break;  // the child keeps the socket open
    if (what == "forked") kill(getpid(), SIGKILL);
    if (what != "busy") std::this_thread::sleep_for(10ms);
  }
  close(STDOUT_FILENO);  // ctest waits for whoever holds its pipes
  close(STDERR_FILENO);
  std::this_thread::sleep_for(8s);
  std::_Exit(0);
}

TEST_CASE(a_killed_program_leaves_nothing_behind) {
  WorkerProcess worker;
  FakeHome bystander(worker.socket(), kSlotBase + kSlotSize);
  prepare(bystander);
  const transport::SharedMemory status = worker.observe();
  const auto sessions = [&] { return std::atomic_ref(status.as<ts_worker_status>()->sessions).load(); };
  const auto used = [&] { return std::atomic_ref(status.as<ts_worker_status>()->memory_used).load(); };
  for (const char* what : {"waiting", "busy", "idle", "forked", "waiting"}) {
    std::printf("  %s\n", what);
    const uint64_t before = used();
    const pid_t victim = start_victim(what, worker.socket());
    if (std::string(what) != "forked") {
      const bool touches = std::string(what) != "idle";
      CHECK(eventually([&] { return sessions() == 2 && (!touches || used() > before); }));
      std::this_thread::sleep_for(100ms);
      kill(victim, SIGKILL);
    }
    int ended = 0;
    CHECK_EQ(waitpid(victim, &ended, 0), victim);
    CHECK(eventually([&] { return sessions() == 1 && used() == before; }, 5000));
    CHECK(works(bystander));
  }
  CHECK(worker.running());
  bystander.detach();
  worker.signal(SIGTERM);
  CHECK(worker.ends_with(0, 5s));
}

TEST_CASE(terminating_without_programs_is_quick) {
  WorkerProcess worker;
  const auto start = Clock::now();
  worker.signal(SIGTERM);
  CHECK(worker.ends_with(0, 5s));
  CHECK(Clock::now() - start < 1500ms);
  CHECK(access(worker.socket().c_str(), F_OK) != 0);
}

TEST_CASE(terminating_serves_a_program_that_leaves_in_time) {
  WorkerProcess worker;
  FakeHome home(worker.socket());
  prepare(home);
  worker.signal(SIGTERM);
  std::this_thread::sleep_for(300ms);
  CHECK(works(home));  // is served to its end
  CHECK_EQ(static_cast<int>([&] {
             try {
               FakeHome late(worker.socket(), kSlotBase + kSlotSize);
             } catch (const transport::TransportError& error) {
               return error.status();
             }
             return transport::Status::kOk;
           }()),
           static_cast<int>(transport::Status::kRefused));
  home.detach();
  CHECK(worker.ends_with(0, 5s));
}

TEST_CASE(terminating_tells_programs_that_stay) {
  WorkerProcess worker;
  FakeHome home(worker.socket());
  prepare(home);
  Launch waiting = add(home);
  waiting.start = home.unwritten_start(0);
  home.launch(waiting);
  home.wait_done(0, home.join(0, {}));
  worker.signal(SIGTERM);
  CHECK(home.wait_failed(5000));
  CHECK(home.synchronize(0, 5000));
  CHECK(home.link().failure().text.find("shutting down") != std::string::npos);
  CHECK(worker.ends_with(0, 5s));
}

TEST_CASE(a_load_that_would_stop_everybody_is_put_off_and_then_refused) {
  WorkerProcess::Setup setup;
  setup.environment = {{"TESSERA_TIMEOUT_MS", "1000"}};
  const WorkerProcess worker(setup);
  FakeHome waiting(worker.socket()), other(worker.socket(), kSlotBase + kSlotSize);
  prepare(waiting);
  other.add_chunk(other.base(), kGranule);
  CHECK_EQ(other.load(kAdd, "add", kKernels, 16), std::string());  // is loaded already: nothing to wait for
  Launch late = add(waiting, 7);
  late.start = waiting.unwritten_start(7);
  waiting.launch(late);
  const uint32_t value = waiting.join(7, {});
  std::this_thread::sleep_for(50ms);
  const std::string fresh = std::string(kKernels) + "\n// another module\n";
  const auto start = Clock::now();
  const std::string refusal = other.load(5, "add", fresh.c_str(), 16);
  CHECK(refusal.find("ask again later") != std::string::npos);
  CHECK(Clock::now() - start < 5s);
  CHECK(works(other));  // and its other work was never stopped
  waiting.set_start(7, late.start);
  CHECK(eventually([&] { return waiting.done(7) == value; }));
  CHECK_EQ(other.load(6, "add", fresh.c_str(), 16), std::string());
  CHECK(works(waiting));
}

TEST_CASE(local_memory_that_grows_waits_for_its_moment) {
  WorkerProcess::Setup setup;
  setup.environment = {{"TESSERA_TIMEOUT_MS", "600"}};
  const WorkerProcess worker(setup);
  FakeHome home(worker.socket());
  prepare(home);
  CHECK_EQ(home.load(3, "local_user", kKernels, 8), std::string());
  Launch late = add(home, 7);
  late.start = home.unwritten_start(7);
  home.launch(late);
  const uint32_t value = home.join(7, {});
  Launch local;
  local.function = 3;
  local.block = 64;
  local.parameters = pack(home.base() + kGranule);
  local.ranges = {{home.base() + kGranule, 256, false}};
  CHECK(home.run(local, {{home.base() + kGranule, 256}}));  // out of patience it goes all the same
  CHECK_EQ(home.read(home.base() + kGranule, 64)[63], 63u);
  home.set_start(7, late.start);
  CHECK(eventually([&] { return home.done(7) == value; }));
  CHECK(works(home));
}

}  // namespace
}  // namespace tessera::worker::testing

int main(int argc, char** argv) {
  if (argc == 4 && std::string(argv[1]) == "--victim") tessera::worker::testing::be_victim(argv[2], argv[3]);
  return tessera::testing::run(argc, argv);
}
