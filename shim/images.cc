// SPDX-License-Identifier: Apache-2.0
#include "images.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "loaded_objects.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tessera::shim {
namespace {

constexpr uint32_t kWrapperMagic = 0x466243b1;
constexpr uint32_t kContainerMagic = 0xba55ed50;
constexpr size_t kMaxImageBytes = size_t{4} << 30;
constexpr size_t kPageBytes = 4096;  // the smallest there is: a read within one never faults halfway

struct Wrapper {
  uint32_t magic, version;
  const void* container;
  const void* const* more;  // version 1: a file name; version 2: containers that were linked in
};

struct ContainerHeader {
  uint32_t magic;
  uint16_t version, header_size;
  uint64_t payload_size;
};

/// Copies from the program's memory. False when some of it cannot be read: a
/// wrong size in a header must not become a fault of the shim's.
bool copy_from_program(const void* from, void* to, size_t size) {
  auto* out = static_cast<uint8_t*>(to);
  auto* in = static_cast<const uint8_t*>(from);
  while (size > 0) {
    iovec local{out, size}, remote{const_cast<uint8_t*>(in), size};
    const ssize_t copied = ::process_vm_readv(::getpid(), &local, 1, &remote, 1, 0);
    if (copied <= 0) return false;
    out += copied;
    in += copied;
    size -= static_cast<size_t>(copied);
  }
  return true;
}

/// Containers without process_vm_readv: the same through a file.
bool copy_through_file(const void* from, void* to, size_t size) {
  const int file = ::open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  size_t done = 0;
  while (done < size) {
    const ssize_t copied = ::pread(file, static_cast<uint8_t*>(to) + done, size - done,
                                   static_cast<off_t>(reinterpret_cast<uintptr_t>(from) + done));
    if (copied < 0 && errno == EINTR) continue;
    if (copied <= 0) break;
    done += static_cast<size_t>(copied);
  }
  ::close(file);
  return done == size;
}

bool safe_copy(const void* from, void* to, size_t size) {
  return copy_from_program(from, to, size) ||
         ((errno == EPERM || errno == ENOSYS) && copy_through_file(from, to, size));
}

template <class T>
bool safe_read(const void* from, T& to) {
  return safe_copy(from, &to, sizeof(T));
}

/// Where image bytes are read from: the program's memory, or a file's content.
class Source {
 public:
  explicit Source(const void* memory) : begin_(static_cast<const uint8_t*>(memory)), size_(SIZE_MAX), ours_(false) {}
  explicit Source(std::span<const uint8_t> content) : begin_(content.data()), size_(content.size()), ours_(true) {}

  const uint8_t* at(size_t offset) const { return begin_ + offset; }
  bool ours() const { return ours_; }
  bool holds(size_t offset, size_t size) const { return size <= size_ && offset <= size_ - size; }

  bool copy(size_t offset, void* to, size_t size) const {
    if (!holds(offset, size)) return false;
    if (!ours_) return safe_copy(at(offset), to, size);
    std::memcpy(to, at(offset), size);
    return true;
  }
  template <class T>
  bool read(size_t offset, T& to) const {
    return copy(offset, &to, sizeof(T));
  }

