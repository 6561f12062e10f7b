// SPDX-License-Identifier: Apache-2.0
// mbarrier instructions, and the copies that work on mbarrier objects.
#include "address.h"
#include "families.h"

namespace tessera::sim {
namespace {

using Kind = ptx::Operand::Kind;

/// Objects lie in shared memory; without a space word the address is generic.
MemorySpace take_shared(Modifiers& m) {
  const bool shared = m.take("shared") || m.take("shared::cta") || m.take("shared::cluster");
  return shared ? MemorySpace::kShared : MemorySpace::kGeneric;
}

void finish(FunctionCompiler& c, Modifiers& m) {
  m.ignore({"release", "acquire", "relaxed", "cta", "cluster"});
  if (m.take_type() != Type::kB64) c.invalid("the type is .b64");
  m.finish();
}

void lower_arrive(FunctionCompiler& c, const ptx::Instruction& i, Modifiers& m, bool drops) {
  const bool expects = m.take("expect_tx");
  m.take("noComplete");
  const MemorySpace space = take_shared(m);
  finish(c, m);
  // With a remote object there may be no state operand.
  const bool has_state = i.operands[0].kind != Kind::kAddress;
  const size_t first = has_state ? 1 : 0;
  require_operands(c, i, first + (expects ? 2 : 1), first + 2);
  const Address address = read_address(c, i.operands[first], space);
  const bool has_count = i.operands.size() > first + 1;
  const Ref value = has_count ? c.read(i.operands[first + 1], Type::kU32) : c.constant32(1);
  const Ref state = has_state ? c.write(i.operands[0], Type::kB64) : c.temporary(RegisterClass::kDouble);
  const Ref count = expects ? c.constant32(1) : value, bytes = expects ? value : c.constant32(0);
  c.emit(op_key(Op::kMbarrierArrive), {state}, {address.ref, count, bytes}, address.imm(drops ? 1 : 0));
}

void lower_wait(FunctionCompiler& c, const ptx::Instruction& i, Modifiers& m) {
  const bool parity = m.take("parity");
  const MemorySpace space = take_shared(m);
  finish(c, m);
  require_operands(c, i, 3, 4);  // the fourth is a time hint
  const Address address = read_address(c, i.operands[1], space);
  const Ref by = c.read(i.operands[2], parity ? Type::kU32 : Type::kB64);
  c.emit(op_key(Op::kMbarrierTestWait, Type::kNone, Type::kNone, 0, parity ? 1 : 0),
         {c.write(i.operands[0], Type::kPred)}, {address.ref, by}, address.imm());
}

template <Op kOp>
void lower_with_value(FunctionCompiler& c, const ptx::Instruction& i, Modifiers& m) {
  const MemorySpace space = take_shared(m);
  finish(c, m);
  require_operands(c, i, 2, 2);
  const Address address = read_address(c, i.operands[0], space);
  c.emit(op_key(kOp), {}, {address.ref, c.read(i.operands[1], Type::kU32)}, address.imm());
}

void lower_mbarrier(FunctionCompiler& c, const ptx::Instruction& i) {
  Modifiers m(i);
  switch (m.take_one({"init", "inval", "arrive", "arrive_drop", "test_wait", "try_wait", "expect_tx", "complete_tx",
                      "pending_count"})) {
    case 0:
      return lower_with_value<Op::kMbarrierInit>(c, i, m);
    case 1: {
      const MemorySpace space = take_shared(m);
      finish(c, m);
      require_operands(c, i, 1, 1);
      const Address address = read_address(c, i.operands[0], space);
      return c.emit(op_key(Op::kMbarrierInval), {}, {address.ref}, address.imm());
    }
    case 2:
      return lower_arrive(c, i, m, false);
    case 3:
      return lower_arrive(c, i, m, true);
    case 4:
    case 5:
      return lower_wait(c, i, m);
    case 6:
      return lower_with_value<Op::kMbarrierExpectTx>(c, i, m);
    case 7:
      return lower_with_value<Op::kMbarrierCompleteTx>(c, i, m);
    case 8: {
      finish(c, m);
      require_operands(c, i, 2, 2);
      const Ref state = c.read(i.operands[1], Type::kB64);
      return c.emit(op_key(Op::kMbarrierPendingCount), {c.write(i.operands[0], Type::kU32)}, {state});
    }
    default:
      c.unsupported("this form");
  }
}

constexpr LoweringRow kRows[] = {{"mbarrier", &lower_mbarrier}};

}  // namespace

/// The copies that the arrival stands for were made when they were issued.
void lower_cp_async_arrive(FunctionCompiler& c, const ptx::Instruction& i, Modifiers& m) {
  m.take("mbarrier");
  if (!m.take("arrive")) c.unsupported("this form");
  const bool counted = m.take("noinc");
  const MemorySpace space = take_shared(m);
  finish(c, m);
  require_operands(c, i, 1, 1);
  const Address address = read_address(c, i.operands[0], space);
  // Without .noinc the object's pending count goes up by one first: the two cancel.
  if (!counted) return c.emit(op_key(Op::kNop), {}, {});
  c.emit(op_key(Op::kMbarrierArrive), {c.temporary(RegisterClass::kDouble)},
         {address.ref, c.constant32(1), c.constant32(0)}, address.imm());
}

void lower_bulk_copy(FunctionCompiler& c, const ptx::Instruction& i, Modifiers& m) {
  m.take("bulk");
  if (m.take("commit_group") || m.take("wait_group") || m.take("prefetch")) return c.emit(op_key(Op::kNop), {}, {});
  if (m.has("tensor")) c.unsupported("tensor maps are opaque to this device");
  if (m.has("multicast::cluster")) c.unsupported("multicast");
  const bool to_global = !i.modifiers.empty() && i.modifiers.size() > 2 && i.modifiers[2] == "global";
  const bool from_shared = !to_global && (m.has("shared::cta") && (m.has("shared::cluster")));
  m.ignore({"global", "shared::cta", "shared::cluster"});
  const bool has_barrier = m.take("mbarrier::complete_tx::bytes");
  const bool hint = m.take("L2::cache_hint");
  m.take("bulk_group");
  m.finish();
  const size_t wanted = has_barrier ? 4u : 3u;
  require_operands(c, i, wanted, wanted + (hint ? 1 : 0));
  const MemorySpace to = to_global ? MemorySpace::kGlobal : MemorySpace::kShared;
  const MemorySpace from = to_global || from_shared ? MemorySpace::kShared : MemorySpace::kGlobal;
  const Ref target = flat_address(c, read_address(c, i.operands[0], to)),
            origin = flat_address(c, read_address(c, i.operands[1], from));
  const Ref bytes = c.read(i.operands[2], Type::kU32);
  const Ref barrier =
      has_barrier ? flat_address(c, read_address(c, i.operands[3], MemorySpace::kShared)) : c.constant64(0);
  const u64 imm = u64{static_cast<u8>(to)} | u64{static_cast<u8>(from)} << 4 | (has_barrier ? u64{1} << 8 : 0);
  c.emit(op_key(Op::kBulkCopy), {}, {target, origin, bytes, barrier}, imm);
}

LoweringTable mbarrier_lowerings() { return {kRows, std::size(kRows)}; }

}  // namespace tessera::sim
