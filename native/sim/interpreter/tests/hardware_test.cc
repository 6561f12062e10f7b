// SPDX-License-Identifier: Apache-2.0
// Every operation against results measured on an H200 (driver 580.159): operands
// are edge cases and random bits. data/h200.txt says what each group of rows in
// data/h200.bin is: an instruction, its types, its tolerance, the number of rows.
#include <cmath>
#include <fstream>
#include <sstream>

#include "support.h"

namespace tessera::sim::testing {
namespace {

struct Group {
  std::string kind, name, body, to;
  std::vector<std::string> from;
  std::string tolerance;
  size_t rows = 0;
};

std::vector<std::string> split(const std::string& text, char by) {
  std::vector<std::string> out;
  std::stringstream in(text);
  for (std::string part; std::getline(in, part, by);) out.push_back(part);
  return out;
}

std::string data_path(const char* name) { return std::string(TESSERA_SIM_TEST_DATA) + "/" + name; }

std::vector<Group> read_groups() {
  std::ifstream in(data_path("h200.txt"));
  std::vector<Group> groups;
  for (std::string line; std::getline(in, line);) {
    // The instruction may hold '|': it stands between the name and the last four fields.
    std::vector<std::string> fields = split(line, '|');
    const size_t n = fields.size();
    Group group;
    group.kind = fields[0];
    group.name = fields[1];
    for (size_t i = 2; i + 4 < n; ++i) group.body.append(i > 2 ? "|" : "").append(fields[i]);
    group.to = fields[n - 4];
    group.from = split(fields[n - 3], ',');
    group.tolerance = fields[n - 2];
    group.rows = std::stoul(fields[n - 1]);
    groups.push_back(group);
  }
  return groups;
}

size_t size_of(const std::string& type) {
  if (type == "u8" || type == "s8" || type == "b8") return 1;
  if (type.find("x2") != std::string::npos) return type[0] == 'e' ? 2 : type == "f32x2" ? 8 : 4;
  if (type.find("16") != std::string::npos) return 2;
  return type.find("64") != std::string::npos ? 8 : 4;
}
std::string register_of(const std::string& type) {
  if (type == "f32" || type == "f64") return type;
  return size_of(type) <= 2 ? "b16" : size_of(type) == 4 ? "b32" : "b64";
}
std::string memory_of(const std::string& type) {
  if (size_of(type) == 1) return type;
  return register_of(type);
}

/// d[i] = op(a[i], b[i], c[i]).
std::string operation_text(const Group& g) {
  std::string text =
      ".visible .entry k(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u64 pd, .param .u32 n) {\n"
      ".reg .b32 %r<10>; .reg .b64 %rd<10>; .reg .b64 %dp; .reg .pred %p, %q, %over;\n.shared .align 4 .b8 sm[1024];\n";
  text += ".reg ." + register_of(g.to) + " %d, %t, %t1;\n";
  for (size_t k = 0; k < g.from.size(); ++k) text += ".reg ." + register_of(g.from[k]) + " %" + "abc"[k] + ";\n";
  text += "mov.u32 %r4, %tid.x; ld.param.u32 %r1, [n]; setp.ge.u32 %over, %r4, %r1; @%over ret;\n";
  for (size_t k = 0; k < g.from.size(); ++k) {
    text += std::string("ld.param.u64 %rd1, [p") + "abc"[k] + "]; mul.wide.u32 %rd2, %r4, " +
            std::to_string(size_of(g.from[k])) + "; add.u64 %rd1, %rd1, %rd2; ld.global." + memory_of(g.from[k]) +
            " %" + "abc"[k] + ", [%rd1];\n";
  }
  const std::string to = size_of(g.to) == 1 ? "b8" : memory_of(g.to);
  return text + "ld.param.u64 %rd1, [pd]; mul.wide.u32 %rd2, %r4, " + std::to_string(size_of(g.to)) +
         "; add.u64 %dp, %rd1, %rd2;\n" + g.body + "\nst.global." + to + " [%dp], %d; ret;\n}\n";
}

uint64_t load_bits(const uint8_t* at, size_t bytes) {
  uint64_t value = 0;
  std::memcpy(&value, at, bytes);
  return value;
}

double as_number(uint64_t bits, size_t bytes) {
  double wide;
  float single;
  if (bytes == 8) {
    std::memcpy(&wide, &bits, 8);
    return wide;
  }
  std::memcpy(&single, &bits, 4);
  return single;
}

/// The distance of two halves in steps of the format, for each half of a word.
bool halves_near(uint64_t a, uint64_t b, size_t bytes, int steps) {
  for (size_t at = 0; at < bytes; at += 2) {
    const auto rank = [](uint64_t v) {
      return (v & 0x8000) != 0 ? -static_cast<int>(v & 0x7fff) : static_cast<int>(v & 0x7fff);
    };
    if (std::abs(rank(a >> (8 * at) & 0xffff) - rank(b >> (8 * at) & 0xffff)) > steps) return false;
  }
  return true;
}

bool agrees(const Group& g, uint64_t want, uint64_t got, size_t bytes) {
  if (want == got) return true;
  std::stringstream in(g.tolerance);
  std::string first;
  double second = 0;
  in >> first >> second;
  if (first == "half") return halves_near(want, got, bytes, static_cast<int>(second));
  const double a = as_number(want, bytes), b = as_number(got, bytes), relative = std::stod(first);
  if (relative == 0 && second == 0) return false;
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return std::abs(a - b) <= std::max(second, relative * std::abs(a));
}

class Rows {
 public:
  Rows() {
    std::ifstream in(data_path("h200.bin"), std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(in), {});
  }
  std::vector<uint8_t> take(size_t bytes) {
    if (at_ + bytes > bytes_.size()) throw std::runtime_error("h200.bin is too short");
    std::vector<uint8_t> out(bytes_.begin() + static_cast<std::ptrdiff_t>(at_),
                             bytes_.begin() + static_cast<std::ptrdiff_t>(at_ + bytes));
    at_ += bytes;
    return out;
  }
  bool at_end() const { return at_ == bytes_.size(); }

