// SPDX-License-Identifier: Apache-2.0
#include "dump.h"

#include <cstdarg>
#include <cstdio>

#include "tessera/ptx/cfg.h"

namespace tessera::ptx {

namespace {

constexpr const char* kSpaces[] = {"", ".reg", ".sreg", ".const", ".global", ".local", ".param", ".shared", ".tex"};
constexpr const char* kLinkages[] = {"", "extern ", "visible ", "weak ", "common "};

__attribute__((format(printf, 1, 2))) std::string format(const char* pattern, ...) {
  char buffer[256];
  va_list arguments;
  va_start(arguments, pattern);
  std::vsnprintf(buffer, sizeof(buffer), pattern, arguments);
  va_end(arguments);
  return buffer;
}

class Dumper {
 public:
  std::string run(const ParseResult& result) {
    const Module& module = result.module;
    out_ += format("version %u.%u address %u target ", module.version_major, module.version_minor, module.address_size);
    out_ += module.target;
    for (const std::string& option : module.target_options) out_ += ", " + option;
    out_ += '\n';
    for (const Variable& variable : module.variables) add_variable("", variable);
    for (const std::string& alias : module.aliases) out_ += "alias " + alias + "\n";
    for (const Function& function : module.functions) add_function(function);
    for (const Diagnostic& error : result.errors) {
      out_ += format("error %u:%u ", error.location.line, error.location.column) + error.message + "\n";
    }
    for (const std::string& name : result.broken) out_ += "broken " + name + "\n";
    return std::move(out_);
  }

 private:
  void add_variable(const char* indent, const Variable& variable) {
    out_ += indent;
    out_ += kLinkages[static_cast<size_t>(variable.linkage)];
    out_ += kSpaces[static_cast<size_t>(variable.space)];
    if (variable.vector > 1) out_ += format(" v%u", variable.vector);
    out_.append(" ").append(type_name(variable.type)).append(" ").append(variable.name);
    for (const uint64_t dimension : variable.dimensions) out_ += format("[%llu]", (unsigned long long)dimension);
    out_ += format(" align %u size %llu", variable.alignment, (unsigned long long)variable.size());
    if (variable.is_pointer) out_.append(" ptr ").append(kSpaces[static_cast<size_t>(variable.pointer_space)]);
    if (variable.pointer_alignment != 0) out_ += format(" to align %u", variable.pointer_alignment);
    for (const std::string& attribute : variable.attributes) out_.append(" ").append(attribute);
    if (!variable.initializer.empty()) add_initializer(variable);
    out_ += '\n';
  }

  void add_initializer(const Variable& variable) {
    out_ += " =";
    for (const Initializer& element : variable.initializer) {
      if (element.kind == Initializer::Kind::kBits) {
        out_ += format(" %#llx", (unsigned long long)element.bits);
        continue;
      }
      out_.append(element.generic ? " generic:" : " ").append(element.symbol);
      if (element.offset != 0) out_ += format("%+lld", (long long)element.offset);
      if (element.masked) out_ += format(">>%u", element.mask_shift);
    }
  }

  void add_triple(const char* name, const uint32_t (&values)[3]) {
    if (values[0] != 0) out_ += format(" %s %u,%u,%u", name, values[0], values[1], values[2]);
  }

  void add_function(const Function& function) {
    out_ += kLinkages[static_cast<size_t>(function.linkage)];
    out_.append(function.is_entry ? "entry " : "func ").append(function.name);
    if (function.is_declaration) out_ += " declared";
    add_directives(function.directives);
    out_ += format(" block %u\n", function.parameter_block_size());
    const std::vector<uint32_t> offsets = function.parameter_offsets();
    for (const Variable& variable : function.returns) add_variable("  returns ", variable);
    for (size_t i = 0; i < offsets.size(); ++i)
      add_variable(format("  +%u ", offsets[i]).c_str(), function.parameters[i]);
    for (const Variable& variable : function.variables) add_variable("  ", variable);
    for (const Function& prototype : function.prototypes) {
      out_ += "  prototype " + prototype.name +
              format(": %zu -> %zu\n", prototype.parameters.size(), prototype.returns.size());
    }
    for (const BranchTargets& list : function.target_lists) {
      out_ += "  targets " + list.name + ":";
      for (size_t i = 0; i < list.targets.size(); ++i) {
        out_ += " " + list.targets[i];
        if (i < list.label_indices.size()) out_ += format("@%u", list.label_indices[i]);
      }
      out_ += '\n';
    }
    add_registers(function);
    add_body(function);
  }

  void add_directives(const Directives& directives) {
    add_triple("maxntid", directives.max_threads);
    add_triple("reqntid", directives.required_threads);
    add_triple("reqnctapercluster", directives.required_cluster);
    if (directives.min_blocks_per_multiprocessor != 0)
      out_ += format(" minnctapersm %u", directives.min_blocks_per_multiprocessor);
    if (directives.max_registers != 0) out_ += format(" maxnreg %u", directives.max_registers);
    if (directives.max_cluster_rank != 0) out_ += format(" maxclusterrank %u", directives.max_cluster_rank);
    if (directives.explicit_cluster) out_ += " explicitcluster";
    if (directives.noreturn) out_ += " noreturn";
    for (const std::string& text : directives.pragmas) out_ += " pragma \"" + text + "\"";
    for (const std::string& text : directives.other) out_ += " [" + text + "]";
  }