 private:
  const uint8_t* begin_;
  size_t size_;
  bool ours_;
};

bool is_text(uint8_t byte) { return byte >= 0x20 || (byte >= '\t' && byte <= '\r'); }

/// Length of NUL-terminated text; 0 when it is no text. A file may end without the NUL.
size_t text_size(const Source& source) {
  uint8_t block[kPageBytes];
  for (size_t offset = 0; offset < kMaxImageBytes;) {
    // Up to the next page boundary: the page behind the NUL need not exist.
    size_t size = kPageBytes - (reinterpret_cast<uintptr_t>(source.at(offset)) & (kPageBytes - 1));
    if (source.ours()) {
      while (size > 0 && !source.holds(offset, size)) --size;
      if (size == 0) return offset;
    }
    if (!source.copy(offset, block, size)) return 0;
    for (size_t i = 0; i < size; ++i) {
      if (block[i] == 0) return offset + i;
      if (!is_text(block[i])) return 0;
    }
    offset += size;
  }
  return 0;
}

bool grow(uint64_t& size, uint64_t offset, uint64_t length) {
  uint64_t end = 0;
  if (__builtin_add_overflow(offset, length, &end) || end > kMaxImageBytes) return false;
  size = std::max(size, end);
  return true;
}

bool grow_over_sections(const Source& source, const Elf64_Ehdr& header, uint64_t& size) {
  if (header.e_shnum == 0) return true;
  if (header.e_shentsize != sizeof(Elf64_Shdr) ||
      !grow(size, header.e_shoff, uint64_t{header.e_shnum} * sizeof(Elf64_Shdr))) {
    return false;
  }
  for (uint32_t i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section;
    if (!source.read(header.e_shoff + i * sizeof(section), section)) return false;
    if (section.sh_type != SHT_NOBITS && section.sh_type != SHT_NULL && !grow(size, section.sh_offset, section.sh_size))
      return false;
  }
  return true;
}

bool grow_over_segments(const Source& source, const Elf64_Ehdr& header, uint64_t& size) {
  if (header.e_phnum == 0) return true;
  if (header.e_phentsize != sizeof(Elf64_Phdr) ||
      !grow(size, header.e_phoff, uint64_t{header.e_phnum} * sizeof(Elf64_Phdr))) {
    return false;
  }
  for (uint32_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    if (!source.read(header.e_phoff + i * sizeof(segment), segment)) return false;
    if (!grow(size, segment.p_offset, segment.p_filesz)) return false;
  }
  return true;
}

/// 0 when the headers contradict themselves.
size_t elf_size(const Source& source) {
  Elf64_Ehdr header;
  if (!source.read(0, header) || header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB)
    return 0;
  uint64_t size = sizeof(header);
  if (!grow_over_sections(source, header, size) || !grow_over_segments(source, header, size)) return 0;
  return size;
}

size_t container_size(const Source& source) {
  ContainerHeader header;
  if (!source.read(0, header) || header.header_size < sizeof(header)) return 0;
  uint64_t size = 0;
  return grow(size, header.header_size, header.payload_size) ? size : 0;
}

struct Extent {
  ImageKind kind;
  size_t size;
};

std::optional<Extent> measure(const Source& source) {
  uint32_t magic = 0;
  if (!source.read(0, magic)) return std::nullopt;
  ImageKind kind = ImageKind::kPtx;
  size_t size = 0;
  if (std::memcmp(&magic, ELFMAG, SELFMAG) == 0) {
    kind = ImageKind::kElf;
    size = elf_size(source);
  } else if (magic == kContainerMagic) {
    kind = ImageKind::kFatbin;
    size = container_size(source);
  } else {
    size = text_size(source);
  }
  return size > 0 ? std::optional<Extent>({kind, size}) : std::nullopt;
}

struct Search {
  uintptr_t begin, end;
  bool found;
  std::string path;
};

int search_object(dl_phdr_info* info, size_t, void* argument) {
  auto& search = *static_cast<Search*>(argument);
  for (int i = 0; i < info->dlpi_phnum && !search.found; ++i) {
    const ElfW(Phdr) & header = info->dlpi_phdr[i];
    if (header.p_type != PT_LOAD || (header.p_flags & PF_W) != 0 || (header.p_flags & PF_R) == 0) continue;
    const uintptr_t begin = info->dlpi_addr + header.p_vaddr;
    search.found = search.begin >= begin && search.end <= begin + header.p_filesz;
  }
  if (search.found) search.path = info->dlpi_name;
  return search.found ? 1 : 0;
}

/// Whether the bytes lie in a library's read-only segment, where they cannot
/// change; the library is kept open for as long as `keep` lives.
bool stays_mapped(const void* begin, size_t size, std::shared_ptr<void>& keep) {
  const uintptr_t first = reinterpret_cast<uintptr_t>(begin);
  Search search{first, first + size, false, {}};
  dl_iterate_phdr(search_object, &search);
  if (!search.found || search.path.empty()) return search.found;  // no path: the program itself
  void* library = libc_dlopen(search.path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return false;
  keep.reset(library, [](void* handle) { ::dlclose(handle); });
  return true;
}

struct File {
  explicit File(const char* path) : descriptor(::open(path, O_RDONLY | O_CLOEXEC)) {}
  ~File() {
    if (descriptor >= 0) ::close(descriptor);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  const int descriptor;
};

bool read_all(const File& file, struct stat& status, std::vector<uint8_t>& content) {
  if (file.descriptor < 0 || ::fstat(file.descriptor, &status) != 0 || !S_ISREG(status.st_mode)) return false;
  if (status.st_size <= 0 || static_cast<size_t>(status.st_size) > kMaxImageBytes) return false;
  content.resize(static_cast<size_t>(status.st_size));
  for (size_t done = 0; done < content.size();) {
    const ssize_t got =
        ::pread(file.descriptor, content.data() + done, content.size() - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    done += static_cast<size_t>(got);
  }
  return true;
}

}  // namespace

class ImageReader {
 public:
  static std::shared_ptr<const Image> from_memory(const void* code) {
    if (code == nullptr) return nullptr;
    std::shared_ptr<Image> image(new Image());
    Wrapper wrapper;
    if (safe_read(code, wrapper.magic) && wrapper.magic == kWrapperMagic) {
      if (!safe_read(code, wrapper) || wrapper.container == nullptr) return nullptr;
      code = wrapper.container;
      image->complete_ = wrapper.version < 2 || wrapper.more == nullptr;
    }
    const std::optional<Extent> extent = measure(Source(code));
    if (!extent) return nullptr;
    image->kind_ = extent->kind;
    if (stays_mapped(code, extent->size, image->library_)) {
      image->bytes_ = {static_cast<const uint8_t*>(code), extent->size};
      return image;
    }
    image->copy_.resize(extent->size);
    if (!safe_copy(code, image->copy_.data(), extent->size)) return nullptr;
    image->bytes_ = image->copy_;
    return image;
  }

  static std::shared_ptr<const Image> from_file(const char* path) {
    if (path == nullptr) return nullptr;
    std::shared_ptr<Image> image(new Image());
    if (!read_all(File(path), image->file_, image->copy_)) return nullptr;
    const std::optional<Extent> extent = measure(Source(image->copy_));
    if (!extent || extent->size > image->copy_.size()) return nullptr;
    image->kind_ = extent->kind;
    image->bytes_ = std::span<const uint8_t>(image->copy_).first(extent->size);
    image->path_ = path;
    return image;
  }
};

ts_image_hash Image::hash() const {
  std::call_once(hashed_, [this] {
    const XXH128_hash_t hash = XXH3_128bits(bytes_.data(), bytes_.size());
    hash_ = {hash.low64, hash.high64};
  });
  return hash_;
}

bool Image::file_unchanged() const {
  struct stat now;
  return ::stat(path_.c_str(), &now) == 0 && now.st_dev == file_.st_dev && now.st_ino == file_.st_ino &&
         now.st_size == file_.st_size && now.st_mtim.tv_sec == file_.st_mtim.tv_sec &&
         now.st_mtim.tv_nsec == file_.st_mtim.tv_nsec && now.st_ctim.tv_sec == file_.st_ctim.tv_sec &&
         now.st_ctim.tv_nsec == file_.st_ctim.tv_nsec;
}

std::shared_ptr<const Image> read_image(const void* code) { return ImageReader::from_memory(code); }

std::shared_ptr<const Image> read_image_file(const char* path) { return ImageReader::from_file(path); }

}  // namespace tessera::shim
