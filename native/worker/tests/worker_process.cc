// SPDX-License-Identifier: Apache-2.0
#include "worker_process.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

#include "tessera/transport/socket.h"
#include "testing/check.h"

extern char** environ;

namespace tessera::worker::testing {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

void open_pipe(transport::UniqueFd* read_end, transport::UniqueFd* write_end) {
  int fds[2];
  REQUIRE(pipe2(fds, O_CLOEXEC) == 0);
  read_end->reset(fds[0]);
  write_end->reset(fds[1]);
}

std::string read_line(int fd, Clock::time_point deadline) {
  std::string line;
  while (Clock::now() < deadline) {
    pollfd item{fd, POLLIN, 0};
    if (poll(&item, 1, 50) <= 0) continue;
    char byte = 0;
    if (read(fd, &byte, 1) != 1 || byte == '\n') break;
    line += byte;
  }
  return line;
}

std::vector<std::string> environment_of(const WorkerProcess::Setup& setup) {
  WorkerProcess::Environment all = setup.environment;
  const std::string driver = required_environment("TESSERA_TEST_DRIVER");
  all.emplace("TESSERA_LOG", "debug");
  all["TESSERA_DRIVER"] = setup.faults.empty() ? driver : required_environment("TESSERA_TEST_FAULTY_DRIVER");
  all["TESSERA_FAULTY_TO"] = driver;
  all["TESSERA_FAULTS"] = setup.faults;
  std::vector<std::string> result;
  for (const auto& [name, value] : all) result.push_back(name + "=" + value);
  for (char** item = environ; *item != nullptr; ++item) {
    const std::string text = *item;
    if (!all.contains(text.substr(0, text.find('=')))) result.push_back(text);
  }
  return result;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

}  // namespace

std::string required_environment(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') {
    std::fprintf(stderr, "%s is not set: run this test by ctest\n", name);
    std::_Exit(2);
  }
  return value;
}

WorkerProcess::WorkerProcess(const Setup& setup) {
  char folder[] = "/tmp/tessera-worker-test-XXXXXX";
  REQUIRE(mkdtemp(folder) != nullptr);
  folder_ = folder;
  socket_ = setup.socket.empty() ? folder_ + "/worker" : setup.socket;
  std::vector<std::string> arguments = {required_environment("TESSERA_TEST_WORKER"),
                                        "--device",
                                        std::to_string(setup.device),
                                        "--index",
                                        "1",
                                        "--socket",
                                        socket_,
                                        "--memory-mib",
                                        std::to_string(setup.memory_mib)};
  arguments.insert(arguments.end(), setup.options.begin(), setup.options.end());
  std::vector<std::string> environment = environment_of(setup);
  transport::UniqueFd out, out_writer, err_writer;
  open_pipe(&out, &out_writer);
  open_pipe(&stderr_, &err_writer);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, out_writer.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err_writer.get(), STDERR_FILENO);
  const int spawned = posix_spawn(&pid_, arguments[0].c_str(), &actions, nullptr, pointers(arguments).data(),
                                  pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  REQUIRE(spawned == 0);
  out_writer.reset();
  err_writer.reset();
  fcntl(stderr_.get(), F_SETFL, O_NONBLOCK);
  first_line_ = read_line(out.get(), Clock::now() + 30s);
}

WorkerProcess::~WorkerProcess() {
  if (running()) {
    kill(pid_, SIGKILL);
    exit_code(10s);
  }
  const std::string command = "rm -rf '" + folder_ + "'";
  if (std::system(command.c_str()) != 0) std::perror("removing the test folder");
}

bool WorkerProcess::running() { return exit_code(0ms) == -1; }

void WorkerProcess::signal(int number) const { kill(pid_, number); }

int WorkerProcess::exit_code(std::chrono::milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  while (exit_code_ == -1) {
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) == pid_) {
      exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    } else if (Clock::now() >= deadline) {
      return -1;
    } else {
      errors();  // a full pipe would stop it
      std::this_thread::sleep_for(2ms);
    }
  }
  return exit_code_;
}

bool WorkerProcess::ends_with(int code, std::chrono::milliseconds timeout) {
  const int got = exit_code(timeout);
  if (got != code) std::fprintf(stderr, "the worker's exit code is %d; its stderr:\n%s\n", got, errors().c_str());
  return got == code;
}

std::string WorkerProcess::errors() {
  char buffer[4096];
  ssize_t got = 0;
  while ((got = read(stderr_.get(), buffer, sizeof buffer)) > 0) errors_.append(buffer, static_cast<size_t>(got));
  return errors_;
}

transport::SharedMemory WorkerProcess::observe() const {
  const transport::Socket socket = transport::Socket::connect(socket_, 5s);
  socket.send(transport::make_header(TS_OBSERVE, sizeof(ts_message)), {}, 5s);
  auto packet = socket.receive(5s);
  REQUIRE(packet && packet->type() == TS_OBSERVED && packet->fds.size() == 1);
  return transport::SharedMemory::map(std::move(packet->fds[0]), sizeof(ts_worker_status));
}

std::chrono::milliseconds WorkerProcess::cpu_time() const {
  std::ifstream file("/proc/" + std::to_string(pid_) + "/stat");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  std::istringstream fields(text.substr(text.rfind(')') + 2));
  std::string skipped;
  for (int i = 0; i < 11; ++i) fields >> skipped;
  long user = 0, system = 0;
  fields >> user >> system;
  return std::chrono::milliseconds((user + system) * 1000 / sysconf(_SC_CLK_TCK));
}

int WorkerProcess::descriptors() const {
  DIR* folder = opendir(("/proc/" + std::to_string(pid_) + "/fd").c_str());
  REQUIRE(folder != nullptr);
  int count = 0;
  while (const dirent* entry = readdir(folder)) count += entry->d_name[0] != '.';
  closedir(folder);
  return count;
}

}  // namespace tessera::worker::testing
