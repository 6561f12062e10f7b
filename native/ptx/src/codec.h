// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::ptx {

/// Decompresses into `out`, which never grows over `limit` bytes nor, ahead of the data, to a size
/// that only the header claims. `expected` is that claim; 0: none. False: `error` says why.
bool decompress_zstd(std::string_view in, uint64_t expected, size_t limit, std::string& out, std::string& error);
bool decompress_lz4_block(std::string_view in, uint64_t expected, size_t limit, std::string& out, std::string& error);

}  // namespace tessera::ptx
