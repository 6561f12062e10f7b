# SPDX-License-Identifier: Apache-2.0
"""What instructions do beside reading and writing memory, and what a kernel that is not understood
may do at most: trials may let it move, and they show nothing of what only home can do."""

from __future__ import annotations

from collections.abc import Iterator

from tessera.analysis import Property
from tessera.analysis.calls import external_call
from tessera.sass.elf import Cubin
from tessera.sass.opcodes import CLUSTER_REGISTERS, DEVICE_DEPENDENT, OPCODES
from tessera.sass.syntax import Instruction

RUNTIME_TABLES = "__cudart_"  # of CUDA's mathematical functions: nobody writes them


def effects(ins: Instruction) -> Iterator[Property]:
    """The properties that one instruction gives its kernel. Precondition: it has a row."""
    row = OPCODES[ins.base]
    yield row.properties
    for operand in ins.operands:
        if operand.kind == "other" and DEVICE_DEPENDENT.search(operand.text):
            yield Property.DEVICE_DEPENDENT
        if operand.kind == "other" and CLUSTER_REGISTERS.search(operand.text):
            yield Property.CLUSTERS
    if ins.has("SYS") and ins.has("STRONG", "SC", "MMIO") and row.memory.endswith("g"):
        yield Property.SYSTEM_SCOPE
    if ins.has("MULTICAST") or ins.base.startswith("UCGABAR"):
        yield Property.CLUSTERS
    if ins.base in ("ATOM", "ATOMG", "RED", "REDG"):
        result = next((o for o in ins.operands if o.kind == "register"), None)
        hands_out = ins.base.startswith("ATOM") and result is not None
        if ins.has("CAS", "EXCH") or _is_float_sum(ins) or (
            hands_out and result is not None and result.variable is not None
        ):  # fmt: skip
            yield Property.ORDER_DEPENDENT


def _is_float_sum(ins: Instruction) -> bool:
    return ins.has("ADD") and any(m[:1] == "F" or m.startswith("BF16") for m in ins.modifiers)


def survey(
    kernel: str, code: dict[str, list[Instruction]], cubin: Cubin
) -> Iterator[tuple[Property, str]]:
    """The properties of everything that a kernel might run, with reasons: its own section and
    every function that is no kernel. What might run something else calls through pointers."""
    others = {one.name for one in cubin.kernels} - {kernel}
    for section, instructions in code.items():
        if section in others:
            continue
        for ins in instructions:
            if ins.is_never_done:
                continue
            for kind in _might_do(ins, section, code, cubin):
                yield kind, f"{ins.address:#x}: {ins.text}"


def _might_do(
    ins: Instruction, section: str, code: dict[str, list[Instruction]], cubin: Cubin
) -> Iterator[Property]:
    row = OPCODES.get(ins.base)
    if row is None:
        yield Property.INDIRECT_CALLS  # nobody knows what it does
        return
    yield from effects(ins)
    if row.memory.startswith("tensor"):
        yield Property.TENSOR_MAPS
    if row.flow == "call":
        yield _callee(ins, code, cubin)
    if any(_is_variable(name, cubin) for name in _symbols(ins, section, cubin)):
        yield Property.READS_GLOBALS


def _callee(ins: Instruction, code: dict[str, list[Instruction]], cubin: Cubin) -> Property:
    first = ins.operands[0] if ins.operands else None
    if first is not None and first.kind == "number":
        return Property(0)  # within its section
    name = first.text.strip("`()") if first is not None and first.kind == "other" else ""
    sections = {cubin.section_names[s.section] for s in cubin.symbols if s.name == name}
    if name and any(section.removeprefix(".text.") in code for section in sections):
        return Property(0)
    kind = external_call(name) if name else None
    return Property.INDIRECT_CALLS if kind is None else kind


def _symbols(ins: Instruction, section: str, cubin: Cubin) -> Iterator[str]:
    """What an instruction names of the module; "" for something that is not known."""
    table = cubin.relocations.get(f".text.{section}", {})
    yield from (table[at] for at in range(ins.address, ins.address + 16) if at in table)
    addresses = cubin.relocations.get(".nv.constant4", {})
    for operand in ins.operands:
        if operand.kind == "constant" and operand.bank == 4:
            yield "" if operand.base else addresses.get(operand.value & ~7, "")


def _is_variable(name: str, cubin: Cubin) -> bool:
    if name.startswith(RUNTIME_TABLES):
        return False
    return not any(s.is_function for s in cubin.symbols if s.name == name) and (
        external_call(name) is None
    )
