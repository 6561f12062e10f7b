// SPDX-License-Identifier: Apache-2.0
#include "image.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string_view>

#include "tessera/ptx/image.h"
#include "tessera/ptx/parser.h"

namespace tessera::sim {
namespace {

constexpr std::string_view kContainerMagic = "TESSERA-PTX-SET 1\n";
constexpr uint32_t kFatbinMagic = 0xba55ed50, kWrapperMagic = 0x466243b1;

template <class T>
T read_at(const void* data, size_t offset) {
  T value;
  std::memcpy(&value, static_cast<const char*>(data) + offset, sizeof(T));
  return value;
}

size_t fatbin_size(const void* data) { return read_at<uint16_t>(data, 6) + read_at<uint64_t>(data, 8); }

// An ELF file ends with its last table or section.
size_t elf_size(const void* data) {
  const auto header = read_at<Elf64_Ehdr>(data, 0);
  if (header.e_ident[EI_CLASS] != ELFCLASS64) return sizeof(Elf64_Ehdr);
  uint64_t end = std::max<uint64_t>(sizeof(Elf64_Ehdr), header.e_phoff + uint64_t{header.e_phnum} * header.e_phentsize);
  end = std::max<uint64_t>(end, header.e_shoff + uint64_t{header.e_shnum} * header.e_shentsize);
  return end;
}

void add_entries(const void* data, size_t size, Image& image) {
  const ptx::ImageContents contents = ptx::read_image(data, size);
  for (const ptx::ImageEntry& entry : contents.entries) {
    if (entry.kind == ptx::ImageEntry::Kind::kPtx) image.texts.push_back({entry.architecture, entry.payload});
    if (entry.kind == ptx::ImageEntry::Kind::kElf) ++image.machine_code;
  }
  for (const std::string& error : contents.errors) image.problems += error + "\n";
}

Image read_container(std::string_view text) {
  Image image;
  image.recognised = true;
  text.remove_prefix(kContainerMagic.size());
  while (!text.empty() && text.front() != '\n') {
    size_t digits = 0, size = 0;
    while (digits < text.size() && text[digits] >= '0' && text[digits] <= '9')
      size = size * 10 + (text[digits++] - '0');
    if (digits == 0 || digits >= text.size() || size > text.size() - digits - 1) {
      image.problems += "the linked image is truncated\n";
      break;
    }
    image.linked.emplace_back(text.substr(digits + 1, size));
    text.remove_prefix(digits + 1 + size);
  }
  return image;
}

// The container has no total size in front: walk it.
size_t container_size(const char* data) {
  const char* at = data + kContainerMagic.size();
  while (*at >= '0' && *at <= '9') {
    char* digits_end = nullptr;
    const size_t size = std::strtoull(at, &digits_end, 10);
    at = digits_end + 1 + size;
  }
  return static_cast<size_t>(at - data);
}

Image read_sized(const void* data, size_t size) {
  Image image;
  if (size >= kContainerMagic.size() && std::memcmp(data, kContainerMagic.data(), kContainerMagic.size()) == 0) {
    return read_container({static_cast<const char*>(data), size});
  }
  const ptx::ImageKind kind = ptx::image_kind(data, size);
  image.recognised = kind != ptx::ImageKind::kUnknown;
  if (kind == ptx::ImageKind::kPtx) {
    const char* text = static_cast<const char*>(data);
    image.texts.push_back({0, std::string(text, strnlen(text, size))});
  } else if (kind == ptx::ImageKind::kElf) {
    image.recognised = size >= sizeof(Elf64_Ehdr) && read_at<Elf64_Ehdr>(data, 0).e_machine == EM_CUDA;
    image.machine_code = 1;
  } else if (kind != ptx::ImageKind::kUnknown) {
    add_entries(data, size, image);
  }
  return image;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  require(static_cast<bool>(file), CUDA_ERROR_FILE_NOT_FOUND);
  std::stringstream text;
  text << file.rdbuf();
  require(!text.fail() || text.str().empty(), CUDA_ERROR_FILE_NOT_FOUND);
  return text.str();
}

// sm_90a runs on 9.0 only, sm_100f on the 10.x that follow it, sm_80 on everything newer.
bool target_fits(const std::string& target, uint32_t compute_capability) {
  const uint32_t architecture = ptx::target_architecture(target);
  if (target.empty() || architecture == 0) return true;  // the parser or the interpreter will say what is wrong
  if (target.back() == 'a') return architecture == compute_capability;
  if (target.back() == 'f') return architecture / 10 == compute_capability / 10 && architecture <= compute_capability;
  return architecture <= compute_capability;
}

const Image::Text* choose(const Image& image, uint32_t compute_capability) {
  const Image::Text* best = nullptr;
  for (const Image::Text& text : image.texts) {
    if (text.architecture > compute_capability) continue;
    if (best == nullptr || text.architecture > best->architecture) best = &text;
  }
  return best;
}

std::string place(const ptx::SourceLocation& location) {
  return "ptxas application ptx input, line " + std::to_string(location.line) + ", column " +
         std::to_string(location.column);
}

CUresult parse_text(const std::string& text, uint32_t compute_capability, Code& code, std::string& log) {
  ptx::ParseResult parsed = ptx::parse(text);
  if (!parsed.ok()) {
    for (const ptx::Diagnostic& error : parsed.errors)
      log += place(error.location) + "; error   : " + error.message + "\n";
    log += "ptxas fatal   : Ptx assembly aborted due to errors\n";
    return CUDA_ERROR_INVALID_PTX;
  }
  if (!target_fits(parsed.module.target, compute_capability)) {
    log += "ptxas fatal   : SM version specified by .target (" + parsed.module.target +
           ") is higher than that of the device, or specific to another one (sm_" + std::to_string(compute_capability) +
           ")\n";
    return CUDA_ERROR_INVALID_PTX;
  }
  code.parts.push_back(std::make_unique<ptx::Module>(std::move(parsed.module)));
  return CUDA_SUCCESS;
}

CUresult nothing_to_run(const Image& image, uint32_t compute_capability, std::string& log) {
  log += image.problems;
  if (!image.recognised) {
    log += "error   : the image is neither PTX nor a fatbin nor a cubin\n";
    return CUDA_ERROR_INVALID_IMAGE;
  }
  if (image.texts.empty() && image.machine_code == 0) {
    log += "error   : the image holds no code\n";
    return CUDA_ERROR_INVALID_IMAGE;
  }
  log += "error   : the image holds " +
         (image.texts.empty()
              ? "machine code only; this simulated device runs PTX: compile to PTX, or put the .ptx beside "
                "the .cubin\n"
              : "no PTX for sm_" + std::to_string(compute_capability) + " or lower\n");
  return CUDA_ERROR_NO_BINARY_FOR_GPU;
}

}  // namespace

uint32_t Code::ptx_architecture() const {
  uint32_t newest = 0;
  for (const auto& part : parts) newest = std::max(newest, ptx::target_architecture(part->target));
  return newest;
}

uint64_t Code::constant_bytes() const {
  uint64_t bytes = 0;
  for (const auto& part : parts) {
    for (const ptx::Variable& variable : part->variables) {
      if (variable.space == ptx::Space::kConst) bytes += variable.size();
    }
  }
  return bytes;
}

Image read_image_memory(const void* data) {
  const char* text = static_cast<const char*>(data);
  if (std::strncmp(text, kContainerMagic.data(), kContainerMagic.size()) == 0) {
    return read_sized(data, container_size(text));
  }
  if (std::strncmp(text,
                   "\x7f"
                   "ELF",
                   4) == 0)
    return read_sized(data, elf_size(data));
  if (text[0] != '\0' && text[1] != '\0' && text[2] != '\0') {
    const auto magic = read_at<uint32_t>(data, 0);
    if (magic == kWrapperMagic) return read_image_memory(read_at<const void*>(data, 8));
    if (magic == kFatbinMagic) return read_sized(data, fatbin_size(data));
  }
  return read_sized(data, std::strlen(text) + 1);
}

Image read_image_file(const std::string& path) {
  const size_t dot = path.rfind('.');
  if (dot != std::string::npos && path.find('/', dot) == std::string::npos && path.substr(dot) != ".ptx") {
    const std::string sibling = path.substr(0, dot) + ".ptx";
    if (std::ifstream(sibling) && std::ifstream(path)) return read_image_file(sibling);
  }
  const std::string bytes = read_file(path);
  return read_sized(bytes.c_str(), bytes.size() + 1);
}

std::string link_container(const std::vector<std::string>& texts) {
  if (texts.size() == 1) return texts.front();
  std::string out(kContainerMagic);
  for (const std::string& text : texts) out += std::to_string(text.size()) + ":" + text;
  return out + "\n";
}

CUresult parse_image(const Image& image, uint32_t compute_capability, Code& code, std::string& log) {
  if (!image.linked.empty()) {
    for (const std::string& text : image.linked) {
      if (const CUresult result = parse_text(text, compute_capability, code, log)) return result;
    }
    return CUDA_SUCCESS;
  }
  const Image::Text* text = choose(image, compute_capability);
  if (text == nullptr) return nothing_to_run(image, compute_capability, log);
  return parse_text(text->ptx, compute_capability, code, log);
}

}  // namespace tessera::sim
