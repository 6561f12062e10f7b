// SPDX-License-Identifier: Apache-2.0
#include "loaded_objects.h"

#include <algorithm>
#include <atomic>
#include <cstring>

// NOLINTBEGIN(performance-no-int-to-ptr): ELF tables hold addresses as integers.
namespace tessera::shim {
namespace {

uint32_t gnu_hash_of(const char* name) {
  uint32_t hash = 5381;
  for (const char* at = name; *at != '\0'; ++at) hash = hash * 33 + static_cast<unsigned char>(*at);
  return hash;
}

uint32_t sysv_hash_of(const char* name) {
  uint32_t hash = 0;
  for (const char* at = name; *at != '\0'; ++at) {
    hash = (hash << 4) + static_cast<unsigned char>(*at);
    hash ^= (hash & 0xf0000000u) >> 24;
    hash &= 0x0fffffffu;
  }
  return hash;
}

const char* base_name(const char* path) {
  const char* slash = std::strrchr(path, '/');
  return slash != nullptr ? slash + 1 : path;
}

bool is_driver_file(const char* name) { return std::strncmp(name, "libcuda.so", std::strlen("libcuda.so")) == 0; }

int append_object(dl_phdr_info* info, size_t, void* objects) {
  static_cast<std::vector<LoadedObject>*>(objects)->emplace_back(*info);
  return 0;
}

struct Search {
  uintptr_t address;
  std::optional<LoadedObject> found;
};

int match_object(dl_phdr_info* info, size_t, void* argument) {
  auto& search = *static_cast<Search*>(argument);
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr) & header = info->dlpi_phdr[i];
    const uintptr_t begin = info->dlpi_addr + header.p_vaddr;
    if (header.p_type != PT_LOAD || search.address < begin || search.address >= begin + header.p_memsz) continue;
    search.found.emplace(*info);
    return 1;
  }
  return 0;
}

}  // namespace

LoadedObject::LoadedObject(const dl_phdr_info& info)
    : path_(info.dlpi_name != nullptr ? info.dlpi_name : ""), base_(info.dlpi_addr) {
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const ElfW(Phdr) & header = info.dlpi_phdr[i];
    if (header.p_type == PT_LOAD) {
      begin_ = std::min(begin_, base_ + header.p_vaddr);
      end_ = std::max(end_, base_ + header.p_vaddr + header.p_memsz);
    }
  }
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const ElfW(Phdr) & header = info.dlpi_phdr[i];
    if (header.p_type == PT_DYNAMIC) read_dynamic(reinterpret_cast<const ElfW(Dyn)*>(base_ + header.p_vaddr));
  }
}

void LoadedObject::read_dynamic(const ElfW(Dyn) * dynamic) {
  // glibc relocates these in place, except where the section is read-only (the vdso).
  const auto at = [this](const ElfW(Dyn)* entry) {
    const uintptr_t value = entry->d_un.d_ptr;
    return value < base_ ? base_ + value : value;
  };
  const ElfW(Dyn)* soname = nullptr;
  for (; dynamic->d_tag != DT_NULL; ++dynamic) {
    switch (dynamic->d_tag) {
      case DT_SYMTAB:
        symbols_ = reinterpret_cast<const ElfW(Sym)*>(at(dynamic));
        break;
      case DT_STRTAB:
        strings_ = reinterpret_cast<const char*>(at(dynamic));
        break;
      case DT_GNU_HASH:
        gnu_hash_ = reinterpret_cast<const uint32_t*>(at(dynamic));
        break;
      case DT_HASH:
        sysv_hash_ = reinterpret_cast<const uint32_t*>(at(dynamic));
        break;
      case DT_VERSYM:
        versions_ = reinterpret_cast<const ElfW(Half)*>(at(dynamic));
        break;
      case DT_SONAME:
        soname = dynamic;
        break;
      default:
        break;
    }
  }
  if (soname != nullptr && strings_ != nullptr) soname_ = strings_ + soname->d_un.d_val;
}

const char* LoadedObject::file_name() const { return base_name(path_.c_str()); }

