// SPDX-License-Identifier: Apache-2.0
#include "tessera/ptx/image.h"

#include <cstring>
#include <utility>

#include "bytes.h"
#include "codec.h"
#include "elf.h"
#include "tessera/ptx/ir.h"

namespace tessera::ptx {

namespace {

constexpr uint32_t kWrapperMagic = 0x466243b1u;
constexpr uint32_t kContainerMagic = 0xba55ed50u;
constexpr uint64_t kWrapperSize = 24, kContainerHeaderSize = 16, kEntryHeaderSize = 64;
constexpr uint64_t kFlagLz4 = 0x2000, kFlagZstd = 0x8000;

std::string number(uint64_t value) { return std::to_string(value); }

/// What follows spaces, comments and the line markers of a preprocessor.
std::string_view skip_preamble(std::string_view text) {
  while (true) {
    const size_t begin = text.find_first_not_of(" \t\r\n\v\f");
    if (begin == std::string_view::npos) return {};
    text.remove_prefix(begin);
    const bool is_line = text.starts_with("//") || text.starts_with('#');
    if (!is_line && !text.starts_with("/*")) return text;
    const size_t end = is_line ? text.find('\n') : text.find("*/", 2);
    if (end == std::string_view::npos) return {};
    text.remove_prefix(end + (is_line ? 1 : 2));
  }
}

std::string_view until_nul(const Bytes& bytes) { return bytes.text(0); }

/// 90 for text with ".target sm_90a".
uint32_t ptx_architecture(std::string_view text) {
  const size_t at = text.find(".target");
  if (at == std::string_view::npos) return 0;
  text = skip_preamble(text.substr(at + 7));
  return target_architecture(text.substr(0, 16));
}

ImageEntry::Kind entry_kind(uint16_t kind) {
  switch (kind) {
    case 1:
      return ImageEntry::Kind::kPtx;
    case 2:
      return ImageEntry::Kind::kElf;
    case 8:
      return ImageEntry::Kind::kLtoIr;
    default:
      return ImageEntry::Kind::kOther;
  }
}

class Lister {
 public:
  explicit Lister(const Bytes& image) : image_(image) {}

  ImageListing list() {
    switch (image_kind(image_.view(0, image_.size()).data(), image_.size())) {
      case ImageKind::kPtx:
        add_whole(ImageEntry::Kind::kPtx, ptx_architecture(until_nul(image_)));
        break;
      case ImageKind::kElf:
        list_elf();
        break;
      case ImageKind::kFatbin:
        list_containers(0, image_.size(), true);
        break;
      case ImageKind::kFatbinWrapper:
        listing_.errors.push_back("a fatbin wrapper points out of the image; load what it points to");
        break;
      case ImageKind::kUnknown:
        listing_.errors.push_back("neither PTX nor ELF nor a fatbin");
        break;
    }
    return std::move(listing_);
  }

 private:
  void add_whole(ImageEntry::Kind kind, uint32_t architecture) {
    listing_.entries.push_back({kind, architecture, 0, 0, image_.size(), image_.size(), false});
  }

  void list_elf() {
    if (is_cubin(image_)) return add_whole(ImageEntry::Kind::kElf, cubin_architecture(image_));
    for (const ElfSection& section : elf_sections(image_, listing_.errors)) {
      const bool holds_fatbins =
          section.name.find("fatbin") != std::string_view::npos || section.name == ".cask_resource";
      if (holds_fatbins) list_containers(section.offset, section.offset + section.size, false);
    }
  }

  /// All fatbins between two offsets: they stand one after the other, each aligned to eight bytes, in
  /// a section with gaps between. `is_first` asks for one right at the start.
  void list_containers(uint64_t at, uint64_t end, bool is_first) {
    while (at + kContainerHeaderSize <= end) {
      if (image_.at<uint32_t>(at) != kContainerMagic) {
        if (is_first) return;
        at += 8;
        continue;
      }
      const uint16_t version = image_.at<uint16_t>(at + 4);
      const uint16_t header_size = image_.at<uint16_t>(at + 6);
      const uint64_t payload_size = image_.at<uint64_t>(at + 8);
      if (version != 1 || header_size < kContainerHeaderSize || header_size > end - at) {
        if (is_first) listing_.errors.push_back("fatbin: unknown container version " + number(version));
        if (is_first) return;
        at += 8;
        continue;
      }
      const uint64_t begin = at + header_size;
      if (payload_size > end - begin) {
        listing_.errors.push_back("fatbin at " + number(at) + ": claims " + number(payload_size) + " bytes, " +
                                  number(end - begin) + " are there");
        list_entries(begin, end);
        return;
      }
      list_entries(begin, begin + payload_size);
      at = (begin + payload_size + 7) & ~uint64_t{7};
    }
  }

  void list_entries(uint64_t at, uint64_t end) {
    while (end - at >= kEntryHeaderSize) {
      const uint32_t header_size = image_.at<uint32_t>(at + 4);
      const uint64_t padded_size = image_.at<uint64_t>(at + 8);
      if (header_size < kEntryHeaderSize || header_size > end - at) {
        listing_.errors.push_back("fatbin entry at " + number(at) + ": a header of " + number(header_size) + " bytes");
        return;
      }
      if (padded_size > end - at - header_size) {
        listing_.errors.push_back("fatbin entry at " + number(at) + ": claims " + number(padded_size) + " bytes, " +
                                  number(end - at - header_size) + " are there");
        return;
      }
      add_entry(at, header_size, padded_size);
      at += header_size + padded_size;
    }
    if (at != end && image_.view(at, end - at).find_first_not_of('\0') != std::string_view::npos) {
      listing_.errors.push_back("fatbin: " + number(end - at) + " bytes after the last entry are no entry");
    }
  }

