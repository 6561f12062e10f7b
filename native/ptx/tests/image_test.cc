// SPDX-License-Identifier: Apache-2.0
#include "tessera/ptx/image.h"

#include <lz4.h>
#include <zstd.h>

#include <cstring>

#include "../../testing/check.h"

using namespace tessera::ptx;

namespace {

const std::string kPtx = ".version 8.0\n.target sm_90a\n.address_size 64\n.entry k() { ret; }\n";

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <class T>
void patch(std::string& out, size_t at, T value) {
  std::memcpy(out.data() + at, &value, sizeof(value));
}

struct Spec {
  uint16_t kind = 1;
  uint32_t architecture = 90;
  std::string payload;
  uint64_t flags = 0;
  uint64_t uncompressed = 0;  // 0: not compressed
};

std::string entry(const Spec& spec) {
  std::string payload = spec.payload;
  payload.resize((payload.size() + 7) / 8 * 8);
  std::string out;
  put<uint16_t>(out, spec.kind);
  put<uint16_t>(out, 0x101);
  put<uint32_t>(out, 64);
  put<uint64_t>(out, payload.size());
  put<uint32_t>(out, spec.uncompressed != 0 ? static_cast<uint32_t>(spec.payload.size()) : 0);
  put<uint32_t>(out, 0);
  put<uint32_t>(out, 0);
  put<uint32_t>(out, spec.architecture);
  put<uint64_t>(out, 0);
  put<uint64_t>(out, spec.flags);
  put<uint64_t>(out, 0);
  put<uint64_t>(out, spec.uncompressed);
  return out + payload;
}

std::string fatbin(const std::vector<Spec>& specs) {
  std::string body, out;
  for (const Spec& spec : specs) body += entry(spec);
  put<uint32_t>(out, 0xba55ed50u);
  put<uint16_t>(out, 1);
  put<uint16_t>(out, 16);
  put<uint64_t>(out, body.size());
  return out + body;
}

Spec lz4_spec(const std::string& text) {
  std::string packed(static_cast<size_t>(LZ4_compressBound(static_cast<int>(text.size()))), '\0');
  packed.resize(static_cast<size_t>(LZ4_compress_default(text.data(), packed.data(), static_cast<int>(text.size()),
                                                         static_cast<int>(packed.size()))));
  return {1, 80, packed, 0x2000, text.size()};
}

Spec zstd_spec(const std::string& text) {
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 3));
  return {1, 100, packed, 0x8000, text.size()};
}

/// An x86 library whose sections are the given ones.
std::string library(const std::vector<std::pair<std::string, std::string>>& sections) {
  std::string names(1, '\0'), out(64, '\0');
  std::vector<std::string> headers(1, std::string(64, '\0'));
  const auto add = [&](const std::string& name, const std::string& bytes) {
    std::string header(64, '\0');
    patch<uint32_t>(header, 0, static_cast<uint32_t>(names.size()));
    patch<uint32_t>(header, 4, 1);
    names += name + '\0';
    out.resize((out.size() + 7) / 8 * 8);
    patch<uint64_t>(header, 24, out.size());
    patch<uint64_t>(header, 32, bytes.size());
    out += bytes;
    headers.push_back(header);
  };
  for (const auto& [name, bytes] : sections) add(name, bytes);
  names += ".shstrtab";
  add("", names + '\0');
  out.resize((out.size() + 7) / 8 * 8);
  patch<uint64_t>(out, 40, out.size());
  patch<uint16_t>(out, 58, 64);
  patch<uint16_t>(out, 60, static_cast<uint16_t>(headers.size()));
  patch<uint16_t>(out, 62, static_cast<uint16_t>(headers.size() - 1));
  patch<uint16_t>(out, 18, 62);
  out.replace(0, 6,
              std::string("\x7f"
                          "ELF\x02\x01",
                          6));
  for (const std::string& header : headers) out += header;
  return out;
}

std::string cubin(uint8_t abi, uint32_t flags) {
  std::string out = library({});
  out[8] = static_cast<char>(abi);
  patch<uint16_t>(out, 18, 190);
  patch<uint32_t>(out, 48, flags);
  return out;
}

ImageContents read(const std::string& image, size_t limit = size_t{1} << 30) {
  return read_image(image.data(), image.size(), limit);
}

