// SPDX-License-Identifier: Apache-2.0
#include "elf.h"

#include <algorithm>

namespace tessera::ptx {

namespace {

constexpr uint16_t kMachineCuda = 190;
constexpr uint32_t kNoBits = 8;
constexpr uint64_t kHeaderSize = 64, kSectionHeaderSize = 64, kSegmentHeaderSize = 56;

struct Table {
  uint64_t offset = 0, entry_size = 0, count = 0;
};

/// The section headers. A count of 0 is continued in the first header, as ELF has it for large files.
Table section_table(const Bytes& elf) {
  Table table{elf.at<uint64_t>(40), elf.at<uint16_t>(58), elf.at<uint16_t>(60)};
  if (table.count == 0 && table.offset != 0) table.count = elf.at<uint64_t>(table.offset + 32);
  return table;
}

uint64_t add(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }

}  // namespace

bool is_elf(const Bytes& bytes) {
  return bytes.view(0, 4) ==
             "\x7f"
             "ELF" &&
         bytes.at<uint8_t>(4) == 2 && bytes.at<uint8_t>(5) == 1 && bytes.size() >= kHeaderSize;
}

bool is_cubin(const Bytes& elf) { return elf.at<uint16_t>(18) == kMachineCuda; }

uint32_t cubin_architecture(const Bytes& elf) {
  const uint32_t flags = elf.at<uint32_t>(48);
  const bool is_second_abi = elf.at<uint8_t>(8) >= 8;  // CUDA 12.8 and later moved the field
  return is_second_abi ? flags >> 8 & 0xff : flags & 0xff;
}

std::vector<ElfSection> elf_sections(const Bytes& elf, std::vector<std::string>& errors) {
  std::vector<ElfSection> sections;
  const Table table = section_table(elf);
  if (table.offset == 0 || table.count == 0) return sections;
  if (table.entry_size < kSectionHeaderSize || table.count > elf.size() / table.entry_size ||
      !elf.holds(table.offset, table.count * table.entry_size)) {
    errors.push_back("ELF: the section headers lie outside the file");
    return sections;
  }
  const auto header = [&](uint64_t index) { return table.offset + index * table.entry_size; };
  uint64_t names_index = elf.at<uint16_t>(62);
  if (names_index == 0xffff) names_index = elf.at<uint32_t>(header(0) + 40);
  Bytes names(nullptr, 0);
  if (names_index < table.count) {
    const std::string_view bytes =
        elf.view(elf.at<uint64_t>(header(names_index) + 24), elf.at<uint64_t>(header(names_index) + 32));
    names = Bytes(bytes.data(), bytes.size());
  }
  for (uint64_t i = 0; i < table.count; ++i) {
    if (elf.at<uint32_t>(header(i) + 4) == kNoBits) continue;
    ElfSection section{names.text(elf.at<uint32_t>(header(i))), elf.at<uint64_t>(header(i) + 24),
                       elf.at<uint64_t>(header(i) + 32)};
    if (elf.holds(section.offset, section.size)) {
      sections.push_back(section);
    } else {
      errors.push_back(std::string("ELF: section ").append(section.name).append(" lies outside the file"));
    }
  }
  return sections;
}

uint64_t elf_extent(const Bytes& elf) {
  const Table sections = section_table(elf);
  const Table segments{elf.at<uint64_t>(32), elf.at<uint16_t>(54), elf.at<uint16_t>(56)};
  uint64_t end = kHeaderSize;
  if (sections.offset != 0)
    end = std::max(end, add(sections.offset, sections.entry_size * std::min<uint64_t>(sections.count, 1u << 24)));
  if (segments.offset != 0) end = std::max(end, add(segments.offset, segments.entry_size * segments.count));
  for (uint64_t i = 0; i < sections.count && sections.entry_size >= kSectionHeaderSize; ++i) {
    const uint64_t header = sections.offset + i * sections.entry_size;
    if (!elf.holds(header, kSectionHeaderSize)) break;
    if (elf.at<uint32_t>(header + 4) == kNoBits) continue;
    end = std::max(end, add(elf.at<uint64_t>(header + 24), elf.at<uint64_t>(header + 32)));
  }
  for (uint64_t i = 0; i < segments.count && segments.entry_size >= kSegmentHeaderSize; ++i) {
    const uint64_t header = segments.offset + i * segments.entry_size;
    if (!elf.holds(header, kSegmentHeaderSize)) break;
    end = std::max(end, add(elf.at<uint64_t>(header + 8), elf.at<uint64_t>(header + 32)));
  }
  return end;
}

}  // namespace tessera::ptx
