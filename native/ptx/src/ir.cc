// SPDX-License-Identifier: Apache-2.0
#include "tessera/ptx/ir.h"

#include <algorithm>
#include <array>

namespace tessera::ptx {

namespace {

struct TypeRow {
  Type type;
  std::string_view name;
  uint32_t size;
};

constexpr TypeRow kTypes[] = {{Type::kNone, "", 0},
                              {Type::kPred, "pred", 0},
                              {Type::kB8, "b8", 1},
                              {Type::kB16, "b16", 2},
                              {Type::kB32, "b32", 4},
                              {Type::kB64, "b64", 8},
                              {Type::kB128, "b128", 16},
                              {Type::kU8, "u8", 1},
                              {Type::kU16, "u16", 2},
                              {Type::kU32, "u32", 4},
                              {Type::kU64, "u64", 8},
                              {Type::kS8, "s8", 1},
                              {Type::kS16, "s16", 2},
                              {Type::kS32, "s32", 4},
                              {Type::kS64, "s64", 8},
                              {Type::kF16, "f16", 2},
                              {Type::kF16x2, "f16x2", 4},
                              {Type::kBF16, "bf16", 2},
                              {Type::kBF16x2, "bf16x2", 4},
                              {Type::kTF32, "tf32", 4},
                              {Type::kF32, "f32", 4},
                              {Type::kF64, "f64", 8},
                              {Type::kU16x2, "u16x2", 4},
                              {Type::kS16x2, "s16x2", 4},
                              {Type::kF32x2, "f32x2", 8},
                              {Type::kE4M3, "e4m3", 1},
                              {Type::kE5M2, "e5m2", 1},
                              {Type::kE4M3x2, "e4m3x2", 2},
                              {Type::kE5M2x2, "e5m2x2", 2},
                              {Type::kE2M1x2, "e2m1x2", 1},
                              {Type::kE2M3x2, "e2m3x2", 2},
                              {Type::kE3M2x2, "e3m2x2", 2},
                              {Type::kUE8M0x2, "ue8m0x2", 2},
                              {Type::kTexRef, "texref", 0},
                              {Type::kSamplerRef, "samplerref", 0},
                              {Type::kSurfRef, "surfref", 0},
                              {Type::kOther, "other", 0}};

constexpr bool table_is_in_order() {
  for (size_t i = 0; i < std::size(kTypes); ++i) {
    if (static_cast<size_t>(kTypes[i].type) != i) return false;
  }
  return true;
}
static_assert(table_is_in_order());

size_t count_digits(std::string_view word, size_t from) {
  size_t end = from;
  while (end < word.size() && word[end] >= '0' && word[end] <= '9') ++end;
  return end - from;
}

/// Words that are shaped like a type: "b1", "u4", "s8x4", "e5m3", "ue4m3x4", "b6x16_p32", "bf16x4".
bool looks_like_type(std::string_view word) {
  size_t at = 0;
  if (word.starts_with("ue")) at = 1;
  if (word.starts_with("bf") || word.starts_with("tf")) at = 1;
  if (at >= word.size()) return false;
  const char kind = word[at++];
  if (kind != 'b' && kind != 'u' && kind != 's' && kind != 'f' && kind != 'e') return false;
  const size_t digits = count_digits(word, at);
  if (digits == 0 || digits > 3) return false;
  at += digits;
  if (kind == 'e') {
    if (at >= word.size() || word[at] != 'm') return false;
    const size_t mantissa = count_digits(word, at + 1);
    if (mantissa == 0) return false;
    at += 1 + mantissa;
  }
  if (at == word.size()) return true;
  return word[at] == 'x' && count_digits(word, at + 1) > 0;
}

uint64_t multiply(uint64_t a, uint64_t b) {
  uint64_t out;
  return __builtin_mul_overflow(a, b, &out) ? UINT64_MAX : out;
}

uint64_t align_up(uint64_t value, uint64_t alignment) {
  return alignment <= 1 ? value : (value + alignment - 1) / alignment * alignment;
}

/// End of `parameters` when laid out in order; the offset of each goes to `offsets` if given.
uint64_t lay_out(const std::vector<Variable>& parameters, std::vector<uint32_t>* offsets) {
  uint64_t end = 0;
  for (const Variable& parameter : parameters) {
    end = std::min<uint64_t>(align_up(end, parameter.alignment), UINT32_MAX);
    if (offsets != nullptr) offsets->push_back(static_cast<uint32_t>(end));
    end += std::min<uint64_t>(parameter.size(), UINT32_MAX);
  }
  return std::min<uint64_t>(end, UINT32_MAX);
}

}  // namespace

uint32_t type_size(Type type) { return kTypes[static_cast<size_t>(type)].size; }

std::string_view type_name(Type type) { return kTypes[static_cast<size_t>(type)].name; }

Type parse_type(std::string_view word) {
  if (word.starts_with('.')) word.remove_prefix(1);
  if (word.size() < 2) return Type::kNone;
  for (const TypeRow& row : kTypes) {
    if (row.name == word && row.type != Type::kOther) return row.type;
  }
  return looks_like_type(word) ? Type::kOther : Type::kNone;
}

uint64_t Variable::element_count() const {
  uint64_t count = 1;
  for (const uint64_t dimension : dimensions) count = multiply(count, dimension);
  return count;
}

uint64_t Variable::size() const { return multiply(element_count(), uint64_t{type_size(type)} * vector); }

bool Instruction::has(std::string_view modifier) const {
  return std::find(modifiers.begin(), modifiers.end(), modifier) != modifiers.end();
}

std::vector<uint32_t> Function::parameter_offsets() const {
  std::vector<uint32_t> offsets;
  lay_out(parameters, &offsets);
  return offsets;
}

uint32_t Function::parameter_block_size() const { return static_cast<uint32_t>(lay_out(parameters, nullptr)); }

const Function* Module::find_function(std::string_view name) const {
  const Function* declaration = nullptr;
  for (const Function& function : functions) {
    if (function.name != name) continue;
    if (!function.is_declaration) return &function;
    declaration = &function;
  }
  return declaration;
}

const Variable* Module::find_variable(std::string_view name) const {
  const Variable* declaration = nullptr;
  for (const Variable& variable : variables) {
    if (variable.name != name) continue;
    if (variable.linkage != Linkage::kExtern) return &variable;
    declaration = &variable;
  }
  return declaration;
}

uint32_t target_architecture(std::string_view target) {
  if (!target.starts_with("sm_")) return 0;
  const size_t digits = count_digits(target, 3);
  if (digits == 0 || digits > 4) return 0;
  uint32_t value = 0;
  for (size_t i = 3; i < 3 + digits; ++i) value = value * 10 + static_cast<uint32_t>(target[i] - '0');
  return value;
}

}  // namespace tessera::ptx
