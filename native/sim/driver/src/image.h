// SPDX-License-Identifier: Apache-2.0
// From the bytes that a program hands over to parsed PTX for one device.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "api.h"
#include "tessera/ptx/ir.h"

namespace tessera::sim {

/// A module's code before a device is chosen: PTX texts and what else stood in the image.
struct Image {
  struct Text {
    uint32_t architecture = 0;  // 0: written in the text itself
    std::string ptx;
  };
  std::vector<Text> texts;          // alternatives, one per architecture
  std::vector<std::string> linked;  // parts of one module (output of cuLink*); then `texts` is empty
  bool recognised = false;          // some known format
  uint32_t machine_code = 0;        // entries of SASS, which no simulated device runs
  std::string problems;             // what could not be read
};

/// Reads PTX text, a fatbin, a fatbin's wrapper, a cubin or cuLinkComplete's output.
/// `data` has no size: each format carries its own.
Image read_image_memory(const void* data);
/// Reads a file. Where X.ptx stands beside X.cubin, the PTX is what gets loaded.
/// Fails with CUDA_ERROR_FILE_NOT_FOUND.
Image read_image_file(const std::string& path);

/// cuLinkComplete's output for several PTX texts; one text is its own output.
std::string link_container(const std::vector<std::string>& texts);

struct Code {
  std::vector<std::unique_ptr<ptx::Module>> parts;
  uint32_t ptx_architecture() const;  // of the newest part: 80
  uint64_t constant_bytes() const;    // of the program's own .const variables
};

/// Chooses and parses what `compute_capability` can run. On failure the reason is
/// appended to `log` and the result is the error; the log has line and column.
CUresult parse_image(const Image& image, uint32_t compute_capability, Code& code, std::string& log);

}  // namespace tessera::sim
