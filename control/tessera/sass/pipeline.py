# SPDX-License-Identifier: Apache-2.0
"""The analysis of a cubin, from its bytes to access summaries."""

from __future__ import annotations

import functools
import gc
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from tessera.analysis import Access, Flag, KernelSummary, Mode, Node, Parameter, Property
from tessera.analysis.launch import Op
from tessera.analysis.model import MAX_ACCESSES, MAX_NODES, NO_FLAGS
from tessera.protocol.architectures import only_within_major
from tessera.sass.conditions import Condition
from tessera.sass.disassembly import disassemble
from tessera.sass.elf import Cubin, KernelInfo, read_cubin
from tessera.sass.kernel import Claim, Grade, KernelFacts, analyze_kernel

RECURSION = 50_000
WHOLE, BATCH = 3 << 20, 1 << 20  # bytes of a cubin that is read at once, of code in a part of one
NO_MEMORY = 1 << 28  # no memory of a GPU lies below
NO_ADDRESS = 1 << 48  # addresses of memory are smaller
TABLES = "__cudart_"  # constant tables of CUDA's mathematical functions: nobody else names them

_Found = tuple[KernelInfo, KernelFacts, float]


@dataclass(frozen=True, slots=True)
class SassSummary:
    """One kernel of a cubin, and what it took to analyse it."""

    summary: KernelSummary
    grade: Grade
    instructions: int
    milliseconds: float


def analyze_cubin(data: bytes, names: Collection[str] | None = None) -> dict[str, SassSummary]:
    """The access summary of every kernel of a cubin, by name; with `names`, of those that it has.

    Raises ValueError when the data is no cubin, DisassemblyError when it cannot be
    disassembled. A kernel that is not understood is unknown.
    """
    cubin = read_cubin(data)
    wanted = [k for k in cubin.kernels if names is None or k.name in names]
    found, target = _analyze(data, cubin, wanted)
    rest: list[_Found] = []
    if _depends_on_others(cubin, found):
        rest, _ = _analyze(data, cubin, [k for k in cubin.kernels if k not in wanted])
    _settle_globals(cubin, [facts for _, facts, _ in found + rest])
    return {
        kernel.name: SassSummary(
            _summary(kernel, facts, target), facts.grade, facts.instructions, milliseconds
        )
        for kernel, facts, milliseconds in found
    }


def _analyze(
    data: bytes, cubin: Cubin, wanted: list[KernelInfo]
) -> tuple[list[_Found], tuple[int, bool]]:
    found: list[_Found] = []
    target = (0, True)
    for kernels, symbols in _batches(cubin, wanted, len(data)):
        code = disassemble(data, cubin, symbols)
        target = (code.architecture, code.exact_architecture)
        with _roomy():
            for kernel in kernels:
                begin = time.perf_counter()
                facts = analyze_kernel(kernel, code.sections, cubin)
                found.append((kernel, facts, (time.perf_counter() - begin) * 1e3))
    return found, target


def _batches(
    cubin: Cubin, wanted: list[KernelInfo], size: int
) -> Iterator[tuple[list[KernelInfo], list[int]]]:
    """Kernels to be disassembled together, with symbols that name their sections: a large cubin
    in parts, for its disassembly takes seventy times its own memory."""
    if size <= WHOLE and len(wanted) == len(cubin.kernels):
        yield wanted, []
        return
    sections = cubin.code_sections()
    own = {kernel.section for kernel in cubin.kernels}
    shared = [symbol for section, symbol in sections.items() if section not in own]
    if sum(cubin.sizes[s] for s in sections if s not in own) > BATCH:
        shared = []  # calls into them will be unknown
    batch: list[KernelInfo] = []
    weight = 0
    for kernel in wanted:
        if batch and weight + cubin.sizes[kernel.section] > BATCH:
            yield batch, [sections[k.section] for k in batch] + shared
            batch, weight = [], 0
        if kernel.section in sections:
            batch.append(kernel)
            weight += cubin.sizes[kernel.section]
    if batch:
        yield batch, [sections[k.section] for k in batch] + shared


