// SPDX-License-Identifier: Apache-2.0
// What the fuzzers do with an input, shared with the replay of old findings.
#pragma once

#include <cstddef>

namespace tessera::ptx {

/// Parses `data`, builds every control flow graph and checks that the results are consistent.
/// Aborts with a message when they are not.
void drive_parse(const char* data, size_t size);

/// Lists and reads `data` as an image, with a small payload limit.
void drive_image(const char* data, size_t size);

}  // namespace tessera::ptx
