# SPDX-License-Identifier: Apache-2.0
"""Pass 10: ranges and properties as a summary: the nodes that are needed, within the limits."""

from __future__ import annotations

from tessera.analysis.fuse import fused
from tessera.analysis.launch import ARITY, INT64_MAX, INT64_MIN, Expr, Op
from tessera.analysis.model import MAX_ACCESSES, MAX_NODES, Access, Flag, Mode, Node
from tessera.analysis.ranges import ByteRange


def assemble(ranges: list[ByteRange], lines: list[int]) -> tuple[list[Node], list[Access]]:
    """Nodes and accesses. Ranges that would exceed the evaluator's limits become unbounded."""
    ranges = _without_repetition(ranges)
    if len(ranges) > MAX_ACCESSES:
        ranges = _without_repetition([_unbounded(r, "too many accesses") for r in ranges])
    table = _Table()
    accesses = [table.access(r, lines[r.index]) for r in ranges]
    return fused(table.nodes, accesses)


def _without_repetition(ranges: list[ByteRange]) -> list[ByteRange]:
    """One range where several are equal, or where an unbounded one says it all."""
    whole = {
        (r.parameter_offset, r.mode) for r in ranges if r.flags & Flag.UNBOUNDED and r.guard is None
    }
    out: dict[tuple[object, ...], ByteRange] = {}
    for r in ranges:
        unbounded = bool(r.flags & Flag.UNBOUNDED)
        covered = (r.parameter_offset, r.mode) in whole and not r.flags & Flag.MUST_WRITE
        if covered and not (unbounded and r.guard is None):
            continue
        key = (r.parameter_offset, r.mode, r.flags, r.guard, r.lo, r.hi, r.levels)
        out.setdefault(key, r)
    return list(out.values())


def _unbounded(r: ByteRange, reason: str) -> ByteRange:
    flags = (r.flags | Flag.UNBOUNDED) & ~(Flag.EXACT | Flag.MUST_WRITE)
    return ByteRange(
        r.mode, flags, r.parameter_offset, None, None, None, r.index, r.reason or reason
    )


class _Table:
    """Gives expressions their indices, operands first."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._indices: dict[Expr, int] = {}

    def access(self, r: ByteRange, line: int) -> Access:
        mark = len(self.nodes)
        guard = self._index(r.guard)
        lo, hi = self._index(r.lo), self._index(r.hi)
        levels = tuple((self._place(pitch), self._place(count)) for pitch, count in r.levels)
        if len(self.nodes) > MAX_NODES:
            self._forget(mark)
            r = _unbounded(r, "the formula is too long")
            guard = lo = hi = None
            levels = ()
        return Access(
            Mode(r.mode), r.flags, r.parameter_offset, guard, lo, hi, line, r.reason, levels
        )

    def _forget(self, mark: int) -> None:
        del self.nodes[mark:]
        self._indices = {e: i for e, i in self._indices.items() if i < mark}

    def _index(self, expr: Expr | None) -> int | None:
        return None if expr is None else self._place(expr)

    def _place(self, expr: Expr) -> int:
        work = [expr]
        while work:
            current = work[-1]
            missing = [a for a in current.args if a not in self._indices]
            if missing:
                work += missing
                continue
            work.pop()
            if current in self._indices:
                continue
            if current.is_const and not INT64_MIN <= current.value <= INT64_MAX:
                self._add_unbounded()
            else:
                self.nodes.append(self._node(current))
            self._indices[current] = len(self.nodes) - 1
        return self._indices[expr]

    def _add_unbounded(self) -> None:
        """A node that the evaluator finds unbounded: what no 64 bits hold."""
        zero = len(self.nodes)
        self.nodes += [Node(Op.CONST), Node(Op.FLOOR_DIV, zero, zero)]

    def _node(self, expr: Expr) -> Node:
        a, b, c = expr.literals
        operands = [self._indices[arg] for arg in expr.args]
        assert len(operands) == ARITY.get(expr.op, 2)
        a, b, c = (*operands, *(a, b, c)[len(operands) :])
        return Node(Op(expr.op), a, b, c, expr.value)