 private:
  std::vector<uint8_t> bytes_;
  size_t at_ = 0;
};

void compare(const Group& g, const std::vector<uint8_t>& want, const std::vector<uint8_t>& got, size_t bytes,
             const std::string& operands) {
  int shown = 0;
  for (size_t at = 0; at < want.size(); at += bytes) {
    const uint64_t a = load_bits(&want[at], bytes), b = load_bits(&got[at], bytes);
    if (agrees(g, a, b, bytes)) continue;
    std::stringstream text;
    text << g.name << " row " << at / bytes << std::hex << ": hardware 0x" << a << ", here 0x" << b << operands;
    tessera::testing::report(false, "h200.txt", 0, text.str());
    if (++shown == 3) break;
  }
}

void check_operation(const Group& g, Rows& rows) {
  TestMemory memory;
  uint64_t source[3] = {};
  for (size_t k = 0; k < g.from.size(); ++k) source[k] = memory.upload(rows.take(g.rows * size_of(g.from[k])));
  const std::vector<uint8_t> want = rows.take(g.rows * size_of(g.to));
  const uint64_t target = memory.reserve(want.size());
  for (uint64_t& unused : source) unused = unused == 0 ? target : unused;
  const TestModule module(memory, operation_text(g));
  const uint32_t threads = static_cast<uint32_t>((g.rows + 31) / 32 * 32);
  module.good("k", shape(1, threads), source[0], source[1], source[2], target, static_cast<uint32_t>(g.rows));
  compare(g, want, memory.download<uint8_t>(target, want.size()), size_of(g.to), "");
}

std::string braces(const char* name, int count) {
  std::string out = "{";
  for (int i = 0; i < count; ++i) {
    out += i > 0 ? ", %" : "%";
    out += name;
    out += std::to_string(i);
  }
  return out + "}";
}

void check_matrix(const Group& g, Rows& rows) {
  const bool wide = g.name.find("f64") != std::string::npos;
  const int counts[3] = {std::stoi(g.from[0]), std::stoi(g.from[1]), std::stoi(g.from[2])};
  const size_t bytes = wide ? 8 : 4;
  const std::string type = wide ? "f64" : "b32", sum = wide ? "f64" : g.to == "f32" ? "f32" : "b32";
  std::string text =
      ".visible .entry k(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u64 pd) {\n.reg .b32 %r<10>; .reg "
      ".b64 %rd<10>;\n.reg ." +
      type + " %a<9>, %b<9>;\n.reg ." + sum +
      " %c<9>, %d<9>;\nmov.u32 %r1, %ctaid.x; mov.u32 %r3, %tid.x; mad.lo.u32 %r4, %r1, 32, %r3;\n";
  const auto access = [&](const char* name, int count, const std::string& t, bool load) {
    text += std::string("ld.param.u64 %rd1, [p") + name + "]; mul.wide.u32 %rd2, %r4, " +
            std::to_string(bytes * static_cast<size_t>(count)) + "; add.u64 %rd1, %rd1, %rd2;\n";
    for (int i = 0; i < count; ++i) {
      const std::string reg = "%" + std::string(name) + std::to_string(i),
                        place = "[%rd1 + " + std::to_string(static_cast<size_t>(i) * bytes) + "]";
      text += load ? "ld.global." + t + " " + reg + ", " + place + ";\n"
                   : "st.global." + t + " " + place + ", " + reg + ";\n";
    }
  };
  access("a", counts[0], type, true);
  access("b", counts[1], type, true);
  access("c", counts[2], sum, true);
  text += g.name + " " + braces("d", counts[2]) + ", " + braces("a", counts[0]) + ", " + braces("b", counts[1]) + ", " +
          braces("c", counts[2]) + ";\n";
  access("d", counts[2], sum, false);
  TestMemory memory;
  uint64_t source[3];
  for (int k = 0; k < 3; ++k)
    source[k] = memory.upload(rows.take(g.rows * 32 * static_cast<size_t>(counts[k]) * bytes));
  const std::vector<uint8_t> want = rows.take(g.rows * 32 * static_cast<size_t>(counts[2]) * bytes);
  const uint64_t target = memory.reserve(want.size());
  const TestModule module(memory, text + "ret;\n}\n");
  module.good("k", shape(static_cast<uint32_t>(g.rows), 32), source[0], source[1], source[2], target);
  if (g.to == "f16") {
    // Compared element by element.
    const std::vector<uint8_t> got = memory.download<uint8_t>(target, want.size());
    for (size_t at = 0; at < want.size(); at += 4)
      CHECK(halves_near(load_bits(&want[at], 4), load_bits(&got[at], 4), 4, 2));
    return;
  }
  compare(g, want, memory.download<uint8_t>(target, want.size()), bytes, "");
}

TEST_CASE(operations_agree_with_the_hardware) {
  const std::vector<Group> groups = read_groups();
  CHECK(groups.size() > 1200);
  Rows rows;
  for (const Group& group : groups) {
    try {
      group.kind == "op" ? check_operation(group, rows) : check_matrix(group, rows);
    } catch (const std::exception& error) {
      tessera::testing::report(false, "h200.txt", 0, group.name + ": " + error.what());
      return;
    }
  }
  CHECK(rows.at_end());
}

}  // namespace
}  // namespace tessera::sim::testing

TEST_MAIN()
