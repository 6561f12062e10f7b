// SPDX-License-Identifier: Apache-2.0
// What a driver gets as a module: PTX text, a cubin, a fatbin, or the wrapper
// that points to a fatbin. Sizes come from the image itself and are never
// trusted: every read is bounded by `size`.
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

/// Reads every entry, decompressing LZ4 and zstd. A payload over
/// `max_payload` bytes after decompression is an error of that entry.
ImageContents read_image(const void* data, size_t size, size_t max_payload = size_t{1} << 30);

}  // namespace tessera::ptx
