// SPDX-License-Identifier: Apache-2.0
// What the tests of this room share.
#pragma once

#include <dirent.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "tessera/transport/status.h"
#include "testing/check.h"

namespace tessera::transport {

/// A folder that goes away with its owner.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    char name[] = "/tmp/tessera-test-XXXXXX";
    REQUIRE(mkdtemp(name) != nullptr);
    path_ = name;
  }
  ~TemporaryFolder() {
    const std::string command = "rm -rf '" + path_ + "'";
    if (std::system(command.c_str()) != 0) std::perror("removing the test folder");
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

/// Open descriptors of this process.
inline int open_descriptors() {
  DIR* folder = opendir("/proc/self/fd");
  REQUIRE(folder != nullptr);
  int count = -1;  // the folder's own
  while (const dirent* entry = readdir(folder)) count += entry->d_name[0] != '.';
  closedir(folder);
  return count;
}

/// The status that `body` throws; kOk when it throws nothing.
template <class Body>
Status status_of(Body&& body) {
  try {
    body();
  } catch (const TransportError& error) {
    return error.status();
  }
  return Status::kOk;
}

inline std::ostream& operator<<(std::ostream& out, Status status) { return out << status_name(status); }

}  // namespace tessera::transport
