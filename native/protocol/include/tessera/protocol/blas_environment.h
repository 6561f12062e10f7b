// SPDX-License-Identifier: Apache-2.0
// What cuBLAS takes from the environment of the process that loads it.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::blas {

/// Whether a variable may change which kernels cuBLAS takes. What only makes it write logs does not.
inline bool is_library_setting(std::string_view variable) {
  const std::string_view name = variable.substr(0, variable.find('='));
  if (name == "NVIDIA_TF32_OVERRIDE") return true;
  // Of handles with a workspace of the library's own alone: calls of those are not moved where it is set.
  if (!name.starts_with("CUBLAS") || name == "CUBLAS_WORKSPACE_CONFIG") return false;
  return !name.starts_with("CUBLAS_LOG") && !name.starts_with("CUBLASLT_LOG") && !name.ends_with("_NVTX_LEVEL");
}

/// Those of this process as lines, sorted: two processes with one text have libraries that choose alike.
inline std::string library_settings() {
  std::vector<std::string_view> found;
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) {
    if (is_library_setting(*at)) found.emplace_back(*at);
  }
  std::sort(found.begin(), found.end());
  std::string text;
  for (const std::string_view variable : found) (text += variable) += '\n';
  return text;
}

}  // namespace tessera::blas
