// SPDX-License-Identifier: Apache-2.0
#include "tessera/ptx/capi.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "tessera/ptx/cfg.h"
#include "tessera/ptx/image.h"
#include "tessera/ptx/parser.h"

namespace tessera::ptx {
namespace {

/// Gives equal text equal pointers. Keys and values are the same NUL-terminated bytes.
class Strings {
 public:
  const char* intern(std::string_view text) {
    const auto found = views_.find(text);
    if (found != views_.end()) return found->data();
    const std::string& stored = storage_.emplace_back(text);
    views_.insert(stored);
    return stored.c_str();
  }

 private:
  std::deque<std::string> storage_;
  std::unordered_set<std::string_view> views_;
};

struct FlatFunction {
  std::vector<ts_ptx_instruction> instructions;
  std::vector<ts_ptx_operand> operands;
  std::vector<const char*> modifiers;
  std::vector<ts_ptx_register> registers;
  std::vector<ts_ptx_block> blocks;
  std::vector<uint32_t> edges;
  std::vector<ts_ptx_variable> parameters, returns, variables;
  std::vector<ts_ptx_label> labels;
  ts_ptx_function view{};
};

ts_ptx_variable flatten(const Variable& variable, uint32_t offset, Strings& strings) {
  ts_ptx_variable out{};
  out.name = strings.intern(variable.name);
  out.space = static_cast<uint8_t>(variable.space);
  out.type = static_cast<uint8_t>(variable.type);
  out.vector = variable.vector;
  out.linkage = static_cast<uint8_t>(variable.linkage);
  out.is_pointer = variable.is_pointer;
  out.pointer_space = static_cast<uint8_t>(variable.pointer_space);
  out.has_initializer = variable.initializer.empty() ? 0 : 1;
  for (const Initializer& part : variable.initializer) {
    if (part.kind == Initializer::Kind::kSymbol) out.has_initializer = 2;
  }
  out.alignment = variable.alignment;
  out.size = variable.size();
  out.offset = offset;
  out.pointer_alignment = variable.pointer_alignment;
  return out;
}

/// Builds the flat view of one function.
class Flattener {
 public:
  Flattener(const Function& function, Strings& strings, FlatFunction& out)
      : function_(function), strings_(strings), out_(out) {}

  void run(bool is_broken) {
    add_declarations();
    add_instructions();
    add_blocks();
    fill_view(is_broken);
  }

 private:
  struct FlatMnemonic {
    const char *opcode, *full;
    uint32_t first_modifier;
  };

  void add_declarations() {
    const std::vector<uint32_t> offsets = function_.parameter_offsets();
    for (size_t i = 0; i < offsets.size(); ++i) {
      out_.parameters.push_back(flatten(function_.parameters[i], offsets[i], strings_));
    }
    for (const Variable& variable : function_.returns) out_.returns.push_back(flatten(variable, 0, strings_));
    for (const Variable& variable : function_.variables) out_.variables.push_back(flatten(variable, 0, strings_));
    for (const Register& reg : function_.registers) {
      out_.registers.push_back({strings_.intern(reg.name), static_cast<uint8_t>(reg.type), reg.vector});
    }
    for (const Label& label : function_.labels) out_.labels.push_back({strings_.intern(label.name), label.index});
  }

  void add_instructions() {
    out_.instructions.reserve(function_.instructions.size());
    for (const Instruction& instruction : function_.instructions) {
      const FlatMnemonic& mnemonic = flat_mnemonic(instruction);
      ts_ptx_instruction flat{};
      flat.opcode = mnemonic.opcode;
      flat.full = mnemonic.full;
      flat.type = static_cast<uint8_t>(instruction.type);
      flat.type2 = static_cast<uint8_t>(instruction.types.size() > 1 ? instruction.types[1] : Type::kNone);
      flat.guard_negated = instruction.guard_negated;
      flat.n_modifiers = static_cast<uint8_t>(std::min<size_t>(instruction.modifiers.size(), UINT8_MAX));
      flat.guard = instruction.guard;
      flat.first_modifier = mnemonic.first_modifier;
      flat.n_operands = static_cast<uint32_t>(instruction.operands.size());
      flat.first_operand = add_operands(instruction.operands);
      flat.line = instruction.location.line;
      flat.column = instruction.location.column;
      out_.instructions.push_back(flat);
    }
  }

