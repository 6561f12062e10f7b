// SPDX-License-Identifier: Apache-2.0
// vprintf, malloc, free and __assertfail, as device code calls them. Arguments
// and the result lie in the caller's local memory: r holds their offsets, the
// result's last.
#include <cctype>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "fault.h"
#include "registry.h"
#include "services.h"
#include "warp.h"

namespace tessera::sim {
namespace {

u8* local_at(Warp& w, int lane, u64 offset) { return w.local + u64(lane) * w.local_bytes + w.local_base + offset; }

template <class T>
T argument(Warp& w, const MicroOp& op, int lane, int k) {
  T value;
  std::memcpy(&value, local_at(w, lane, w.lanes64(op.r[k])[0]), sizeof value);
  return value;
}

template <class T>
void set_result(Warp& w, const MicroOp& op, int lane, T value) {
  std::memcpy(local_at(w, lane, w.lanes64(op.r[5])[0]), &value, sizeof value);
}

/// Copies from a generic address.
void read_generic(Warp& w, const MicroOp& op, int lane, u64 address, u32 bytes, void* to) {
  const u64 window = address & ~kWindowOffsetMask, offset = address & kWindowOffsetMask;
  if (window == kLocalWindow && offset + bytes <= w.local_bytes) {
    std::memcpy(to, w.local + u64(lane) * w.local_bytes + offset, bytes);
  } else if (window == kSharedWindow && offset + bytes <= w.block->shared_bytes) {
    std::memcpy(to, w.block->shared + offset, bytes);
  } else if (address < kSharedWindow && w.memory->allows(address, address + bytes, false)) {
    w.memory->tracker.read(address, address + bytes);
    std::memcpy(to, reinterpret_cast<const void*>(address), bytes);
  } else {
    raise_illegal_address(op, lane, address, bytes, AccessVerb::kRead, "generic");
  }
}

std::string read_string(Warp& w, const MicroOp& op, int lane, u64 address) {
  std::string text;
  for (char c; text.size() < (1u << 16); text += c) {
    read_generic(w, op, lane, address + text.size(), 1, &c);
    if (c == 0) break;
  }
  return text;
}

/// Walks a format with the arguments behind it, each aligned to its size.
class Formatter {
 public:
  Formatter(Warp& w, const MicroOp& op, int lane, u64 arguments) : warp_(w), op_(op), lane_(lane), at_(arguments) {}

  std::string format(const std::string& text) {
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '%') {
        out += text[i];
      } else if (i + 1 < text.size() && text[i + 1] == '%') {
        out += '%';
        ++i;
      } else {
        i = conversion(text, i, out);
      }
    }
    return out;
  }
  s32 count() const { return count_; }

 private:
  template <class T>
  T next() {
    T value;
    at_ = (at_ + sizeof(T) - 1) / sizeof(T) * sizeof(T);
    read_generic(warp_, op_, lane_, at_, sizeof(T), &value);
    at_ += sizeof(T);
    return value;
  }

  template <class T>
  static void append(std::string& out, const std::string& spec, T value) {
    char buffer[512];
    const int length = std::snprintf(buffer, sizeof buffer, spec.c_str(), value);
    if (length < 0) return;
    if (static_cast<size_t>(length) < sizeof buffer) {
      out.append(buffer, static_cast<size_t>(length));
      return;
    }
    std::string big(static_cast<size_t>(length) + 1, '\0');
    std::snprintf(big.data(), big.size(), spec.c_str(), value);
    out.append(big.c_str());
  }

  /// Handles the conversion at text[i] == '%'; returns the index of its last character.
  size_t conversion(const std::string& text, size_t i, std::string& out) {
    std::string spec = "%";
    int wide = 0, narrow = 0;
    for (++i; i < text.size(); ++i) {
      const char c = text[i];
      if (c == '*') {
        ++count_;
        spec += std::to_string(next<s32>());
      } else if (std::strchr("-+ #0.123456789", c) != nullptr) {
        spec += c;
      } else if (c == 'l' || c == 'j' || c == 'z' || c == 't') {
        wide += 1;
      } else if (c == 'h') {
        narrow += 1;
      } else {
        convert(c, spec, wide != 0, narrow, out);
        return i;
      }
    }
    return i;
  }

