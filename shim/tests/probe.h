// SPDX-License-Identifier: Apache-2.0
// For test programs that run with the shim preloaded: whose function is this,
// and what went to stderr.
#pragma once

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

namespace probe {

inline std::string owner(const void* function) {
  Dl_info info;
  return function != nullptr && dladdr(function, &info) != 0 ? info.dli_fname : "";
}
inline bool from_shim(const void* function) { return owner(function).find("libtessera.so") != std::string::npos; }
inline bool from_driver(const void* function) { return owner(function).find("libcuda.so") != std::string::npos; }

inline void* driver_handle(int mode = RTLD_NOW | RTLD_LOCAL) { return dlopen("libcuda.so.1", mode); }

template <class Function>
Function function(void* handle, const char* name) {
  return reinterpret_cast<Function>(dlsym(handle, name));
}

/// How often the stub driver's function was called.
inline int calls(void* handle, const char* symbol) {
  return function<int (*)(const char*)>(handle, "stub_calls")(symbol);
}

/// Keeps what is written to stderr while it lives.
class CapturedStderr {
 public:
  CapturedStderr() : saved_(dup(STDERR_FILENO)) {
    char path[] = "/tmp/tessera-stderr-XXXXXX";
    file_ = mkstemp(path);
    unlink(path);
    if (saved_ < 0 || file_ < 0 || dup2(file_, STDERR_FILENO) < 0) std::abort();
  }
  ~CapturedStderr() { restore(); }
  std::string restore() {
    if (saved_ < 0) return "";
    dup2(saved_, STDERR_FILENO);
    close(saved_);
    saved_ = -1;
    std::string text(static_cast<size_t>(lseek(file_, 0, SEEK_END)), '\0');
    const ssize_t got = pread(file_, text.data(), text.size(), 0);
    text.resize(got > 0 ? static_cast<size_t>(got) : 0);
    close(file_);
    return text;
  }

 private:
  int saved_, file_;
};

inline int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

}  // namespace probe
