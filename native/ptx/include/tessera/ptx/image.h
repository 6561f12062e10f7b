// SPDX-License-Identifier: Apache-2.0
// What a driver gets as a module: PTX text, a cubin, a fatbin, or the wrapper
// that points to a fatbin; and the libraries that such images are packed in.
// Sizes come from the image itself and are never trusted: every read is bounded
// by `size`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::ptx {

enum class ImageKind : uint8_t { kUnknown, kPtx, kElf, kFatbin, kFatbinWrapper };

ImageKind image_kind(const void* data, size_t size);

struct ImageEntry {
  enum class Kind : uint8_t { kPtx, kElf, kLtoIr, kOther } kind = Kind::kOther;
  uint32_t architecture = 0;  // 90; the suffix is in `flags`-independent text below where known
  std::string payload;        // decompressed; PTX without its trailing NULs
};

struct ImageContents {
  std::vector<ImageEntry> entries;
  std::vector<std::string> errors;  // what could not be read, and why; other entries are still returned
};

/// Where one entry lies in an image, not yet decompressed.
struct EntryReference {
  ImageEntry::Kind kind = ImageEntry::Kind::kOther;
  uint32_t architecture = 0;
  uint64_t flags = 0;              // as in the fatbin; says how the payload is compressed
  size_t offset = 0;               // of the stored payload in the image
  size_t stored_size = 0;          // compressed where `compressed` says so
  uint64_t uncompressed_size = 0;  // 0: unknown
  bool compressed = false;
};

struct ImageListing {
  std::vector<EntryReference> entries;
  std::vector<std::string> errors;
};

/// Finds every entry without decompressing. A host ELF (executable or shared library) yields the
/// entries of all fatbins in its sections. A wrapper yields entries only where it points into the
/// image itself: see `loaded_image`.
ImageListing list_image(const void* data, size_t size);

/// One entry of a listing of the same image. False: it could not be read, and `error` says why.
bool read_entry(const void* data, size_t size, const EntryReference& reference, size_t max_payload, ImageEntry& entry,
                std::string& error);

/// What a module-loading call got, which has no size: follows a wrapper to its fatbin and takes the
/// size from the headers, or from the NUL that ends PTX text. Empty for an unknown kind.
/// Precondition: `image` is null or points to a live image of this process, as a driver may assume too.
std::string_view loaded_image(const void* image);

/// Reads every entry, decompressing LZ4 and zstd. A payload over
/// `max_payload` bytes after decompression is an error of that entry.
ImageContents read_image(const void* data, size_t size, size_t max_payload = size_t{1} << 30);

}  // namespace tessera::ptx
