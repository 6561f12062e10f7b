// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

#include <dlfcn.h>
#include <sys/stat.h>

#include <cstring>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "loaded_objects.h"
#include "log.h"
#include "runtime.h"

namespace tessera::shim {
namespace {

template <auto Member>
struct Stub;

template <class... Arguments, CUresult (*Driver::*Member)(Arguments...)>
struct Stub<Member> {
  static CUresult missing(Arguments...) { return CUDA_ERROR_NOT_SUPPORTED; }
  /// Stands in the table until the library is found.
  static CUresult first_call(Arguments... arguments) {
    load_driver();
    return (driver().*Member)(arguments...);
  }
};

constinit const Driver kFirstCalls = {
#define TESSERA_DRIVER_FUNCTION(kind, base, symbol, version, per_thread) &Stub<&Driver::symbol>::first_call,
#include "functions.def"
#undef TESSERA_DRIVER_FUNCTION
};

constinit const Driver kMissing = {
#define TESSERA_DRIVER_FUNCTION(kind, base, symbol, version, per_thread) &Stub<&Driver::symbol>::missing,
#include "functions.def"
#undef TESSERA_DRIVER_FUNCTION
};

struct Symbol {
  const char* name;
  size_t offset;
};

constexpr Symbol kSymbols[] = {
#define TESSERA_DRIVER_FUNCTION(kind, base, symbol, version, per_thread) {#symbol, offsetof(Driver, symbol)},
#include "functions.def"
#undef TESSERA_DRIVER_FUNCTION
};

#define TESSERA_ENTRY_CUSTOM(base, symbol, version, per_thread) \
  {#base, #symbol, version, per_thread != 0, reinterpret_cast<void*>(&::symbol), offsetof(Driver, symbol)},
#define TESSERA_ENTRY_ORDERED(base, symbol, version, per_thread) TESSERA_ENTRY_CUSTOM(base, symbol, version, per_thread)
#define TESSERA_ENTRY_PASS(base, symbol, version, per_thread) \
  {#base, #symbol, version, per_thread != 0, nullptr, offsetof(Driver, symbol)},
#define TESSERA_ENTRY_CALLED(base, symbol, version, per_thread)
const Interposed kInterposed[] = {
#define TESSERA_DRIVER_FUNCTION(kind, base, symbol, version, per_thread) \
  TESSERA_ENTRY_##kind(base, symbol, version, per_thread)
#include "functions.def"
#undef TESSERA_DRIVER_FUNCTION
};

/// What load_driver() publishes: the table, where it came from, and who else
/// stands between the shim and the driver.
struct Loaded {
  Driver table = kMissing;
  DriverLibrary library{"", 0, 0, 0};
  std::string path;
  std::vector<LoadedObject> between;
};

constinit std::atomic<const Loaded*> published{nullptr};
constinit std::atomic<bool> failure_logged{false};

bool same_file(const struct stat& wanted, const std::string& path) {
  struct stat found;
  return ::stat(path.c_str(), &found) == 0 && found.st_dev == wanted.st_dev && found.st_ino == wanted.st_ino;
}

bool is_driver(const LoadedObject& object) { return has_driver_name(object) && object.function("cuInit") != nullptr; }

/// The driver library among the mapped objects. On WSL libcuda.so.1 only finds
/// another one: that the program opened comes first.
const LoadedObject* mapped_driver(const std::vector<LoadedObject>& objects, const std::string& wanted) {
  struct stat file;
  const bool exists = !wanted.empty() && ::stat(wanted.c_str(), &file) == 0;
  const LoadedObject* found = nullptr;
  for (const LoadedObject& object : objects) {
    if (exists && same_file(file, object.path())) return &object;
    if (is_driver(object) && (found == nullptr || (std::strcmp(object.soname(), "libcuda.so.1") == 0 &&
                                                   std::strcmp(found->soname(), "libcuda.so.1") != 0))) {
      found = &object;
    }
  }
  return found;
}

/// Interposers that were preloaded behind the shim: the program's own calls would
/// have gone to them, so the shim's do.
std::vector<LoadedObject> objects_between(const std::vector<LoadedObject>& objects) {
  std::vector<LoadedObject> found;
  bool behind = false;
  for (const LoadedObject& object : objects) {
    if (object.contains(reinterpret_cast<uintptr_t>(&kMissing))) {
      behind = true;
    } else if (is_driver(object) || std::strcmp(object.soname(), "libc.so.6") == 0) {
      break;
    } else if (behind) {
      for (const char* probe :
           {"cuInit", "cuLaunchKernel", "cuMemAlloc_v2", "cuGetProcAddress", "cuGetProcAddress_v2"}) {
        if (object.function(probe) == nullptr) continue;
        found.push_back(object);
        break;
      }
    }
  }
  return found;
}

void fill(Loaded& loaded, const LoadedObject& library) {
  for (const Symbol& symbol : kSymbols) {
    void* address = nullptr;
    for (const LoadedObject& object : loaded.between) {
      if (address == nullptr) address = object.function(symbol.name);
    }
    if (address == nullptr) address = library.function(symbol.name);
    if (address != nullptr)
      std::memcpy(reinterpret_cast<char*>(&loaded.table) + symbol.offset, &address, sizeof(address));
  }
  loaded.path = library.path();
  loaded.library = {nullptr, library.begin(), library.end(), 0};
  if (loaded.table.cuDriverGetVersion(&loaded.library.version) != CUDA_SUCCESS) loaded.library.version = 0;
}

void say_newer(int version) {
  if (version / 10 <= CUDA_VERSION / 10) return;
  const LogLevel level = version / 1000 > CUDA_VERSION / 1000 ? LogLevel::kWarn : LogLevel::kInfo;
  log_line(level, "the driver (CUDA %d.%d) is newer than this build knows (%d.%d): what is new in it is passed through",
           version / 1000, version % 1000 / 10, CUDA_VERSION / 1000, CUDA_VERSION % 1000 / 10);
}

/// Null after a line on stderr.
std::unique_ptr<Loaded> find_and_fill() {
  const std::string& wanted = runtime().settings().driver;
  std::vector<LoadedObject> objects = loaded_objects();
  const LoadedObject* library = mapped_driver(objects, wanted);
  if (library == nullptr) {
    const char* name = wanted.empty() ? "libcuda.so.1" : wanted.c_str();
    if (libc_dlopen(name, RTLD_NOW | RTLD_LOCAL) == nullptr) {
      if (!failure_logged.exchange(true)) {
        log_line(LogLevel::kError, "no CUDA driver: %s cannot be opened%s", name,
                 wanted.empty() ? "" : " (TESSERA_DRIVER names it)");
      }
      return nullptr;
    }
    objects = loaded_objects();
    library = mapped_driver(objects, wanted);
    if (library == nullptr) return nullptr;
  }
  auto loaded = std::make_unique<Loaded>();
  loaded->between = objects_between(objects);
  fill(*loaded, *library);
  return loaded;
}

/// Whoever sees the published table also puts it in force: nobody depends on the
/// thread that found the library being scheduled.
const DriverLibrary& use(const Loaded& loaded) {
  detail::driver_table.store(&loaded.table, std::memory_order_release);
  return loaded.library;
}

void say_ignored_setting(const Loaded& loaded) {
  const std::string& wanted = runtime().settings().driver;
  struct stat file;
  if (wanted.empty() || (::stat(wanted.c_str(), &file) == 0 && same_file(file, loaded.path))) return;
  log_line(LogLevel::kWarn, "TESSERA_DRIVER=%s is not used: this program had loaded %s before", wanted.c_str(),
           loaded.path.c_str());
}

}  // namespace

namespace detail {
constinit std::atomic<const Driver*> driver_table{&kFirstCalls};
}

std::span<const Interposed> interposed_functions() { return kInterposed; }

const DriverLibrary& load_driver() {
  if (const Loaded* loaded = published.load(std::memory_order_acquire)) return use(*loaded);
  std::unique_ptr<Loaded> made = find_and_fill();
  if (made == nullptr) {
    static constinit const DriverLibrary kNone{"", 0, 0, 0};
    const Driver* expected = &kFirstCalls;
    detail::driver_table.compare_exchange_strong(expected, &kMissing);
    return kNone;
  }
  made->library.path = made->path.c_str();
  const Loaded* expected = nullptr;
  if (!published.compare_exchange_strong(expected, made.get(), std::memory_order_acq_rel)) return use(*expected);
  const Loaded* loaded = made.release();
  use(*loaded);
  log_line(LogLevel::kDebug, "the driver is %s, CUDA %d", loaded->library.path, loaded->library.version);
  say_newer(loaded->library.version);
  say_ignored_setting(*loaded);
  return loaded->library;
}

bool driver_is_mapped() {
  if (published.load(std::memory_order_acquire) != nullptr) return true;
  return mapped_driver(loaded_objects(), runtime().settings().driver) != nullptr;
}

void pin_driver() {
  static constinit std::atomic<bool> pinned{false};
  const DriverLibrary& library = load_driver();
  if (library.begin == library.end || pinned.exchange(true)) return;
  // A failure leaves things as they are without the shim: the program holds the library.
  if (libc_dlopen(library.path, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE) == nullptr) {
    log_line(LogLevel::kDebug, "%s cannot be pinned", library.path);
  }
}

bool is_beneath(const void* caller) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(caller);
  const Loaded* loaded = published.load(std::memory_order_acquire);
  if (loaded != nullptr) {
    if (loaded->library.contains(caller)) return true;
    for (const LoadedObject& object : loaded->between) {
      if (object.contains(address)) return true;
    }
  }
  const std::optional<LoadedObject> object = object_of(caller);
  return object.has_value() && is_driver(*object);
}

}  // namespace tessera::shim
