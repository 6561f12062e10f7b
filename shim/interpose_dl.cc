// SPDX-License-Identifier: Apache-2.0
// dlopen, dlsym and dlvsym. Whatever is no business of the shim's is passed on by
// a jump, not a call: the next function then sees the program's return address,
// from which the loader tells what RTLD_NEXT, RTLD_DEFAULT and $ORIGIN mean.
#include <dlfcn.h>
#include <sys/stat.h>

#include <atomic>
#include <cstring>
#include <string>

#include "driver.h"
#include "interpose.h"
#include "loaded_objects.h"
#include "log.h"
#include "runtime.h"
#include "seams.h"

namespace tessera::shim {
namespace {

using Dlvsym = void* (*)(void*, const char*, const char*);

/// What the name means to an object behind the shim: another preloaded library's
/// function, if there is one, else the C library's.
void* next_function(const char* name) {
  bool behind = false;
  for (const LoadedObject& object : loaded_objects()) {
    if (behind) {
      if (void* address = object.function(name)) return address;
    }
    behind = behind || object.contains(reinterpret_cast<uintptr_t>(&next_function));
  }
  return libc_function(name);
}

/// A function looked up at first need; racing threads find the same.
template <class Find>
void* cached(std::atomic<void*>& slot, Find find) {
  void* function = slot.load(std::memory_order_relaxed);
  if (function == nullptr) {
    function = find();
    slot.store(function, std::memory_order_relaxed);
  }
  return function;
}

constinit std::atomic<void*> next_dlopen{nullptr}, next_dlsym{nullptr}, next_dlvsym{nullptr}, libc_dlvsym{nullptr};

/// Answer, or (when jump is set) go on there with the caller's own arguments.
struct Verdict {
  void* answer;
  void* jump;
};

/// cu and a capital letter: not cudaMalloc, not cublasCreate.
bool is_driver_name(const char* name) {
  return name != nullptr && name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z';
}

/// cublasGemmEx, cublasLtMatmul.
bool is_library_name(const char* name) {
  // Letter by letter first: nearly every lookup of a program is of something else.
  return name != nullptr && name[0] == 'c' && name[1] == 'u' && name[2] == 'b' && std::strncmp(name, "cublas", 6) == 0;
}

/// A function of a newer driver that the program obtains: it may work unseen.
void watch_unknown(void* handle, const char* name, const void* caller) {
  if (handle == RTLD_NEXT || handle == RTLD_DEFAULT || is_beneath(caller) || runtime().disabled()) return;
  void* found = libc_dlsym(handle, name);
  if (found != nullptr && driver_is_mapped() && load_driver().contains(found)) runtime().saw_unknown_function(name);
}

const Interposed* interposed(const char* name) {
  for (const Interposed& entry : interposed_functions()) {
    if (entry.ours != nullptr && std::strcmp(entry.symbol, name) == 0) return &entry;
  }
  return nullptr;
}

/// A lookup of a name on the list. `look` does it as the caller asked.
template <class Look>
Verdict answer(const Interposed& entry, void* handle, const char* name, const void* caller, void* next, Look look) {
  // RTLD_NEXT is how interposers chain, and the driver must reach itself.
  if (handle == RTLD_NEXT || is_beneath(caller) || runtime().disabled()) return {nullptr, next};
  void* found = look(handle, name);
  if (found == nullptr) return {nullptr, nullptr};  // dlerror() tells of this very lookup
  if (found == entry.ours) {
    // Through the global scope. Without a driver in the process there would have been nothing.
    return driver_is_mapped() ? Verdict{found, nullptr} : Verdict{look(RTLD_NEXT, name), nullptr};
  }
  if (!load_driver().contains(found)) return {nullptr, next};
  pin_driver();
  return {entry.ours, nullptr};
}

/// A lookup of a function of a host library whose calls the shim follows.
Verdict answer_library(void* handle, const char* name, const void* caller, void* next) {
  const LibraryFunction function = library_function(name);
  if (function.ours == nullptr || handle == RTLD_NEXT || runtime().disabled() || in_followed_library(caller)) {
    return {nullptr, next};
  }
  void* found = libc_dlsym(handle, name);
  if (found == nullptr) return {nullptr, nullptr};
  // Through the global scope, where the shim comes first: without it the next one would have been found.
  void* theirs = found == function.ours ? libc_dlsym(RTLD_NEXT, name) : found;
  if (theirs == nullptr || !takes_lookup(function.kind, theirs)) return {theirs, nullptr};
  return {function.ours, nullptr};
}

bool asks_for_driver(const char* file) {
  const char* slash = std::strrchr(file, '/');
  return std::strncmp(slash != nullptr ? slash + 1 : file, "libcuda.so", std::strlen("libcuda.so")) == 0;
}

/// With TESSERA_DRIVER set, and no other driver in the process, that library is
/// the libcuda.so.1 which the program opens.
const char* redirected(const char* file) {
  if (file == nullptr || !asks_for_driver(file)) return nullptr;
  const std::string& wanted = runtime().settings().driver;
  if (wanted.empty() || runtime().disabled()) return nullptr;
  struct stat setting, mapped;
  if (::stat(wanted.c_str(), &setting) != 0) return nullptr;
  for (const LoadedObject& object : loaded_objects()) {
    if (!has_driver_name(object) || object.function("cuInit") == nullptr) continue;
    const bool same = ::stat(object.path().c_str(), &mapped) == 0 && mapped.st_dev == setting.st_dev &&
                      mapped.st_ino == setting.st_ino;
    if (!same) return nullptr;
  }
  return wanted.c_str();
}

}  // namespace

extern "C" {

[[gnu::used]] Verdict tessera_judge_dlsym(void* handle, const char* name, void*, const void* caller) {
  void* next = cached(next_dlsym, [] { return next_function("dlsym"); });
  if (!is_driver_name(name)) {
    return is_library_name(name) ? answer_library(handle, name, caller, next) : Verdict{nullptr, next};
  }
  if (const Interposed* entry = interposed(name)) return answer(*entry, handle, name, caller, next, libc_dlsym);
  if (!is_known_symbol(name)) watch_unknown(handle, name, caller);
  return {nullptr, next};
}

[[gnu::used]] Verdict tessera_judge_dlvsym(void* handle, const char* name, const char* version, const void* caller) {
  void* next = cached(next_dlvsym, [] { return next_function("dlvsym"); });
  const Interposed* entry = is_driver_name(name) ? interposed(name) : nullptr;
  if (entry == nullptr) return {nullptr, next};
  const auto look = reinterpret_cast<Dlvsym>(cached(libc_dlvsym, [] { return libc_function("dlvsym"); }));
  return answer(*entry, handle, name, caller, next,
                [=](void* where, const char* what) { return look(where, what, version); });
}

[[gnu::used]] Verdict tessera_judge_dlopen(const char* file, intptr_t mode, void*, const void*) {
  void* next = cached(next_dlopen, [] { return next_function("dlopen"); });
  if (const char* instead = redirected(file)) return {libc_dlopen(instead, static_cast<int>(mode)), nullptr};
  if ((mode & RTLD_DEEPBIND) != 0 && file != nullptr && !asks_for_driver(file)) runtime().saw_deep_binding(file);
  return {nullptr, next};
}

}  // extern "C"

}  // namespace tessera::shim

