# SPDX-License-Identifier: Apache-2.0
"""Nodes as readable text: `4·min(n, grid.x·block.x)`."""

from __future__ import annotations

from tessera.analysis.launch import Op
from tessera.analysis.model import KernelSummary, Node, Parameter

_AXES = "xyz"
_SUM, _PRODUCT, _COMPARISON, _ATOM = 1, 2, 0, 3
_INFIX = {
    Op.FLOOR_DIV: ("/", _PRODUCT), Op.FLOOR_MOD: (" mod ", _PRODUCT), Op.SHL: (" << ", _COMPARISON),
    Op.SHR: (" >> ", _COMPARISON), Op.AND: (" and ", _COMPARISON), Op.OR: (" | ", _COMPARISON),
    Op.XOR: (" ^ ", _COMPARISON), Op.LESS: (" < ", _COMPARISON),
    Op.LESS_EQUAL: (" ≤ ", _COMPARISON), Op.EQUAL: (" = ", _COMPARISON),
    Op.NOT_EQUAL: (" ≠ ", _COMPARISON), Op.TRUNC_DIV: (" quo ", _PRODUCT),
    Op.TRUNC_MOD: (" rem ", _PRODUCT),
}  # fmt: skip
MAX_LENGTH = 2000


def formula(summary: KernelSummary, node: int) -> str:
    """The text of one node. Very long formulas are cut."""
    text, _ = _Writer(summary).write(node)
    return text if len(text) <= MAX_LENGTH else text[:MAX_LENGTH] + "…"


class _Writer:
    def __init__(self, summary: KernelSummary) -> None:
        self._summary = summary
        self._done: dict[int, tuple[str, int]] = {}

    def write(self, index: int) -> tuple[str, int]:
        """Text and binding strength."""
        for position in range(index + 1):  # operands come first: no recursion
            if position not in self._done:
                self._done[position] = self._one(self._summary.nodes[position])
        return self._done[index]

    def _inner(self, index: int, strength: int) -> str:
        text, own = self._done[index]
        if len(text) > MAX_LENGTH:
            text = text[:MAX_LENGTH] + "…"
        return text if own >= strength else f"({text})"

    def _one(self, node: Node) -> tuple[str, int]:
        op = node.op
        if op is Op.CONST:
            return str(node.value), _ATOM if node.value >= 0 else _SUM
        if op is Op.PARAMETER:
            return _parameter(self._summary.parameters, node), _ATOM
        if op in (Op.GRID, Op.BLOCK, Op.CLUSTER):
            return f"{op.name.lower()}.{_AXES[node.a]}", _ATOM
        if op is Op.DYNAMIC_SHARED:
            return "shared", _ATOM
        return self._operation(node)

    def _operation(self, node: Node) -> tuple[str, int]:
        op = node.op
        if op in _INFIX:
            sign, strength = _INFIX[op]
            left = self._inner(node.a, strength + (strength == _COMPARISON))
            return f"{left}{sign}{self._inner(node.b, strength + 1)}", strength
        if op is Op.AND_LESS_EQUAL:
            comparison = f"{self._inner(node.b, _SUM)} ≤ {self._inner(node.c, _SUM)}"
            return f"{self._inner(node.a, _SUM)} and ({comparison})", _COMPARISON
        if op is Op.AND3:
            return " and ".join(self._inner(i, _SUM) for i in node.operands), _COMPARISON
        if op is Op.ADD3:
            return self._plus(self._plus(self._inner(node.b, _SUM), node.c), node.a), _SUM
        if op is Op.MIN3:
            return "min({})".format(", ".join(self._inner(i, 0) for i in node.operands)), _ATOM
        if op is Op.ADD_MUL:
            return self._plus(self._product(node.b, node.c), node.a), _SUM
        if op is Op.ADD:
            return self._plus(self._inner(node.a, _SUM), node.b), _SUM
        if op is Op.SUB:
            return f"{self._inner(node.a, _SUM)} - {self._inner(node.b, _PRODUCT)}", _SUM
        if op is Op.MUL:
            return self._product(node.a, node.b), _PRODUCT
        if op in (Op.MIN, Op.MAX):
            return f"{op.name.lower()}({self._inner(node.a, 0)}, {self._inner(node.b, 0)})", _ATOM
        if op is Op.SELECT:
            parts = (self._inner(i, 0) for i in (node.a, node.b, node.c))
            return "({} ? {} : {})".format(*parts), _ATOM
        if op is Op.WRAP:
            kind = "s" if node.c else "u"
            return f"{kind}{node.b}({self._inner(node.a, 0)})", _ATOM
        return f"{op.name.lower()}({self._inner(node.a, 0)})", _ATOM

    def _product(self, a: int, b: int) -> str:
        if self._summary.nodes[b].op is Op.CONST:
            a, b = b, a
        return f"{self._inner(a, _PRODUCT)}·{self._inner(b, _PRODUCT)}"

    def _plus(self, left: str, index: int) -> str:
        right = self._summary.nodes[index]
        if right.op is Op.CONST and right.value < 0:
            return f"{left} - {-right.value}"
        return f"{left} + {self._inner(index, _SUM)}"


def short_names(parameters: tuple[Parameter, ...]) -> dict[int, str]:
    """Names by offset. `kernel_param_3` is all that PTX keeps of most names: `arg3`."""
    out = {}
    for place, parameter in enumerate(parameters):
        generated = parameter.name.endswith(f"_param_{place}")
        out[parameter.offset] = f"arg{place}" if generated else parameter.name
    return out


def describe_offset(parameters: tuple[Parameter, ...], offset: int) -> str:
    """The parameter at an offset of the block, or the field of a struct: `arg0+16`."""
    names = short_names(parameters)
    for parameter in parameters:
        if parameter.offset <= offset < parameter.offset + parameter.size:
            name = names[parameter.offset]
            inside = offset - parameter.offset
            return f"{name}+{inside}" if inside else name
    return f"param+{offset}"


def _parameter(parameters: tuple[Parameter, ...], node: Node) -> str:
    return describe_offset(parameters, node.a)
