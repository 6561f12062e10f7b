// SPDX-License-Identifier: Apache-2.0
#include "trial_process.h"

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "device.h"
#include "loader.h"
#include "log.h"
#include "tessera/protocol/trial.h"
#include "trial_run.h"

namespace tessera::worker {
namespace {

using namespace std::chrono_literals;
using transport::Packet;
using transport::Socket;
using transport::Status;
using transport::TransportError;

constexpr int kConnection = 3;  // its descriptor in the new process
constexpr auto kLook = 20ms;    // how often an ended process is looked for
constexpr uint64_t kLargestImage = uint64_t{2} << 30;

/// The calls of posix_spawn that prepare, undone together.
struct SpawnSettings {
  posix_spawn_file_actions_t files{};
  posix_spawnattr_t attributes{};
  SpawnSettings() {
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
  }
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;
};

/// This process's environment, but for MPS: a fault of one of its clients ends all others on the device, the program
/// among them. Without a daemon's pipe in that folder the driver works by itself.
std::vector<std::string> environment_of_trials() {
  constexpr std::string_view kMps = "CUDA_MPS_PIPE_DIRECTORY=";
  std::vector<std::string> variables;
  for (char** at = environ; *at != nullptr; ++at) {
    if (!std::string_view(*at).starts_with(kMps)) variables.emplace_back(*at);
  }
  variables.push_back(std::string(kMps) + "/nonexistent");
  return variables;
}

std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

pid_t start_process(int connection, const Options& options) {
  SpawnSettings how;
  posix_spawn_file_actions_adddup2(&how.files, connection, kConnection);
  // Whoever reads what the worker prints must not wait for this process, too.
  posix_spawn_file_actions_adddup2(&how.files, STDERR_FILENO, STDOUT_FILENO);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&how.attributes, &none);
  posix_spawnattr_setflags(&how.attributes, POSIX_SPAWN_SETSIGMASK);
  std::vector<std::string> words = {"tessera-worker",
                                    "--trial",
                                    std::to_string(kConnection),
                                    "--device",
                                    std::to_string(options.device),
                                    "--index",
                                    std::to_string(options.index)};
  std::vector<std::string> variables = environment_of_trials();
  std::vector<char*> arguments = pointers_to(words), environment = pointers_to(variables);
  pid_t pid = 0;
  const int error =
      posix_spawn(&pid, "/proc/self/exe", &how.files, &how.attributes, arguments.data(), environment.data());
  if (error != 0) throw TransportError(Status::kRefused, std::string("no process for trials: ") + std::strerror(error));
  return pid;
}

/// Loads what the program names, and runs what it asks for.
class TrialServer {
 public:
  TrialServer(Socket socket, const Settings& settings)
      : socket_(std::move(socket)),
        timeout_(settings.integer(settings.timeout_ms, 5000)),
        driver_(Driver::open(settings.driver)) {}

  void start(int ordinal) {
    auto ready = transport::make_message<ts_trial_ready>(TS_TRIAL_READY);
    try {
      device_.emplace(driver_, ordinal);
      loader_.emplace(*device_, gate_, timeout_);
      ready.device = device_->description();
    } catch (const DriverError& error) {
      ready.status = static_cast<int32_t>(error.code());
      std::strncpy(ready.text, error.what(), sizeof ready.text - 1);
    }
    socket_.send(ready, {}, timeout_);
    if (ready.status != 0) throw DriverError(static_cast<CUresult>(ready.status), ready.text);
  }

  void serve() {
    TrialRunner runner(*device_);
    for (;;) {
      std::optional<Packet> packet = socket_.receive(std::chrono::milliseconds(1000));
      if (!packet) continue;
      if (packet->type() == TS_IMAGE)
        take_image(*packet);
      else if (packet->type() == TS_FUNCTION)
        take_function(*packet);
      else if (packet->type() == TS_TRIAL_RUN)
        run(runner, *packet);
      else
        throw TransportError(Status::kCorrupt, "message " + std::to_string(packet->type()) + " is none of a trial");
    }
  }

 private:
  void take_image(const Packet& packet) {
    const auto message = packet.expect<ts_image>(1);
    if (message.size == 0 || message.size > kLargestImage) {
      throw TransportError(Status::kCorrupt, "an image of an impossible size");
    }
    auto bytes = transport::read_whole(packet.fds[0], message.size);
    bytes.push_back('\0');
    images_[{message.hash.low, message.hash.high}] = std::make_shared<const std::vector<char>>(std::move(bytes));
  }

  /// One function at a time: the next run is of the one named last.
  void take_function(const Packet& packet) {
    const auto message = packet.expect<ts_function>();
    const auto image = images_.find({message.image.low, message.image.high});
    if (image == images_.end()) throw TransportError(Status::kCorrupt, "a function without its image");
    auto request = std::make_shared<LoadRequest>();
    request->hash = message.image;
    request->bytes = image->second;
    request->name = packet.text_behind(sizeof message, message.name_size);
    request->parameter_size = message.parameter_size;
    request->max_dynamic_shared = message.max_dynamic_shared;
    request->shared_carveout = message.shared_carveout;
    request->wake = [] {};
    loader_->submit(request);
    while (!request->done.load()) std::this_thread::sleep_for(std::chrono::microseconds(50));
    auto answer = transport::make_message<ts_function_ready>(TS_FUNCTION_READY);
    answer.function = message.function;
    answer.status = static_cast<int32_t>(request->status);
    std::strncpy(answer.text, request->text.c_str(), sizeof answer.text - 1);
    socket_.send(answer, {}, timeout_);
    function_ = std::move(request);
  }

  void run(TrialRunner& runner, Packet& packet) {
    const auto message = packet.expect<ts_trial_run>(1);
    if (function_ == nullptr || function_->status != CUDA_SUCCESS) {
      throw TransportError(Status::kCorrupt, "a trial without its function");
    }
    const TrialOutcome outcome =
        runner.run(message, std::move(packet.fds[0]), *function_, [this] { return socket_.hung_up(); });
    auto answer = transport::make_message<ts_trial_done>(TS_TRIAL_DONE);
    answer.outcome = outcome.kind;
    answer.status = static_cast<int32_t>(outcome.code);
    std::strncpy(answer.text, outcome.text.c_str(), sizeof answer.text - 1);
    socket_.send(answer, {}, timeout_);
    // Nothing can be taken apart any more: the system frees all.
    if (outcome.kind == TS_TRIAL_FAULT || outcome.kind == TS_TRIAL_ENDLESS) std::_Exit(0);
  }

  Socket socket_;
  std::chrono::milliseconds timeout_;
  Driver driver_;
  std::optional<Device> device_;
  Gate gate_;
  std::map<std::pair<uint64_t, uint64_t>, ImageBytes> images_;
  std::shared_ptr<LoadRequest> function_;
  std::optional<Loader> loader_;
};

}  // namespace

void hand_to_trial(Socket socket, const Options& options, const std::atomic<bool>& closing) {
  const pid_t pid = start_process(socket.fd(), options);
  socket.close();
  log(LogLevel::kInfo, "process " + std::to_string(pid) + " runs trials");
  while (!closing) {
    if (::waitpid(pid, nullptr, WNOHANG) != 0) return;
    std::this_thread::sleep_for(kLook);
  }
}

void serve_trials(const Options& options, const Settings& settings) {
  try {
    TrialServer server(Socket(transport::UniqueFd(options.trial)), settings);
    server.start(options.device);
    server.serve();
  } catch (const TransportError& error) {
    if (error.status() != Status::kHungUp) throw;
  }
}

}  // namespace tessera::worker
