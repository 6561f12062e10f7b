// SPDX-License-Identifier: Apache-2.0
// The typed IR of a PTX module. Instructions are data: an opcode, its dotted
// modifiers and resolved operands. The parser knows the grammar, not the
// instruction set, so that an unknown instruction still parses and the analysis
// can call its kernel unknown instead of the module unreadable.
//
// Text of registers, labels, operands and instructions lies in an arena that
// the module shares with its copies: it lives as long as one of them does. Equal
// names within a module are the same bytes, NUL-terminated.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/ptx/slice.h"

namespace tessera::ptx {

struct SourceLocation {
  uint32_t line = 0;    // 1-based; 0 means unknown
  uint32_t column = 0;  // 1-based
};

enum class Space : uint8_t { kNone, kRegister, kSpecialRegister, kConst, kGlobal, kLocal, kParam, kShared, kTexture };

enum class Type : uint8_t {
  kNone,
  kPred,
  kB8,
  kB16,
  kB32,
  kB64,
  kB128,
  kU8,
  kU16,
  kU32,
  kU64,
  kS8,
  kS16,
  kS32,
  kS64,
  kF16,
  kF16x2,
  kBF16,
  kBF16x2,
  kTF32,
  kF32,
  kF64,
  kU16x2,
  kS16x2,
  kF32x2,
  kE4M3,
  kE5M2,
  kE4M3x2,
  kE5M2x2,
  kE2M1x2,
  kE2M3x2,
  kE3M2x2,
  kUE8M0x2,
  kTexRef,
  kSamplerRef,
  kSurfRef,
  kOther,  // a type word this version does not know: its text stays among the modifiers
};

/// Size of one value of `type` in bytes; 0 for kNone, kPred, opaque and unknown types.
uint32_t type_size(Type type);
std::string_view type_name(Type type);   // "u32"; without the dot
Type parse_type(std::string_view word);  // "u32" or ".u32"; kNone when it is no type

/// One word or aggregate element of a variable's initializer.
struct Initializer {
  enum class Kind : uint8_t { kBits, kSymbol } kind = Kind::kBits;
  uint64_t bits = 0;        // kBits: value, already encoded for the variable's type
  std::string_view symbol;  // kSymbol: address of this symbol ...
  int64_t offset = 0;       // ... plus this many bytes
  bool generic = false;     // generic(symbol): a generic address rather than one in the symbol's space
  uint8_t mask_shift = 0;   // mask(symbol) forms: (address >> mask_shift) & 0xff where element is a byte
  bool masked = false;
};

enum class Linkage : uint8_t { kNone, kExtern, kVisible, kWeak, kCommon };

struct Variable {
  std::string name;
  Space space = Space::kNone;
  Type type = Type::kNone;
  uint8_t vector = 1;                // .v2, .v4: elements per value
  uint32_t alignment = 0;            // bytes; the natural alignment where not written
  std::vector<uint64_t> dimensions;  // empty: scalar; 0 as the first: unsized `[]`
  Linkage linkage = Linkage::kNone;
  bool is_pointer = false;             // .ptr on a kernel parameter
  Space pointer_space = Space::kNone;  // .ptr .global ...; kNone: generic
  uint32_t pointer_alignment = 0;
  std::vector<std::string> attributes;   // .attribute(.managed), ...
  std::vector<Initializer> initializer;  // flattened in memory order; missing tail is zero
  SourceLocation location;

