# SPDX-License-Identifier: Apache-2.0
"""Numbers that are made of block indices, the parameter block's address and constants alone.

A form is ((symbol, factor), ...) and a constant; symbols are "x", "y", "z" for the block's
index, "block" for the low half of the address of the parameter block. All of it is modulo
2 to the 32nd.
"""

from __future__ import annotations

from tessera.sass.opcodes import OPCODES, before_parameters
from tessera.sass.program import constant_of
from tessera.sass.syntax import Instruction, Operand
from tessera.sass.values import Values
from tessera.sass.writes import Node

Form = tuple[tuple[tuple[str, int], ...], int]
MAX_FORMS = 16
MAX_NODES = 400
MAX_ROUNDS = 40
_MASK = (1 << 32) - 1
_INDICES = {f"SR_CTAID.{axis}": axis.lower() for axis in "XYZ"}


def forms_of(values: Values, index: int, registers: tuple[Operand, ...]) -> list[Form] | None:
    """What the sum of the registers' low words before an instruction may be; None: not known."""
    total: set[Form] = {((), 0)}
    search = _Search(values)
    for register in registers:
        if register.kind != "register" or register.negative:
            return None
        found = search.solve(index, register)
        if not found:
            return None
        total = {_add(a, b) for a in total for b in found}
        if len(total) > MAX_FORMS:
            return None
    return sorted(total)


class _Search:
    """The least sets of forms that agree with each other, where values depend on themselves:
    sets grow, round by round, until nothing changes. None: anything."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._known: dict[Node, frozenset[Form] | None] = {}
        self._seen: set[Node] = set()  # in this round
        self._changed = False

    def solve(self, index: int, register: Operand) -> frozenset[Form] | None:
        for _ in range(MAX_ROUNDS):
            self._seen.clear()
            self._changed = False
            found = self.operand(index, register)
            if found is None or not self._changed:
                return found
        return None

    def operand(self, index: int, operand: Operand) -> frozenset[Form] | None:
        if operand.negative:
            return None
        if operand.kind == "number":
            return frozenset((((), operand.value & _MASK),))
        if operand.kind == "constant":
            base = self._values.kernel.parameter_base
            place = operand.value if operand.bank == 0 and not operand.base else -1
            before = before_parameters(place, base)
            if before is None:
                return None
            return frozenset((((("block", 1),), -before & _MASK),))
        if operand.kind != "register":
            return None
        if operand.variable is None:
            return frozenset((((), 0),))
        return self._node(self._values.before(index, operand.variable))

    def _node(self, node: Node) -> frozenset[Form] | None:
        known = self._known.get(node, frozenset())
        if node not in self._seen and known is not None:
            self._seen.add(node)
            found = self._find(node) if len(self._seen) <= MAX_NODES else None
            # The set may have grown meanwhile, where the node depends on itself.
            known = _either(self._known.get(node, frozenset()), found)
            if known != self._known.get(node, frozenset()):
                self._changed = True
            self._known[node] = known
        return known

    def _find(self, node: Node) -> frozenset[Form] | None:
        if node[0] == "f":
            return _either(*(self._node(way) for way in self._values.arguments(node)))
        if node[0] != "d":
            return None
        _, index, variable = node
        ins = self._values.program.code[index]
        if self._values.may_stay(index, variable) or self._values.word_of(index, variable) != 0:
            return None
        new = self._result(index, ins)
        if ins.guard is None or ins.guard.variable is None:
            return new
        return _either(new, self._node(self._values.before(index, variable)))

    def _result(self, index: int, ins: Instruction) -> frozenset[Form] | None:
        if (number := constant_of(ins)) is not None:
            return frozenset((((), number & _MASK),))
        if ins.base in ("S2R", "S2UR"):
            axis = _INDICES.get(ins.operands[-1].text)
            return frozenset((((((axis, 1),), 0)),)) if axis else None
        kind = OPCODES[ins.base].value
        if kind != "bank" and ins.has("HI", "X", "U16", "S16", "U8", "S8", "U64", "S64"):
            return None
        if ins.has("64") and kind not in ("bank", "sum"):
            return None
        sources = [o for o in self._values.sources(ins) if o.kind != "predicate"]
        if kind == "bank" and ins.modifiers in ((), ("64",)) and len(sources) == 1:
            return self.operand(index, sources[0])
        if kind == "move" and len(sources) == 1 and "SHFL" not in ins.base:
            return self.operand(index, sources[0])
        if kind == "select" and len(sources) == 2:
            return _either(*(self.operand(index, source) for source in sources))
        if kind == "sum":
            return self._sum(index, sources)
        return self._scaled(index, ins, kind, sources)

    def _sum(self, index: int, sources: list[Operand]) -> frozenset[Form] | None:
        total: frozenset[Form] | None = frozenset((((), 0),))
        for source in sources:
            found = self.operand(index, source)
            if found is None or total is None:
                return None
            total = frozenset(_add(a, b) for a in total for b in found)
            if len(total) > MAX_FORMS:
                return None
        return total

    def _scaled(
        self, index: int, ins: Instruction, kind: str, sources: list[Operand]
    ) -> frozenset[Form] | None:
        """a * b + c, (a << n) + b, a << n."""
        if kind == "product" and len(sources) == 3:
            factors = self.operand(index, sources[1])
            if not factors:
                return factors
            value, factor, rest = sources[0], _number(factors), sources[2]
        elif kind == "lea" and len(sources) == 3 and sources[2].kind == "number":
            value, factor, rest = sources[0], 1 << (sources[2].value & 31), sources[1]
        elif kind == "shift" and ins.has("L") and len(sources) == 3:
            if sources[1].kind != "number":
                return None
            value, factor, rest = sources[0], 1 << (sources[1].value & 31), Operand("register")
        else:
            return None
        found, more = self.operand(index, value), self.operand(index, rest)
        if factor is None or found is None or more is None:
            return None
        return frozenset(_add(_times(a, factor), b) for a in found for b in more)


def _number(forms: frozenset[Form]) -> int | None:
    """The one number that a value is."""
    (symbols, number), *others = forms
    return None if symbols or others else number


def _either(*parts: frozenset[Form] | None) -> frozenset[Form] | None:
    out: set[Form] = set()
    for part in parts:
        if part is None:
            return None
        out |= part
    return frozenset(out) if len(out) <= MAX_FORMS else None


def _add(a: Form, b: Form) -> Form:
    total: dict[str, int] = {}
    for symbol, factor in (*a[0], *b[0]):
        total[symbol] = (total.get(symbol, 0) + factor) & _MASK
    return tuple(sorted((s, f) for s, f in total.items() if f)), (a[1] + b[1]) & _MASK


def _times(a: Form, factor: int) -> Form:
    return tuple((s, f * factor & _MASK) for s, f in a[0]), a[1] * factor & _MASK
