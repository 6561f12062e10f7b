// SPDX-License-Identifier: Apache-2.0
#include "session.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <mutex>
#include <thread>

#include "context.h"
#include "counters.h"
#include "driver.h"
#include "images.h"
#include "kernel_state.h"
#include "log.h"
#include "order.h"
#include "recording.h"
#include "runtime.h"
#include "tessera/protocol/blas_call.h"
#include "tessera/transport/shared_memory.h"
#include "tessera/transport/socket.h"
#include "trial.h"

namespace tessera::shim {
namespace {

using transport::Milliseconds;
using transport::Packet;
using transport::Socket;
using transport::TransportError;
using transport::UniqueFd;

constexpr Milliseconds kConnectTimeout{1000};
constexpr Milliseconds kWatchPeriod{20};
constexpr Milliseconds kAttachAgain{1000};

void add(uint64_t& counter, uint64_t value) { std::atomic_ref(counter).fetch_add(value, std::memory_order_relaxed); }

class Session {
 public:
  /// Connects and says hello. Throws TransportError.
  void start();

  KernelAnswer ask(const Image& image, const std::string& name);
  KernelAnswer ask_call(const std::string& name);
  Counters& counters() { return counters_; }
  ts_placement_table& placements() { return *placement_; }
  ts_kernel_counters* class_counters(uint32_t kernel_id, const ClassKey& key, uint32_t* slot);
  WorkerLink* attach(uint32_t index);
  std::vector<uint32_t> workers_up();
  std::optional<ts_worker_info> worker(uint32_t index);
  void report_trial(ts_tried message, const std::string& name, const std::string& reason);
  Range slot() const { return {arena_base_, arena_base_ + arena_size_}; }

 private:
  void say_hello();
  void welcome(const Packet& packet);
  void adopt_workers(const ts_worker_info* workers, uint32_t count);
  std::optional<Packet> answer_to(uint32_t request, Milliseconds timeout);
  void take_unasked(const Packet& packet);
  KernelAnswer query(const ts_image_hash& image, uint64_t image_size, const std::string& name, const std::string& path,
                     int image_fd);
  KernelAnswer ask_once(const Image& image, const std::string& name, bool with_image);
  template <class Ask>
  KernelAnswer guarded(const std::string& name, Ask&& ask);
  void watch();
  void read_unasked();
  /// False when the worker is of no use any more.
  bool look_after(WorkerLink& worker);
  void report_lost(uint32_t index, const std::string& reason);
  void tell_all_home();
  void tell_classes();
  void tell_recorded();

  std::mutex mutex_;  // the conversation with the controller
  Socket controller_;
  bool controller_gone_ = false;
  bool all_home_told_ = false;
  uint32_t next_request_ = 1;
  Counters counters_;
  ts_placement_table* placement_ = nullptr;
  uint64_t arena_base_ = 0, arena_size_ = 0;
  std::mutex workers_mutex_;                              // never held while waiting for anybody
  std::array<ts_worker_info, TS_MAX_DEVICES> workers_{};  // by index; state 0: none
  std::mutex links_mutex_;
  std::vector<WorkerLink*> links_;  // attached, for the watch
  // Attaching failed: not to be tried again before then. Under the world's lock.
  std::array<std::chrono::steady_clock::time_point, TS_MAX_DEVICES> refused_until_{};
};

Session* session = nullptr;  // set once, by the thread that starts the runtime

ts_device describe_device(int ordinal) {
  ts_device device{};
  CUdevice handle = 0;
  CUuuid uuid{};
  size_t memory = 0;
  if (driver().cuDeviceGet(&handle, ordinal) != CUDA_SUCCESS) return device;
  driver().cuDeviceGetName(device.name, sizeof device.name, handle);
  driver().cuDeviceGetUuid_v2(&uuid, handle);
  driver().cuDeviceTotalMem_v2(&memory, handle);
  std::memcpy(device.uuid, uuid.bytes, sizeof device.uuid);
  device.compute_capability = compute_capability(handle);
  device.memory_bytes = memory;
  return device;
}

void read_command_line(char (&out)[TS_PROGRAM_BYTES]) {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  file.read(out, sizeof out - 1);
  const auto size = static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0));
  for (size_t i = 0; i + 1 < size; ++i) {
    if (out[i] == '\0') out[i] = ' ';
  }
  out[size] = '\0';
}