  uint64_t element_count() const;  // 0 when unsized
  uint64_t size() const;           // bytes; 0 when unsized
};

struct Register {
  std::string_view name;  // unique in its function: "%r1"; a scoped one carries a suffix
  Type type = Type::kNone;
  uint8_t vector = 1;
};

using RegisterId = int32_t;
constexpr RegisterId kNoRegister = -1;

struct Operand {
  enum class Kind : uint8_t {
    kRegister,  // reg, component (.x = 0 ... .w = 3, or -1)
    kSpecial,   // text: "%tid", component; "%laneid", "%clock64", "%envreg3", ...
    kInteger,   // bits: two's complement, 64 bits; WARP_SZ is 32
    kFloat,     // bits: IEEE pattern; float_bits says 32 (0f...) or 64 (0d..., decimal literal)
    kSymbol,    // symbol (+ offset): the address of a variable, a function, or the name of one of the
                // function's target_lists (brx, call) or prototypes (call)
    kAddress,   // [base + offset]: base in elements[0] (kRegister, kSymbol, kInteger or kVector
                // for texture coordinates follow as elements[1]...); offset in bytes
    kVector,    // {a, b, ...}: elements
    kTuple,     // (a, b, ...): call arguments or results: elements
    kPair,      // a|b: elements[0], elements[1] (either may be kSink)
    kLabel,     // label: index into Function::instructions where control goes
    kSink,      // _
  };
  Kind kind = Kind::kSink;
  bool negated = false;  // !%p (predicates) or -%r (some operands)
  int8_t component = -1;
  uint8_t float_bits = 0;
  RegisterId reg = kNoRegister;
  uint32_t label = 0;
  uint64_t bits = 0;
  int64_t offset = 0;
  std::string_view text;  // kSymbol: name as resolved (a scoped variable carries its suffix); kSpecial: name
  Slice<Operand> elements;
  Slice<std::string_view> modifiers;  // rare: words after an operand: "b0", "h1", or inside an address: "unified"
};

struct Instruction {
  std::string_view opcode;            // "ld", "mad", "mma", "call", "bra", ...
  std::string_view full;              // opcode and modifiers: "ld.global.nc.v4.b32"
  Slice<std::string_view> modifiers;  // dotted words in order, without dots: {"global", "nc", "v4", "b32"}; "::"
                                      // words stay whole: "L1::evict_last"
  Slice<Type> types;                  // the modifiers that are types, in order (vector sizes are not types)
  Type type = Type::kNone;            // the first of `types`: the operation's type in most instructions
  bool guard_negated = false;         // @!%p
  RegisterId guard = kNoRegister;     // @%p
  Slice<Operand> operands;
  SourceLocation location;

  bool has(std::string_view modifier) const;
};

struct Label {
  std::string_view name;  // unique in its function: one of an inner scope carries a suffix
  uint32_t index = 0;     // of the instruction that it precedes; may equal instructions.size()
};

struct BranchTargets {  // `.branchtargets` and `.calltargets` lists, and jump tables
  std::string name;
  std::vector<std::string> targets;
  std::vector<uint32_t> label_indices;  // where each target stands, for lists of labels; empty for `.calltargets`
};

struct Directives {
  uint32_t max_threads[3] = {0, 0, 0};       // .maxntid; 0: not given
  uint32_t required_threads[3] = {0, 0, 0};  // .reqntid
  uint32_t min_blocks_per_multiprocessor = 0;
  uint32_t max_registers = 0;
  uint32_t max_cluster_rank = 0;
  uint32_t required_cluster[3] = {0, 0, 0};  // .reqnctapercluster
  bool explicit_cluster = false;
  bool noreturn = false;
  std::vector<std::string> pragmas;
  std::vector<std::string> other;  // directives kept as text
};

struct Function {
  std::string name;
  bool is_entry = false;
  bool is_declaration = false;  // no body: a prototype or an extern
  Linkage linkage = Linkage::kNone;
  std::vector<Variable> parameters;
  std::vector<Variable> returns;
  std::vector<Register> registers;  // RegisterId indexes this
  std::vector<Variable> variables;  // function-scope .local, .shared, .const, .global, .param (call arguments)
  std::vector<Label> labels;
  std::vector<BranchTargets> target_lists;
  std::vector<Function> prototypes;  // `.callprototype`, name is its label
  std::vector<Instruction> instructions;
  Directives directives;
  SourceLocation location;

  /// Byte offset of each parameter in the parameter block, by PTX's natural alignment rules.
  std::vector<uint32_t> parameter_offsets() const;
  uint32_t parameter_block_size() const;
};

struct Module {
  uint32_t version_major = 0, version_minor = 0;  // .version
  std::string target;                             // "sm_90a"
  std::vector<std::string> target_options;        // "texmode_independent", "debug"
  uint32_t address_size = 64;
  std::vector<Variable> variables;     // module scope
  std::vector<Function> functions;     // entries, functions and declarations
  std::vector<std::string> aliases;    // "alias = target", as written
  std::shared_ptr<const Arena> arena;  // keeps the text and operands of every function alive

  const Function* find_function(std::string_view name) const;
  const Variable* find_variable(std::string_view name) const;
};

/// The architecture number of a target name: "sm_90a" -> 90. 0 when it is not one.
uint32_t target_architecture(std::string_view target);

}  // namespace tessera::ptx
