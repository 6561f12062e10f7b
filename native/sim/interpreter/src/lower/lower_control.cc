// SPDX-License-Identifier: Apache-2.0
// Branches, calls, returns, and what ends or delays a thread.
#include "families.h"

namespace tessera::sim {
namespace {

using Kind = ptx::Operand::Kind;

void lower_bra(FunctionCompiler& c, const ptx::Instruction& i) {
  Modifiers m(i);
  const bool uniform = m.take("uni");
  m.finish();
  require_operands(c, i, 1, 1);
  if (i.operands[0].kind != Kind::kLabel) c.invalid("no label");
  c.branch(i.operands[0].label, uniform);
}

void lower_brx(FunctionCompiler& c, const ptx::Instruction& i) {
  Modifiers m(i);
  m.ignore({"idx", "uni"});
  m.finish();
  require_operands(c, i, 2, 2);
  for (const ptx::BranchTargets& list : c.source().target_lists) {
    if (list.name == i.operands[1].text) return c.switch_to(c.read(i.operands[0], Type::kU32), list.label_indices);
  }
  c.invalid("no such list of targets");
}

void lower_ret(FunctionCompiler& c, const ptx::Instruction& i) {
  Modifiers m(i);
  m.take("uni");
  m.finish();
  require_operands(c, i, 0, 0);
  c.end_segment(c.source().is_entry ? Segment::End::kExit : Segment::End::kReturn);
}

void lower_exit(FunctionCompiler& c, const ptx::Instruction& i) {
  Modifiers m(i);
  m.finish();
  c.end_segment(Segment::End::kExit);
  (void)i;
}

struct CallParts {
  const ptx::Operand* results = nullptr;
  const ptx::Operand* callee = nullptr;
  const ptx::Operand* arguments = nullptr;
};
CallParts parts_of(FunctionCompiler& c, const ptx::Instruction& i) {
  CallParts parts;
  for (const ptx::Operand& operand : i.operands) {
    if (operand.kind == Kind::kTuple) {
      (parts.callee == nullptr ? parts.results : parts.arguments) = &operand;
    } else if (parts.callee == nullptr) {
      parts.callee = &operand;
    }
  }
  if (parts.callee == nullptr) c.invalid("no function to call");
  return parts;
}

/// An actual argument or result: a .param variable of the caller, a register, or a constant of `bytes`.
Passed passed(FunctionCompiler& c, const ptx::Operand& operand, u32 bytes) {
  Passed out;
  if (operand.kind == Kind::kSymbol) {
    const Symbol* symbol = c.symbols().find(operand.text);
    if (symbol == nullptr || symbol->kind != Symbol::Kind::kFrameParam)
      c.unsupported("an argument that is no .param variable, register or constant");
    return {true, static_cast<u32>(symbol->address), 0, static_cast<u32>(symbol->size)};
  }
  if (operand.kind == Kind::kRegister) {
    const RegisterClass k = c.register_class(operand);
    if (k == RegisterClass::kPredicate) c.unsupported("a predicate as an argument");
    return {false, 0, c.register_ref(operand.reg, operand.component), slot_bytes(k) / kLanes};
  }
  const Type type = bytes == 2 ? Type::kB16 : bytes == 8 ? Type::kB64 : Type::kB32;
  return {false, 0, c.read(operand, type), bytes == 2 ? 2u : bytes == 8 ? 8u : 4u};
}

u32 formal_bytes(const ptx::Function* prototype, size_t k) {
  return prototype != nullptr && k < prototype->parameters.size() ? static_cast<u32>(prototype->parameters[k].size())
                                                                  : 4;
}

const ptx::Function* prototype_of(FunctionCompiler& c, const ptx::Instruction& i, const Symbol* symbol) {
  if (symbol != nullptr) return symbol->function;
  for (const ptx::Function& prototype : c.source().prototypes) {
    if (!i.operands.empty() && i.operands[i.operands.size() - 1].text == prototype.name) return &prototype;
  }
  return nullptr;
}

/// A function of the runtime: its arguments are in the frame's local memory.
void call_intrinsic(FunctionCompiler& c, const Symbol& symbol, const CallParts& parts) {
  u64 offsets[6] = {};
  const size_t count = parts.arguments == nullptr ? 0 : parts.arguments->elements.size();
  if (count > 5) c.invalid("too many arguments of a built-in function");
  const auto offset_of = [&c](const ptx::Operand& operand) -> u64 {
    const Symbol* argument = operand.kind == Kind::kSymbol ? c.symbols().find(operand.text) : nullptr;
    if (argument == nullptr || argument->kind != Symbol::Kind::kFrameParam)
      c.unsupported("an argument of a built-in function outside .param");
    return argument->address;
  };
  for (size_t k = 0; k < count; ++k) offsets[k] = offset_of(parts.arguments->elements[k]);
  if (parts.results != nullptr && !parts.results->elements.empty()) offsets[5] = offset_of(parts.results->elements[0]);
  std::vector<Ref> refs;
  for (u64 offset : offsets) refs.push_back(c.constant64(offset));
  c.emit(op_key(static_cast<Op>(symbol.address)), {}, refs, count);
}

void lower_call(FunctionCompiler& c, const ptx::Instruction& i) {
  Modifiers m(i);
  m.take("uni");
  m.finish();
  const CallParts parts = parts_of(c, i);
  const Symbol* symbol = parts.callee->kind == Kind::kSymbol ? c.symbols().find(parts.callee->text) : nullptr;
  if (parts.callee->kind == Kind::kSymbol &&
      (symbol == nullptr || (symbol->kind != Symbol::Kind::kFunction && symbol->kind != Symbol::Kind::kIntrinsic))) {
    throw LoadError(
        LoadError::Reason::kUnresolvedSymbol,
        "line " + std::to_string(i.location.line) + ": no function '" + std::string(parts.callee->text) + "'");
  }
  if (symbol != nullptr && symbol->kind == Symbol::Kind::kIntrinsic) return call_intrinsic(c, *symbol, parts);
  CallSite call;
  const ptx::Function* prototype = prototype_of(c, i, symbol);
  for (size_t k = 0; parts.arguments != nullptr && k < parts.arguments->elements.size(); ++k) {
    call.arguments.push_back(passed(c, parts.arguments->elements[k], formal_bytes(prototype, k)));
  }
  for (size_t k = 0; parts.results != nullptr && k < parts.results->elements.size(); ++k) {
    if (parts.results->elements[k].kind == Kind::kSink) c.unsupported("a result that is not kept");
    call.results.push_back(passed(c, parts.results->elements[k], 4));
  }
  std::vector<Ref> refs;
  if (symbol != nullptr) {
    call.callee = static_cast<u32>(symbol->address);
  } else {
    refs.push_back(c.read(*parts.callee, Type::kU64));
  }
  c.out().calls.push_back(std::move(call));
  // Set before the segment is closed: slot assignment looks the call up by its end operation.
  const u32 detail = static_cast<u32>(c.out().calls.size() - 1);
  c.end_segment(Segment::End::kCall, {}, refs).detail = detail;
}

void lower_trap(FunctionCompiler& c, const ptx::Instruction&) { c.emit(op_key(Op::kTrap), {}, {}); }
void nothing(FunctionCompiler& c, const ptx::Instruction&) { c.emit(op_key(Op::kNop), {}, {}); }

void lower_nanosleep(FunctionCompiler& c, const ptx::Instruction& i) {
  Modifiers m(i);
  m.take_type();
  m.finish();
  c.end_segment_with(op_key(Op::kNop), Segment::End::kYield, {}, {});
}

constexpr LoweringRow kRows[] = {
    {"bra", &lower_bra},          {"brx", &lower_brx},      {"ret", &lower_ret},    {"exit", &lower_exit},
    {"call", &lower_call},        {"trap", &lower_trap},    {"brkpt", &lower_trap}, {"nanosleep", &lower_nanosleep},
    {"griddepcontrol", &nothing}, {"setmaxnreg", &nothing}, {"pmevent", &nothing},
};

}  // namespace

LoweringTable control_lowerings() { return {kRows, std::size(kRows)}; }

}  // namespace tessera::sim
