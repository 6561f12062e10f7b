// SPDX-License-Identifier: Apache-2.0
// The objects that the loader has mapped, and their symbols, read from the ELF
// tables in memory: unlike dlsym and dlopen this takes no loader lock, so it may
// run in constructors and while other threads load libraries.
#pragma once

#include <link.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera::shim {

class LoadedObject {
 public:
  /// Precondition: called inside dl_iterate_phdr, or for an object that stays.
  explicit LoadedObject(const dl_phdr_info& info);

  const std::string& path() const { return path_; }  // "" for the program itself
  const char* soname() const { return soname_ != nullptr ? soname_ : ""; }
  const char* file_name() const;
  uintptr_t begin() const { return begin_; }
  uintptr_t end() const { return end_; }
  bool contains(uintptr_t address) const { return address >= begin_ && address < end_; }
  /// The address of a function of this object, default version; null when there is none.
  void* function(const char* name) const;

 private:
  void read_dynamic(const ElfW(Dyn) * dynamic);
  void* accept(uint32_t index, const char* name) const;
  void* by_gnu_hash(const char* name) const;
  void* by_sysv_hash(const char* name) const;

  std::string path_;
  const char* soname_ = nullptr;
  uintptr_t base_ = 0, begin_ = UINTPTR_MAX, end_ = 0;
  const ElfW(Sym) * symbols_ = nullptr;
  const char* strings_ = nullptr;
  const uint32_t* gnu_hash_ = nullptr;
  const uint32_t* sysv_hash_ = nullptr;
  const ElfW(Half) * versions_ = nullptr;
};

/// In the loader's order: the program, preloaded libraries, dependencies, then
/// what was opened later. Only the namespace that the shim lives in.
std::vector<LoadedObject> loaded_objects();

/// The one that holds this address.
std::optional<LoadedObject> object_of(const void* address);

/// Whether this is a driver library by name: libcuda.so, libcuda.so.1, ...
bool has_driver_name(const LoadedObject& object);

/// Functions of the C library itself, whoever else defines the name.
void* libc_function(const char* name);

/// The C library's own dlopen and dlsym, past every interposer. As seen from the shim.
void* libc_dlopen(const char* file, int mode);
void* libc_dlsym(void* handle, const char* name);

}  // namespace tessera::shim
