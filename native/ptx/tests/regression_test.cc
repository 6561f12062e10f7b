// SPDX-License-Identifier: Apache-2.0
// Replays inputs that once crashed, hung or confused the front end; each must end quickly.
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "../../testing/check.h"
#include "drive.h"

namespace {

using Clock = std::chrono::steady_clock;

double seconds_of(const std::string& input) {
  const Clock::time_point start = Clock::now();
  tessera::ptx::drive_parse(input.data(), input.size());
  tessera::ptx::drive_image(input.data(), input.size());
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string repeat(const std::string& text, size_t count) {
  std::string out;
  out.reserve(text.size() * count);
  for (size_t i = 0; i < count; ++i) out += text;
  return out;
}

std::string in_kernel(const std::string& body) {
  return ".version 8.0\n.target sm_80\n.address_size 64\n.entry k() {\n.reg .pred p; .reg .b32 %r<9>;\n" + body +
         "\n}\n";
}

}  // namespace

TEST_CASE(old_findings) {
  size_t count = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(TESSERA_REGRESSION_DIR)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string input{std::istreambuf_iterator<char>(file), {}};
    if (!CHECK(seconds_of(input) < 5)) std::fprintf(stderr, "slow: %s\n", entry.path().c_str());
    ++count;
  }
  CHECK(count > 0);
}

// Inputs made to be deep, wide or repetitive: time must stay about linear in their size.
TEST_CASE(hostile_shapes) {
  constexpr size_t kMany = 100000;
  std::string labels, variables;
  for (size_t i = 0; i < kMany; ++i) {
    labels.append("L").append(std::to_string(i)).append(": @p ret; ");
    variables.append(".shared .b32 v").append(std::to_string(i)).append("[2]; ");
  }
  const std::string shapes[] = {
      in_kernel(repeat("{", kMany)),
      in_kernel(repeat("{ .reg .b32 a; ", 60) + repeat("L: bra L; {}", 1000) + repeat("}", 60)),
      in_kernel("mov.b32 %r1, " + repeat("(", kMany) + ";"),
      in_kernel("mov.b32 %r1, " + repeat("-", kMany) + "1;"),
      in_kernel("mov.b32 %r1, " + repeat("1+", kMany) + "1;"),
      in_kernel("mov.b32 %r1, " + repeat("1?", kMany) + "1;"),
      in_kernel("foo " + repeat("{", kMany) + repeat("}", kMany) + ";"),
      in_kernel("foo " + repeat("[", kMany) + ";"),
      in_kernel("foo" + repeat(".a", kMany) + ";"),
      in_kernel("foo {" + repeat("%r1,", kMany) + "%r1};"),
      in_kernel(".reg .b32 %q<4294967295>; mov.u32 %q4294967294, 1;"),
      in_kernel(repeat("{ .reg .b32 %q<10>; mov.u32 %q1, %q2; }", kMany / 10)),
      in_kernel(repeat("L: @p bra L;", kMany)),
      in_kernel(repeat("@p bra END; ", kMany) + "END: ret;"),
      in_kernel(repeat("@p ret; ", kMany)),
      in_kernel("T: .branchtargets " + repeat("A,", kMany) + "A; A: " + repeat("@p brx.idx %r1, T; ", 20)),
      in_kernel("T: .branchtargets " + repeat("A,", kMany) + "A; A: " + repeat("@p brx.idx %r1, T; ", kMany / 10)),
      in_kernel(repeat("L: @p bra N; {", 50) + repeat("}", 50)),
      in_kernel(labels + repeat("@p bra NOWHERE; ", kMany)),
      in_kernel(variables + repeat("mov.b64 %r1, v0[0]; mov.b64 %r1, q0[0]; ", kMany)),
      in_kernel("foo {1 2" + repeat("}", kMany) + ";"),
      in_kernel(repeat("bad bad; ", kMany)),
      in_kernel(repeat("} ", kMany)),
      repeat(".entry k() { ret; }\n", kMany / 10),
      repeat(".entry a", kMany),
      ".version 8.0\n.global .b32 x" + repeat("[2]", kMany) + ";",
      ".version 8.0\n.global .b32 x[4000000000][4000000000] = {{1}, {2}};",
      ".version 8.0\n.global .b32 x[4] = " + repeat("{", kMany) + "1;",
      ".version 8.0\n.global .b32 x[2][1000000] = {{1}, {1}}, y[2][1000000] = {{1}, {1}};",
      ".version 8.0\n.shared .b32 x<4000000000>;",
      ".version 8.0\n.section .debug_str " + repeat("{", kMany),
      ".version 8.0\n" + repeat("/*", kMany),
      ".version 8.0\n" + repeat("\"", kMany),
      repeat("@@DWARF x\n", kMany),
      repeat("\n", kMany * 10),
  };
  for (const std::string& shape : shapes) {
    const double seconds = seconds_of(shape);
    if (!CHECK(seconds < 5)) std::fprintf(stderr, "slow: %.60s ... (%zu bytes)\n", shape.c_str(), shape.size());
  }
}

TEST_MAIN()