ImageKind kind_of(const std::string& image) { return image_kind(image.data(), image.size()); }

}  // namespace

TEST_CASE(kinds) {
  CHECK(kind_of(kPtx) == ImageKind::kPtx);
  CHECK(kind_of("\n // c\n/* d */\t" + kPtx) == ImageKind::kPtx);
  CHECK(kind_of("# 1 \"a.py\"\n" + kPtx) == ImageKind::kPtx);
  CHECK(kind_of(fatbin({})) == ImageKind::kFatbin);
  CHECK(kind_of(library({})) == ImageKind::kElf);
  CHECK(kind_of(std::string("\xb1\x43\x62\x46", 4)) == ImageKind::kFatbinWrapper);
  for (const char* const text : {"", "x", "// only", "/* open",
                                 "\x7f"
                                 "EL",
                                 "version 8", "\x50\xed\x55"}) {
    CHECK(kind_of(text) == ImageKind::kUnknown);
  }
  CHECK(image_kind(nullptr, 0) == ImageKind::kUnknown);
}

TEST_CASE(ptx_text_is_its_own_entry) {
  const ImageContents contents = read(kPtx + std::string(3, '\0'));
  REQUIRE(contents.entries.size() == 1 && contents.errors.empty());
  CHECK(contents.entries[0].kind == ImageEntry::Kind::kPtx);
  CHECK_EQ(contents.entries[0].architecture, 90u);
  CHECK(contents.entries[0].payload == kPtx);
}

TEST_CASE(cubins_say_their_architecture) {
  for (const auto& [abi, flags] : {std::pair<uint8_t, uint32_t>{7, 0x5a055a}, {8, 0x6005a02}}) {
    const std::string image = cubin(abi, flags);
    const ImageContents contents = read(image);
    REQUIRE(contents.entries.size() == 1);
    CHECK(contents.entries[0].kind == ImageEntry::Kind::kElf);
    CHECK_EQ(contents.entries[0].architecture, 90u);
    CHECK(contents.entries[0].payload == image);
  }
}

TEST_CASE(all_entries_of_a_fatbin_are_walked) {
  std::string large = kPtx;
  for (int i = 0; i < 100000; ++i) large += "// " + std::to_string(i * 7919) + "\n";
  const ImageContents contents = read(fatbin({{2, 80, "cubin bytes", 0, 0},
                                              lz4_spec(large),
                                              {1, 75, kPtx, 0, 0},
                                              zstd_spec(large),
                                              {8, 90, "lto", 0, 0},
                                              {77, 90, "new", 0, 0}}));
  CHECK(contents.errors.empty());
  REQUIRE(contents.entries.size() == 6);
  CHECK(contents.entries[0].kind == ImageEntry::Kind::kElf);
  CHECK(contents.entries[1].payload == large);
  CHECK_EQ(contents.entries[1].architecture, 80u);
  CHECK(contents.entries[2].payload == kPtx);
  CHECK(contents.entries[3].payload == large);
  CHECK_EQ(contents.entries[3].architecture, 100u);
  CHECK(contents.entries[4].kind == ImageEntry::Kind::kLtoIr);
  CHECK(contents.entries[5].kind == ImageEntry::Kind::kOther);
}

TEST_CASE(a_library_yields_all_its_fatbins) {
  const std::string one = fatbin({{1, 75, kPtx, 0, 0}});
  const std::string two = fatbin({zstd_spec(kPtx), {2, 80, "x", 0, 0}});
  const std::string image =
      library({{".text", one}, {".nv_fatbin", one + std::string(16, '\0') + two + one}, {"__nv_relfatbin", two}});
  const ImageContents contents = read(image);
  CHECK(contents.errors.empty());
  CHECK_EQ(contents.entries.size(), 6u);
  CHECK(read(library({{".text", one}})).entries.empty());
}

TEST_CASE(one_bad_entry_does_not_hide_the_others) {
  Spec bad_lz4 = lz4_spec(kPtx), bad_zstd = zstd_spec(kPtx), short_zstd = zstd_spec(kPtx), unknown = lz4_spec(kPtx);
  bad_lz4.payload.resize(bad_lz4.payload.size() / 2);
  bad_zstd.payload[0] = 'x';
  short_zstd.payload.resize(short_zstd.payload.size() / 2);
  unknown.flags = 0x40000;
  const ImageContents contents =
      read(fatbin({bad_lz4, {1, 75, kPtx, 0, 0}, bad_zstd, short_zstd, unknown, lz4_spec(kPtx)}));
  CHECK_EQ(contents.entries.size(), 2u);
  CHECK_EQ(contents.errors.size(), 4u);
}

