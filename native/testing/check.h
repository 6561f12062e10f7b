// SPDX-License-Identifier: Apache-2.0
// The test vocabulary of the native rooms: cases register themselves, CHECK
// reports and goes on, REQUIRE ends the case. The program exits non-zero when
// anything failed or when no case ran.
#pragma once

#include <cstdio>
#include <cstring>
#include <functional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace tessera::testing {

struct Case {
  const char* name;
  void (*body)();
};

inline std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}

inline int& failures() {
  static int count = 0;
  return count;
}

struct Abort : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Registrar {
  Registrar(const char* name, void (*body)()) { cases().push_back({name, body}); }
};

inline bool report(bool ok, const char* file, int line, const std::string& text) {
  if (!ok) {
    ++failures();
    std::fprintf(stderr, "%s:%d: failed: %s\n", file, line, text.c_str());
  }
  return ok;
}

/// Takes both sides by reference, so that each expression runs once.
template <class A, class B>
bool report_equal(const A& a, const B& b, const char* file, int line, const char* expression) {
  const bool ok = a == b;
  if (ok) return true;
  std::ostringstream out;
  out << expression;
  if constexpr (requires { out << a << b; }) out << "  (left: " << a << ", right: " << b << ")";
  return report(false, file, line, out.str());
}

/// Runs every case, or those whose names contain argv[1].
inline int run(int argc, char** argv) {
  int ran = 0;
  for (const Case& test : cases()) {
    if (argc > 1 && std::strstr(test.name, argv[1]) == nullptr) continue;
    ++ran;
    const int before = failures();
    try {
      test.body();
    } catch (const Abort&) {
    } catch (const std::exception& error) {
      report(false, test.name, 0, std::string("threw: ") + error.what());
    }
    std::printf("%s %s\n", failures() == before ? "ok    " : "FAILED", test.name);
  }
  std::printf("%d cases, %d failed checks\n", ran, failures());
  return failures() == 0 && ran > 0 ? 0 : 1;
}

}  // namespace tessera::testing

#define TESSERA_JOIN2(a, b) a##b
#define TESSERA_JOIN(a, b) TESSERA_JOIN2(a, b)
#define TEST_CASE(name)                                                                                        \
  static void TESSERA_JOIN(test_, name)();                                                                     \
  static const ::tessera::testing::Registrar TESSERA_JOIN(registrar_, name)(#name, TESSERA_JOIN(test_, name)); \
  static void TESSERA_JOIN(test_, name)()
#define CHECK(condition) ::tessera::testing::report(static_cast<bool>(condition), __FILE__, __LINE__, #condition)
#define CHECK_EQ(a, b) ::tessera::testing::report_equal((a), (b), __FILE__, __LINE__, #a " == " #b)
#define REQUIRE(condition)                                              \
  do {                                                                  \
    if (!CHECK(condition)) throw ::tessera::testing::Abort(#condition); \
  } while (false)
#define TEST_MAIN() \
  int main(int argc, char** argv) { return ::tessera::testing::run(argc, argv); }
