// SPDX-License-Identifier: Apache-2.0
#include "function_compiler.h"

#include <algorithm>

namespace tessera::sim {

FunctionCompiler::FunctionCompiler(const ptx::Function& source, const Symbols& symbols, ConstantPool& constants,
                                   Function& out)
    : source_(source), symbols_(symbols), constants_(constants), out_(out), layout_(symbols.frame()) {}

void FunctionCompiler::compile() {
  graph_ = ptx::build_cfg(source_);
  declare_registers();
  start_segment();
  for (u32 block = 0; block < graph_.blocks.size(); ++block) lower_block(block);
  // Control that runs off the end returns.
  open().end = out_.is_entry ? Segment::End::kExit : Segment::End::kReturn;
  open().count = static_cast<u32>(drafts_.size()) - open().first;
  resolve_targets();
  account();
  out_.local_bytes = layout_.local_bytes;
  const auto to_ref = [this](Passed passed) {
    if (!passed.in_memory) passed.ref = register_ref(static_cast<ptx::RegisterId>(passed.ref), -1);
    return passed;
  };
  for (const Passed& formal : layout_.formals) out_.formals.push_back(to_ref(formal));
  for (const Passed& result : layout_.results) out_.results.push_back(to_ref(result));
  std::vector<u8> is_temporary(registers_.size(), 0);
  std::fill(is_temporary.begin() + first_temporary_, is_temporary.end(), u8{1});
  for (u32 lasting : lasting_) is_temporary[lasting] = 0;
  assign_slots(out_, drafts_, registers_, is_temporary);
}

void FunctionCompiler::declare_registers() {
  for (const ptx::Register& declared : source_.registers) {
    first_register_.push_back(static_cast<u32>(registers_.size()));
    const RegisterClass c = class_of(declared.type);
    for (int component = 0; component < std::max<int>(declared.vector, 1); ++component) registers_.push_back(c);
  }
  first_temporary_ = static_cast<u32>(registers_.size());
}

void FunctionCompiler::lower_block(u32 block) {
  if (open().first != drafts_.size()) close_segment();
  first_segment_.push_back(static_cast<u32>(out_.segments.size() - 1));
  const ptx::BasicBlock& bounds = graph_.blocks[block];
  for (u32 i = bounds.begin; i < bounds.end; ++i) {
    current_ = &source_.instructions[i];
    guard_taken_ = false;
    lower(*this, *current_);
  }
}

void FunctionCompiler::start_segment() {
  Segment segment;
  segment.first = static_cast<u32>(drafts_.size());
  out_.segments.push_back(segment);
  const u32 index = static_cast<u32>(out_.segments.size() - 1);
  for (u32 waiting : skip_pending_) {
    out_.segments[waiting].target = index;
    out_.segments[waiting].reconverge = index;
  }
  skip_pending_.clear();
}

void FunctionCompiler::close_segment() {
  const u32 index = static_cast<u32>(out_.segments.size() - 1);
  Segment& segment = out_.segments[index];
  segment.count = static_cast<u32>(drafts_.size()) - segment.first;
  segment.next = index + 1;
  start_segment();
}

Segment& FunctionCompiler::end_with(DraftOp op, Segment::End end) {
  const u32 index = static_cast<u32>(out_.segments.size() - 1);
  Segment& segment = out_.segments[index];
  segment.count = static_cast<u32>(drafts_.size()) - segment.first;
  segment.end = end;
  segment.end_op = static_cast<u32>(drafts_.size());
  segment.next = index + 1;
  drafts_.push_back(std::move(op));
  start_segment();
  return out_.segments[index];
}

DraftOp FunctionCompiler::make_op(u64 key, const std::vector<Ref>& destinations, const std::vector<Ref>& sources,
                                  u64 imm, Cost cost) {
  DraftOp op;
  if (key != 0) {
    op.run = find_handler(key);
    if (op.run == nullptr) unsupported("this combination of types and modifiers");
  }
  op.imm = imm;
  op.cost = cost;
  op.line = current_->location.line;
  op.destinations = static_cast<u32>(destinations.size());
  op.refs = destinations;
  op.refs.insert(op.refs.end(), sources.begin(), sources.end());
  if (current_->guard != ptx::kNoRegister && !guard_taken_) {
    op.guard = register_ref(current_->guard, -1);
    op.guard_negated = current_->guard_negated;
  }
  return op;
}

void FunctionCompiler::emit(u64 key, const std::vector<Ref>& destinations, const std::vector<Ref>& sources, u64 imm,
                            Cost cost) {
  drafts_.push_back(make_op(key, destinations, sources, imm, cost));
}
void FunctionCompiler::emit(u64 key, std::initializer_list<Ref> destinations, std::initializer_list<Ref> sources,
                            u64 imm, Cost cost) {
  emit(key, std::vector<Ref>(destinations), std::vector<Ref>(sources), imm, cost);
}

Segment& FunctionCompiler::end_segment(Segment::End end, const std::vector<Ref>& destinations,
                                       const std::vector<Ref>& sources, u64 imm) {
  return end_segment_with(0, end, destinations, sources, imm);
}

Segment& FunctionCompiler::end_segment_with(u64 key, Segment::End end, const std::vector<Ref>& destinations,
                                            const std::vector<Ref>& sources, u64 imm, Cost cost) {
  if (current_->guard == ptx::kNoRegister || guard_taken_)
    return end_with(make_op(key, destinations, sources, imm, cost), end);
  // Lanes whose guard is false step around.
  DraftOp around = make_op(0, {}, {}, 0, {});
  around.guard_negated = !around.guard_negated;
  end_with(std::move(around), Segment::End::kBranch);
  const u32 branch_index = static_cast<u32>(out_.segments.size() - 2);
  guard_taken_ = true;
  DraftOp op = make_op(key, destinations, sources, imm, cost);
  skip_pending_.push_back(branch_index);
  return end_with(std::move(op), end);
}

void FunctionCompiler::branch(u32 target_instruction, bool uniform) {
  (void)uniform;  // a promise by the program; lanes that part anyway are handled
  const u32 index = static_cast<u32>(out_.segments.size() - 1);
  const u32 block = graph_.block_of[static_cast<size_t>(current_ - source_.instructions.data())];
  if (current_->guard == ptx::kNoRegister) {
    end_with(make_op(0, {}, {}, 0, {}), Segment::End::kNext);
    fixups_.push_back({index, target_instruction, kFixNext});
    return;
  }
  end_with(make_op(0, {}, {}, 0, {}), Segment::End::kBranch);
  fixups_.push_back({index, target_instruction, kFixTarget});
  reconvergence_.emplace_back(index, graph_.immediate_post_dominator[block]);
}

void FunctionCompiler::switch_to(Ref index_ref, const std::vector<u32>& target_instructions) {
  const u32 block = graph_.block_of[static_cast<size_t>(current_ - source_.instructions.data())];
  Segment& segment = end_segment(Segment::End::kSwitch, {}, {index_ref});
  const u32 index = static_cast<u32>(&segment - out_.segments.data());
  segment.detail = static_cast<u32>(out_.switches.size());
  out_.switches.emplace_back(target_instructions.size());
  for (size_t i = 0; i < target_instructions.size(); ++i)
    fixups_.push_back({index, target_instructions[i], static_cast<int>(i)});
  reconvergence_.emplace_back(index, graph_.immediate_post_dominator[block]);
}

void FunctionCompiler::resolve_targets() {
  const u32 last = static_cast<u32>(out_.segments.size() - 1);
  for (const Fixup& fixup : fixups_) {
    const bool at_end = fixup.instruction >= source_.instructions.size();
    const u32 target = at_end ? last : first_segment_[graph_.block_of[fixup.instruction]];
    Segment& segment = out_.segments[fixup.segment];
    if (fixup.which == kFixNext) {
      segment.next = target;
    } else if (fixup.which == kFixTarget) {
      segment.target = target;
    } else {
      out_.switches[segment.detail][static_cast<size_t>(fixup.which)] = target;
    }
  }
  for (const auto& [segment, block] : reconvergence_) {
    if (block != ptx::kNoBlock) out_.segments[segment].reconverge = first_segment_[block];
  }
}

void FunctionCompiler::account() {
  for (Segment& segment : out_.segments) {
    const u32 end = segment.first + segment.count + (segment.end_op != kNoOp ? 1 : 0);
    for (u32 i = segment.first; i < end; ++i) {
      const DraftOp& op = drafts_[i];
      // The end of a branch segment has a guard, but every lane executes the branch itself.
      if (op.guard != kNoGuard && i != segment.end_op) continue;
      ++segment.plain_ops;
      if (op.cost.kind < kLaneCostKinds) {
        segment.lane_costs[op.cost.kind] += op.cost.weight;
      } else {
        segment.warp_costs[op.cost.kind - kLaneCostKinds] += op.cost.weight;
      }
    }
  }
}

}  // namespace tessera::sim