def merge(versions: Sequence[SassSummary], expected: int) -> SassSummary:
    """One kernel's summaries from several cubins of one image as one that holds for each."""
    first = versions[0]
    if len(versions) == 1 and expected == 1:
        return first
    summaries = [v.summary for v in versions]
    claims: dict[int, Claim] = {}
    for access in (a for s in summaries for a in s.accesses):
        required = access.guard is None and not access.flags & Flag.MAYBE
        claim = claims.setdefault(access.parameter_offset, Claim(Mode(0), False, 0, maybe=True))
        claim.mode |= access.mode
        claim.required = claim.required or required
        claim.maybe = claim.maybe and bool(access.flags & Flag.MAYBE)
    facts = KernelFacts(max((v.grade for v in versions), key=list(Grade).index))
    for summary in summaries:
        facts.properties |= summary.properties
        facts.reasons = {**summary.reasons, **facts.reasons}
    if len(versions) < expected:
        facts.give_up("not every cubin of the image has this kernel")
    if len({s.parameter_block_size for s in summaries}) > 1:
        facts.give_up("the cubins of the image differ in its parameters")
    facts.claims = claims
    if any(a.flags & Flag.ANYTHING for s in summaries for a in s.accesses) and not _alike(versions):
        facts.give_up("the cubins of the image differ in its pointers")
    nodes: tuple[Node, ...] = ()
    accesses: tuple[Access, ...] = ()
    if facts.grade is Grade.UNKNOWN:
        pass  # nothing is claimed of it
    elif _alike(versions):
        nodes, accesses = first.summary.nodes, first.summary.accesses
    else:
        nodes, accesses = _accesses(facts)
    summary = replace(
        first.summary,
        properties=facts.properties,
        nodes=nodes,
        accesses=accesses,
        minimum_architecture=min(s.minimum_architecture for s in summaries),
        reasons=facts.reasons,
    )
    total = sum(v.milliseconds for v in versions)
    return SassSummary(summary, facts.grade, first.instructions, total)


def _alike(versions: Sequence[SassSummary]) -> bool:
    """Whether all claim the same, whatever the places in their code."""
    summaries = [v.summary for v in versions]
    return len({(s.nodes, tuple(replace(a, line=0) for a in s.accesses)) for s in summaries}) == 1


def _initialised(cubin: Cubin) -> set[str]:
    return {
        s.name
        for s in cubin.symbols
        if s.section and cubin.section_names[s.section].startswith(".nv.global.init")
    }


def _depends_on_others(cubin: Cubin, found: list[_Found]) -> bool:
    """Whether a kernel reads a variable that is constant only if no other kernel writes it."""
    if len(found) == len(cubin.kernels):
        return False
    fixed = _initialised(cubin)
    return any(
        name in fixed and not name.startswith(TABLES)
        for _, facts, _ in found
        if facts.grade is not Grade.UNKNOWN
        for name in facts.symbols_read
    )


def _settle_globals(cubin: Cubin, kernels: list[KernelFacts]) -> None:
    """Variables are constant data where they are initialised and nobody can have written them."""
    written = set().union(*(k.symbols_written for k in kernels)) if kernels else set()
    anything = any(k.grade is Grade.UNKNOWN or k.limits or k.exceptions for k in kernels)
    fixed = _initialised(cubin)
    for facts in kernels:
        for name in facts.symbols_read:
            others = anything and not name.startswith(TABLES)
            constant = name in fixed and name not in written and not others
            kind = Property.READS_CONSTANT_DATA if constant else Property.READS_GLOBALS
            facts.mark(kind, name)