  const FlatMnemonic& flat_mnemonic(const Instruction& instruction) {
    const auto [found, is_new] = mnemonics_.try_emplace(instruction.full.data());
    if (is_new) {
      found->second = {strings_.intern(instruction.opcode), strings_.intern(instruction.full),
                       add_modifiers(instruction.modifiers)};
    }
    return found->second;
  }

  uint32_t add_modifiers(const Slice<std::string_view>& words) {
    const uint32_t first = static_cast<uint32_t>(out_.modifiers.size());
    for (const std::string_view word : words) out_.modifiers.push_back(strings_.intern(word));
    return first;
  }

  /// Siblings stand next to each other; the elements of each follow. The parser bounds the depth.
  uint32_t add_operands(const Slice<Operand>& operands) {
    const size_t first = out_.operands.size();
    out_.operands.resize(first + operands.size());
    for (size_t i = 0; i < operands.size(); ++i) {
      const Operand& operand = operands[i];
      ts_ptx_operand flat{};
      flat.kind = static_cast<uint8_t>(operand.kind);
      flat.negated = operand.negated;
      flat.component = operand.component;
      flat.float_bits = operand.float_bits;
      flat.reg = operand.reg;
      flat.label = operand.label;
      flat.bits = operand.bits;
      flat.offset = operand.offset;
      flat.text = operand.text.empty() ? nullptr : strings_.intern(operand.text);
      flat.n_elements = static_cast<uint32_t>(operand.elements.size());
      flat.n_modifiers = static_cast<uint32_t>(operand.modifiers.size());
      if (flat.n_elements > 0) flat.first_element = add_operands(operand.elements);
      if (flat.n_modifiers > 0) flat.first_modifier = add_modifiers(operand.modifiers);
      out_.operands[first + i] = flat;
    }
    return static_cast<uint32_t>(first);
  }

  void add_blocks() {
    const ControlFlowGraph graph = build_cfg(function_);
    out_.view.has_indirect_branch = graph.has_indirect_branch;
    std::vector<uint8_t> reachable(graph.blocks.size(), 0);
    for (const uint32_t block : graph.reverse_post_order) reachable[block] = 1;
    for (size_t i = 0; i < graph.blocks.size(); ++i) {
      const BasicBlock& block = graph.blocks[i];
      ts_ptx_block flat{};
      flat.begin = block.begin;
      flat.end = block.end;
      flat.first_successor = static_cast<uint32_t>(out_.edges.size());
      flat.n_successors = static_cast<uint32_t>(block.successors.size());
      flat.immediate_dominator = graph.immediate_dominator[i];
      flat.immediate_post_dominator = graph.immediate_post_dominator[i];
      flat.is_loop_header = graph.is_loop_header[i];
      flat.is_reachable = reachable[i];
      flat.exits = block.exits;
      out_.edges.insert(out_.edges.end(), block.successors.begin(), block.successors.end());
      out_.blocks.push_back(flat);
    }
  }

  template <class T>
  static void expose(const std::vector<T>& values, uint32_t& count, const T*& data) {
    count = static_cast<uint32_t>(values.size());
    data = values.data();
  }

