# SPDX-License-Identifier: Apache-2.0
"""The analysis of a PTX module: its passes, in order."""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tessera.analysis.assemble import assemble
from tessera.analysis.bounds import Bounds
from tessera.analysis.calls import external_call
from tessera.analysis.coverage import Coverage
from tessera.analysis.domain import Domain
from tessera.analysis.environment import Environments
from tessera.analysis.escapes import Escape, Escapes, variables
from tessera.analysis.flow import analyze_flow
from tessera.analysis.invariants import Invariants
from tessera.analysis.launch import Launch
from tessera.analysis.lower import Lowering
from tessera.analysis.model import NOTHING, Access, KernelSummary, Node, Parameter, Property
from tessera.analysis.pointers import Attribution
from tessera.analysis.program import (
    Program,
    Symbol,
    TooHardError,
    defined_functions,
    flatten,
    module_symbols,
)
from tessera.analysis.ranges import Outcome, Ranges
from tessera.analysis.reaching import Reaching
from tessera.analysis.reasons import Reasons
from tessera.analysis.registers import Registers
from tessera.analysis.touches import Mark, Scan, Touch
from tessera.native.ptx import Function, Module, Space, parse

MAX_YOUNG = 200_000  # objects that were not looked through for garbage; kernels leave little
RECURSION = 50_000  # of Python frames that use no C stack: values are evaluated depth first


def analyze_module(ptx_text: str | bytes) -> dict[str, KernelSummary]:
    """The access summary of every kernel of a PTX module, by name.

    Bad input never raises: a kernel that could not be read is unknown.
    """
    module = parse(ptx_text)
    symbols = module_symbols(module)
    functions = defined_functions(module)
    results = []
    with _deep_recursion(), _no_collection():
        for kernel in module.entries:
            results.append(_analyze_kernel(kernel, functions, symbols))
            if gc.get_count()[0] > MAX_YOUNG:
                gc.collect(0)
        settle_globals(results)
        return {r.kernel.name: _summarize(r, module) for r in results}


@dataclass(slots=True)
class KernelResult:
    """One kernel, before what the module's other kernels do is known. It holds nothing of what
    it was found with."""

    kernel: Function
    properties: dict[Property, str] = field(default_factory=dict)  # and why
    globals_read: set[Symbol] = field(default_factory=set)
    globals_written: set[Symbol] = field(default_factory=set)
    nodes: list[Node] = field(default_factory=list)
    accesses: list[Access] = field(default_factory=list)


def _analyze_kernel(
    kernel: Function, functions: dict[str, Function], symbols: dict[str, Symbol]
) -> KernelResult:
    result = KernelResult(kernel)
    try:
        program = flatten(kernel, functions, symbols)
    except TooHardError as problem:
        return _given_up(result, f"line {problem.line}: {problem}")
    if not program.code:
        return result
    with _passes_over(program) as passes:
        try:
            outcome = passes.run()
        except RecursionError:
            return _given_up(result, f"line {kernel.line}: {kernel.name} nests too deeply")
        lines = [instruction.line for instruction in program.code]
        result.nodes, result.accesses = assemble(outcome.ranges, lines)
        result.globals_read = outcome.globals_read
        result.globals_written = outcome.globals_written
        reasons = Reasons(passes.registers)
        for kind, (index, words) in outcome.properties.items():
            place = reasons.instruction(index) if index >= 0 else ""
            result.properties[kind] = ": ".join(part for part in (place, words) if part)
    return result


def _given_up(result: KernelResult, reason: str) -> KernelResult:
    """Its code was not looked at: there may be anything in it that keeps a kernel at home."""
    result.properties |= {Property.UNKNOWN: reason, Property.INDIRECT_CALLS: reason}
    return result


