// SPDX-License-Identifier: Apache-2.0
// A worker under test, as a process.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "tessera/protocol/channel.h"
#include "tessera/transport/shared_memory.h"

namespace tessera::worker::testing {

/// The value of an environment variable that ctest sets; ends the test program when it is missing.
std::string required_environment(const char* name);

class WorkerProcess {
 public:
  using Environment = std::map<std::string, std::string>;
  struct Setup {
    int device = 1;
    int memory_mib = 256;
    Environment environment;           ///< added to this process's
    std::vector<std::string> options;  ///< added to the usual ones
    std::string socket;                ///< default: a fresh path
    std::string faults;                ///< not empty: runs on the faulty driver (see faulty_driver.cc)
  };

  WorkerProcess() : WorkerProcess(Setup()) {}
  /// Starts it and reads its first line of output.
  explicit WorkerProcess(const Setup& setup);
  /// Kills it if it still runs.
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  bool ready() const { return first_line_ == "ready"; }
  const std::string& socket() const { return socket_; }
  pid_t pid() const { return pid_; }
  bool running();
  void signal(int number) const;
  /// Waits for its end. Its exit code; 128 + signal; -1 when it still runs after `timeout`.
  int exit_code(std::chrono::milliseconds timeout);
  /// Whether it ends in time with this code; prints what it wrote to stderr when not.
  bool ends_with(int code, std::chrono::milliseconds timeout);
  /// What it wrote to stderr until now.
  std::string errors();

  /// Its status page, through TS_OBSERVE.
  transport::SharedMemory observe() const;
  /// CPU time that it has used, all threads.
  std::chrono::milliseconds cpu_time() const;
  int descriptors() const;

 private:
  std::string folder_, socket_, first_line_, errors_;
  pid_t pid_ = -1;
  int exit_code_ = -1;
  transport::UniqueFd stderr_;
};

}  // namespace tessera::worker::testing
