// SPDX-License-Identifier: Apache-2.0
#include "tessera/transport/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "tessera/transport/status.h"

namespace tessera::transport {
namespace {

constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;

[[noreturn]] void refuse(const std::string& what) {
  throw TransportError(Status::kRefused, what + ": " + std::strerror(errno));
}

UniqueFd create_file(const char* name, size_t size) {
  UniqueFd fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) refuse("cannot create shared memory");
  if (ftruncate(fd.get(), static_cast<off_t>(size)) != 0) {
    refuse("cannot give shared memory " + std::to_string(size) + " bytes");
  }
  return fd;
}

void seal(const UniqueFd& fd, int seals) {
  if (fcntl(fd.get(), F_ADD_SEALS, seals | F_SEAL_SEAL) != 0) refuse("cannot seal shared memory");
}

void* map_file(const UniqueFd& fd, size_t size) {
  void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) refuse("cannot map shared memory of " + std::to_string(size) + " bytes");
  return data;
}

void check_received(const UniqueFd& fd, size_t size) {
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    throw TransportError(Status::kCorrupt, "the received descriptor is no memory sealed against shrinking");
  }
  struct stat info{};
  if (fstat(fd.get(), &info) != 0) refuse("cannot ask for the size of received memory");
  if (info.st_size < 0 || static_cast<size_t>(info.st_size) < size) {
    throw TransportError(Status::kCorrupt, "the received memory has " + std::to_string(info.st_size) + " bytes, " +
                                               std::to_string(size) + " are needed");
  }
}

}  // namespace

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  if (this != &other) {
    unmap();
    fd_ = std::move(other.fd_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

SharedMemory SharedMemory::create(const char* name, size_t size) {
  SharedMemory memory;
  memory.fd_ = create_file(name, size);
  seal(memory.fd_, kSizeSeals);
  memory.data_ = map_file(memory.fd_, size);
  memory.size_ = size;
  return memory;
}

SharedMemory SharedMemory::map(UniqueFd fd, size_t size) {
  check_received(fd, size);
  SharedMemory memory;
  memory.data_ = map_file(fd, size);
  memory.size_ = size;
  memory.fd_ = std::move(fd);
  return memory;
}

void SharedMemory::unmap() {
  if (data_ != nullptr) munmap(data_, size_);
  data_ = nullptr;
  size_ = 0;
}

UniqueFd make_constant(const char* name, const void* data, size_t size) {
  UniqueFd fd = create_file(name, 0);
  const char* from = static_cast<const char*>(data);
  for (size_t done = 0; done < size;) {
    const ssize_t written = write(fd.get(), from + done, size - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) refuse("cannot fill shared memory of " + std::to_string(size) + " bytes");
    done += static_cast<size_t>(written);
  }
  seal(fd, kSizeSeals | F_SEAL_WRITE);
  return fd;
}

std::vector<char> read_whole(const UniqueFd& fd, size_t size) {
  struct stat info{};
  // The size is checked first: a claim of terabytes must not become an allocation.
  if (fstat(fd.get(), &info) != 0 || info.st_size < 0 || static_cast<size_t>(info.st_size) < size) {
    throw TransportError(Status::kCorrupt, "the received file is shorter than the " + std::to_string(size) +
                                               " bytes that were announced");
  }
  std::vector<char> bytes(size);
  for (size_t done = 0; done < size;) {
    const ssize_t got = pread(fd.get(), bytes.data() + done, size - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) throw TransportError(Status::kCorrupt, "the received file ended before its announced size");
    done += static_cast<size_t>(got);
  }
  return bytes;
}

}  // namespace tessera::transport