class _Passes:
    """The passes over one program. They know one another, in cycles; `release` cuts these."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._flow = analyze_flow(program)
        self._reaching = Reaching(program, self._flow)
        self.registers = Registers(program, self._flow, self._reaching, Domain())
        self._environments = Environments(self.registers)
        self._bounds = Bounds(self.registers, self._environments, Lowering(Launch()))
        self._environments.invariants = Invariants(self.registers, self._environments, self._bounds)

    def run(self) -> Outcome:
        registers, environments, bounds = self.registers, self._environments, self._bounds
        attribution = Attribution(registers, environments, bounds)
        found = list(Scan(registers).run())
        _mark_pointers(attribution, registers, found)
        coverage = Coverage(registers, self._flow, environments, bounds)
        ranges = Ranges(registers, environments, bounds, attribution, coverage)
        outcome = ranges.run(f for f in found if isinstance(f, Touch))
        for mark in found:
            if isinstance(mark, Mark):
                outcome.properties.setdefault(mark.property, (mark.index, mark.reason))
        _calls(self._program, self._reaching, outcome)
        _escapes(Escapes(self._program, self._reaching).run(), outcome)
        return outcome

    def release(self) -> None:
        self._bounds.release()
        self._environments.release()
        self.registers.release()


@contextmanager
def _passes_over(program: Program) -> Iterator[_Passes]:
    passes = _Passes(program)
    try:
        yield passes
    finally:
        passes.release()


def _escapes(found: list[Escape], outcome: Outcome) -> None:
    """What is left behind holds for the device that the kernel ran on; and whoever finds the
    address may write there."""
    for escape in found:
        names = ", ".join(sorted(s if isinstance(s, str) else s.name for s in escape.carried))
        outcome.properties.setdefault(
            Property.DEVICE_DEPENDENT, (escape.index, f"the address of {names} gets out")
        )
    outcome.globals_written.update(s for s in variables(found) if s.space is Space.GLOBAL)


def _mark_pointers(
    attribution: Attribution, registers: Registers, found: list[Touch | Mark]
) -> None:
    """Parameters that are pointers: declared, converted, or used as they are."""
    for parameter in registers.program.kernel.parameters:
        if parameter.is_pointer:
            attribution.mark_parameter(parameter.offset)
    for index, instruction in enumerate(registers.program.code):
        if instruction.opcode == "cvta" and registers.reaching.node_of[index] >= 0:
            attribution.mark(registers.operand(index, instruction.operands[1]).poly)
    for item in found:
        if isinstance(item, Touch):
            attribution.mark(item.address)


def _calls(program: Program, reaching: Reaching, outcome: Outcome) -> None:
    for index in program.indirect_calls:
        if reaching.node_of[index] >= 0:
            outcome.properties.setdefault(Property.INDIRECT_CALLS, (index, ""))
            outcome.properties.setdefault(Property.UNKNOWN, (index, "a call through a pointer"))
    for index, name in program.external_calls:
        if reaching.node_of[index] >= 0:
            known = external_call(name)
            if known is None:
                for kind in (Property.UNKNOWN, Property.INDIRECT_CALLS):
                    reason = f"{name} is not defined in this module"
                    outcome.properties.setdefault(kind, (index, reason))
            else:
                for kind in known:
                    outcome.properties.setdefault(kind, (index, name))


def settle_globals(results: list[KernelResult]) -> None:
    """Module variables: constant data where nobody can have changed them."""
    written: set[Symbol] = set()
    for result in results:
        written |= result.globals_written
    anything_written = any(Property.UNKNOWN in r.properties for r in results)
    for result in results:
        for symbol in sorted(result.globals_read, key=lambda s: s.name):
            fixed = symbol.initialized and symbol not in written
            fixed = fixed and (symbol.space is Space.CONST or not anything_written)
            kind = Property.READS_CONSTANT_DATA if fixed else Property.READS_GLOBALS
            result.properties.setdefault(kind, symbol.name)
        for symbol in sorted(result.globals_written, key=lambda s: s.name):
            result.properties.setdefault(Property.WRITES_GLOBALS, symbol.name)


def _summarize(result: KernelResult, module: Module) -> KernelSummary:
    kernel = result.kernel
    properties = NOTHING
    for kind in result.properties:
        properties |= kind
    minimum, only = architectures(module.target)
    return KernelSummary(
        name=kernel.name,
        properties=properties,
        nodes=tuple(result.nodes),
        accesses=tuple(result.accesses),
        parameters=tuple(
            Parameter(p.name, p.offset, p.size, p.type.name.lower(), p.is_pointer)
            for p in kernel.parameters
        ),
        parameter_block_size=kernel.parameter_block_size,
        minimum_architecture=minimum,
        only_architecture=only,
        target=module.target,
        reasons={str(kind.name): words for kind, words in result.properties.items()},
        required_block=_required_block(kernel),
    )


def _required_block(kernel: Function) -> tuple[int, int, int]:
    """Threads by axis that `.reqntid` asks for; zeros: nothing is asked."""
    x, y, z = kernel.required_threads
    return (x, max(y, 1), max(z, 1)) if x else (0, 0, 0)


def architectures(target: str) -> tuple[int, int]:
    """(least, only) of a PTX target: sm_80 runs on 80 and newer, sm_90a and sm_100f on their
    own. 0 as the second: no such limit."""
    match = re.fullmatch(r"sm_(\d+)([af]?)", target)
    if match is None:
        return 0, 0
    number = int(match[1])
    return number, number if match[2] else 0


@contextmanager
def _no_collection() -> Iterator[None]:
    """One kernel makes many small objects that live until it is done, and a module's own live
    on: looking for garbage among them all takes longer than the analysis."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def _deep_recursion() -> Iterator[None]:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, RECURSION))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
