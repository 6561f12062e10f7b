// SPDX-License-Identifier: Apache-2.0
#include "modifiers.h"

#include <string>

#include "tessera/sim/interpreter.h"

namespace tessera::sim {
namespace {

std::string located(const ptx::Instruction& instruction, std::string_view verdict, std::string_view why) {
  std::string text = "line " + std::to_string(instruction.location.line) + ": instruction '";
  text += instruction.full.empty() ? instruction.opcode : instruction.full;
  text += "' ";
  text += verdict;
  if (!why.empty()) text.append(": ").append(why);
  return text;
}

}  // namespace

void throw_unsupported(const ptx::Instruction& instruction, std::string_view why) {
  throw LoadError(LoadError::Reason::kUnsupportedInstruction, located(instruction, "is not supported", why));
}
void throw_invalid(const ptx::Instruction& instruction, std::string_view why) {
  throw LoadError(LoadError::Reason::kInvalidPtx, located(instruction, "is not valid", why));
}

Modifiers::Modifiers(const ptx::Instruction& instruction) : instruction_(instruction) {
  if (instruction.modifiers.size() > 64) throw_unsupported(instruction, "more than 64 modifiers");
}

bool Modifiers::take(std::string_view word) {
  for (size_t i = 0; i < instruction_.modifiers.size(); ++i) {
    if ((taken_ >> i & 1) == 0 && instruction_.modifiers[i] == word) {
      taken_ |= u64{1} << i;
      return true;
    }
  }
  return false;
}

int Modifiers::take_one(std::initializer_list<std::string_view> words) {
  int index = 0;
  for (std::string_view word : words) {
    if (take(word)) return index;
    ++index;
  }
  return -1;
}

void Modifiers::ignore(std::initializer_list<std::string_view> words) {
  for (std::string_view word : words) take(word);
}

void Modifiers::ignore_prefix(std::string_view prefix) {
  for (size_t i = 0; i < instruction_.modifiers.size(); ++i) {
    if (instruction_.modifiers[i].substr(0, prefix.size()) == prefix) taken_ |= u64{1} << i;
  }
}

Type Modifiers::peek_type() const {
  for (size_t i = 0; i < instruction_.modifiers.size(); ++i) {
    if ((taken_ >> i & 1) != 0) continue;
    const Type type = ptx::parse_type(instruction_.modifiers[i]);
    if (type != Type::kNone) return type;
  }
  return Type::kNone;
}

Type Modifiers::take_type() {
  for (size_t i = 0; i < instruction_.modifiers.size(); ++i) {
    if ((taken_ >> i & 1) != 0) continue;
    const Type type = ptx::parse_type(instruction_.modifiers[i]);
    if (type == Type::kNone) continue;
    taken_ |= u64{1} << i;
    return type;
  }
  return Type::kNone;
}

Rounding Modifiers::take_rounding() {
  const int index = take_one({"rn", "rz", "rm", "rp", "rna"});
  return index < 0 ? Rounding::kNone : static_cast<Rounding>(index);
}

bool Modifiers::has(std::string_view word) const {
  for (size_t i = 0; i < instruction_.modifiers.size(); ++i) {
    if ((taken_ >> i & 1) == 0 && instruction_.modifiers[i] == word) return true;
  }
  return false;
}

std::string_view Modifiers::first_left() const {
  for (size_t i = 0; i < instruction_.modifiers.size(); ++i) {
    if ((taken_ >> i & 1) == 0) return instruction_.modifiers[i];
  }
  return {};
}

void Modifiers::finish() const {
  const std::string_view left = first_left();
  if (!left.empty()) throw_unsupported(instruction_, "modifier ." + std::string(left));
}

}  // namespace tessera::sim