  void fill_view(bool is_broken) {
    ts_ptx_function& view = out_.view;
    view.name = strings_.intern(function_.name);
    view.is_entry = function_.is_entry;
    view.is_declaration = function_.is_declaration;
    view.is_broken = is_broken;
    view.linkage = static_cast<uint8_t>(function_.linkage);
    view.noreturn = function_.directives.noreturn;
    for (int i = 0; i < 3; ++i) {
      view.max_threads[i] = function_.directives.max_threads[i];
      view.required_threads[i] = function_.directives.required_threads[i];
      view.required_cluster[i] = function_.directives.required_cluster[i];
    }
    view.line = function_.location.line;
    view.column = function_.location.column;
    view.parameter_block_size = function_.parameter_block_size();
    expose(out_.instructions, view.n_instructions, view.instructions);
    expose(out_.operands, view.n_operands, view.operands);
    expose(out_.modifiers, view.n_modifiers, view.modifiers);
    expose(out_.registers, view.n_registers, view.registers);
    expose(out_.blocks, view.n_blocks, view.blocks);
    expose(out_.edges, view.n_edges, view.edges);
    expose(out_.parameters, view.n_parameters, view.parameters);
    expose(out_.returns, view.n_returns, view.returns);
    expose(out_.variables, view.n_variables, view.variables);
    expose(out_.labels, view.n_labels, view.labels);
  }

  const Function& function_;
  Strings& strings_;
  FlatFunction& out_;
  std::unordered_map<const char*, FlatMnemonic> mnemonics_;
};

constexpr const char* kOperandKinds[] = {"register", "special", "integer", "float", "symbol", "address",
                                         "vector",   "tuple",   "pair",    "label", "sink"};
static_assert(std::size(kOperandKinds) == static_cast<size_t>(Operand::Kind::kSink) + 1);

constexpr const char* kSpaces[] = {"none",  "register", "special", "const",  "global",
                                   "local", "param",    "shared",  "texture"};
static_assert(std::size(kSpaces) == static_cast<size_t>(Space::kTexture) + 1);

}  // namespace
}  // namespace tessera::ptx

using namespace tessera::ptx;

struct ts_ptx_module {
  ParseResult result;
  Strings strings;
  std::unordered_set<std::string_view> broken;
  std::vector<std::unique_ptr<FlatFunction>> functions;
  std::vector<ts_ptx_variable> variables;
};

struct ts_image_contents {
  const void* data = nullptr;  // null once everything has been read
  size_t size = 0;
  ImageListing listing;
  std::vector<std::unique_ptr<ImageEntry>> entries;  // null: not read yet, or not readable

  bool read(uint32_t index) {
    if (entries[index] != nullptr) return true;
    auto entry = std::make_unique<ImageEntry>();
    std::string error;
    if (data == nullptr || !read_entry(data, size, listing.entries[index], kMaxPayload, *entry, error)) {
      if (data != nullptr) listing.errors.push_back("entry " + std::to_string(index) + ": " + error);
      return false;
    }
    entries[index] = std::move(entry);
    return true;
  }

  static constexpr size_t kMaxPayload = size_t{1} << 30;
};

