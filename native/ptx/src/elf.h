// SPDX-License-Identifier: Apache-2.0
// As much of 64-bit little-endian ELF as it takes to find device code.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bytes.h"

namespace tessera::ptx {

struct ElfSection {
  std::string_view name;
  uint64_t offset = 0, size = 0;
};

bool is_elf(const Bytes& bytes);

/// Whether it holds device code itself.
bool is_cubin(const Bytes& elf);

/// 90 for a cubin of sm_90 or sm_90a.
uint32_t cubin_architecture(const Bytes& elf);

/// Sections with contents in the file. Says in `errors` what is malformed.
std::vector<ElfSection> elf_sections(const Bytes& elf, std::vector<std::string>& errors);

/// Bytes from the start to the end of the last header, section or segment. Reads no further than the header tables.
uint64_t elf_extent(const Bytes& elf);

}  // namespace tessera::ptx
