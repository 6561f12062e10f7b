// SPDX-License-Identifier: Apache-2.0
#include "blas/libraries.h"

#include <dlfcn.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string_view>

#include "handle_table.h"

namespace tessera::shim {
namespace {

using blas::kSuccess;

constexpr const char* kNames[] = {"libcublas.so", "libcublasLt.so"};              // by kind
constexpr const char* kProofs[] = {"cublasGetVersion_v2", "cublasLtGetVersion"};  // not interposed

bool is_of_kind(const LoadedObject& object, uint32_t kind) {
  const auto begins = [&](const char* name) {
    return std::strncmp(name, kNames[kind], std::strlen(kNames[kind])) == 0;
  };
  return (begins(object.soname()) || begins(object.file_name())) && object.function(kProofs[kind]) != nullptr;
}

/// What the libraries of this process were found to be; grows only.
struct Known {
  std::mutex mutex;
  static constexpr size_t kMost = 16;
  std::atomic<size_t> count{0};
  std::unique_ptr<HostLibrary> all[kMost];
};

Known& known() {
  static Known* instance = new Known;  // calls may come after the exit handlers
  return *instance;
}

std::string absolute(const std::string& path) {
  char resolved[PATH_MAX];
  return ::realpath(path.c_str(), resolved) != nullptr ? resolved : "";
}

template <class Function>
void find(const LoadedObject& object, const char* name, Function& into) {
  into = reinterpret_cast<Function>(object.function(name));
}

void find_blas(const LoadedObject& object, HostLibrary& library) {
  find(object, "cublasCreate_v2", library.create);
  find(object, "cublasDestroy_v2", library.destroy);
  find(object, "cublasSetStream_v2", library.set_stream);
  find(object, "cublasSetWorkspace_v2", library.set_workspace);
  find(object, "cublasGetStream_v2", library.get_stream);
  find(object, "cublasGetPointerMode_v2", library.pointer_mode);
  find(object, "cublasGetMathMode", library.math_mode);
  find(object, "cublasGetAtomicsMode", library.atomics_mode);
  find(object, "cublasGetSmCountTarget", library.sm_count);
  find(object, "cublasGetEmulationStrategy", library.emulation_strategy);
#define TESSERA_BLAS(shape, name, type)                      \
  find(object, #name, library.functions[TS_BLAS_##name][0]); \
  find(object, #name "_64", library.functions[TS_BLAS_##name][1]);
#include "tessera/protocol/blas_functions.def"
#undef TESSERA_BLAS
  library.usable = library.create != nullptr && library.get_stream != nullptr && library.pointer_mode != nullptr &&
                   library.math_mode != nullptr && library.atomics_mode != nullptr && library.sm_count != nullptr;
}

/// Every attribute that this version has, whether or not Tessera knows what it means.
void list_attributes(const LoadedObject& object, HostLibrary& library) {
  blas::LtCreateOperation create = nullptr;
  blas::Destroy destroy = nullptr;
  find(object, "cublasLtMatmulDescCreate", create);
  find(object, "cublasLtMatmulDescDestroy", destroy);
  void* fresh = nullptr;
  if (create == nullptr || destroy == nullptr || create(&fresh, blas::kCompute32F, TS_BLAS_F32) != kSuccess) return;
  library.usable = library.get_layout != nullptr;
  for (int id = blas::kScaleType + 1; id < blas::kAttributesEnd; ++id) {
    size_t size = 0;
    uint64_t usual = 0;
    if (library.get_operation(fresh, id, nullptr, 0, &size) != kSuccess || size == 0) continue;
    const bool fits = size <= sizeof usual && library.get_operation(fresh, id, &usual, size, &size) == kSuccess;
    library.usable = library.usable && fits;
    library.attributes.push_back({id, static_cast<uint32_t>(size), usual});
  }
  destroy(fresh);
}

void find_lt(const LoadedObject& object, HostLibrary& library) {
  find(object, "cublasLtCreate", library.create);
  find(object, "cublasLtDestroy", library.destroy);
  find(object, "cublasLtMatmul", library.functions[TS_BLAS_cublasLtMatmul][0]);
  find(object, "cublasLtMatmulDescGetAttribute", library.get_operation);
  find(object, "cublasLtMatrixLayoutGetAttribute", library.get_layout);
  if (library.get_operation != nullptr) list_attributes(object, library);
}

const HostLibrary* library_of(const LoadedObject& object, uint32_t kind) {
  Known& all = known();
  const std::lock_guard lock(all.mutex);
  const size_t count = all.count.load(std::memory_order_relaxed);
  for (size_t i = 0; i < count; ++i) {
    if (all.all[i]->begin == object.begin()) return all.all[i].get();
  }
  if (count == Known::kMost) return nullptr;
  auto made = std::make_unique<HostLibrary>();
  made->path = absolute(object.path());
  made->kind = kind;
  made->begin = object.begin();
  made->end = object.end();
  // Its functions are called from now on: it has to stay.
  libc_dlopen(object.path().c_str(), RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
  if (kind == TS_BLAS_LIBRARY) {
    find_blas(object, *made);
  } else {
    find_lt(object, *made);
  }
  made->usable = made->usable && !made->path.empty();
  all.all[count] = std::move(made);
  all.count.store(count + 1, std::memory_order_release);
  return all.all[count].get();
}

/// What the loader finds for the caller in its own scope.
void* in_scope_of(const void* caller, const char* name) {
  const auto object = object_of(caller);
  if (!object) return nullptr;
  void* scope = libc_dlopen(object->path().empty() ? nullptr : object->path().c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (scope == nullptr) return nullptr;
  void* found = libc_dlsym(scope, name);
  ::dlclose(scope);
  return found;
}

std::vector<LoadedObject> libraries_of(uint32_t kind) {
  std::vector<LoadedObject> objects = loaded_objects();
  std::erase_if(objects, [&](const LoadedObject& object) { return !is_of_kind(object, kind); });
  return objects;
}

constinit std::atomic<const HostLibrary*> looked_up[2] = {};  // by kind: where dlsym last found something

bool is_ours(const void* address) {
  const auto object = object_of(address);
  return object && object->contains(reinterpret_cast<uintptr_t>(&is_ours));
}

struct Handles {
  std::mutex mutex;
  HandleTable<HostHandle> table;
};

Handles& handles() {
  static Handles* instance = new Handles;
  return *instance;
}

constinit std::atomic<HostHandle*> last_found = nullptr;  // programs call with one handle mostly

/// The part of "libcublas.so.13" that names the version.
std::string_view version_of(const LoadedObject& object, uint32_t kind) {
  return std::string_view(object.soname()).substr(std::min(std::strlen(kNames[kind]), std::strlen(object.soname())));
}

}  // namespace

Target find_target(uint32_t kind, const char* name, const void* caller) {
  // In the loader's order: the global scope behind the shim, then the caller's own.
  void* found = libc_dlsym(RTLD_NEXT, name);
  if (found == nullptr) found = in_scope_of(caller, name);
  if (found != nullptr && !is_ours(found)) {
    const auto object = object_of(found);
    return {found, object && is_of_kind(*object, kind) ? library_of(*object, kind) : nullptr};
  }
  // It came by a pointer.
  const std::vector<LoadedObject> libraries = libraries_of(kind);
  const HostLibrary* library =
      libraries.size() == 1 ? library_of(libraries.front(), kind) : looked_up[kind].load(std::memory_order_acquire);
  if (library == nullptr) return {};
  for (const LoadedObject& object : libraries) {
    if (object.begin() == library->begin) return {object.function(name), library};
  }
  return {};
}

bool note_lookup(uint32_t kind, const void* found) {
  const std::vector<LoadedObject> libraries = libraries_of(kind);
  if (libraries.size() != 1 || !libraries.front().contains(reinterpret_cast<uintptr_t>(found))) return false;
  looked_up[kind].store(library_of(libraries.front(), kind), std::memory_order_release);
  return true;
}

const HostLibrary* companion_of(const HostLibrary& library) {
  const std::vector<LoadedObject> objects = loaded_objects();
  std::string_view version;
  for (const LoadedObject& object : objects) {
    if (object.begin() == library.begin) version = version_of(object, TS_BLAS_LIBRARY);
  }
  const HostLibrary* found = nullptr;
  for (const LoadedObject& object : objects) {
    if (!is_of_kind(object, TS_BLAS_LT_LIBRARY) || version_of(object, TS_BLAS_LT_LIBRARY) != version) continue;
    if (found != nullptr) return nullptr;
    found = library_of(object, TS_BLAS_LT_LIBRARY);
  }
  return found;
}

bool in_host_library(const void* address) {
  const Known& all = known();
  for (size_t i = all.count.load(std::memory_order_acquire); i != 0; --i) {
    if (all.all[i - 1]->contains(address)) return true;
  }
  return false;
}

HostHandle* find_handle(const void* handle) {
  if (handle == nullptr) return nullptr;
  HostHandle* last = last_found.load(std::memory_order_acquire);
  if (last != nullptr && last->raw.load(std::memory_order_acquire) == handle) [[likely]]
    return last;
  HostHandle* found = handles().table.find(handle);
  if (found != nullptr) last_found.store(found, std::memory_order_release);
  return found;
}

void add_handle(const void* handle, const HostLibrary& library, CUcontext context) {
  const std::lock_guard lock(handles().mutex);
  if (HostHandle* before = handles().table.find(handle)) before->raw.store(nullptr, std::memory_order_release);
  auto* made = new HostHandle;  // never freed: another thread may still be looking at it
  made->raw.store(handle, std::memory_order_relaxed);
  made->library = &library;
  made->context = context;
  handles().table.set(handle, made);
}

void remove_handle(const void* handle) {
  const std::lock_guard lock(handles().mutex);
  HostHandle* found = handle == nullptr ? nullptr : handles().table.find(handle);
  if (found == nullptr) return;
  found->raw.store(nullptr, std::memory_order_release);  // whoever still has it as the last one looks again
  handles().table.remove(handle);
}

}  // namespace tessera::shim