extern "C" {

ts_ptx_module* ts_ptx_parse(const char* text, size_t size) try {
  auto module = std::make_unique<ts_ptx_module>();
  module->result = parse({text, size});
  const Module& parsed = module->result.module;
  module->functions.resize(parsed.functions.size());
  module->broken.insert(module->result.broken.begin(), module->result.broken.end());
  for (const Variable& variable : parsed.variables) {
    module->variables.push_back(flatten(variable, 0, module->strings));
  }
  return module.release();
} catch (const std::bad_alloc&) {
  return nullptr;
}

void ts_ptx_free(ts_ptx_module* module) { delete module; }

uint32_t ts_ptx_error_count(const ts_ptx_module* module) { return static_cast<uint32_t>(module->result.errors.size()); }

const char* ts_ptx_error(const ts_ptx_module* module, uint32_t index, uint32_t* line, uint32_t* column) {
  if (index >= module->result.errors.size()) return nullptr;
  const Diagnostic& error = module->result.errors[index];
  if (line != nullptr) *line = error.location.line;
  if (column != nullptr) *column = error.location.column;
  return error.message.c_str();
}

const char* ts_ptx_target(const ts_ptx_module* module) { return module->result.module.target.c_str(); }

uint32_t ts_ptx_version(const ts_ptx_module* module) {
  return module->result.module.version_major * 100 + module->result.module.version_minor;
}

uint32_t ts_ptx_function_count(const ts_ptx_module* module) { return static_cast<uint32_t>(module->functions.size()); }

const ts_ptx_function* ts_ptx_function_at(ts_ptx_module* module, uint32_t index) try {
  if (index >= module->functions.size()) return nullptr;
  std::unique_ptr<FlatFunction>& flat = module->functions[index];
  if (flat == nullptr) {
    const Function& function = module->result.module.functions[index];
    auto built = std::make_unique<FlatFunction>();
    Flattener(function, module->strings, *built).run(module->broken.contains(function.name));
    flat = std::move(built);
  }
  return &flat->view;
} catch (const std::bad_alloc&) {
  return nullptr;
}

uint32_t ts_ptx_variable_count(const ts_ptx_module* module) { return static_cast<uint32_t>(module->variables.size()); }

const ts_ptx_variable* ts_ptx_variable_at(const ts_ptx_module* module, uint32_t index) {
  return index < module->variables.size() ? &module->variables[index] : nullptr;
}

const char* ts_ptx_type_name(uint32_t type) {
  return type <= static_cast<uint32_t>(Type::kOther) ? type_name(static_cast<Type>(type)).data() : nullptr;
}

const char* ts_ptx_operand_kind_name(uint32_t kind) {
  return kind < std::size(kOperandKinds) ? kOperandKinds[kind] : nullptr;
}

const char* ts_ptx_space_name(uint32_t space) { return space < std::size(kSpaces) ? kSpaces[space] : nullptr; }

int ts_image_kind(const void* data, size_t size) { return static_cast<int>(image_kind(data, size)); }

ts_image_contents* ts_image_open(const void* data, size_t size) try {
  auto contents = std::make_unique<ts_image_contents>();
  contents->data = data;
  contents->size = size;
  contents->listing = list_image(data, size);
  contents->entries.resize(contents->listing.entries.size());
  return contents.release();
} catch (const std::bad_alloc&) {
  return nullptr;
}

ts_image_contents* ts_image_read(const void* data, size_t size) try {
  std::unique_ptr<ts_image_contents> contents(ts_image_open(data, size));
  if (contents == nullptr) return nullptr;
  for (uint32_t i = 0; i < contents->entries.size(); ++i) contents->read(i);
  contents->data = nullptr;
  return contents.release();
} catch (const std::bad_alloc&) {
  return nullptr;
}

void ts_image_free(ts_image_contents* contents) { delete contents; }

uint32_t ts_image_entry_count(const ts_image_contents* contents) {
  return static_cast<uint32_t>(contents->entries.size());
}

int ts_image_entry_kind(const ts_image_contents* contents, uint32_t index, uint32_t* architecture) {
  if (index >= contents->entries.size()) return -1;
  const EntryReference& entry = contents->listing.entries[index];
  if (architecture != nullptr) *architecture = entry.architecture;
  return static_cast<int>(entry.kind);
}

const char* ts_image_entry(ts_image_contents* contents, uint32_t index, int* kind, uint32_t* architecture,
                           size_t* size) try {
  if (index >= contents->entries.size() || !contents->read(index)) return nullptr;
  const ImageEntry& entry = *contents->entries[index];
  if (kind != nullptr) *kind = static_cast<int>(entry.kind);
  if (architecture != nullptr) *architecture = entry.architecture;
  if (size != nullptr) *size = entry.payload.size();
  return entry.payload.c_str();
} catch (const std::bad_alloc&) {
  return nullptr;
}

void ts_image_drop(ts_image_contents* contents, uint32_t index) {
  if (contents->data != nullptr && index < contents->entries.size()) contents->entries[index].reset();
}

uint32_t ts_image_error_count(const ts_image_contents* contents) {
  return static_cast<uint32_t>(contents->listing.errors.size());
}

const char* ts_image_error(const ts_image_contents* contents, uint32_t index) {
  return index < contents->listing.errors.size() ? contents->listing.errors[index].c_str() : nullptr;
}

}  // extern "C"
