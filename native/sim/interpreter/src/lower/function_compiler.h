// SPDX-License-Identifier: Apache-2.0
// Builds one function: lowering functions call it to name operands and to emit
// operations; finish() assigns register slots and makes the executable form.
#pragma once

#include <initializer_list>
#include <map>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "../code.h"
#include "../op_key.h"
#include "modifiers.h"
#include "symbols.h"
#include "tessera/ptx/cfg.h"

namespace tessera::sim {

enum class RegisterClass : u8 { kPredicate, kHalf, kWord, kDouble, kQuad, kNone };
RegisterClass class_of(Type type);
Type bits_type(RegisterClass c);  // kB16 ... kB128, kPred
u32 slot_bytes(RegisterClass c);

/// A virtual operand: a register id shifted left by one, or a constant's offset with bit 0 set.
using Ref = u32;

struct Cost {
  CostKind kind = kCostNone;
  u32 weight = 0;
};

/// An operation before register slots are assigned.
struct DraftOp {
  Handler run = nullptr;
  u64 imm = 0;
  std::vector<Ref> refs;
  u32 destinations = 0;
  Ref guard = kNoGuard;
  bool guard_negated = false;
  Cost cost;
  u32 line = 0;
};

class FunctionCompiler {
 public:
  FunctionCompiler(const ptx::Function& source, const Symbols& symbols, ConstantPool& constants, Function& out);

  void compile();

  // ---- operands ----
  /// The value of an operand as `type`; its register must have that width.
  Ref read(const ptx::Operand& operand, Type type);
  /// Where `type` is to be written. A sink gets a register that nobody reads.
  Ref write(const ptx::Operand& operand, Type type);
  Ref temporary(RegisterClass c);
  Ref constant32(u32 value);
  Ref constant64(u64 value);
  Ref constant(RegisterClass c, u64 value);
  Ref false_predicate() { return constant(RegisterClass::kPredicate, 0); }
  Ref carry_flag();
  /// The register class that an operand has by itself; kNone for immediates.
  RegisterClass register_class(const ptx::Operand& operand) const;
  Ref register_ref(ptx::RegisterId id, int component);
  /// A value in whatever register it has, brought to class `c`; extended by the sign where `is_signed`.
  Ref read_resized(const ptx::Operand& operand, RegisterClass c, bool is_signed);
  Ref resize(Ref value, RegisterClass from, RegisterClass to, bool is_signed);

  struct Predicate {
    Ref ref;
    bool negated;
  };
  Predicate read_predicate(const ptx::Operand& operand);

  /// The address of a symbol as a 64-bit (or, for shared, also 32-bit) value.
  Ref symbol_address(std::string_view name, s64 offset, RegisterClass c);

  // ---- operations ----
  void emit(u64 key, std::initializer_list<Ref> destinations, std::initializer_list<Ref> sources, u64 imm = 0,
            Cost cost = {});
  void emit(u64 key, const std::vector<Ref>& destinations, const std::vector<Ref>& sources, u64 imm = 0,
            Cost cost = {});
  void move(Ref to, Ref from, RegisterClass c);

  // ---- ends of segments ----
  /// Ends the segment with an operation of its own; the guard becomes a branch around it.
  Segment& end_segment(Segment::End end, const std::vector<Ref>& destinations = {},
                       const std::vector<Ref>& sources = {}, u64 imm = 0);
  /// As above, with a handler for the executor to run when the segment may end.
  Segment& end_segment_with(u64 key, Segment::End end, const std::vector<Ref>& destinations,
                            const std::vector<Ref>& sources, u64 imm = 0, Cost cost = {});
  void branch(u32 target_instruction, bool uniform);
  void switch_to(Ref index, const std::vector<u32>& target_instructions);

  const ptx::Function& source() const { return source_; }
  const Symbols& symbols() const { return symbols_; }
  Function& out() { return out_; }
  const ptx::Instruction& current() const { return *current_; }
  const FrameLayout& layout() const { return layout_; }
  [[noreturn]] void unsupported(std::string_view why) const { throw_unsupported(*current_, why); }
  [[noreturn]] void invalid(std::string_view why) const { throw_invalid(*current_, why); }

 private:
  struct Fixup {
    u32 segment;
    u32 instruction;  // the target, as an index of the source
    int which;        // kFixTarget, kFixNext, or an entry of the switch
  };
  static constexpr int kFixTarget = -1, kFixNext = -2;

  void declare_registers();
  void lower_block(u32 block);
  void close_segment();  // into the one that follows
  Segment& open() { return out_.segments.back(); }
  void start_segment();
  DraftOp make_op(u64 key, const std::vector<Ref>& destinations, const std::vector<Ref>& sources, u64 imm, Cost cost);
  Segment& end_with(DraftOp op, Segment::End end);
  void resolve_targets();
  void account();
  Ref immediate(const ptx::Operand& operand, Type type);
  Ref special(const ptx::Operand& operand, Type type);

  const ptx::Function& source_;
  const Symbols& symbols_;
  ConstantPool& constants_;
  Function& out_;
  const FrameLayout& layout_;
  ptx::ControlFlowGraph graph_;
  const ptx::Instruction* current_ = nullptr;
  bool guard_taken_ = false;  // by a branch around the current instruction
  std::vector<DraftOp> drafts_;
  std::vector<RegisterClass> registers_;  // virtual registers
  std::vector<u32> first_register_;       // of each source register
  u32 first_temporary_ = 0;               // registers from here on are written once, just before use
  std::vector<u32> lasting_;              // but for these
  Ref carry_ = kNoGuard;
  std::vector<u32> first_segment_;  // of each block
  std::vector<Fixup> fixups_;
  std::vector<std::pair<u32, u32>> reconvergence_;  // segment, block
  std::vector<u32> skip_pending_;                   // segments whose target is the next one started
};

/// Assigns frame slots by the live ranges of virtual registers, and packs the
/// operations. A write under a guard keeps the old value alive, but for the
/// temporaries: `is_temporary[r]`, written once and read under the same guard.
void assign_slots(Function& out, const std::vector<DraftOp>& drafts, const std::vector<RegisterClass>& registers,
                  const std::vector<u8>& is_temporary);

/// Lowers one instruction; refuses what is not known.
void lower(FunctionCompiler& c, const ptx::Instruction& instruction);

}  // namespace tessera::sim
