// SPDX-License-Identifier: Apache-2.0
// Register slots. A slot is 32 lanes wide and costs cache, so registers whose
// live ranges do not meet share one. Liveness is that of one lane: lanes have
// their own storage and masked writes, so divergence changes nothing.
#include <algorithm>
#include <cstring>

#include "function_compiler.h"

namespace tessera::sim {
namespace {

class Bits {
 public:
  explicit Bits(size_t count = 0) : words_((count + 63) / 64) {}
  void set(u32 i) { words_[i / 64] |= u64{1} << (i % 64); }
  void clear(u32 i) { words_[i / 64] &= ~(u64{1} << (i % 64)); }
  bool test(u32 i) const { return (words_[i / 64] >> (i % 64) & 1) != 0; }
  /// this |= other; true when that changed something.
  bool merge(const Bits& other) {
    u64 changed = 0;
    for (size_t i = 0; i < words_.size(); ++i) {
      changed |= other.words_[i] & ~words_[i];
      words_[i] |= other.words_[i];
    }
    return changed != 0;
  }
  /// this |= a & ~b
  bool merge_without(const Bits& a, const Bits& b) {
    u64 changed = 0;
    for (size_t i = 0; i < words_.size(); ++i) {
      const u64 add = a.words_[i] & ~b.words_[i];
      changed |= add & ~words_[i];
      words_[i] |= add;
    }
    return changed != 0;
  }
  template <class F>
  void each(F visit) const {
    for (size_t i = 0; i < words_.size(); ++i) {
      for (u64 word = words_[i]; word != 0; word &= word - 1)
        visit(static_cast<u32>(i * 64) + static_cast<u32>(__builtin_ctzll(word)));
    }
  }

 private:
  std::vector<u64> words_;
};

bool is_register(Ref ref) { return (ref & 1) == 0; }

struct Range {
  u32 begin = 0xffffffffu, end = 0;  // positions of operations, both included
  void cover(u32 position) {
    begin = std::min(begin, position);
    end = std::max(end, position);
  }
  bool used() const { return begin <= end; }
};

class Liveness {
 public:
  Liveness(const Function& function, const std::vector<DraftOp>& drafts, size_t registers,
           const std::vector<u8>& is_temporary)
      : function_(function), drafts_(drafts), is_temporary_(is_temporary), ranges_(registers) {
    const size_t count = function.segments.size();
    uses_.assign(count, Bits(registers));
    kills_.assign(count, Bits(registers));
    live_in_.assign(count, Bits(registers));
    live_out_.assign(count, Bits(registers));
  }

  std::vector<Range> ranges() {
    for (u32 s = 0; s < function_.segments.size(); ++s) scan(s);
    solve();
    for (u32 s = 0; s < function_.segments.size(); ++s) cover(s);
    for (const Passed& formal : function_.formals) pin(formal);
    for (const Passed& result : function_.results) pin(result);
    return std::move(ranges_);
  }

 private:
  std::pair<u32, u32> bounds(u32 s) const {
    const Segment& segment = function_.segments[s];
    return {segment.first, segment.first + segment.count + (segment.end_op != kNoOp ? 1 : 0)};
  }
  bool kills(const DraftOp& op, u32 reg) const { return op.guard == kNoGuard || is_temporary_[reg] != 0; }

  void scan(u32 s) {
    const auto [begin, end] = bounds(s);
    for (u32 i = begin; i < end; ++i) {
      const DraftOp& op = drafts_[i];
      for (size_t k = op.destinations; k < op.refs.size(); ++k) use(s, op.refs[k]);
      if (op.guard != kNoGuard) use(s, op.guard);
      for (size_t k = 0; k < op.destinations; ++k) {
        const u32 reg = op.refs[k] >> 1;
        if (kills(op, reg)) {
          kills_[s].set(reg);
        } else {
          use(s, op.refs[k]);
        }
      }
      const Segment& segment = function_.segments[s];
      if (i == segment.end_op && segment.end == Segment::End::kCall) use_call(s, function_.calls[segment.detail]);
    }
  }
  void use(u32 s, Ref ref) {
    if (is_register(ref) && !kills_[s].test(ref >> 1)) uses_[s].set(ref >> 1);
  }
  void use_call(u32 s, const CallSite& call) {
    for (const Passed& argument : call.arguments) {
      if (!argument.in_memory) use(s, argument.ref);
    }
    for (const Passed& result : call.results) {
      if (!result.in_memory) use(s, result.ref);  // written when the call returns
    }
  }

  template <class F>
  void each_successor(u32 s, F visit) const {
    const Segment& segment = function_.segments[s];
    if (segment.end == Segment::End::kReturn || segment.end == Segment::End::kExit) return;
    if (segment.next != kNoSegment) visit(segment.next);
    if (segment.target != kNoSegment) visit(segment.target);
    if (segment.end == Segment::End::kSwitch) {
      for (u32 target : function_.switches[segment.detail]) visit(target);
    }
  }

  void solve() {
    for (u32 s = 0; s < uses_.size(); ++s) live_in_[s].merge(uses_[s]);
    for (bool changed = true; changed;) {
      changed = false;
      for (u32 s = static_cast<u32>(uses_.size()); s-- > 0;) {
        each_successor(s, [&](u32 next) { live_out_[s].merge(live_in_[next]); });
        changed |= live_in_[s].merge_without(live_out_[s], kills_[s]);
      }
    }
  }