  void convert(char c, std::string spec, bool wide, int narrow, std::string& out) {
    ++count_;
    switch (c) {
      case 'd':
      case 'i': {
        s64 value = wide ? next<s64>() : next<s32>();
        if (narrow == 1) value = static_cast<s16>(value);
        if (narrow >= 2) value = static_cast<s8>(value);
        append(out, spec + PRId64, value);
        return;
      }
      case 'u':
      case 'o':
      case 'x':
      case 'X': {
        u64 value = wide ? next<u64>() : next<u32>();
        if (narrow == 1) value = static_cast<u16>(value);
        if (narrow >= 2) value = static_cast<u8>(value);
        append(out, spec + "l" + c, value);
        return;
      }
      case 'c':
        append(out, spec + c, static_cast<int>(next<s32>()));
        return;
      case 'p':
        append(out, spec + c, reinterpret_cast<void*>(next<u64>()));
        return;
      case 's':
        append(out, spec + c, read_string(warp_, op_, lane_, next<u64>()).c_str());
        return;
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
      case 'a':
      case 'A':
        append(out, spec + c, next<f64>());
        return;
      default:
        --count_;
        out += spec + c;
        return;
    }
  }

  Warp& warp_;
  const MicroOp& op_;
  int lane_;
  u64 at_;
  s32 count_ = 0;
};

void print(Warp& w, const MicroOp& op, u32 mask) {
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((mask >> lane & 1) == 0) continue;
    const std::string format = read_string(w, op, lane, argument<u64>(w, op, lane, 0));
    Formatter formatter(w, op, lane, argument<u64>(w, op, lane, 1));
    w.services->printf_output += formatter.format(format);
    set_result<s32>(w, op, lane, formatter.count());
  }
}

void allocate(Warp& w, const MicroOp& op, u32 mask) {
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((mask >> lane & 1) != 0)
      set_result<u64>(w, op, lane,
                      w.services->heap == nullptr ? 0 : w.services->heap->allocate(argument<u64>(w, op, lane, 0)));
  }
}

void release(Warp& w, const MicroOp& op, u32 mask) {
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((mask >> lane & 1) == 0) continue;
    const u64 address = argument<u64>(w, op, lane, 0);
    if (address != 0 && (w.services->heap == nullptr || !w.services->heap->release(address))) {
      raise_fault(Fault::Kind::kIllegalAddress, "free() of an address that malloc() did not give", op, lane);
    }
  }
}

void assert_fail(Warp& w, const MicroOp& op, u32 mask) {
  const int lane = __builtin_ctz(mask);
  const std::string message = read_string(w, op, lane, argument<u64>(w, op, lane, 0));
  const std::string file = read_string(w, op, lane, argument<u64>(w, op, lane, 1));
  const u32 line = argument<u32>(w, op, lane, 2);
  const std::string function = read_string(w, op, lane, argument<u64>(w, op, lane, 3));
  char place[160];
  std::snprintf(place, sizeof place, "block: [%u,%u,%u], thread: [%u,%u,%u]", w.block->ctaid[0], w.block->ctaid[1],
                w.block->ctaid[2], w.tid[0][lane], w.tid[1][lane], w.tid[2][lane]);
  const std::string text =
      file + ":" + std::to_string(line) + ": " + function + ": " + place + " Assertion `" + message + "` failed.";
  w.services->printf_output += text + "\n";
  throw FaultError{Fault::Kind::kAssert, text, &op, lane};
}

void trap(Warp&, const MicroOp& op, u32 mask) { raise_fault(Fault::Kind::kTrap, "trap", op, __builtin_ctz(mask)); }

constexpr OpEntry kEntries[] = {
    {op_key(Op::kPrintf), &print},           {op_key(Op::kMalloc), &allocate}, {op_key(Op::kFree), &release},
    {op_key(Op::kAssertFail), &assert_fail}, {op_key(Op::kTrap), &trap},
};

}  // namespace

OpEntries intrinsic_entries() { return {kEntries, std::size(kEntries)}; }

}  // namespace tessera::sim
