// SPDX-License-Identifier: Apache-2.0
#include "symbols.h"

#include <algorithm>
#include <cstring>

#include "../micro_op.h"

namespace tessera::sim {

u32 ConstantPool::append(u32 bytes_per_lane, u64 value) {
  const u32 at = static_cast<u32>(bytes_.size());
  bytes_.resize(at + std::max(bytes_per_lane * kLanes, 64u));
  u64 words[2] = {value, 0};
  for (u32 lane = 0; lane < kLanes; ++lane)
    std::memcpy(bytes_.data() + at + lane * bytes_per_lane, words, bytes_per_lane);
  return at | 1;
}

u32 ConstantPool::lanes(u32 bytes_per_lane, u64 value) {
  if (bytes_per_lane < 8) value &= (u64{1} << (8 * bytes_per_lane)) - 1;
  const size_t which = bytes_per_lane == 2 ? 0 : bytes_per_lane == 4 ? 1 : bytes_per_lane == 8 ? 2 : 3;
  const auto [entry, added] = known_[which].try_emplace(value, 0);
  if (added) entry->second = append(bytes_per_lane, value);
  return entry->second;
}

u32 ConstantPool::predicate(bool value) {
  const auto [entry, added] = known_[4].try_emplace(value ? 1 : 0, 0);
  // One word of lane bits: four bytes of the same value in every lane serve.
  if (added) entry->second = append(4, value ? ~u64{0} : 0);
  return entry->second;
}

const Symbol* Symbols::find(std::string_view name) const {
  if (const auto found = frame_.symbols.find(name); found != frame_.symbols.end()) return &found->second;
  if (const auto found = module_.find(name); found != module_.end()) return &found->second;
  if (const auto found = linked_.find(std::string(name)); found != linked_.end()) return &found->second;
  return nullptr;
}

namespace {

u32 align_up(u32 value, u32 alignment) {
  return alignment <= 1 ? value : (value + alignment - 1) / alignment * alignment;
}

u32 place(u32& end, const ptx::Variable& variable) {
  end = align_up(end, variable.alignment);
  const u32 at = end;
  end += static_cast<u32>(variable.size());
  return at;
}

ptx::RegisterId register_named(const ptx::Function& function, std::string_view name) {
  for (size_t i = 0; i < function.registers.size(); ++i) {
    if (function.registers[i].name == name) return static_cast<ptx::RegisterId>(i);
  }
  return ptx::kNoRegister;
}

Passed lay_out_formal(const ptx::Function& function, const ptx::Variable& variable, FrameLayout& layout) {
  const u32 bytes = static_cast<u32>(variable.size());
  if (variable.space == ptx::Space::kRegister) {
    const ptx::RegisterId id = register_named(function, variable.name);
    if (id == ptx::kNoRegister)
      throw LoadError(LoadError::Reason::kInvalidPtx,
                      "function '" + function.name + "': parameter '" + variable.name + "' has no register");
    return {false, 0, static_cast<u32>(id), bytes};
  }
  const u32 offset = place(layout.local_bytes, variable);
  layout.symbols[variable.name] = {Symbol::Kind::kFrameParam, offset, bytes, &variable, nullptr};
  return {true, offset, 0, bytes};
}

}  // namespace

FrameLayout lay_out_frame(const ptx::Function& function) {
  FrameLayout layout;
  if (function.is_entry) {
    const std::vector<uint32_t> offsets = function.parameter_offsets();
    for (size_t i = 0; i < function.parameters.size(); ++i) {
      const ptx::Variable& variable = function.parameters[i];
      layout.symbols[variable.name] = {Symbol::Kind::kKernelParam, offsets[i], variable.size(), &variable, nullptr};
    }
  } else {
    for (const ptx::Variable& variable : function.parameters)
      layout.formals.push_back(lay_out_formal(function, variable, layout));
    for (const ptx::Variable& variable : function.returns)
      layout.results.push_back(lay_out_formal(function, variable, layout));
  }
  for (const ptx::Variable& variable : function.variables) {
    if (variable.space != ptx::Space::kLocal && variable.space != ptx::Space::kParam) continue;
    const auto kind = variable.space == ptx::Space::kLocal ? Symbol::Kind::kLocal : Symbol::Kind::kFrameParam;
    const u32 offset = place(layout.local_bytes, variable);
    layout.symbols[variable.name] = {kind, offset, variable.size(), &variable, nullptr};
  }
  layout.local_bytes = align_up(layout.local_bytes, 16);
  return layout;
}

}  // namespace tessera::sim