def _summary(kernel: KernelInfo, facts: KernelFacts, target: tuple[int, bool]) -> KernelSummary:
    architecture, exact = target
    pointers = set(facts.claims)
    parameters = tuple(
        Parameter(
            f"p{i}",
            offset,
            size,
            "u64" if size == 8 else f"b{8 * min(size, 8)}",
            offset in pointers,
        )
        for i, (offset, size) in enumerate(kernel.parameters)
    )
    if facts.grade is Grade.UNKNOWN or not _fits(facts):
        facts.give_up("it has too many pointers")
        nodes: tuple[Node, ...] = ()
        accesses: tuple[Access, ...] = ()
    else:
        nodes, accesses = _accesses(facts)
    return KernelSummary(
        name=kernel.name,
        properties=facts.properties,
        nodes=nodes,
        accesses=accesses,
        parameters=parameters,
        parameter_block_size=kernel.parameter_size,
        minimum_architecture=architecture,
        only_architecture=architecture if exact else only_within_major(architecture),
        target=f"sm_{architecture}{'a' if exact else ''}",
        reasons=facts.reasons,
    )


def _fits(facts: KernelFacts) -> bool:
    return (
        len(facts.claims) + len(facts.limits) + len(facts.exceptions) <= MAX_ACCESSES
        and len(_accesses(facts)[0]) <= MAX_NODES
    )


def _accesses(facts: KernelFacts) -> tuple[tuple[Node, ...], tuple[Access, ...]]:
    """Whole allocations. A word that is the only thing in its address that can be a pointer
    touches nothing where it is null or no address: a guard says so."""
    nodes = [Node(Op.CONST, value=NO_MEMORY), Node(Op.CONST, value=NO_ADDRESS)]
    nodes += [Node(Op.GRID, axis) for axis in range(3)]

    def add(op: Op, a: int = 0, b: int = 0, c: int = 0, value: int = 0) -> int:
        nodes.append(Node(op, a, b, c, value))
        return len(nodes) - 1

    accesses = []
    for offset, claim in sorted(facts.claims.items()):
        guard = None
        if not claim.required:
            word = add(Op.PARAMETER, offset, 8, 1)  # signed: no address has that bit
            guard = add(Op.LESS_EQUAL, 0, word)
            if not claim.maybe and claim.blocks is None:
                guard = add(Op.AND, guard, add(Op.LESS, word, 1))
        if guard is not None and claim.blocks is not None:
            axis, number = claim.blocks
            guard = add(Op.AND, guard, add(Op.LESS, add(Op.CONST, 0, value=number), 2 + axis))
        flags = Flag.UNBOUNDED | (Flag.MAYBE if claim.maybe else NO_FLAGS)
        reason = "" if facts.grade is not Grade.CONSERVATIVE else "which pointer it is is unclear"
        accesses.append(
            Access(Mode(claim.mode), flags, offset, guard, None, None, claim.place, reason)
        )

    def anything(guard: int, reason: str) -> Access:
        flags = Flag.UNBOUNDED | Flag.ANYTHING
        return Access(Mode.READ | Mode.WRITE, flags, 0, guard, None, None, 0, reason)

    for axis, number in sorted(facts.limits):
        guard = add(Op.LESS, add(Op.CONST, 0, value=number), 2 + axis)
        accesses.append(anything(guard, "more pointers than are told apart"))
    for context in sorted(sorted(context) for context in facts.exceptions):
        guards = [_holds(add, condition, value) for condition, value in context]
        guard = functools.reduce(lambda a, b: add(Op.AND, a, b), guards)
        accesses.append(anything(guard, "which pointer it is is not known in such launches"))
    return tuple(nodes), tuple(accesses)


def _holds(add: Callable[..., int], condition: Condition, value: bool) -> int:
    """A node: whether a condition has a value in this launch."""
    is_signed = condition.is_signed or condition.size == 8  # those have positive numbers alone
    word = add(Op.PARAMETER, condition.offset, condition.size, int(is_signed))
    number = add(Op.CONST, value=condition.number)
    holds = add(Op.LESS if condition.less else Op.EQUAL, word, number)
    return holds if value else add(Op.NOT, holds)


@contextmanager
def _roomy() -> Iterator[None]:
    """Deep recursion, and no search for garbage among objects that live until the end."""
    limit, collects = sys.getrecursionlimit(), gc.isenabled()
    sys.setrecursionlimit(max(limit, RECURSION))
    gc.disable()
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)
        if collects:
            gc.enable()