TEST_CASE(lying_sizes_are_errors_and_take_no_memory) {
  const auto check_one_error = [](Spec spec, size_t limit = size_t{1} << 40) {
    const ImageContents contents = read(fatbin({std::move(spec)}), limit);
    CHECK(contents.entries.empty());
    CHECK_EQ(contents.errors.size(), 1u);
  };
  for (const uint64_t claim :
       {uint64_t{1}, uint64_t{kPtx.size() + 1}, uint64_t{1} << 31, uint64_t{1} << 39, UINT64_MAX}) {
    Spec lz4 = lz4_spec(kPtx), zstd = zstd_spec(kPtx);
    lz4.uncompressed = zstd.uncompressed = claim;
    check_one_error(lz4);
    check_one_error(zstd);
  }
  const std::string zeros(size_t{1} << 24, '\0');
  check_one_error(zstd_spec(zeros), size_t{1} << 20);
  check_one_error(lz4_spec(zeros), size_t{1} << 20);
  check_one_error({1, 75, kPtx, 0, 0}, 10);
  Spec unsaid = zstd_spec(std::string(size_t{1} << 22, 'a'));
  unsaid.uncompressed = 1;  // a bomb whose header says little
  check_one_error(unsaid, size_t{1} << 20);
}

TEST_CASE(every_cut_and_every_damaged_byte_ends_well) {
  const std::string image = fatbin({lz4_spec(kPtx), {1, 75, kPtx, 0, 0}, zstd_spec(kPtx)});
  const std::string packed = library({{".nv_fatbin", image}});
  for (const std::string& whole : {image, packed}) {
    CHECK_EQ(read(whole).entries.size(), 3u);
    for (size_t size = 0; size < whole.size(); ++size) CHECK(read(whole.substr(0, size)).entries.size() <= 3);
    for (size_t at = 0; at < whole.size(); ++at) {
      for (const char value : {'\0', '\x01', '\x7f', '\x80', '\xff'}) {
        std::string damaged = whole;
        damaged[at] = value;
        CHECK(read(damaged, size_t{1} << 22).entries.size() <= 4);
      }
    }
  }
}

TEST_CASE(an_unknown_container_version_is_said) {
  std::string image = fatbin({{1, 75, kPtx, 0, 0}});
  patch<uint16_t>(image, 4, 2);
  const ImageContents contents = read(image);
  CHECK(contents.entries.empty());
  REQUIRE(contents.errors.size() == 1);
  CHECK(contents.errors[0].find("version 2") != std::string::npos);
}

TEST_CASE(wrappers_are_followed_in_a_live_process_only) {
  const std::string image = fatbin({{1, 75, kPtx, 0, 0}});
  std::string wrapper;
  put<uint32_t>(wrapper, 0x466243b1u);
  put<uint32_t>(wrapper, 1);
  put<const char*>(wrapper, image.data());
  put<uint64_t>(wrapper, 0);
  CHECK(loaded_image(wrapper.data()) == image);
  CHECK(loaded_image(wrapper.data()).data() == image.data());
  const ImageContents contents = read(wrapper);
  CHECK(contents.entries.empty());
  CHECK_EQ(contents.errors.size(), 1u);
  std::string joined = wrapper + image;
  patch<const char*>(joined, 8, joined.data() + wrapper.size());
  CHECK_EQ(read_image(joined.data(), joined.size()).entries.size(), 1u);
}

TEST_CASE(loaded_images_have_the_size_of_their_headers) {
  const std::string image = cubin(7, 90);
  CHECK(loaded_image((image + "behind").data()) == image);
  CHECK(loaded_image(kPtx.c_str()) == kPtx);
  const std::string packed = fatbin({zstd_spec(kPtx)});
  CHECK(loaded_image((packed + "behind").data()) == packed);
  CHECK(loaded_image("what") == "");
  CHECK(loaded_image("") == "");
  CHECK(loaded_image(nullptr) == "");
}

TEST_MAIN()
