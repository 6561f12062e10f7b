// SPDX-License-Identifier: Apache-2.0
// Names to addresses: variables, functions, and the layout of each function's
// local memory, all known before any body is lowered.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "../code.h"
#include "tessera/sim/interpreter.h"

namespace tessera::sim {

/// Broadcast values that operations use as operands; equal values share a slot.
class ConstantPool {
 public:
  u32 predicate(bool value);
  u32 lanes(u32 bytes_per_lane, u64 value);  // 2, 4, 8 or 16: reference with bit 0 set
  std::vector<u8> take() { return std::move(bytes_); }

 private:
  u32 append(u32 bytes_per_lane, u64 value);
  std::vector<u8> bytes_;
  std::unordered_map<u64, u32> known_[5];
};

struct Symbol {
  enum class Kind : u8 {
    kGlobal,
    kShared,
    kDynamicShared,
    kLocal,
    kKernelParam,
    kFrameParam,
    kFunction,
    kIntrinsic
  } kind = Kind::kGlobal;
  u64 address = 0;  // global: the address; shared, local and param: the offset; function: its index
  u64 size = 0;
  const ptx::Variable* variable = nullptr;
  const ptx::Function* function = nullptr;
};

/// Where a function's parameters, results, locals and call arguments lie in its local memory.
struct FrameLayout {
  std::unordered_map<std::string_view, Symbol> symbols;  // function scope, by resolved name
  std::vector<Passed> formals, results;                  // registers: `ref` is the source register id
  u32 local_bytes = 0;
};

/// One function's view of all names.
class Symbols {
 public:
  Symbols(const FrameLayout& frame, const std::unordered_map<std::string_view, Symbol>& module,
          const std::unordered_map<std::string, Symbol>& linked)
      : frame_(frame), module_(module), linked_(linked) {}
  /// Null when nothing has that name.
  const Symbol* find(std::string_view name) const;
  const FrameLayout& frame() const { return frame_; }

 private:
  const FrameLayout& frame_;
  const std::unordered_map<std::string_view, Symbol>& module_;
  const std::unordered_map<std::string, Symbol>& linked_;
};

FrameLayout lay_out_frame(const ptx::Function& function);

}  // namespace tessera::sim