// NAME(a, b, c): asks the judge with the caller's return address as fourth
// argument, then returns the answer or jumps on with everything as it was.
// clang-format off
#if defined(__x86_64__)
#define TESSERA_JUDGED(name)                      \
  asm(".text\n"                                   \
      ".globl " #name "\n"                        \
      ".type " #name ", @function\n"              \
      ".p2align 4\n" #name ":\n"                  \
      ".cfi_startproc\n"                          \
      "  endbr64\n"                               \
      "  push %rdi\n  .cfi_adjust_cfa_offset 8\n" \
      "  push %rsi\n  .cfi_adjust_cfa_offset 8\n" \
      "  push %rdx\n  .cfi_adjust_cfa_offset 8\n" \
      "  mov 24(%rsp), %rcx\n"                    \
      "  call tessera_judge_" #name "\n"          \
      "  mov %rdx, %r11\n"                        \
      "  pop %rdx\n  .cfi_adjust_cfa_offset -8\n" \
      "  pop %rsi\n  .cfi_adjust_cfa_offset -8\n" \
      "  pop %rdi\n  .cfi_adjust_cfa_offset -8\n" \
      "  test %r11, %r11\n"                       \
      "  jne 1f\n"                                \
      "  ret\n"                                   \
      "1: jmp *%r11\n"                            \
      ".cfi_endproc\n"                            \
      ".size " #name ", .-" #name "\n")
#elif defined(__aarch64__)
#define TESSERA_JUDGED(name)              \
  asm(".text\n"                           \
      ".globl " #name "\n"                \
      ".type " #name ", %function\n"      \
      ".p2align 4\n" #name ":\n"          \
      ".cfi_startproc\n"                  \
      "  hint #34\n" /* bti c */          \
      "  stp x29, x30, [sp, #-48]!\n"     \
      "  .cfi_def_cfa_offset 48\n"        \
      "  .cfi_offset 29, -48\n"           \
      "  .cfi_offset 30, -40\n"           \
      "  mov x29, sp\n"                   \
      "  stp x0, x1, [sp, #16]\n"         \
      "  str x2, [sp, #32]\n"             \
      "  mov x3, x30\n"                   \
      "  bl tessera_judge_" #name "\n"    \
      "  mov x16, x1\n"                   \
      "  cbz x16, 1f\n"                   \
      "  ldp x0, x1, [sp, #16]\n"         \
      "  ldr x2, [sp, #32]\n"             \
      "1: ldp x29, x30, [sp], #48\n"      \
      "  .cfi_def_cfa_offset 0\n"         \
      "  .cfi_restore 29\n"               \
      "  .cfi_restore 30\n"               \
      "  cbnz x16, 2f\n"                  \
      "  ret\n"                           \
      "2: br x16\n"                       \
      ".cfi_endproc\n"                    \
      ".size " #name ", .-" #name "\n")
#else
#error "The shim knows x86-64 and AArch64 only."
#endif
// clang-format on

TESSERA_JUDGED(dlopen);
TESSERA_JUDGED(dlsym);
TESSERA_JUDGED(dlvsym);
