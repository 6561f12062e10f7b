// SPDX-License-Identifier: Apache-2.0
// ptx_print FILE: parses PTX and writes PTX again from the IR alone. An assembler that makes the same
// machine code of both shows that the IR has kept the meaning.
#include <algorithm>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>

#include "dump.h"

namespace {

using namespace tessera::ptx;

constexpr const char* kSpaces[] = {"", ".reg", "", ".const", ".global", ".local", ".param", ".shared", ".tex"};
constexpr const char* kLinkages[] = {"", ".extern ", ".visible ", ".weak ", ".common "};

/// Names of inner scopes hold a character that PTX has not.
std::string plain(std::string text) {
  for (size_t at = text.find('#'); at != std::string::npos; at = text.find('#')) text.replace(at, 1, "$s");
  return text;
}

std::string number(uint64_t value) { return std::to_string(value); }

std::string hex(uint64_t value, int digits) {
  std::string out(static_cast<size_t>(digits), '0');
  for (int i = digits; i-- > 0; value >>= 4) out[static_cast<size_t>(i)] = "0123456789ABCDEF"[value & 15];
  return out;
}

std::string element_text(const Initializer& element, Type type) {
  if (element.kind == Initializer::Kind::kBits) {
    if (type == Type::kF32) return "0f" + hex(element.bits, 8);
    if (type == Type::kF64) return "0d" + hex(element.bits, 16);
    return number(element.bits);
  }
  std::string text(element.symbol);
  if (element.generic) text = "generic(" + text + ")";
  if (element.offset != 0) text += "+" + std::to_string(element.offset);
  return element.masked ? "0x" + std::string("FF") + std::string(element.mask_shift / 4, '0') + "(" + text + ")" : text;
}

/// The braces of one level, elements taken from `at` on.
std::string braces(const Variable& variable, size_t level, size_t& at) {
  const size_t depth = variable.dimensions.size() + (variable.vector > 1 ? 1 : 0);
  if (level == depth)
    return at < variable.initializer.size() ? element_text(variable.initializer[at++], variable.type) : "";
  const uint64_t count = level < variable.dimensions.size() ? variable.dimensions[level] : variable.vector;
  std::string out = "{";
  for (uint64_t i = 0; i < count && at < variable.initializer.size(); ++i)
    out += (i == 0 ? "" : ", ") + braces(variable, level + 1, at);
  return out + "}";
}

std::string declaration(const Variable& variable, bool is_parameter) {
  std::string out = is_parameter ? "" : kLinkages[static_cast<size_t>(variable.linkage)];
  out += kSpaces[static_cast<size_t>(variable.space)];
  if (!variable.attributes.empty()) {
    out += " .attribute(";
    for (const std::string& attribute : variable.attributes) out += attribute;
    out += ")";
  }
  const bool is_natural = variable.alignment == type_size(variable.type) * variable.vector;
  if (variable.space != Space::kRegister && type_size(variable.type) != 0 && !is_natural)
    out += " .align " + number(variable.alignment);
  if (variable.vector > 1) out += " .v" + number(variable.vector);
  out.append(" .").append(type_name(variable.type));
  if (variable.is_pointer) out.append(" .ptr ").append(kSpaces[static_cast<size_t>(variable.pointer_space)]);
  if (variable.pointer_alignment != 0) out += " .align " + number(variable.pointer_alignment);
  out += " " + plain(variable.name);
  for (const uint64_t dimension : variable.dimensions) out += dimension == 0 ? "[]" : "[" + number(dimension) + "]";
  if (!variable.initializer.empty()) {
    size_t at = 0;
    out += " = " + braces(variable, 0, at);
  }
  return out;
}

std::string parameter_list(const std::vector<Variable>& parameters) {
  std::string out = "(";
  for (size_t i = 0; i < parameters.size(); ++i) out += (i == 0 ? "" : ", ") + declaration(parameters[i], true);
  return out + ")";
}

std::string directives(const Directives& d) {
  std::string out;
  const auto triple = [&out](const char* name, const uint32_t (&v)[3]) {
    if (v[0] != 0) out += std::string(" ") + name + " " + number(v[0]) + ", " + number(v[1]) + ", " + number(v[2]);
  };
  const auto single = [&out](const char* name, uint32_t v) {
    if (v != 0) out += std::string(" ") + name + " " + number(v);
  };
  triple(".maxntid", d.max_threads);
  triple(".reqntid", d.required_threads);
  triple(".reqnctapercluster", d.required_cluster);
  single(".minnctapersm", d.min_blocks_per_multiprocessor);
  single(".maxnreg", d.max_registers);
  single(".maxclusterrank", d.max_cluster_rank);
  if (d.explicit_cluster) out += " .explicitcluster";
  if (d.noreturn) out += " .noreturn";
  for (const std::string& text : d.other) {
    if (!text.starts_with(".attribute")) out += " " + text;
  }
  return out;
}

std::string operand_text(const Function& function, const Operand& operand);

std::string list(const Function& function, const Slice<Operand>& operands) {
  std::string out;
  for (size_t i = 0; i < operands.size(); ++i) out += (i == 0 ? "" : ", ") + operand_text(function, operands[i]);
  return out;
}

std::string value_text(const Function& function, const Operand& operand) {
  switch (operand.kind) {
    case Operand::Kind::kRegister:
      return plain(std::string(function.registers[static_cast<size_t>(operand.reg)].name));
    case Operand::Kind::kInteger:
      return std::to_string(static_cast<int64_t>(operand.bits));
    case Operand::Kind::kFloat:
      return operand.float_bits == 32 ? "0f" + hex(operand.bits, 8) : "0d" + hex(operand.bits, 16);
    case Operand::Kind::kSymbol:
      return plain(std::string(operand.text)) + (operand.offset == 0 ? "" : "+" + std::to_string(operand.offset));
    case Operand::Kind::kAddress: {
      std::string out = "[" + operand_text(function, operand.elements[0]);
      if (operand.offset != 0) out += "+" + std::to_string(operand.offset);
      for (size_t i = 1; i < operand.elements.size(); ++i) out += ", " + operand_text(function, operand.elements[i]);
      return out + "]";
    }
    case Operand::Kind::kVector:
      return "{" + list(function, operand.elements) + "}";
    case Operand::Kind::kTuple:
      return "(" + list(function, operand.elements) + ")";
    case Operand::Kind::kPair:
      return operand_text(function, operand.elements[0]) + "|" + operand_text(function, operand.elements[1]);
    case Operand::Kind::kSink:
      return "_";
    default:
      return plain(std::string(operand.text));
  }
}

std::string operand_text(const Function& function, const Operand& operand) {
  const bool is_predicate = operand.kind == Operand::Kind::kRegister &&
                            function.registers[static_cast<size_t>(operand.reg)].type == Type::kPred;
  std::string out = operand.negated ? (is_predicate ? "!" : "-") : "";
  out += value_text(function, operand);
  if (operand.component >= 0) out += std::string(".") + "xyzw"[operand.component];
  for (const std::string_view word : operand.modifiers) out.append(".").append(word);
  return out;
}

void print_body(const Function& function) {
  std::cout << "{\n";
  for (const Register& reg : function.registers) {
    const auto is_it = [&](const Variable& v) { return v.space == Space::kRegister && v.name == reg.name; };
    if (std::any_of(function.parameters.begin(), function.parameters.end(), is_it)) continue;
    if (std::any_of(function.returns.begin(), function.returns.end(), is_it)) continue;
    std::cout << ".reg " << (reg.vector > 1 ? ".v" + number(reg.vector) + " " : "") << "." << type_name(reg.type) << " "
              << plain(std::string(reg.name)) << ";\n";
  }
  for (const Variable& variable : function.variables) std::cout << declaration(variable, false) << ";\n";
  for (const Function& prototype : function.prototypes) {
    std::cout << plain(prototype.name) << ": .callprototype ";
    if (!prototype.returns.empty()) std::cout << parameter_list(prototype.returns);
    std::cout << " _ " << parameter_list(prototype.parameters) << directives(prototype.directives) << ";\n";
  }
  for (const BranchTargets& targets : function.target_lists) {
    std::cout << plain(targets.name) << (targets.label_indices.empty() ? ": .calltargets " : ": .branchtargets ");
    for (size_t i = 0; i < targets.targets.size(); ++i) std::cout << (i == 0 ? "" : ", ") << plain(targets.targets[i]);
    std::cout << ";\n";
  }
  size_t label = 0;
  for (size_t i = 0; i <= function.instructions.size(); ++i) {
    for (; label < function.labels.size() && function.labels[label].index == i; ++label)
      std::cout << plain(std::string(function.labels[label].name)) << ":\n";
    if (i == function.instructions.size()) break;
    const Instruction& instruction = function.instructions[i];
    if (instruction.guard != kNoRegister)
      std::cout << (instruction.guard_negated ? "@!" : "@")
                << plain(std::string(function.registers[static_cast<size_t>(instruction.guard)].name)) << " ";
    std::cout << instruction.full << " " << list(function, instruction.operands) << ";\n";
  }
  std::cout << "}\n";
}

void print(const Module& module) {
  std::cout << ".version " << module.version_major << "." << module.version_minor << "\n.target " << module.target
            << "\n.address_size " << module.address_size << "\n";
  // Names must stand before their use, which the IR's two lists don't show: declare all functions first.
  for (const Function& function : module.functions) {
    if (function.is_entry) continue;
    std::cout << kLinkages[static_cast<size_t>(function.linkage)] << ".func ";
    if (!function.returns.empty()) std::cout << parameter_list(function.returns) << " ";
    std::cout << function.name << parameter_list(function.parameters) << directives(function.directives) << ";\n";
  }
  for (const Variable& variable : module.variables) std::cout << declaration(variable, false) << ";\n";
  for (const std::string& alias : module.aliases) {
    std::string text = alias;
    text.replace(text.find(" = "), 3, ", ");
    std::cout << ".alias " << text << ";\n";
  }
  for (const Function& function : module.functions) {
    if (function.is_declaration) continue;
    std::cout << kLinkages[static_cast<size_t>(function.linkage)] << (function.is_entry ? ".entry " : ".func ");
    if (!function.returns.empty()) std::cout << parameter_list(function.returns) << " ";
    std::cout << function.name << parameter_list(function.parameters) << directives(function.directives) << "\n";
    print_body(function);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: ptx_print FILE\n";
    return 2;
  }
  std::ifstream file(argv[1], std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const ParseResult result = parse(text);
  for (const Diagnostic& error : result.errors)
    std::cerr << error.location.line << ":" << error.location.column << ": " << error.message << "\n";
  if (!result.ok()) return 1;
  print(result.module);
}
