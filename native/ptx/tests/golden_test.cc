// SPDX-License-Identifier: Apache-2.0
// Each file of the golden folder holds PTX, a line of its own that begins with
// "//=== dump", and what the front end makes of the PTX. With TESSERA_REWRITE_GOLDEN
// set, the second part is written anew; look at the difference before committing it.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "../../testing/check.h"
#include "dump.h"

namespace {

constexpr std::string_view kSeparator = "//=== dump\n";

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void check_file(const std::filesystem::path& path) {
  const std::string text = read(path);
  const size_t at = text.find(kSeparator);
  const std::string input = text.substr(0, at);
  const std::string actual = tessera::ptx::dump(tessera::ptx::parse(input));
  if (std::getenv("TESSERA_REWRITE_GOLDEN") != nullptr) {
    std::ofstream(path, std::ios::binary) << input << kSeparator << actual;
    return;
  }
  REQUIRE(at != std::string::npos);
  const std::string expected = text.substr(at + kSeparator.size());
  if (CHECK(actual == expected)) return;
  const size_t difference =
      std::mismatch(actual.begin(), actual.end(), expected.begin(), expected.end()).first - actual.begin();
  const size_t line = actual.rfind('\n', difference) + 1;
  std::fprintf(stderr, "%s differs, first at: %s\n", path.filename().c_str(),
               actual.substr(line, actual.find('\n', difference) - line).c_str());
}

}  // namespace

TEST_CASE(golden_files) {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(TESSERA_GOLDEN_DIR)) {
    if (entry.path().extension() != ".ptx") continue;
    check_file(entry.path());
    ++count;
  }
  CHECK(count >= 6);
}

TEST_MAIN()
