// SPDX-License-Identifier: Apache-2.0
#include "images.h"

#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>

#include "testing/check.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

using namespace tessera::shim;

namespace {

constexpr size_t kPage = 4096;

/// Two readable pages followed by one that is not.
class Pages {
 public:
  Pages()
      : base_(static_cast<uint8_t*>(
            mmap(nullptr, 3 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    mprotect(base_ + 2 * kPage, kPage, PROT_NONE);
  }
  ~Pages() { munmap(base_, 3 * kPage); }
  /// `content` so placed that it ends right before the unreadable page.
  void* at_the_end(const std::string& content) {
    return std::memcpy(base_ + 2 * kPage - content.size(), content.data(), content.size());
  }

 private:
  uint8_t* base_;
};

template <class T>
std::string raw(const T& value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

std::string text_of(const Image& image) {
  return std::string(reinterpret_cast<const char*>(image.bytes().data()), image.bytes().size());
}

struct Container {
  uint32_t magic = 0xba55ed50;
  uint16_t version = 1, header_size = 16;
  uint64_t payload = 0;
};

std::string container(uint64_t claimed, size_t present) {
  Container header;
  header.payload = claimed;
  return raw(header) + std::string(present, 'p');
}

struct Wrapper {
  uint32_t magic = 0x466243b1, version = 1;
  const void* data = nullptr;
  const void* more = nullptr;
};

Elf64_Ehdr elf_header() {
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_phentsize = sizeof(Elf64_Phdr);
  return header;
}

/// Header, section table, then 100 bytes of one section; .bss beside it takes no room.
std::string cubin(uint64_t claimed) {
  Elf64_Ehdr header = elf_header();
  header.e_shoff = sizeof(header);
  header.e_shnum = 3;
  Elf64_Shdr null{}, code{}, bss{};
  code.sh_type = SHT_PROGBITS;
  code.sh_offset = sizeof(header) + 3 * sizeof(Elf64_Shdr);
  code.sh_size = claimed;
  bss.sh_type = SHT_NOBITS;
  bss.sh_offset = 1 << 20;
  bss.sh_size = 1 << 30;
  return raw(header) + raw(null) + raw(code) + raw(bss) + std::string(100, 'c');
}

constexpr char kConstantText[] = ".version 8.0\n.target sm_80\n";

}  // namespace

TEST_CASE(text_ends_at_its_nul) {
  Pages pages;
  const std::string text(".version 8.0 // \xc3\xa9\n");
  const auto image = read_image(pages.at_the_end(text + std::string(1, '\0')));
  REQUIRE(image != nullptr);
  CHECK(image->kind() == ImageKind::kPtx);
  CHECK_EQ(text_of(*image), text);
}

TEST_CASE(long_text_over_pages) {
  Pages pages;
  const std::string text(kPage + 700, 'x');
  const auto image = read_image(pages.at_the_end(text + std::string(1, '\0')));
  REQUIRE(image != nullptr);
  CHECK_EQ(image->bytes().size(), text.size());
}

TEST_CASE(text_without_end_is_no_image) {
  Pages pages;
  CHECK(read_image(pages.at_the_end(".version 8.0")) == nullptr);
}

TEST_CASE(other_bytes_are_no_image) {
  Pages pages;
  CHECK(read_image(pages.at_the_end(std::string("\x01\x02\x03\x04xyz\0", 8))) == nullptr);
  CHECK(read_image(pages.at_the_end(std::string("BC\xc0\xde\x01\0", 6))) == nullptr);  // LLVM bitcode
  CHECK(read_image(nullptr) == nullptr);
  CHECK(read_image(reinterpret_cast<void*>(uintptr_t{16})) == nullptr);
}

TEST_CASE(elf_extent_comes_from_its_headers) {
  Pages pages;
  const std::string whole = cubin(100);
  const auto image = read_image(pages.at_the_end(whole));
  REQUIRE(image != nullptr);
  CHECK(image->kind() == ImageKind::kElf);
  CHECK_EQ(text_of(*image), whole);
}

TEST_CASE(elf_extent_counts_segments) {
  Elf64_Ehdr header = elf_header();
  header.e_phoff = sizeof(header);
  header.e_phnum = 1;
  Elf64_Phdr segment{};
  segment.p_offset = sizeof(header) + sizeof(segment);
  segment.p_filesz = 33;
  const std::string whole = raw(header) + raw(segment) + std::string(33, 's');
  Pages pages;
  const auto image = read_image(pages.at_the_end(whole));
  REQUIRE(image != nullptr);
  CHECK_EQ(image->bytes().size(), whole.size());
}

TEST_CASE(lying_elf_sizes_are_no_fault) {
  Pages pages;
  CHECK(read_image(pages.at_the_end(cubin(101))) == nullptr);  // one byte too many
  CHECK(read_image(pages.at_the_end(cubin(uint64_t{1} << 40))) == nullptr);
  CHECK(read_image(pages.at_the_end(cubin(UINT64_MAX - 8))) == nullptr);  // the sum overflows
  Elf64_Ehdr header = elf_header();
  header.e_shnum = 0xff00;
  header.e_shoff = 1 << 30;
  CHECK(read_image(pages.at_the_end(raw(header))) == nullptr);
  header = elf_header();
  header.e_ident[EI_CLASS] = ELFCLASS32;
  CHECK(read_image(pages.at_the_end(raw(header))) == nullptr);
  CHECK(read_image(pages.at_the_end(raw(header).substr(0, 20))) == nullptr);  // cut inside the header
}

TEST_CASE(fatbin_container) {
  Pages pages;
  const std::string whole = container(50, 50);
  const auto image = read_image(pages.at_the_end(whole));
  REQUIRE(image != nullptr);
  CHECK(image->kind() == ImageKind::kFatbin);
  CHECK_EQ(text_of(*image), whole);
  CHECK(read_image(pages.at_the_end(container(51, 50))) == nullptr);
  CHECK(read_image(pages.at_the_end(container(UINT64_MAX, 50))) == nullptr);
}

TEST_CASE(fatbin_wrapper_leads_to_its_container) {
  Pages pages;
  const std::string whole = container(64, 64);
  Wrapper wrapper;
  wrapper.data = pages.at_the_end(whole);
  wrapper.more = "a file name";
  auto image = read_image(&wrapper);
  REQUIRE(image != nullptr);
  CHECK_EQ(text_of(*image), whole);
  CHECK(image->complete());
  wrapper.version = 2;
  CHECK(!read_image(&wrapper)->complete());  // more was linked in than these bytes
  wrapper.more = nullptr;
  CHECK(read_image(&wrapper)->complete());
  wrapper.data = nullptr;
  CHECK(read_image(&wrapper) == nullptr);
  Pages short_pages;
  CHECK(read_image(short_pages.at_the_end(raw(wrapper).substr(0, 12))) == nullptr);
}

TEST_CASE(constant_data_is_not_copied) {
  const auto image = read_image(kConstantText);
  REQUIRE(image != nullptr);
  CHECK(static_cast<const void*>(image->bytes().data()) == kConstantText);
}

TEST_CASE(other_memory_is_copied) {
  std::string text(kConstantText);
  const auto image = read_image(text.c_str());
  REQUIRE(image != nullptr);
  text.assign(text.size(), '?');
  CHECK_EQ(text_of(*image), std::string(kConstantText));
}

TEST_CASE(file_image_knows_its_file) {
  char path[] = "/tmp/tessera-image-XXXXXX";
  close(mkstemp(path));
  std::ofstream(path) << kConstantText;
  const auto image = read_image_file(path);
  REQUIRE(image != nullptr);
  CHECK_EQ(image->path(), std::string(path));
  CHECK_EQ(text_of(*image), std::string(kConstantText));
  CHECK(image->file_unchanged());
  std::ofstream(path) << kConstantText << "// more\n";
  CHECK(!image->file_unchanged());
  std::ofstream(path, std::ios::binary | std::ios::trunc) << cubin(100).substr(0, 150);
  CHECK(read_image_file(path) == nullptr);  // cut
  std::ofstream(path, std::ios::trunc) << "";
  CHECK(read_image_file(path) == nullptr);
  unlink(path);
  CHECK(read_image_file(path) == nullptr);
  CHECK(read_image_file("/") == nullptr);
  CHECK(read_image_file(nullptr) == nullptr);
}

TEST_CASE(hash_is_xxh3_and_the_same_for_all_threads) {
  const std::string text(100000, 'h');
  const auto image = read_image(text.c_str());
  REQUIRE(image != nullptr);
  ts_image_hash hashes[4];
  std::thread threads[4];
  for (int i = 0; i < 4; ++i) threads[i] = std::thread([&, i] { hashes[i] = image->hash(); });
  for (std::thread& thread : threads) thread.join();
  XXH3_state_t* state = XXH3_createState();
  XXH3_128bits_reset(state);
  XXH3_128bits_update(state, text.data(), 7);
  XXH3_128bits_update(state, text.data() + 7, text.size() - 7);
  const XXH128_hash_t wanted = XXH3_128bits_digest(state);
  XXH3_freeState(state);
  for (const ts_image_hash& hash : hashes) CHECK(hash.low == wanted.low64 && hash.high == wanted.high64);
}

TEST_MAIN()