void* LoadedObject::accept(uint32_t index, const char* name) const {
  constexpr ElfW(Half) kHiddenVersion = 0x8000;
  const ElfW(Sym) & symbol = symbols_[index];
  if (symbol.st_shndx == SHN_UNDEF || std::strcmp(strings_ + symbol.st_name, name) != 0) return nullptr;
  if (versions_ != nullptr && (versions_[index] & kHiddenVersion) != 0) return nullptr;
  const uintptr_t address = base_ + symbol.st_value;
  switch (ELF64_ST_TYPE(symbol.st_info)) {
    case STT_FUNC:
      return reinterpret_cast<void*>(address);
    case STT_GNU_IFUNC:
      return reinterpret_cast<void* (*)()>(address)();
    default:
      return nullptr;
  }
}

void* LoadedObject::by_gnu_hash(const char* name) const {
  const uint32_t buckets = gnu_hash_[0], first = gnu_hash_[1], bloom_words = gnu_hash_[2];
  if (buckets == 0) return nullptr;
  const uint32_t* bucket = gnu_hash_ + 4 + bloom_words * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
  const uint32_t* chain = bucket + buckets;
  const uint32_t hash = gnu_hash_of(name);
  uint32_t index = bucket[hash % buckets];
  if (index < first) return nullptr;
  for (;; ++index) {
    const uint32_t found = chain[index - first];
    if ((found | 1u) == (hash | 1u)) {
      if (void* address = accept(index, name)) return address;
    }
    if ((found & 1u) != 0) return nullptr;
  }
}

void* LoadedObject::by_sysv_hash(const char* name) const {
  const uint32_t buckets = sysv_hash_[0], symbols = sysv_hash_[1];
  if (buckets == 0) return nullptr;
  const uint32_t* chain = sysv_hash_ + 2 + buckets;
  for (uint32_t index = sysv_hash_[2 + sysv_hash_of(name) % buckets]; index != 0 && index < symbols;
       index = chain[index]) {
    if (void* address = accept(index, name)) return address;
  }
  return nullptr;
}

void* LoadedObject::function(const char* name) const {
  if (symbols_ == nullptr || strings_ == nullptr) return nullptr;
  if (gnu_hash_ != nullptr) return by_gnu_hash(name);
  return sysv_hash_ != nullptr ? by_sysv_hash(name) : nullptr;
}

std::vector<LoadedObject> loaded_objects() {
  std::vector<LoadedObject> objects;
  dl_iterate_phdr(append_object, &objects);
  return objects;
}

std::optional<LoadedObject> object_of(const void* address) {
  Search search{reinterpret_cast<uintptr_t>(address), std::nullopt};
  dl_iterate_phdr(match_object, &search);
  return search.found;
}

bool has_driver_name(const LoadedObject& object) {
  return is_driver_file(object.file_name()) || is_driver_file(object.soname());
}

void* libc_function(const char* name) {
  // Before glibc 2.34 the dl functions are in a library of their own.
  const std::vector<LoadedObject> objects = loaded_objects();
  for (const char* soname : {"libc.so.6", "libdl.so.2"}) {
    for (const LoadedObject& object : objects) {
      if (std::strcmp(object.soname(), soname) != 0) continue;
      if (void* address = object.function(name)) return address;
    }
  }
  return nullptr;
}

void* libc_dlopen(const char* file, int mode) {
  static constinit std::atomic<void*> found{nullptr};
  if (found.load(std::memory_order_relaxed) == nullptr) found.store(libc_function("dlopen"), std::memory_order_relaxed);
  return reinterpret_cast<void* (*)(const char*, int)>(found.load(std::memory_order_relaxed))(file, mode);
}

void* libc_dlsym(void* handle, const char* name) {
  static constinit std::atomic<void*> found{nullptr};
  if (found.load(std::memory_order_relaxed) == nullptr) found.store(libc_function("dlsym"), std::memory_order_relaxed);
  return reinterpret_cast<void* (*)(void*, const char*)>(found.load(std::memory_order_relaxed))(handle, name);
}

}  // namespace tessera::shim
// NOLINTEND(performance-no-int-to-ptr)
