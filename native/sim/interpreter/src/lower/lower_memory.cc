// SPDX-License-Identifier: Apache-2.0
// Loads, stores, cp.async, the matrix forms, prefetches.
#include <algorithm>

#include "address.h"
#include "families.h"

namespace tessera::sim {

using Kind = ptx::Operand::Kind;

MemorySpace take_space(FunctionCompiler& c, Modifiers& m) {
  if (m.take("global") || m.take("const")) return MemorySpace::kGlobal;
  if (m.take("shared") || m.take("shared::cta") || m.take("shared::cluster")) return MemorySpace::kShared;
  if (m.take("local")) return MemorySpace::kLocal;
  if (m.take("param::entry")) return MemorySpace::kParam;
  // A function's own parameters, and call arguments, lie in local memory.
  if (m.take("param") || m.take("param::func")) return c.source().is_entry ? MemorySpace::kParam : MemorySpace::kLocal;
  return MemorySpace::kGeneric;
}

bool take_ordering(Modifiers& m) {
  const bool strong = m.take("volatile") || m.take("mmio");
  const int semantics = m.take_one({"relaxed", "acquire", "release", "acq_rel", "sc"});
  m.ignore({"weak", "relaxed", "cta", "cluster", "gpu", "sys"});
  m.ignore({"ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc", "unified"});
  m.ignore_prefix("L1::");
  m.ignore_prefix("L2::");
  m.ignore_prefix("level::");
  return strong || semantics >= 0;
}

namespace {

Address symbol_at(FunctionCompiler& c, std::string_view name, s64 offset, MemorySpace space) {
  const Symbol* symbol = c.symbols().find(name);
  if (symbol == nullptr)
    throw LoadError(LoadError::Reason::kUnresolvedSymbol, "line " + std::to_string(c.current().location.line) +
                                                              ": nothing defines '" + std::string(name) + "'");
  const s64 address = static_cast<s64>(symbol->address) + offset;
  switch (symbol->kind) {
    case Symbol::Kind::kGlobal:
      return {MemorySpace::kGlobal, c.constant64(static_cast<u64>(address)), 0, false, false};
    case Symbol::Kind::kShared:
      return {MemorySpace::kShared, c.constant32(static_cast<u32>(address)), 0, true, false};
    case Symbol::Kind::kDynamicShared:
      return {MemorySpace::kShared, c.symbol_address(name, offset, RegisterClass::kWord), 0, true, false};
    case Symbol::Kind::kLocal:
    case Symbol::Kind::kFrameParam:
      return {MemorySpace::kFrame, c.constant32(0), address, true, false};
    case Symbol::Kind::kKernelParam:
      if (space != MemorySpace::kParam) c.invalid("a kernel parameter outside the param space");
      return {MemorySpace::kParam, c.constant64(0), address, false, true};
    default:
      c.invalid("a function is not memory");
  }
}

}  // namespace

Address read_address(FunctionCompiler& c, const ptx::Operand& operand, MemorySpace space) {
  if (operand.kind != Kind::kAddress || operand.elements.empty()) c.invalid("an address is wanted");
  const ptx::Operand& base = operand.elements[0];
  const s64 offset = operand.offset + (base.kind == Kind::kSymbol ? base.offset : 0);
  if (base.kind == Kind::kSymbol) return symbol_at(c, base.text, offset, space);
  if (base.kind == Kind::kInteger) return {space, c.constant64(base.bits), offset, false, false};
  const RegisterClass k = c.register_class(base);
  if (k != RegisterClass::kWord && k != RegisterClass::kDouble) c.invalid("an address register has 32 or 64 bits");
  return {space, c.read(base, bits_type(k)), offset, k == RegisterClass::kWord, false};
}

Ref flat_address(FunctionCompiler& c, const Address& address) {
  Ref base = address.narrow ? c.resize(address.ref, RegisterClass::kWord, RegisterClass::kDouble, false) : address.ref;
  if (address.space == MemorySpace::kFrame) {
    const Ref out = c.temporary(RegisterClass::kDouble);
    c.emit(op_key(Op::kLocalAddress, Type::kB64), {out}, {}, static_cast<u64>(address.offset));
    return out;
  }
  if (address.offset == 0) return base;
  const Ref out = c.temporary(RegisterClass::kDouble);
  c.emit(op_key(Op::kAdd, Type::kU64), {out}, {base, c.constant64(static_cast<u64>(address.offset))});
  return out;
}

namespace {

/// How memory of a type is read: the sign matters where the register is wider.
Type memory_type(Type type) {
  switch (ptx::type_size(type)) {
    case 1:
      return type == Type::kS8 ? Type::kS8 : Type::kU8;
    case 2:
      return type == Type::kS16 ? Type::kS16 : Type::kU16;
    case 4:
      return type == Type::kS32 ? Type::kS32 : Type::kU32;
    case 8:
      return Type::kU64;
    case 16:
      return Type::kB128;
    default:
      return Type::kNone;
  }
}
Type unsigned_memory_type(Type type) {
  switch (ptx::type_size(type)) {
    case 1:
      return Type::kU8;
    case 2:
      return Type::kU16;
    case 4:
      return Type::kU32;
    case 8:
      return Type::kU64;
    case 16:
      return Type::kB128;
    default:
      return Type::kNone;
  }
}

struct Access {
  MemorySpace space;
  bool strong;
  u8 count;
  Type type;
};
Access parse(FunctionCompiler& c, const ptx::Instruction& i) {
  Modifiers m(i);
  Access access{};
  access.space = take_space(c, m);
  const int vector = m.take_one({"v2", "v4", "v8"});
  access.count = static_cast<u8>(vector < 0 ? 1 : 2 << vector);
  access.strong = take_ordering(m);
  access.type = m.take_type();
  m.finish();
  if (class_of(access.type) == RegisterClass::kNone) c.unsupported("this type");
  return access;
}

/// The values of a vector operand, or of a vector register, or the one value.
std::vector<ptx::Operand> elements_of(FunctionCompiler& c, const ptx::Operand& operand, u8 count) {
  std::vector<ptx::Operand> out;
  if (operand.kind == Kind::kVector) {
    out.assign(operand.elements.begin(), operand.elements.end());
  } else if (count > 1 && operand.kind == Kind::kRegister && operand.component < 0) {
    for (int k = 0; k < count; ++k) {
      out.push_back(operand);
      out.back().component = static_cast<int8_t>(k);
    }
  } else {
    out.push_back(operand);
  }
  if (out.size() != count) c.invalid("the vector's length does not fit the instruction");
  return out;
}

/// The class that serves all elements: that of their registers, or the widest.
RegisterClass common_class(FunctionCompiler& c, const std::vector<ptx::Operand>& elements, Type type) {
  RegisterClass k = class_of(type);
  for (const ptx::Operand& element : elements) {
    const RegisterClass own = c.register_class(element);
    if (own == RegisterClass::kPredicate) c.invalid("a predicate cannot be loaded or stored");
    if (own != RegisterClass::kNone) k = std::max(k, own);
  }
  return k;
}

void load_kernel_parameters(FunctionCompiler& c, const std::vector<Ref>& targets, const Access& access, RegisterClass k,
                            s64 offset) {
  const u32 size = ptx::type_size(access.type);
  for (size_t n = 0; n < targets.size(); ++n) {
    c.emit(op_key(Op::kLoadParam, memory_type(access.type), bits_type(k)), {targets[n]}, {},
           static_cast<u64>(offset) + n * size);
  }
}

void lower_ld(FunctionCompiler& c, const ptx::Instruction& i) {
  const Access access = parse(c, i);
  require_operands(c, i, 2, 3);  // the third is a cache policy
  const std::vector<ptx::Operand> elements = elements_of(c, i.operands[0], access.count);
  const RegisterClass k = common_class(c, elements, access.type);
  const Address address = read_address(c, i.operands[1], access.space);
  std::vector<Ref> targets;
  bool all_fit = true;
  for (const ptx::Operand& element : elements) {
    const bool fits = c.register_class(element) == k;
    all_fit = all_fit && (fits || element.kind == Kind::kSink);
    targets.push_back(fits ? c.register_ref(element.reg, element.component) : c.temporary(k));
  }
  if (address.fixed) {
    load_kernel_parameters(c, targets, access, k, address.offset);
  } else {
    const bool strong = access.strong && access.type != Type::kB128;
    c.emit(op_key(Op::kLoad, memory_type(access.type), bits_type(k), strong ? 1 : 0, access.count), targets,
           {address.ref}, address.imm());
  }
  for (size_t n = 0; n < elements.size() && !all_fit; ++n) {
    const RegisterClass own = c.register_class(elements[n]);
    if (own == k || own == RegisterClass::kNone) continue;
    c.move(c.register_ref(elements[n].reg, elements[n].component), c.resize(targets[n], k, own, false), own);
  }
}

void lower_st(FunctionCompiler& c, const ptx::Instruction& i) {
  const Access access = parse(c, i);
  require_operands(c, i, 2, 3);
  const std::vector<ptx::Operand> elements = elements_of(c, i.operands[1], access.count);
  const RegisterClass k = common_class(c, elements, access.type);
  const Address address = read_address(c, i.operands[0], access.space);
  if (address.fixed) c.invalid("kernel parameters cannot be written");
  std::vector<Ref> refs{address.ref};
  for (const ptx::Operand& element : elements) {
    const bool is_register = c.register_class(element) != RegisterClass::kNone;
    refs.push_back(is_register ? c.read_resized(element, k, false)
                               : c.read(element, k == class_of(access.type) ? access.type : bits_type(k)));
  }
  const bool strong = access.strong && access.type != Type::kB128;
  c.emit(op_key(Op::kStore, unsigned_memory_type(access.type), bits_type(k), strong ? 1 : 0, access.count), {}, refs,
         address.imm());
}

void lower_cp_async(FunctionCompiler& c, const ptx::Instruction& i, Modifiers& m) {
  const bool cached = m.take("ca"), global_level = m.take("cg");
  if (!cached && !global_level) c.unsupported("only .ca and .cg copies");
  if (!m.take("shared") && !m.take("shared::cta")) c.invalid("the destination is not shared memory");
  if (!m.take("global")) c.invalid("the source is not global memory");
  const bool hint = m.has("L2::cache_hint");
  m.ignore_prefix("L2::");
  m.finish();
  require_operands(c, i, 3, 5);
  if (i.operands[2].kind != Kind::kInteger) c.invalid("the size is not a constant");
  const u64 size = i.operands[2].bits;
  if (size != 4 && size != 8 && size != 16) c.invalid("the size is not 4, 8 or 16");
  const Address to = read_address(c, i.operands[0], MemorySpace::kShared);
  const Ref from = flat_address(c, read_address(c, i.operands[1], MemorySpace::kGlobal));
  Ref wanted = c.constant32(static_cast<u32>(size)), ignored = c.false_predicate();
  const size_t extras = i.operands.size() - 3 - (hint ? 1 : 0);
  if (extras > 0) {
    const ptx::Operand& extra = i.operands[3];
    if (c.register_class(extra) == RegisterClass::kPredicate) {
      const auto p = c.read_predicate(extra);
      ignored = c.temporary(RegisterClass::kPredicate);
      c.emit(op_key(Op::kMov, Type::kPred), {ignored}, {p.ref}, p.negated ? 1 : 0);
    } else {
      wanted = c.read(extra, Type::kU32);
    }
  }
  c.emit(op_key(Op::kCpAsync), {}, {to.ref, from, wanted, ignored}, to.imm(static_cast<u8>(size)));
}

void lower_cp(FunctionCompiler& c, const ptx::Instruction& i) {
  Modifiers m(i);
  if (!m.take("async")) c.unsupported("only cp.async");
  if (m.has("bulk")) return lower_bulk_copy(c, i, m);
  if (m.has("mbarrier")) return lower_cp_async_arrive(c, i, m);
  // Copies are made when they are issued: every group is complete by then.
  if (m.take("commit_group") || m.take("wait_all")) {
    m.finish();
    return c.emit(op_key(Op::kNop), {}, {});
  }
  if (m.take("wait_group")) {
    m.finish();
    return c.emit(op_key(Op::kNop), {}, {});
  }
  lower_cp_async(c, i, m);
}

void lower_prefetch(FunctionCompiler& c, const ptx::Instruction& i) {
  Modifiers m(i);
  take_space(c, m);
  m.ignore({"L1", "L2", "tensormap"});
  m.ignore_prefix("L2::");
  m.finish();
  c.emit(op_key(Op::kNop), {}, {});
}

/// A cache policy has no effect here: its value is never looked at.
void lower_createpolicy(FunctionCompiler& c, const ptx::Instruction& i) {
  require_operands(c, i, 1, 5);
  c.move(c.write(i.operands[0], Type::kB64), c.constant64(0), RegisterClass::kDouble);
}

struct MatrixWords {
  u8 count;
  bool transposed;
};
MatrixWords parse_matrix(FunctionCompiler& c, Modifiers& m) {
  m.take("sync");
  m.take("aligned");
  if (!m.take("m8n8")) c.unsupported("only m8n8 matrices");
  const int count = m.take_one({"x1", "x2", "x4"});
  if (count < 0) c.invalid("no count");
  const bool transposed = m.take("trans");
  if (take_space(c, m) == MemorySpace::kGlobal) c.invalid("matrices lie in shared memory");
  if (m.take_type() != Type::kB16) c.unsupported("only .b16 elements");
  m.finish();
  return {static_cast<u8>(1 << count), transposed};
}

bool names_shared(const ptx::Instruction& i) { return i.has("shared") || i.has("shared::cta"); }

void lower_ldmatrix(FunctionCompiler& c, const ptx::Instruction& i) {
  Modifiers m(i);
  const MatrixWords words = parse_matrix(c, m);
  require_operands(c, i, 2, 2);
  const Address address =
      read_address(c, i.operands[1], names_shared(i) ? MemorySpace::kShared : MemorySpace::kGeneric);
  std::vector<Ref> targets;
  for (const ptx::Operand& element : elements_of(c, i.operands[0], words.count))
    targets.push_back(c.write(element, Type::kB32));
  c.emit(op_key(Op::kLdmatrix, Type::kB16, Type::kNone, words.transposed ? 1 : 0, words.count), targets, {address.ref},
         address.imm());
}

void lower_stmatrix(FunctionCompiler& c, const ptx::Instruction& i) {
  Modifiers m(i);
  const MatrixWords words = parse_matrix(c, m);
  require_operands(c, i, 2, 2);
  const Address address =
      read_address(c, i.operands[0], names_shared(i) ? MemorySpace::kShared : MemorySpace::kGeneric);
  std::vector<Ref> refs{address.ref};
  for (const ptx::Operand& element : elements_of(c, i.operands[1], words.count))
    refs.push_back(c.read(element, Type::kB32));
  c.emit(op_key(Op::kStmatrix, Type::kB16, Type::kNone, words.transposed ? 1 : 0, words.count), {}, refs,
         address.imm());
}

void lower_movmatrix(FunctionCompiler& c, const ptx::Instruction& i) {
  Modifiers m(i);
  m.ignore({"sync", "aligned", "m8n8", "trans"});
  const Type type = m.take_type();
  m.finish();
  require_operands(c, i, 2, 2);
  const Ref a = c.read(i.operands[1], Type::kB32);
  c.emit(op_key(Op::kMovmatrix, type), {c.write(i.operands[0], Type::kB32)}, {a});
}

constexpr LoweringRow kRows[] = {
    {"ld", &lower_ld},
    {"ldu", &lower_ld},
    {"st", &lower_st},
    {"cp", &lower_cp},
    {"prefetch", &lower_prefetch},
    {"prefetchu", &lower_prefetch},
    {"discard", &lower_prefetch},
    {"applypriority", &lower_prefetch},
    {"createpolicy", &lower_createpolicy},
    {"ldmatrix", &lower_ldmatrix},
    {"stmatrix", &lower_stmatrix},
    {"movmatrix", &lower_movmatrix},
};

}  // namespace

LoweringTable memory_lowerings() { return {kRows, std::size(kRows)}; }

}  // namespace tessera::sim