void Session::start() {
  const std::string path = runtime().settings().runtime_folder() + "/controller.sock";
  controller_ = Socket::connect(path, kConnectTimeout);
  counters_.create();
  say_hello();
  std::optional<Packet> packet = controller_.receive(message_timeout());
  if (!packet) throw TransportError(transport::Status::kTimeout, "the controller does not answer");
  if (packet->type() == TS_REFUSED) {
    auto refused = packet->expect<ts_refused>();
    refused.reason[sizeof refused.reason - 1] = '\0';
    throw TransportError(transport::Status::kRefused, std::string("the controller refuses: ") + refused.reason);
  }
  welcome(*packet);
  std::atomic_ref(counters_.table().state).store(1, std::memory_order_relaxed);
  // Signals of the program are not for this thread.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread(&Session::watch, this).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Session::say_hello() {
  auto hello = transport::make_message<ts_hello>(TS_HELLO, 0);
  hello.pid = getpid();
  int count = 0;
  if (driver().cuDeviceGetCount(&count) != CUDA_SUCCESS) count = 0;
  hello.n_devices = static_cast<uint32_t>(std::clamp(count, 0, static_cast<int>(TS_MAX_DEVICES)));
  for (uint32_t i = 0; i < hello.n_devices; ++i) hello.devices[i] = describe_device(static_cast<int>(i));
  read_command_line(hello.program);
  std::strncpy(hello.build, TESSERA_VERSION, sizeof hello.build - 1);
  const int fds[] = {counters_.fd()};
  controller_.send(hello, fds, message_timeout());
}

void Session::welcome(const Packet& packet) {
  const auto welcome = packet.expect<ts_welcome>(1);
  arena_base_ = welcome.arena_base;
  arena_size_ = welcome.arena_size;
  struct stat file{};
  if (::fstat(packet.fds[0].get(), &file) != 0 || static_cast<size_t>(file.st_size) < sizeof(ts_placement_table)) {
    throw TransportError(transport::Status::kCorrupt, "the placement table is of another version");
  }
  void* table = ::mmap(nullptr, sizeof(ts_placement_table), PROT_READ, MAP_SHARED, packet.fds[0].get(), 0);
  if (table == MAP_FAILED) throw TransportError(transport::Status::kRefused, "the placement table cannot be mapped");
  placement_ = static_cast<ts_placement_table*>(table);
  if (placement_->magic != TS_PLACEMENT_MAGIC || placement_->version != TS_PROTOCOL_VERSION) {
    throw TransportError(transport::Status::kCorrupt, "the placement table is of another version");
  }
  adopt_workers(welcome.workers, welcome.n_workers);
  if (trials_wanted()) {
    static ts_placement_table all_home{};
    placement_ = &all_home;
    world().keep_awake();
  }
  const int64_t chunk_mib =
      std::max<int64_t>(runtime().settings().integer(runtime().settings().arena_chunk_mib, 32), 2);
  world().memory.start(arena_base_, arena_size_, static_cast<uint64_t>(chunk_mib) << 20, [](Range chunk) {
    world().directory.forget(chunk);
    for (const auto& worker : world().workers) {
      if (worker != nullptr && worker->alive()) worker->release(chunk);
    }
  });
}

void Session::adopt_workers(const ts_worker_info* workers, uint32_t count) {
  std::array<ts_worker_info, TS_MAX_DEVICES> fresh{};
  for (uint32_t i = 0; i < std::min<uint32_t>(count, TS_MAX_DEVICES); ++i) {
    ts_worker_info info = workers[i];
    info.socket[sizeof info.socket - 1] = info.device.name[sizeof info.device.name - 1] = '\0';
    if (info.index > 0 && info.index < TS_MAX_DEVICES) fresh[info.index] = info;
  }
  const std::lock_guard lock(workers_mutex_);
  workers_ = fresh;
}

std::vector<uint32_t> Session::workers_up() {
  const std::lock_guard lock(workers_mutex_);
  std::vector<uint32_t> up;
  for (const ts_worker_info& info : workers_) {
    if (info.state == 1) up.push_back(info.index);
  }
  return up;
}

std::optional<ts_worker_info> Session::worker(uint32_t index) {
  const std::lock_guard lock(workers_mutex_);
  if (index >= TS_MAX_DEVICES || workers_[index].state != 1) return std::nullopt;
  return workers_[index];
}

