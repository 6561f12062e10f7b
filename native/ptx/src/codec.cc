// SPDX-License-Identifier: Apache-2.0
#include "codec.h"

#include <lz4.h>
#include <zstd.h>

#include <algorithm>
#include <climits>
#include <memory>

namespace tessera::ptx {

namespace {

constexpr size_t kFirstStep = size_t{1} << 20;

bool is_over(uint64_t size, size_t limit, std::string& error) {
  if (size <= limit) return false;
  error = "a payload of " + std::to_string(size) + " bytes is over the limit of " + std::to_string(limit);
  return true;
}

bool has_expected_size(const std::string& out, uint64_t expected, std::string& error) {
  if (expected == 0 || out.size() == expected) return true;
  error = "decompresses to " + std::to_string(out.size()) + " bytes where the header says " + std::to_string(expected);
  return false;
}

struct FreeStream {
  void operator()(ZSTD_DStream* stream) const { ZSTD_freeDStream(stream); }
};

}  // namespace

bool decompress_zstd(std::string_view in, uint64_t expected, size_t limit, std::string& out, std::string& error) {
  if (is_over(expected, limit, error)) return false;
  const std::unique_ptr<ZSTD_DStream, FreeStream> stream(ZSTD_createDStream());
  if (stream == nullptr) {
    error = "zstd: out of memory";
    return false;
  }
  ZSTD_inBuffer input{in.data(), in.size(), 0};
  size_t produced = 0;
  size_t state = 1;  // 0: a frame has ended
  while (state != 0 || input.pos < input.size) {
    if (produced == out.size()) {
      if (produced > limit) break;
      out.resize(std::min(limit + 1, std::max({kFirstStep, out.size() * 2, size_t{0}})));
    }
    ZSTD_outBuffer output{out.data(), out.size(), produced};
    const size_t consumed_before = input.pos;
    state = ZSTD_decompressStream(stream.get(), &output, &input);
    if (ZSTD_isError(state)) {
      error = std::string("zstd: ") + ZSTD_getErrorName(state);
      return false;
    }
    const bool is_stuck = output.pos == produced && input.pos == consumed_before;
    produced = output.pos;
    if (is_stuck && state != 0) {
      error = "zstd: the data ends early";
      return false;
    }
    // Zeros that pad the payload to a multiple of eight are no further frame.
    if (state == 0 && in.find_first_not_of('\0', input.pos) == std::string_view::npos) break;
  }
  out.resize(produced);
  if (is_over(out.size(), limit, error)) return false;
  return has_expected_size(out, expected, error);
}

bool decompress_lz4_block(std::string_view in, uint64_t expected, size_t limit, std::string& out, std::string& error) {
  if (is_over(expected, limit, error)) return false;
  // One byte of an LZ4 block stands for at most 255 bytes.
  if (in.size() > INT_MAX || expected > INT_MAX || expected / 255 > in.size()) {
    error = "LZ4: " + std::to_string(in.size()) + " bytes can't hold the " + std::to_string(expected) + " claimed";
    return false;
  }
  out.resize(expected);
  const int size = LZ4_decompress_safe(in.data(), out.data(), static_cast<int>(in.size()), static_cast<int>(expected));
  if (size < 0) {
    error = "LZ4: malformed block";
    return false;
  }
  out.resize(static_cast<size_t>(size));
  return has_expected_size(out, expected, error);
}

}  // namespace tessera::ptx