  void add_registers(const Function& function) {
    if (function.registers.empty()) return;
    out_ += "  reg";
    for (const Register& reg : function.registers) {
      out_.append(" ").append(reg.name).append(":").append(type_name(reg.type));
      if (reg.vector > 1) out_ += format("v%u", reg.vector);
    }
    out_ += '\n';
  }

  void add_body(const Function& function) {
    const ControlFlowGraph graph = build_cfg(function);
    if (graph.has_indirect_branch) out_ += "  indirect branch\n";
    size_t label = 0;
    for (size_t i = 0; i <= function.instructions.size(); ++i) {
      for (; label < function.labels.size() && function.labels[label].index == i; ++label) {
        out_.append("  ").append(function.labels[label].name).append(":\n");
      }
      if (i == function.instructions.size()) break;
      if (i == graph.blocks[graph.block_of[i]].begin) add_block(graph, graph.block_of[i]);
      add_instruction(function, i);
    }
  }

  void add_block(const ControlFlowGraph& graph, uint32_t index) {
    const BasicBlock& block = graph.blocks[index];
    out_ += format("  B%u ->", index);
    for (const uint32_t successor : block.successors) out_ += format(" B%u", successor);
    if (block.exits) out_ += " exit";
    if (graph.immediate_dominator[index] != kNoBlock) out_ += format(" dom B%u", graph.immediate_dominator[index]);
    if (graph.immediate_post_dominator[index] != kNoBlock)
      out_ += format(" post B%u", graph.immediate_post_dominator[index]);
    if (graph.is_loop_header[index] != 0) out_ += " loop";
    out_ += '\n';
  }

  void add_instruction(const Function& function, size_t index) {
    const Instruction& instruction = function.instructions[index];
    out_ += format("    %zu: ", index);
    if (instruction.guard != kNoRegister) {
      out_.append(instruction.guard_negated ? "@!" : "@")
          .append(function.registers[static_cast<size_t>(instruction.guard)].name)
          .append(" ");
    }
    out_ += instruction.full;
    for (size_t i = 0; i < instruction.operands.size(); ++i) {
      out_.append(i == 0 ? " " : ", ").append(dump_operand(function, instruction.operands[i]));
    }
    if (!instruction.types.empty()) {
      out_ += "  ;";
      for (const Type type : instruction.types) out_.append(" ").append(type_name(type));
    }
    out_ += '\n';
  }

  std::string out_;
};

std::string join(const Function& function, const Slice<Operand>& elements, const char* separator) {
  std::string out;
  for (size_t i = 0; i < elements.size(); ++i) {
    out.append(i == 0 ? "" : separator).append(dump_operand(function, elements[i]));
  }
  return out;
}

std::string dump_value(const Function& function, const Operand& operand) {
  switch (operand.kind) {
    case Operand::Kind::kRegister:
      return std::string(function.registers[static_cast<size_t>(operand.reg)].name);
    case Operand::Kind::kSpecial:
      return std::string(operand.text);
    case Operand::Kind::kSymbol:
      return operand.offset == 0 ? std::string(operand.text)
                                 : std::string(operand.text) + format("%+lld", (long long)operand.offset);
    case Operand::Kind::kInteger:
      return format("%lld", (long long)operand.bits);
    case Operand::Kind::kFloat:
      return format("%s%0*llx", operand.float_bits == 32 ? "0f" : "0d", operand.float_bits / 4,
                    (unsigned long long)operand.bits);
    case Operand::Kind::kAddress: {
      std::string out = "[" + dump_operand(function, operand.elements[0]);
      if (operand.offset != 0) out += format("%+lld", (long long)operand.offset);
      for (size_t i = 1; i < operand.elements.size(); ++i) out += ", " + dump_operand(function, operand.elements[i]);
      return out + "]";
    }
    case Operand::Kind::kVector:
      return "{" + join(function, operand.elements, ", ") + "}";
    case Operand::Kind::kTuple:
      return "(" + join(function, operand.elements, ", ") + ")";
    case Operand::Kind::kPair:
      return join(function, operand.elements, "|");
    case Operand::Kind::kLabel:
      return std::string(operand.text) + format("@%u", operand.label);
    case Operand::Kind::kSink:
      break;
  }
  return "_";
}

}  // namespace

std::string dump_operand(const Function& function, const Operand& operand) {
  std::string out = operand.negated ? "-" : "";
  out += dump_value(function, operand);
  if (operand.component >= 0) out.append(".").append(1, "xyzw"[operand.component]);
  for (const std::string_view word : operand.modifiers) out.append(".").append(word);
  return out;
}

std::string dump(const ParseResult& result) { return Dumper().run(result); }

}  // namespace tessera::ptx