  void add_entry(uint64_t at, uint32_t header_size, uint64_t padded_size) {
    EntryReference entry;
    entry.kind = entry_kind(image_.at<uint16_t>(at));
    entry.architecture = image_.at<uint32_t>(at + 28);
    entry.flags = image_.at<uint64_t>(at + 40);
    entry.offset = at + header_size;
    entry.stored_size = padded_size;
    const uint32_t compressed_size = image_.at<uint32_t>(at + 16);
    entry.compressed = compressed_size != 0;
    if (entry.compressed) {
      entry.uncompressed_size = image_.at<uint64_t>(at + 56);
      if (compressed_size > padded_size) {
        listing_.errors.push_back("fatbin entry at " + number(at) + ": " + number(compressed_size) +
                                  " compressed bytes in a payload of " + number(padded_size));
        return;
      }
      entry.stored_size = compressed_size;
    }
    listing_.entries.push_back(entry);
  }

  const Bytes image_;
  ImageListing listing_;
};

void trim_nuls(std::string& text) {
  const size_t end = text.find('\0');
  if (end != std::string::npos) text.resize(end);
}

}  // namespace

ImageKind image_kind(const void* data, size_t size) {
  const Bytes bytes(data, size);
  if (bytes.at<uint32_t>(0) == kWrapperMagic) return ImageKind::kFatbinWrapper;
  if (bytes.at<uint32_t>(0) == kContainerMagic) return ImageKind::kFatbin;
  if (is_elf(bytes)) return ImageKind::kElf;
  return skip_preamble(until_nul(bytes)).starts_with(".version") ? ImageKind::kPtx : ImageKind::kUnknown;
}

ImageListing list_image(const void* data, size_t size) {
  if (image_kind(data, size) == ImageKind::kFatbinWrapper && size >= kWrapperSize) {
    // Only a pointer into the image itself can be followed safely.
    const uint64_t target = Bytes(data, size).at<uint64_t>(8);
    const uint64_t base = reinterpret_cast<uint64_t>(data);
    if (target > base && target < base + size) {
      const size_t offset = target - base;
      ImageListing listing = Lister(Bytes(static_cast<const char*>(data) + offset, size - offset)).list();
      for (EntryReference& entry : listing.entries) entry.offset += offset;
      return listing;
    }
  }
  return Lister(Bytes(data, size)).list();
}

bool read_entry(const void* data, size_t size, const EntryReference& reference, size_t max_payload, ImageEntry& entry,
                std::string& error) {
  entry.kind = reference.kind;
  entry.architecture = reference.architecture;
  entry.payload.clear();
  const Bytes image(data, size);
  if (!image.holds(reference.offset, reference.stored_size)) {
    error = "the entry lies outside the image";
    return false;
  }
  const std::string_view stored = image.view(reference.offset, reference.stored_size);
  if (!reference.compressed) {
    if (stored.size() > max_payload) {
      error = "a payload of " + number(stored.size()) + " bytes is over the limit of " + number(max_payload);
      return false;
    }
    entry.payload = stored;
  } else if ((reference.flags & kFlagZstd) != 0) {
    if (!decompress_zstd(stored, reference.uncompressed_size, max_payload, entry.payload, error)) return false;
  } else if ((reference.flags & kFlagLz4) != 0) {
    if (!decompress_lz4_block(stored, reference.uncompressed_size, max_payload, entry.payload, error)) return false;
  } else {
    error = "unknown compression, flags " + number(reference.flags);
    return false;
  }
  if (entry.kind == ImageEntry::Kind::kPtx) trim_nuls(entry.payload);
  return true;
}

ImageContents read_image(const void* data, size_t size, size_t max_payload) {
  ImageListing listing = list_image(data, size);
  ImageContents contents;
  contents.errors = std::move(listing.errors);
  for (size_t i = 0; i < listing.entries.size(); ++i) {
    ImageEntry entry;
    std::string error;
    if (read_entry(data, size, listing.entries[i], max_payload, entry, error)) {
      contents.entries.push_back(std::move(entry));
    } else {
      contents.errors.push_back("entry " + number(i) + ": " + error);
    }
  }
  return contents;
}

std::string_view loaded_image(const void* image) {
  if (image == nullptr) return {};
  const char* start = static_cast<const char*>(image);
  // PTX text may be shorter than any header: look at the first bytes one by one.
  const auto has_magic = [&](uint32_t magic) {
    return std::memcmp(start, &magic, 1) == 0 && std::memcmp(start, &magic, 4) == 0;
  };
  if (has_magic(kWrapperMagic)) {
    const char* target = nullptr;
    std::memcpy(&target, start + 8, sizeof(target));
    if (target == nullptr) return {};
    start = target;
  }
  if (has_magic(kContainerMagic)) {
    const Bytes header(start, kContainerHeaderSize);
    return {start, header.at<uint16_t>(6) + header.at<uint64_t>(8)};
  }
  if (std::strncmp(start,
                   "\x7f"
                   "ELF",
                   4) == 0)
    return {start, elf_extent(Bytes(start, SIZE_MAX / 2))};
  const std::string_view text(start);
  return skip_preamble(text).starts_with(".version") ? text : std::string_view();
}

}  // namespace tessera::ptx