void Session::report_trial(ts_tried message, const std::string& name, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (controller_gone_) return;
  message.name_size = static_cast<uint32_t>(name.size());
  message.reason_size = static_cast<uint32_t>(reason.size());
  message.header.request = next_request_++;
  const std::vector<uint8_t> packet = transport::with_texts(message, {name, reason});
  try {
    controller_.send(packet.data(), packet.size(), {}, message_timeout());
  } catch (const std::exception& error) {
    log_line(LogLevel::kWarn, "a trial cannot be reported: %s", error.what());
    controller_gone_ = true;
  }
}

void Session::take_unasked(const Packet& packet) {
  if (packet.type() == TS_RECORD) recording().ask(packet.expect<ts_record>().launches);
  if (packet.type() != TS_WORKERS) return;  // a late answer: nobody waits for it any more
  const auto message = packet.expect<ts_workers>();
  adopt_workers(message.workers, message.n_workers);
}

std::optional<Packet> Session::answer_to(uint32_t request, Milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (true) {
    const auto left = std::chrono::duration_cast<Milliseconds>(deadline - std::chrono::steady_clock::now());
    std::optional<Packet> packet = controller_.receive(std::max(left, Milliseconds(0)));
    if (!packet) return std::nullopt;
    const bool unasked = packet->type() == TS_WORKERS || packet->type() == TS_RECORD;
    if (packet->header().request == request && !unasked) return packet;
    take_unasked(*packet);
  }
}

KernelAnswer Session::query(const ts_image_hash& image, uint64_t image_size, const std::string& name,
                            const std::string& path, int image_fd) {
  auto query = transport::make_message<ts_kernel_query>(TS_KERNEL, next_request_++);
  query.image = image;
  query.image_size = image_size;
  query.flags = (image_fd >= 0 ? uint32_t{TS_KERNEL_HAS_IMAGE} : 0u) | TS_KERNEL_WANTS_PASSED;
  query.name_size = static_cast<uint32_t>(name.size());
  query.path_size = static_cast<uint32_t>(path.size());
  const std::vector<uint8_t> message = transport::with_texts(query, {name, path});
  const int fds[] = {image_fd};
  controller_.send(message.data(), message.size(), image_fd >= 0 ? std::span<const int>(fds) : std::span<const int>(),
                   message_timeout());
  // The controller keeps the time of the analysis itself; this is for one that hangs.
  const Milliseconds wait{runtime().settings().integer(runtime().settings().analysis_wait_ms, 2000) + 1000};
  const std::optional<Packet> packet = answer_to(query.header.request, wait);
  KernelAnswer answer;
  answer.status = TS_KERNEL_PENDING;
  if (!packet) return answer;
  const auto info = packet->expect<ts_kernel_info>();
  const std::string rest = packet->text_behind(sizeof info, packet->bytes.size() - sizeof info);
  const uint64_t texts = uint64_t{info.summary_size} + info.reason_size;
  if (texts > rest.size()) throw TransportError(transport::Status::kCorrupt, "an answer is shorter than its parts");
  answer.passed.resize((rest.size() - texts) / sizeof(uint64_t));
  std::memcpy(answer.passed.data(), rest.data() + texts, answer.passed.size() * sizeof(uint64_t));
  answer.status = info.status;
  answer.kernel_id = info.kernel_id;
  answer.summary.assign(rest.begin(), rest.begin() + info.summary_size);
  answer.reason = rest.substr(info.summary_size, info.reason_size);
  return answer;
}

KernelAnswer Session::ask_once(const Image& image, const std::string& name, bool with_image) {
  UniqueFd fd;
  if (with_image) fd = transport::make_constant("tessera-image", image.bytes().data(), image.bytes().size());
  return query(image.hash(), image.bytes().size(), name, image.path(), fd.get());
}

template <class Ask>
KernelAnswer Session::guarded(const std::string& name, Ask&& ask) {
  const std::lock_guard lock(mutex_);
  KernelAnswer answer;
  answer.reason = "the controller is gone";
  if (controller_gone_) return answer;
  try {
    answer = ask();
  } catch (const std::exception& error) {
    log_line(LogLevel::kWarn, "%s: %s; new kernels stay home", name.c_str(), error.what());
    controller_gone_ = true;
    answer = {};
    answer.reason = error.what();
  }
  return answer;
}

KernelAnswer Session::ask(const Image& image, const std::string& name) {
  return guarded(name, [&] {
    const KernelAnswer answer = ask_once(image, name, false);
    return answer.status == TS_KERNEL_NEED_IMAGE ? ask_once(image, name, true) : answer;
  });
}

