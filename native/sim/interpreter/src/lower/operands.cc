// SPDX-License-Identifier: Apache-2.0
// Operands of instructions: registers, immediates, special registers, symbols.
#include <bit>
#include <string>

#include "../memory_gate.h"
#include "../special.h"
#include "function_compiler.h"

namespace tessera::sim {

using Kind = ptx::Operand::Kind;

RegisterClass class_of(Type type) {
  if (type == Type::kPred) return RegisterClass::kPredicate;
  switch (ptx::type_size(type)) {
    case 1:
    case 2:
      return RegisterClass::kHalf;
    case 4:
      return RegisterClass::kWord;
    case 8:
      return RegisterClass::kDouble;
    case 16:
      return RegisterClass::kQuad;
    default:
      return RegisterClass::kNone;
  }
}

Type bits_type(RegisterClass c) {
  switch (c) {
    case RegisterClass::kHalf:
      return Type::kB16;
    case RegisterClass::kWord:
      return Type::kB32;
    case RegisterClass::kDouble:
      return Type::kB64;
    case RegisterClass::kQuad:
      return Type::kB128;
    default:
      return Type::kPred;
  }
}

u32 slot_bytes(RegisterClass c) {
  switch (c) {
    case RegisterClass::kHalf:
      return 2 * kLanes;
    case RegisterClass::kWord:
      return 4 * kLanes;
    case RegisterClass::kDouble:
      return 8 * kLanes;
    case RegisterClass::kQuad:
      return 16 * kLanes;
    default:
      return 4;
  }
}

Ref FunctionCompiler::temporary(RegisterClass c) {
  registers_.push_back(c);
  return static_cast<Ref>(registers_.size() - 1) << 1;
}
Ref FunctionCompiler::constant(RegisterClass c, u64 value) {
  if (c == RegisterClass::kPredicate) return constants_.predicate(value != 0);
  return constants_.lanes(slot_bytes(c) / kLanes, value);
}
Ref FunctionCompiler::constant32(u32 value) { return constant(RegisterClass::kWord, value); }
Ref FunctionCompiler::constant64(u64 value) { return constant(RegisterClass::kDouble, value); }

Ref FunctionCompiler::carry_flag() {
  // Not a temporary: its value lives from one instruction to later ones.
  if (carry_ == kNoGuard) {
    carry_ = temporary(RegisterClass::kPredicate);
    lasting_.push_back(carry_ >> 1);
  }
  return carry_;
}

Ref FunctionCompiler::register_ref(ptx::RegisterId id, int component) {
  const ptx::Register& declared = source_.registers[static_cast<size_t>(id)];
  if (component < 0 && declared.vector > 1) invalid("a vector register where one value is wanted");
  if (component >= std::max<int>(declared.vector, 1)) invalid("no such vector component");
  return (first_register_[static_cast<size_t>(id)] + static_cast<u32>(std::max(component, 0))) << 1;
}

RegisterClass FunctionCompiler::register_class(const ptx::Operand& operand) const {
  if (operand.kind == Kind::kRegister) return class_of(source_.registers[static_cast<size_t>(operand.reg)].type);
  return RegisterClass::kNone;
}

Ref FunctionCompiler::read(const ptx::Operand& operand, Type type) {
  const RegisterClass c = class_of(type);
  switch (operand.kind) {
    case Kind::kRegister:
      if (register_class(operand) != c) invalid("a register's size does not fit the instruction's type");
      if (operand.negated) unsupported("a negated register operand");
      return register_ref(operand.reg, operand.component);
    case Kind::kInteger:
    case Kind::kFloat:
      return immediate(operand, type);
    case Kind::kSpecial:
      return special(operand, type);
    case Kind::kSymbol:
      return symbol_address(operand.text, operand.offset, c);
    case Kind::kVector:
      if (operand.elements.size() == 1) return read(operand.elements[0], type);
      invalid("a vector where one value is wanted");
    default:
      invalid("an operand of the wrong kind");
  }
}

Ref FunctionCompiler::immediate(const ptx::Operand& operand, Type type) {
  const RegisterClass c = class_of(type);
  if (operand.kind == Kind::kInteger) {
    if (type == Type::kF32 || type == Type::kF64) invalid("an integer constant where a floating-point one is wanted");
    return constant(c, operand.bits);
  }
  const bool single = operand.float_bits == 32;
  if (c == RegisterClass::kWord) {
    const u32 bits = single ? static_cast<u32>(operand.bits)
                            : std::bit_cast<u32>(static_cast<f32>(std::bit_cast<f64>(operand.bits)));
    return constant(c, bits);
  }
  if (c == RegisterClass::kDouble) {
    const u64 bits = single ? std::bit_cast<u64>(static_cast<f64>(std::bit_cast<f32>(static_cast<u32>(operand.bits))))
                            : operand.bits;
    return constant(c, bits);
  }
  invalid("a floating-point constant where none can stand");
}

Ref FunctionCompiler::write(const ptx::Operand& operand, Type type) {
  if (operand.kind == Kind::kSink) return temporary(class_of(type));
  if (operand.kind == Kind::kVector && operand.elements.size() == 1) return write(operand.elements[0], type);
  if (operand.kind != Kind::kRegister) invalid("the destination is not a register");
  if (register_class(operand) != class_of(type)) invalid("the destination's size does not fit the instruction's type");
  return register_ref(operand.reg, operand.component);
}

FunctionCompiler::Predicate FunctionCompiler::read_predicate(const ptx::Operand& operand) {
  if (operand.kind == Kind::kInteger) return {constant(RegisterClass::kPredicate, operand.bits != 0), operand.negated};
  if (operand.kind != Kind::kRegister || register_class(operand) != RegisterClass::kPredicate)
    invalid("a predicate is wanted");
  return {register_ref(operand.reg, operand.component), operand.negated};
}

Ref FunctionCompiler::resize(Ref value, RegisterClass from, RegisterClass to, bool is_signed) {
  if (from == to) return value;
  static constexpr Type kUnsigned[] = {Type::kNone, Type::kU16, Type::kU32, Type::kU64, Type::kNone};
  static constexpr Type kSigned[] = {Type::kNone, Type::kS16, Type::kS32, Type::kS64, Type::kNone};
  const Type type = (is_signed ? kSigned : kUnsigned)[static_cast<int>(from)];
  const Ref out = temporary(to);
  emit(op_key(Op::kResize, type, bits_type(to)), {out}, {value});
  return out;
}

Ref FunctionCompiler::read_resized(const ptx::Operand& operand, RegisterClass c, bool is_signed) {
  const RegisterClass have = register_class(operand);
  if (have == RegisterClass::kNone) return read(operand, bits_type(c));
  if (have == RegisterClass::kPredicate) invalid("a predicate where a value is wanted");
  return resize(register_ref(operand.reg, operand.component), have, c, is_signed);
}

void FunctionCompiler::move(Ref to, Ref from, RegisterClass c) { emit(op_key(Op::kMov, bits_type(c)), {to}, {from}); }

Ref FunctionCompiler::symbol_address(std::string_view name, s64 offset, RegisterClass c) {
  const Symbol* symbol = symbols_.find(name);
  if (symbol == nullptr)
    throw LoadError(LoadError::Reason::kUnresolvedSymbol, "line " + std::to_string(current_->location.line) +
                                                              ": nothing defines '" + std::string(name) + "'");
  const u64 address = symbol->address + static_cast<u64>(offset);
  switch (symbol->kind) {
    case Symbol::Kind::kGlobal:
      if (c != RegisterClass::kDouble) invalid("the address of a global variable needs a 64-bit register");
      return constant(c, address);
    case Symbol::Kind::kFunction:
      return constant(c, kCodeWindow + symbol->address);
    case Symbol::Kind::kShared:
    case Symbol::Kind::kKernelParam:
      return constant(c, address);
    case Symbol::Kind::kDynamicShared: {
      const Ref out = temporary(RegisterClass::kWord);
      emit(op_key(Op::kSpecial, Type::kNone, Type::kNone, 0, static_cast<u8>(Special::kDynamicSharedBase)), {out}, {},
           static_cast<u64>(offset));
      return resize(out, RegisterClass::kWord, c, false);
    }
    case Symbol::Kind::kLocal:
    case Symbol::Kind::kFrameParam: {
      const Ref out = temporary(c);
      emit(op_key(Op::kLocalAddress, bits_type(c)), {out}, {}, address);
      return out;
    }
    default:
      invalid("the address of a built-in function");
  }
}

namespace {

struct SpecialRow {
  std::string_view name;
  Special which;
  bool is_double;
  u64 imm;
};

constexpr SpecialRow kSpecials[] = {
    {"%tid", Special::kTid, false, 0},
    {"%ntid", Special::kNtid, false, 0},
    {"%ctaid", Special::kCtaid, false, 0},
    {"%nctaid", Special::kNctaid, false, 0},
    {"%laneid", Special::kLaneid, false, 0},
    {"%lanemask_eq", Special::kLanemask, false, 0},
    {"%lanemask_le", Special::kLanemask, false, 1},
    {"%lanemask_lt", Special::kLanemask, false, 2},
    {"%lanemask_ge", Special::kLanemask, false, 3},
    {"%lanemask_gt", Special::kLanemask, false, 4},
    {"%warpid", Special::kWarpid, false, 0},
    {"%nwarpid", Special::kNwarpid, false, 0},
    {"%smid", Special::kSmid, false, 0},
    {"%nsmid", Special::kNsmid, false, 0},
    {"%gridid", Special::kGridid64, true, 0},
    {"%clock", Special::kClock32, false, 0},
    {"%clock_hi", Special::kClock32High, false, 0},
    {"%clock64", Special::kClock64, true, 0},
    {"%globaltimer", Special::kClock64, true, 0},
    {"%globaltimer_lo", Special::kClock32, false, 0},
    {"%globaltimer_hi", Special::kClock32High, false, 0},
    {"%dynamic_smem_size", Special::kDynamicShared, false, 0},
    {"%total_smem_size", Special::kTotalShared, false, 0},
    {"%aggr_smem_size", Special::kTotalShared, false, 0},
    {"%clusterid", Special::kClusterid, false, 0},
    {"%nclusterid", Special::kNclusterid, false, 0},
    {"%cluster_ctaid", Special::kClusterCtaid, false, 0},
    {"%cluster_nctaid", Special::kClusterNctaid, false, 0},
    {"%cluster_ctarank", Special::kClusterCtarank, false, 0},
    {"%cluster_nctarank", Special::kClusterNctarank, false, 0},
    {"%current_graph_exec", Special::kConstant64, true, 0},
    {"%reserved_smem_offset_begin", Special::kConstant32, false, 0},
    {"%reserved_smem_offset_end", Special::kConstant32, false, 0},
    {"%reserved_smem_offset_cap", Special::kConstant32, false, 0},
    {"WARP_SZ", Special::kConstant32, false, 32},
};

}  // namespace

Ref FunctionCompiler::special(const ptx::Operand& operand, Type type) {
  const RegisterClass wanted = class_of(type);
  SpecialRow row{};
  for (const SpecialRow& candidate : kSpecials) {
    if (candidate.name == operand.text) row = candidate;
  }
  if (row.name.empty() && operand.text.substr(0, 7) == "%envreg") row = {operand.text, Special::kConstant32, false, 0};
  if (row.name.empty()) unsupported("special register " + std::string(operand.text));
  if (row.which == Special::kConstant32 || row.which == Special::kConstant64) return constant(wanted, row.imm);
  if (operand.component > 3) invalid("no such component");
  const RegisterClass have = row.is_double ? RegisterClass::kDouble : RegisterClass::kWord;
  // %tid.w and its like are always zero.
  if (operand.component == 3) return constant(wanted, 0);
  const Ref out = temporary(have);
  const u64 imm = operand.component > 0 ? static_cast<u64>(operand.component) : row.imm;
  emit(op_key(Op::kSpecial, Type::kNone, Type::kNone, 0, static_cast<u8>(row.which)), {out}, {}, imm);
  return resize(out, have, wanted, false);
}

}  // namespace tessera::sim
