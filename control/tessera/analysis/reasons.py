# SPDX-License-Identifier: Apache-2.0
"""Why an access is not exact, in words, with the instruction that made it so."""

from __future__ import annotations

from tessera.analysis.pointers import Target
from tessera.analysis.polynomial import Atom, Poly
from tessera.analysis.registers import Registers
from tessera.analysis.touches import Touch
from tessera.analysis.values import polys_of
from tessera.native.ptx import NO_REGISTER, Operand, OperandKind

MAX_DEPTH = 40  # of atoms within atoms


class Reasons:
    """Words for the instructions of one program."""

    def __init__(self, registers: Registers) -> None:
        self._r = registers

    def instruction(self, index: int) -> str:
        """An instruction as it may have been written, with its line."""
        ins = self._r.program.code[index]
        operands = ", ".join(self._operand(index, operand) for operand in ins.operands)
        return f"line {ins.line}: {self._guard(index)}{ins.full} {operands}".rstrip()

    def _guard(self, index: int) -> str:
        ins = self._r.program.code[index]
        if ins.guard == NO_REGISTER:
            return ""
        name = self._r.program.frames[index].function.registers[ins.guard].name
        return f"@{'!' if ins.guard_negated else ''}{name} "

    def no_root(self, address: Poly) -> str:
        """Why an address belongs to no pointer parameter."""
        for atom in self._all_atoms(address):
            if (
                atom.kind in ("load", "opaque")
                and atom.loaded
                and (i := self._index(atom)) is not None
            ):
                return f"the address comes from {self.instruction(i)}"
        return "the address is based on no single pointer parameter"

    def unbounded(self, target: Target, touch: Touch) -> str:
        atoms = self._all_atoms(target.offset)
        if target.carrier is not target.root:
            atoms += self._all_atoms_of(target.carrier)
        for atom in atoms:
            index = self._index(atom)
            if atom.kind == "load":
                return f"the index is loaded by {self.instruction(index or 0)}"
            if atom.kind in ("opaque", "other_lane") and index is not None:
                return f"the index comes from {self.instruction(index)}"
        for atom in atoms:
            if atom.kind in ("loopphi", "k"):
                return f"the loop at {self._block(atom)} has no bound that could be derived"
        return "the index arithmetic may wrap around"

    def inexact(self, target: Target, touch: Touch) -> str:
        for atom in self._all_atoms(target.offset):
            if atom.loaded and (index := self._index(atom)) is not None:
                return f"the index depends on {self.instruction(index)}"
        return ""

    def _block(self, atom: Atom) -> str:
        home = next(iter(atom.homes))
        return f"line {self._r.program.code[self._r.program.nodes[home].begin].line}"

    def _index(self, atom: Atom) -> int | None:
        """The instruction that an opaque atom comes from."""
        first = atom.args[0] if atom.args else None
        if isinstance(first, int) and atom.kind in ("load", "opaque"):
            return first
        if first is not None and getattr(first, "kind", "") == "code":
            return int(first.at)
        return None

    def _all_atoms(self, poly: Poly) -> list[Atom]:
        out: dict[Atom, None] = {}
        for atom in sorted(poly.atoms):
            _collect(atom, out, 0)
        return list(out)

    def _all_atoms_of(self, root: Atom) -> list[Atom]:
        out: dict[Atom, None] = {}
        _collect(root, out, 0)
        return list(out)

    def _operand(self, index: int, operand: Operand) -> str:
        kind = operand.kind
        inner = ", ".join(self._operand(index, e) for e in operand.elements)
        if kind is OperandKind.REGISTER:
            return self._r.program.frames[index].function.registers[operand.register].name
        if kind is OperandKind.INTEGER:
            return str(operand.signed)
        if kind is OperandKind.ADDRESS:
            offset = f"{operand.offset:+d}" if operand.offset else ""
            return f"[{inner}{offset}]"
        if kind is OperandKind.VECTOR:
            return f"{{{inner}}}"
        if kind is OperandKind.TUPLE:
            return f"({inner})"
        if kind is OperandKind.PAIR:
            return inner.replace(", ", "|")
        if kind is OperandKind.SINK:
            return "_"
        return operand.text or kind.name.lower()


def _collect(root: Atom, out: dict[Atom, None], depth: int) -> None:
    """An atom and what it is made of, in order, each once."""
    if root in out:
        return
    out[root] = None
    if depth > MAX_DEPTH or root.kind == "loopphi":
        return
    nested = list(polys_of(root.args))
    if root.kind == "phi":
        nested += [value.poly for value in root.args[1]]
    for poly in nested:
        for atom in sorted(poly.atoms):
            _collect(atom, out, depth + 1)