KernelAnswer Session::ask_call(const std::string& name) {
  constexpr ts_image_hash kLibraryCalls{TS_LIBRARY_CALLS_LOW, TS_LIBRARY_CALLS_HIGH};
  return guarded(name, [&] { return query(kLibraryCalls, 0, name, "", -1); });
}

ts_kernel_counters* Session::class_counters(uint32_t kernel_id, const ClassKey& key, uint32_t* slot) {
  ts_kernel_counters* row = counters_.of_class(kernel_id, key, slot);
  // At once, as the program may end soon; when the controller is being talked to, the watch does it.
  if (row != nullptr && mutex_.try_lock()) {
    tell_classes();
    mutex_.unlock();
  }
  return row;
}

WorkerLink* Session::attach(uint32_t index) {
  World& all = world();
  if (WorkerLink* worker = all.worker(index)) return worker;
  if (index == 0 || index >= TS_MAX_DEVICES) return nullptr;
  if (std::chrono::steady_clock::now() < refused_until_[index]) return nullptr;
  ts_worker_info info;
  {
    const std::lock_guard lock(workers_mutex_);
    info = workers_[index];
  }
  if (info.state != 1 || all.driver_may_be_held()) return nullptr;
  all.workers.resize(TS_MAX_DEVICES);
  if (all.detach_worker(index)) all.fail(CUDA_ERROR_LAUNCH_FAILED);  // one of this number that was lost
  try {
    all.workers[index] = std::make_unique<WorkerLink>(info, arena_base_, arena_size_, counters_.fd());
  } catch (const std::exception& error) {
    log_line(LogLevel::kWarn, "worker %u (%s) cannot be used: %s", index, info.device.name, error.what());
    refused_until_[index] = std::chrono::steady_clock::now() + kAttachAgain;
    return nullptr;
  }
  const std::lock_guard lock(links_mutex_);
  links_.push_back(all.workers[index].get());
  return links_.back();
}

void Session::watch() {
  while (true) {
    // Never wait here for the world's lock: its holder may be waiting for a worker that is gone.
    std::vector<WorkerLink*> links;
    {
      const std::lock_guard lock(links_mutex_);
      links = links_;
    }
    std::this_thread::sleep_for(kWatchPeriod);
    for (WorkerLink* link : links) {
      if (look_after(*link)) continue;
      const std::lock_guard lock(links_mutex_);
      std::erase(links_, link);
    }
    if (mutex_.try_lock()) {
      tell_all_home();
      read_unasked();
      tell_classes();
      tell_recorded();
      mutex_.unlock();
    }
  }
}

void Session::read_unasked() {
  if (controller_gone_) return;
  try {
    while (std::optional<Packet> packet = controller_.receive(Milliseconds(0))) take_unasked(*packet);
  } catch (const std::exception& error) {
    controller_gone_ = true;
    log_line(LogLevel::kWarn, "the controller is gone: known kernels keep their places, new ones stay home");
  }
}

/// Why nothing moves any more, once that is so: users see it in `tessera-ctl status`. Precondition: the lock is held.
void Session::tell_all_home() {
  const char* reason = runtime().all_home_reason();
  if (reason == nullptr || all_home_told_ || controller_gone_) return;
  auto message = transport::make_message<ts_all_home>(TS_ALL_HOME, next_request_++);
  std::strncpy(message.reason, reason, sizeof message.reason - 1);
  try {
    controller_.send(message, {}, Milliseconds(100));
    all_home_told_ = true;
  } catch (const std::exception&) {
    controller_gone_ = true;
  }
}

/// What tells the launches of new classes apart. Precondition: the lock is held.
void Session::tell_classes() {
  for (const ts_class& message : counters_.take_untold()) {
    if (controller_gone_) return;
    try {
      controller_.send(message, {}, message_timeout());
    } catch (const std::exception& error) {
      log_line(LogLevel::kWarn, "launch classes cannot be told: %s", error.what());
      controller_gone_ = true;
    }
  }
}

/// The order of launches, when the controller has asked for it. Precondition: the lock is held.
void Session::tell_recorded() {
  for (const std::vector<uint8_t>& message : recording().step()) {
    if (controller_gone_) return;
    try {
      controller_.send(message.data(), message.size(), {}, message_timeout());
    } catch (const std::exception& error) {
      log_line(LogLevel::kWarn, "a recording of launches is lost: %s", error.what());
      controller_gone_ = true;
    }
  }
}