  void cover(u32 s) {
    const auto [begin, end] = bounds(s);
    // A segment without operations still carries values through: its position is that of what follows.
    const u32 last = end > begin ? end - 1 : begin;
    live_in_[s].each([&](u32 reg) { ranges_[reg].cover(begin); });
    live_out_[s].each([&](u32 reg) { ranges_[reg].cover(last); });
    for (u32 i = begin; i < end; ++i) {
      const DraftOp& op = drafts_[i];
      for (Ref ref : op.refs) {
        if (is_register(ref)) ranges_[ref >> 1].cover(i);
      }
      if (op.guard != kNoGuard) ranges_[op.guard >> 1].cover(i);
    }
    const Segment& segment = function_.segments[s];
    if (segment.end != Segment::End::kCall) return;
    for (const Passed& passed : function_.calls[segment.detail].arguments) cover_passed(passed, last);
    for (const Passed& passed : function_.calls[segment.detail].results) cover_passed(passed, last);
  }
  void cover_passed(const Passed& passed, u32 position) {
    if (!passed.in_memory && is_register(passed.ref)) ranges_[passed.ref >> 1].cover(position);
  }
  /// Register parameters and results are touched outside the body: they keep their slots throughout.
  void pin(const Passed& passed) {
    if (passed.in_memory) return;
    ranges_[passed.ref >> 1].cover(0);
    ranges_[passed.ref >> 1].cover(static_cast<u32>(drafts_.size()));
  }

  const Function& function_;
  const std::vector<DraftOp>& drafts_;
  const std::vector<u8>& is_temporary_;
  std::vector<Range> ranges_;
  std::vector<Bits> uses_, kills_, live_in_, live_out_;
};

/// Hands out slots by the order of range begins; the slot freed last is used first, while it is in cache.
std::vector<u32> assign(const std::vector<Range>& ranges, const std::vector<RegisterClass>& classes, Function& out) {
  std::vector<u32> order, offset(ranges.size(), 0);
  for (u32 reg = 0; reg < ranges.size(); ++reg) {
    if (ranges[reg].used()) order.push_back(reg);
  }
  std::stable_sort(order.begin(), order.end(), [&](u32 a, u32 b) { return ranges[a].begin < ranges[b].begin; });
  // Slots of one class never overlap those of another: an operation between classes may run lane by lane in place.
  std::vector<u32> free_slots[5];
  std::vector<std::pair<u32, u32>> active[5];  // end, slot
  u32 top[5] = {};
  std::vector<u32> slot(ranges.size(), 0);
  for (u32 reg : order) {
    const int c = static_cast<int>(classes[reg]);
    auto& running = active[c];
    std::erase_if(running, [&](const auto& entry) {
      if (entry.first >= ranges[reg].begin) return false;
      free_slots[c].push_back(entry.second);
      return true;
    });
    if (free_slots[c].empty()) free_slots[c].push_back(top[c]++);
    slot[reg] = free_slots[c].back();
    free_slots[c].pop_back();
    running.emplace_back(ranges[reg].end, slot[reg]);
  }
  u32 base[5], at = 0;
  for (int c = 4; c >= 0; --c) {  // the widest first, so that each is aligned to its size
    base[c] = at;
    at += top[c] * slot_bytes(static_cast<RegisterClass>(c));
    at = (at + 63) / 64 * 64;
  }
  out.frame_bytes = std::max(at, 64u);
  out.register_estimate = top[1] / 2 + top[2] + 2 * top[3] + 4 * top[4];
  for (u32 reg : order) {
    const int c = static_cast<int>(classes[reg]);
    offset[reg] = base[c] + slot[reg] * slot_bytes(static_cast<RegisterClass>(c));
  }
  return offset;
}

void place(std::vector<Passed>& list, const std::vector<u32>& offset) {
  for (Passed& passed : list) {
    if (!passed.in_memory && is_register(passed.ref)) passed.ref = offset[passed.ref >> 1];
  }
}

}  // namespace

void assign_slots(Function& out, const std::vector<DraftOp>& drafts, const std::vector<RegisterClass>& registers,
                  const std::vector<u8>& is_temporary) {
  const std::vector<u32> offset =
      assign(Liveness(out, drafts, registers.size(), is_temporary).ranges(), registers, out);
  size_t total = 0;
  for (const DraftOp& draft : drafts) total += draft.refs.size();
  out.refs = std::make_unique<u32[]>(std::max<size_t>(total, 1));
  u32* next = out.refs.get();
  for (const DraftOp& draft : drafts) {
    MicroOp op;
    op.run = draft.run;
    op.imm = draft.imm;
    op.r = next;
    for (Ref ref : draft.refs) *next++ = is_register(ref) ? offset[ref >> 1] : ref;
    if (draft.guard != kNoGuard) op.guard = offset[draft.guard >> 1];
    op.guard_negated = draft.guard_negated ? 1 : 0;
    op.cost_kind = draft.cost.kind;
    op.cost_weight = static_cast<u16>(draft.cost.weight);
    out.ops.push_back(op);
    out.lines.push_back(draft.line);
  }
  place(out.formals, offset);
  place(out.results, offset);
  for (CallSite& call : out.calls) {
    place(call.arguments, offset);
    place(call.results, offset);
  }
}

}  // namespace tessera::sim
