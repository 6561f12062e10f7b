// SPDX-License-Identifier: Apache-2.0
// The dotted words of one instruction, taken one by one. What a lowering function
// leaves untaken is a modifier that it does not know: finish() refuses it.
#pragma once

#include <initializer_list>
#include <string_view>

#include "../op_key.h"

namespace tessera::sim {

class Modifiers {
 public:
  explicit Modifiers(const ptx::Instruction& instruction);

  bool take(std::string_view word);
  /// The index of the word that was there, or -1. At most one is taken.
  int take_one(std::initializer_list<std::string_view> words);
  /// Takes any of these: words that change nothing here.
  void ignore(std::initializer_list<std::string_view> words);
  /// The next word that is a type; kNone when none is left.
  Type take_type();
  Type peek_type() const;
  Rounding take_rounding();  // kNone when absent
  bool has(std::string_view word) const;
  /// Takes every word that begins so.
  void ignore_prefix(std::string_view prefix);
  std::string_view first_left() const;  // empty when all were taken
  void finish() const;                  // throws LoadError

 private:
  const ptx::Instruction& instruction_;
  u64 taken_ = 0;
};

[[noreturn]] void throw_unsupported(const ptx::Instruction& instruction, std::string_view why);
[[noreturn]] void throw_invalid(const ptx::Instruction& instruction, std::string_view why);

}  // namespace tessera::sim
