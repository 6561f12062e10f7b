// SPDX-License-Identifier: Apache-2.0
#include "image.h"

#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>

namespace tessera::worker {
namespace {

constexpr uint32_t kFatbinMagic = 0xba55ed50, kWrapperMagic = 0x466243b1, kElfMagic = 0x464c457f;
constexpr uint16_t kEntryPtx = 1, kEntryElf = 2;

/// The integer at `offset`; 0 beyond the end.
template <class T>
T read(std::span<const char> bytes, size_t offset) {
  T value{};
  if (offset <= bytes.size() && sizeof value <= bytes.size() - offset) {
    std::memcpy(&value, bytes.data() + offset, sizeof value);
  }
  return value;
}

void append(std::string& list, const std::string& item) {
  if (list.find(item) != std::string::npos) return;
  if (!list.empty()) list += ", ";
  list += item;
}

std::string elf_objection(std::span<const char> image) {
  if (image.size() < 64) return "the cubin ends within its header";
  const uint64_t size = image.size();
  const auto table = [size](uint64_t offset, uint64_t entry, uint64_t count) {
    return count == 0 || (offset <= size && entry * count <= size - offset);
  };
  if (!table(read<uint64_t>(image, 40), read<uint16_t>(image, 58), read<uint16_t>(image, 60)) ||
      !table(read<uint64_t>(image, 32), read<uint16_t>(image, 54), read<uint16_t>(image, 56))) {
    return "the cubin is cut: its tables lie behind its end";
  }
  return "";
}

/// Calls `visit(kind, arch)` for each entry; false when the container does not hold together.
template <class Visit>
bool walk_fatbin(std::span<const char> image, Visit visit) {
  const uint64_t header = read<uint16_t>(image, 6), payload = read<uint64_t>(image, 8);
  if (header < 16 || header > image.size() || payload > image.size() - header) return false;
  std::span<const char> rest = image.subspan(header, payload);
  while (!rest.empty()) {
    const uint64_t entry_header = read<uint32_t>(rest, 4), entry_size = read<uint64_t>(rest, 8);
    if (entry_header < 32 || entry_header > rest.size() || entry_size > rest.size() - entry_header) return false;
    visit(read<uint16_t>(rest, 0), read<uint32_t>(rest, 28));
    rest = rest.subspan(entry_header + entry_size);
  }
  return true;
}

std::string elf_architecture(std::span<const char> image) {
  const auto flags = read<uint32_t>(image, 48);
  const auto abi = read<uint8_t>(image, 8);
  return "sm_" + std::to_string(abi >= 8 ? flags >> 8 & 0xff : flags & 0xff);
}

std::string ptx_architecture(std::string_view text) {
  size_t at = text.find(".target");
  if (at == std::string_view::npos) return "";
  at = text.find("sm_", at);
  if (at == std::string_view::npos) return "";
  const size_t end = text.find_first_not_of("0123456789abcdefghijklmnopqrstuvwxyz", at + 3);
  return std::string(text.substr(at, std::min<size_t>(end - at, 12))) + " (PTX)";
}

}  // namespace

std::string image_objection(std::span<const char> image) {
  switch (read<uint32_t>(image, 0)) {
    case kWrapperMagic:
      return "the image is a fatbin wrapper, which is only a pointer in the program";
    case kElfMagic:
      return elf_objection(image);
    case kFatbinMagic:
      return walk_fatbin(image, [](uint16_t, uint32_t) {}) ? "" : "the fatbin is cut or its sizes do not add up";
    default:
      return image.empty() ? "the image is empty" : "";
  }
}

std::string image_architectures(std::span<const char> image) {
  std::string list;
  switch (read<uint32_t>(image, 0)) {
    case kElfMagic:
      return elf_architecture(image);
    case kFatbinMagic:
      walk_fatbin(image, [&list](uint16_t kind, uint32_t architecture) {
        if (kind == kEntryElf) append(list, "sm_" + std::to_string(architecture));
        if (kind == kEntryPtx) append(list, "compute_" + std::to_string(architecture) + " (PTX)");
      });
      return list;
    default:
      return ptx_architecture({image.data(), image.size()});
  }
}

}  // namespace tessera::worker
