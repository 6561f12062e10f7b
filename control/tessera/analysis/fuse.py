# SPDX-License-Identifier: Apache-2.0
"""Fewer nodes for the evaluator: pairs that are always made together become one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from tessera.analysis.launch import Op
from tessera.analysis.model import Access, Node

# (outer, inner): what an outer node becomes with an operand that is used nowhere else.
_PAIRS = {
    (Op.AND, Op.LESS_EQUAL): Op.AND_LESS_EQUAL,
    (Op.AND, Op.AND): Op.AND3,
    (Op.ADD, Op.MUL): Op.ADD_MUL,
    (Op.ADD, Op.ADD): Op.ADD3,
    (Op.MIN, Op.MIN): Op.MIN3,
}


def fused(nodes: list[Node], accesses: list[Access]) -> tuple[list[Node], list[Access]]:
    """The same values with fewer nodes; constants come first, for the evaluator's quick start."""
    uses = Counter(operand for node in nodes for operand in node.operands)
    uses.update(index for access in accesses for index in _needed(access))
    made: list[Node] = []
    gone: set[int] = set()
    for node in nodes:  # operands come first
        both, inner = _with_operand(node, made, uses)
        made.append(both)
        gone |= {inner} if inner is not None else set()
    kept = [index for index in range(len(nodes)) if index not in gone]
    kept.sort(key=lambda index: nodes[index].op is not Op.CONST)
    place = {index: position for position, index in enumerate(kept)}
    return (
        [_moved(made[index], place) for index in kept],
        [_access(access, place) for access in accesses],
    )


def _needed(access: Access) -> Iterable[int]:
    levels = (index for level in access.levels for index in level)
    return (i for i in (access.guard, access.lo, access.hi, *levels) if i is not None)


def _with_operand(node: Node, made: list[Node], uses: Counter[int]) -> tuple[Node, int | None]:
    """The node, or what it and an operand become together, and that operand's index."""
    if len(node.operands) == 2:
        for other, inner in ((node.a, node.b), (node.b, node.a)):
            both = _PAIRS.get((node.op, made[inner].op))
            if both is not None and uses[inner] == 1:
                return Node(both, other, made[inner].a, made[inner].b), inner
    return node, None


def _moved(node: Node, place: dict[int, int]) -> Node:
    operands = [place[operand] for operand in node.operands]
    a, b, c = (*operands, *(node.a, node.b, node.c)[len(operands) :])
    return Node(node.op, a, b, c, node.value)


def _access(access: Access, place: dict[int, int]) -> Access:
    def at(index: int | None) -> int | None:
        return None if index is None else place[index]

    levels = tuple((place[pitch], place[count]) for pitch, count in access.levels)
    return replace(
        access, guard=at(access.guard), lo=at(access.lo), hi=at(access.hi), levels=levels
    )
