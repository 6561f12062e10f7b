// SPDX-License-Identifier: Apache-2.0
// Module images as the program gave them to the driver.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "tessera/protocol/control.h"

namespace tessera::shim {

enum class ImageKind : uint8_t {
  kPtx,    // text; bytes() ends before the NUL
  kElf,    // cubin
  kFatbin  // container 0xba55ed50, header and payload; the wrapper around it is left out
};

/// The bytes of one image; they stay valid and unchanged as long as it lives.
class Image {
 public:
  ImageKind kind() const { return kind_; }
  std::span<const uint8_t> bytes() const { return bytes_; }
  /// The file it came from; empty when the program gave the bytes.
  const std::string& path() const { return path_; }
  /// False: more code than bytes() was linked in (a fatbin wrapper of version 2
  /// with a second list). Kernels of such an image stay home.
  bool complete() const { return complete_; }
  /// For an image from a file: that the file is still the one that was read.
  bool file_unchanged() const;
  /// XXH3, 128 bits, of bytes(). Computed at the first call, by any thread.
  ts_image_hash hash() const;

 private:
  friend class ImageReader;
  Image() = default;

  ImageKind kind_ = ImageKind::kPtx;
  bool complete_ = true;
  std::span<const uint8_t> bytes_;
  std::vector<uint8_t> copy_;      // empty when the bytes lie in a read-only segment of
  std::shared_ptr<void> library_;  // this library (null: of the program itself)
  std::string path_;
  struct stat file_{};
  mutable std::once_flag hashed_;
  mutable ts_image_hash hash_{};
};

/// What lies at `code`: kind and extent, from the headers alone. No byte behind
/// what they span is touched, and unreadable memory is no fault. Null: of a kind
/// that is not known, or its headers contradict themselves; such a module is not
/// tracked and its kernels stay home.
std::shared_ptr<const Image> read_image(const void* code);

/// The same from a file. `path` is kept as given.
std::shared_ptr<const Image> read_image_file(const char* path);

}  // namespace tessera::shim
