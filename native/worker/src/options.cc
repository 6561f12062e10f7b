// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <cerrno>
#include <cstdlib>
#include <string_view>

#include "tessera/protocol/control.h"

namespace tessera::worker {

const char* const kUsage =
    "usage: tessera-worker --device N --index I --socket PATH [--memory-mib M] [--linger-ms T]\n"
    "\n"
    "Runs kernels on one GPU for the programs that attach. tessera-ctl up starts workers.\n"
    "  --device N      ordinal of the GPU, as the driver counts\n"
    "  --index I       number of this worker in its controller, 1 to 15\n"
    "  --socket PATH   Unix socket to listen on\n"
    "  --memory-mib M  most device memory for the programs' data, MiB\n"
    "                  (default: TESSERA_WORKER_MEMORY_MIB, else nine tenths of what is free)\n"
    "  --linger-ms T   how long to stay when the controller is gone and no program is attached\n"
    "                  (default: 30000)\n"
    "  --trial FD      in place of --socket: run trials for the program behind that descriptor (a\n"
    "                  worker starts such processes itself)\n"
    "Prints 'ready' when it serves. Exit codes: 0 asked to stop, 1 could not start, 2 usage,\n"
    "3 a kernel broke the device's context: start it again.\n";

namespace {

int64_t whole_number(std::string_view option, const char* text, int64_t least, int64_t most) {
  char* end = nullptr;
  errno = 0;
  const long long value = std::strtoll(text, &end, 10);
  if (*text == '\0' || *end != '\0' || errno != 0 || value < least || value > most) {
    throw UsageError(std::string(option) + " wants a whole number from " + std::to_string(least) + " to " +
                     std::to_string(most) + ", not '" + text + "'");
  }
  return value;
}

}  // namespace

Options parse_options(int argc, const char* const* argv, int64_t default_memory_mib) {
  constexpr int64_t kMostMemory = int64_t{1} << 32;  // MiB; keeps the bytes far from overflow
  Options options;
  options.memory_mib = default_memory_mib;
  bool has_device = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    if (name == "--help" || name == "-h") {
      options.help = true;
      return options;
    }
    if (i + 1 >= argc) throw UsageError("'" + std::string(name) + "' is unknown or lacks its value");
    const char* value = argv[++i];
    if (name == "--device") {
      options.device = static_cast<int>(whole_number(name, value, 0, 1023));
      has_device = true;
    } else if (name == "--index") {
      options.index = static_cast<uint32_t>(whole_number(name, value, 1, TS_MAX_DEVICES - 1));
    } else if (name == "--socket") {
      options.socket = value;
    } else if (name == "--memory-mib") {
      options.memory_mib = whole_number(name, value, 0, kMostMemory);
    } else if (name == "--linger-ms") {
      options.linger = std::chrono::milliseconds(whole_number(name, value, 0, int64_t{1} << 40));
    } else if (name == "--trial") {
      options.trial = static_cast<int>(whole_number(name, value, 3, 1 << 20));
    } else {
      throw UsageError("unknown option '" + std::string(name) + "'");
    }
  }
  if (!has_device) throw UsageError("--device is missing");
  if (options.index == 0) throw UsageError("--index is missing");
  if (options.socket.empty() && options.trial < 0) throw UsageError("--socket is missing");
  if (options.memory_mib < 0 || options.memory_mib > kMostMemory) {
    throw UsageError("TESSERA_WORKER_MEMORY_MIB is out of range");
  }
  return options;
}

}  // namespace tessera::worker
