// SPDX-License-Identifier: Apache-2.0
// The SIMD video instructions: vadd2, vabsdiff4 and their kin.
#include "../video.h"
#include "families.h"

namespace tessera::sim {
namespace {

VideoOperation take_set(FunctionCompiler& c, Modifiers& m) {
  const int which = m.take_one({"eq", "ne", "lt", "le", "gt", "ge"});
  if (which < 0) c.invalid("no comparison");
  return static_cast<VideoOperation>(static_cast<int>(VideoOperation::kSetEq) + which);
}

/// A mask after an operand: ".b310" or ".h10" names the elements of the result that are computed.
u8 element_mask(FunctionCompiler& c, const ptx::Operand& operand) {
  if (operand.modifiers.empty()) return 15;
  if (operand.modifiers.size() > 1) c.unsupported("an element selector");
  const std::string_view word = operand.modifiers[0];
  u8 mask = 0;
  for (char digit : word.substr(1)) {
    if (digit < '0' || digit > '3') c.unsupported("an element selector");
    mask = static_cast<u8>(mask | 1u << (digit - '0'));
  }
  return mask;
}

template <VideoOperation kOperation, int kCount, bool kIsSet>
void lower_simd(FunctionCompiler& c, const ptx::Instruction& i) {
  Modifiers m(i);
  VideoSimd video;
  video.count = kCount;
  const Type d = kIsSet ? Type::kNone : m.take_type();
  const Type a = m.take_type(), b = m.take_type();
  video.operation = kIsSet ? take_set(c, m) : kOperation;
  video.saturate = m.take("sat");
  video.accumulate = m.take("add");
  m.finish();
  require_operands(c, i, 4, 4);
  video.d_signed = is_signed(d);
  video.a_signed = is_signed(a);
  video.b_signed = is_signed(b);
  for (size_t k = 1; k < 4; ++k) {
    if (!i.operands[k].modifiers.empty()) c.unsupported("an element selector on a source");
  }
  video.elements = element_mask(c, i.operands[0]);
  const Ref x = c.read(i.operands[1], Type::kB32), y = c.read(i.operands[2], Type::kB32),
            z = c.read(i.operands[3], Type::kB32);
  c.emit(op_key(Op::kVideoSimd), {c.write(i.operands[0], Type::kB32)}, {x, y, z}, pack_video_simd(video),
         {kCostInteger, kCount});
}

#define TS_SIMD(NAME, OPERATION)                                  \
  {NAME "2", &lower_simd<VideoOperation::OPERATION, 2, false>}, { \
    NAME "4", &lower_simd<VideoOperation::OPERATION, 4, false>    \
  }

constexpr LoweringRow kRows[] = {
    TS_SIMD("vadd", kAdd),
    TS_SIMD("vsub", kSub),
    TS_SIMD("vavrg", kAverage),
    TS_SIMD("vabsdiff", kAbsoluteDifference),
    TS_SIMD("vmin", kMin),
    TS_SIMD("vmax", kMax),
    {"vset2", &lower_simd<VideoOperation::kSetEq, 2, true>},
    {"vset4", &lower_simd<VideoOperation::kSetEq, 4, true>},
};

}  // namespace

LoweringTable video_lowerings() { return {kRows, std::size(kRows)}; }

}  // namespace tessera::sim
