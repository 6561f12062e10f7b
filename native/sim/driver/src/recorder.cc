// SPDX-License-Identifier: Apache-2.0
#include "recorder.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <mutex>
#include <stdexcept>

#include "json.h"
#include "report.h"

namespace tessera::sim {
namespace {

std::mutex record_mutex;
int record_file = -1;

std::string hex(const std::vector<uint8_t>& bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const uint8_t byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::string list(const std::vector<ByteRange>& ranges) {
  std::string text = "[";
  for (const ByteRange& range : ranges) {
    if (text.size() > 1) text += ',';
    text += '[' + std::to_string(range.begin) + ',' + std::to_string(range.end) + ']';
  }
  return text + ']';
}

std::string list(const Dim3& d) {
  return '[' + std::to_string(d.x) + ',' + std::to_string(d.y) + ',' + std::to_string(d.z) + ']';
}

}  // namespace

void configure_recorder(const char* prefix) {
  if (prefix == nullptr || *prefix == '\0') return;
  const std::string path = std::string(prefix) + "." + std::to_string(getpid()) + ".jsonl";
  record_file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (record_file < 0) {
    throw std::runtime_error("TESSERA_SIM_RECORD: " + path + " cannot be written: " + std::strerror(errno));
  }
}

bool recording() { return record_file >= 0; }

void record_launch(const RecordedLaunch& done) {
  const std::string line =
      "{\"kernel\":" + json_quote(done.kernel) + ",\"pid\":" + std::to_string(getpid()) +
      ",\"device\":" + std::to_string(done.device) + ",\"sequence\":" + std::to_string(done.sequence) +
      ",\"grid\":" + list(done.launch.grid) + ",\"block\":" + list(done.launch.block) +
      ",\"cluster\":" + list(done.launch.cluster) + ",\"shared\":" + std::to_string(done.launch.dynamic_shared_bytes) +
      ",\"parameters\":\"" + hex(done.parameters) + "\",\"reads\":" + list(done.outcome.accesses.reads) +
      ",\"writes\":" + list(done.outcome.accesses.writes) + ",\"picoseconds\":" + std::to_string(done.picoseconds) +
      ",\"fault\":" + json_quote(done.outcome.fault.message) + "}\n";
  const std::lock_guard lock(record_mutex);
  for (size_t written = 0; written < line.size();) {
    const ssize_t n = write(record_file, line.data() + written, line.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      diagnose(std::string("the access record is incomplete: ") + std::strerror(errno));
      return;
    }
    written += static_cast<size_t>(n);
  }
}

}  // namespace tessera::sim
