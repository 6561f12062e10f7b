// SPDX-License-Identifier: Apache-2.0
#include "tessera/transport/unique_fd.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace tessera::transport {

void UniqueFd::reset(int fd) {
  if (fd_ >= 0) close(fd_);
  fd_ = fd;
}

UniqueFd UniqueFd::duplicate() const {
  UniqueFd copy(fcntl(fd_, F_DUPFD_CLOEXEC, 0));
  if (!copy) throw std::system_error(errno, std::generic_category(), "cannot duplicate a file descriptor");
  return copy;
}

UniqueFd open_process(int pid) {
  if (pid <= 0) return UniqueFd();
  // pidfd_open sets close-on-exec itself.
  return UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
}

bool process_ended(const UniqueFd& process) {
  if (!process) return false;
  pollfd item{process.get(), POLLIN, 0};
  return poll(&item, 1, 0) == 1 && (item.revents & POLLIN) != 0;
}

}  // namespace tessera::transport