bool Session::look_after(WorkerLink& worker) {
  std::string text;
  const CUresult error = worker.error(&text);
  if (error == CUDA_SUCCESS && worker.connected()) return true;
  if (!worker.alive()) return false;  // detached on purpose
  if (error != CUDA_SUCCESS) world().fail(error);
  bool unfinished = worker.give_up();
  uint64_t lost = 0;
  {
    const std::lock_guard lock(world().mutex);
    unfinished = worker.give_up() || unfinished;  // again, for what was sent in between
    lost = world().directory.lost(worker.index());
    if (lost != 0) world().fail(CUDA_ERROR_LAUNCH_FAILED);
    world().rest();
  }
  if (error == CUDA_SUCCESS) text = "it is gone";
  if (error != CUDA_SUCCESS || unfinished || lost != 0) {
    log_line(LogLevel::kError, "worker %u (%s) failed: %s; unfinished work, or %llu bytes that only it held, are lost",
             worker.index(), worker.name().c_str(), text.c_str(), static_cast<unsigned long long>(lost));
  } else {
    log_line(LogLevel::kWarn, "worker %u (%s) is gone: nothing is lost, and its kernels run at home", worker.index(),
             worker.name().c_str());
  }
  report_lost(worker.index(), text);
  return false;
}

void Session::report_lost(uint32_t index, const std::string& reason) {
  {
    const std::lock_guard lock(workers_mutex_);
    workers_[index].state = 0;  // until the controller announces it again
  }
  const std::lock_guard lock(mutex_);
  if (controller_gone_) return;
  auto message = transport::make_message<ts_worker_lost>(TS_WORKER_LOST, next_request_++);
  message.index = index;
  std::strncpy(message.reason, reason.c_str(), sizeof message.reason - 1);
  try {
    controller_.send(message, {}, Milliseconds(100));
  } catch (const std::exception&) {
    controller_gone_ = true;
  }
}

}  // namespace

bool session_start() {
  if (session != nullptr) return false;
  auto fresh = std::make_unique<Session>();
  try {
    fresh->start();
  } catch (const TransportError& error) {
    log_line(LogLevel::kInfo, "%s", error.what());
    return false;
  } catch (const std::exception& error) {
    log_line(LogLevel::kWarn, "%s", error.what());
    return false;
  }
  publish_placements(fresh->placements());
  session = fresh.release();  // lives as long as the process: its thread and late calls use it
  return true;
}

KernelAnswer ask_kernel(const Image& image, const std::string& name) { return session->ask(image, name); }
KernelAnswer ask_call(const std::string& name) { return session->ask_call(name); }
ts_placement_table& placement_table() { return session->placements(); }
std::vector<uint32_t> known_workers() { return session->workers_up(); }
std::optional<ts_worker_info> worker_info(uint32_t index) { return session->worker(index); }
void report_trial(ts_tried message, const std::string& name, const std::string& reason) {
  session->report_trial(message, name, reason);
}
Range slot_of_program() { return session->slot(); }
ts_kernel_counters* counters_of(uint32_t kernel_id, uint32_t* slot) {
  return session->counters().of_kernel(kernel_id, slot);
}
ts_kernel_counters* counters_of_class(uint32_t kernel_id, const ClassKey& key, uint32_t* slot) {
  return session->class_counters(kernel_id, key, slot);
}
uint32_t kernel_of_counters(uint32_t slot) {
  if (session == nullptr || slot >= session->counters().table().capacity) return TS_MAX_KERNELS;
  return session->counters().table().kernels[slot].kernel_id;
}

void count_untracked_launch() { add(session->counters().table().launches_untracked, 1); }
void count_graph_launch() {
  if (session != nullptr) add(session->counters().table().graph_launches, 1);
}
void report_arena(uint64_t mapped, uint64_t used) {
  std::atomic_ref(session->counters().table().arena_mapped).store(mapped, std::memory_order_relaxed);
  std::atomic_ref(session->counters().table().arena_used).store(used, std::memory_order_relaxed);
}
WorkerLink* attached_worker(uint32_t index) { return session->attach(index); }

bool is_default_pool(CUmemoryPool pool, CUdevice device) {
  CUmemoryPool usual = nullptr;
  return driver().cuDeviceGetDefaultMemPool(&usual, device) == CUDA_SUCCESS && usual == pool;
}

}  // namespace tessera::shim
