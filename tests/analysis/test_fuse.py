# SPDX-License-Identifier: Apache-2.0
"""Nodes that become one compute what the two did, overflow included."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from tessera.analysis import evaluate
from tessera.analysis.fuse import fused
from tessera.analysis.launch import ARITY, Op
from tessera.analysis.model import Access, Flag, KernelSummary, Mode, Node, Property

NUMBERS = st.one_of(
    st.integers(-3, 6), st.sampled_from([-(1 << 63), (1 << 63) - 1, 1 << 40, -(1 << 62)])
)
OPS = (Op.ADD, Op.MUL, Op.AND, Op.LESS_EQUAL, Op.SUB, Op.MIN, Op.FLOOR_DIV, Op.SELECT, Op.BOUNDED)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[Node], list[Access]]:
    """Nodes of which some are used once and some more often, and accesses to any of them."""
    nodes = [Node(Op.CONST, value=draw(NUMBERS)) for _ in range(3)]
    nodes += [Node(Op.GRID, axis) for axis in range(3)]
    for _ in range(draw(st.integers(1, 14))):
        op = draw(st.sampled_from(OPS))
        operands = [draw(st.integers(0, len(nodes) - 1)) for _ in range(ARITY.get(op, 2))]
        nodes.append(Node(op, *operands))
    index = st.integers(0, len(nodes) - 1)
    access = Access(Mode.READ, Flag(0), 0, None, 0, 0, 1, "", ())
    accesses = [
        replace(
            access,
            guard=draw(st.one_of(st.none(), index)),
            lo=draw(index),
            hi=draw(index),
            levels=tuple(draw(st.lists(st.tuples(index, index), max_size=2))),
        )
        for _ in range(draw(st.integers(1, 3)))
    ]
    return nodes, accesses


def ranges(nodes: list[Node], accesses: list[Access], grid: tuple[int, int, int]) -> object:
    summary = KernelSummary("k", Property(0), tuple(nodes), tuple(accesses), (), 8, 80)
    return evaluate(summary, grid, 1, bytes(8))


@settings(max_examples=500, deadline=None)
@given(graphs(), st.tuples(*[st.integers(1, 9)] * 3))
def test_the_same_ranges(
    graph: tuple[list[Node], list[Access]], grid: tuple[int, int, int]
) -> None:
    nodes, accesses = graph
    after, moved = fused(nodes, accesses)
    assert len(after) <= len(nodes)
    assert ranges(after, moved, grid) == ranges(nodes, accesses, grid)


def test_what_it_is_for() -> None:
    """Of `a and b <= c` and `a + b * c`, one node each; a product used twice stays."""
    nodes = [
        *(Node(Op.GRID, axis) for axis in range(3)),
        Node(Op.CONST, value=4),
        Node(Op.LESS_EQUAL, 0, 1),
        Node(Op.AND, 2, 4),
        Node(Op.MUL, 1, 3),
        Node(Op.ADD, 6, 5),
        Node(Op.MUL, 2, 2),
        Node(Op.ADD, 8, 8),
    ]
    accesses = [Access(Mode.READ, Flag(0), 0, None, 7, 9, 1, "", ())]
    after, _ = fused(nodes, accesses)
    assert [node.op for node in after] == [
        Op.CONST, Op.GRID, Op.GRID, Op.GRID, Op.AND_LESS_EQUAL, Op.ADD_MUL, Op.MUL, Op.ADD,
    ]  # fmt: skip
    assert ranges(*fused(nodes, accesses), (3, 5, 7)) == ranges(nodes, accesses, (3, 5, 7))
