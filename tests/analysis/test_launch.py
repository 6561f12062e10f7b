# SPDX-License-Identifier: Apache-2.0
"""Launch expressions: whatever the simplifier makes of them, their value stays the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tessera.analysis import Flag, KernelSummary, Mode, Property, evaluate
from tessera.analysis.assemble import assemble
from tessera.analysis.launch import Expr, Launch, Op
from tessera.analysis.ranges import ByteRange

VARIABLES = 3


@dataclass(frozen=True)
class Both:
    """An expression and, beside it, what it should be worth."""

    expr: Expr
    value: int | None  # None: undefined


def naive(expr: Expr, values: list[int]) -> int | None:
    """The value of an expression, node by node; None when undefined."""
    if expr.op is Op.CONST:
        return expr.value
    if expr.op is Op.GRID:
        return values[expr.literals[0]]
    args = [naive(a, values) for a in expr.args]
    if expr.op is Op.SELECT:
        return None if args[0] is None else args[1] if args[0] else args[2]
    if any(a is None for a in args):
        return None
    a, b = (*args, 0, 0)[:2]
    assert a is not None and b is not None
    if expr.op in (Op.FLOOR_DIV, Op.FLOOR_MOD) and b == 0:
        return None
    return _OPS[expr.op](a, b)


_OPS: dict[Op, Callable[[int, int], int]] = {
    Op.ADD: lambda a, b: a + b, Op.SUB: lambda a, b: a - b, Op.MUL: lambda a, b: a * b,
    Op.FLOOR_DIV: lambda a, b: a // b, Op.FLOOR_MOD: lambda a, b: a % b, Op.MIN: min, Op.MAX: max,
    Op.LESS_EQUAL: lambda a, b: int(a <= b), Op.EQUAL: lambda a, b: int(a == b),
    Op.NOT_EQUAL: lambda a, b: int(a != b), Op.NOT: lambda a, b: int(a == 0),
    Op.AND: lambda a, b: a & b, Op.OR: lambda a, b: a | b,
}  # fmt: skip


def build(launch: Launch, tree: Any, values: list[int]) -> Both:
    """Build a random tree through the simplifier, and compute it directly."""
    if isinstance(tree, int):
        return Both(launch.const(tree), tree)
    if isinstance(tree, str):
        place = int(tree[1:])
        bound = (min(values[place], 0), max(values[place], 100))
        return Both(launch.leaf(Op.GRID, (place, 0, 0), bound), values[place])
    op, *parts = tree
    built = [build(launch, part, values) for part in parts]
    a, b = built[0], built[1]
    maker = getattr(launch, op)
    if op == "select":
        condition = launch.less_equal(a.expr, b.expr)
        c = built[2]
        if a.value is None or b.value is None:
            worth = None
        else:
            worth = c.value if a.value <= b.value else a.value
        return Both(launch.select(condition, c.expr, a.expr), worth)
    expr = maker(a.expr, b.expr)
    if a.value is None or b.value is None:
        return Both(expr, None)
    if op in ("floor_div", "floor_mod") and b.value == 0:
        return Both(expr, None)
    return Both(expr, _OPS[_NAMES[op]](a.value, b.value))


_NAMES = {
    "add": Op.ADD, "sub": Op.SUB, "mul": Op.MUL, "floor_div": Op.FLOOR_DIV,
    "floor_mod": Op.FLOOR_MOD, "min": Op.MIN, "max": Op.MAX, "less_equal": Op.LESS_EQUAL,
    "equal": Op.EQUAL, "not_equal": Op.NOT_EQUAL,
}  # fmt: skip

LEAVES = st.one_of(
    st.integers(-9, 9), st.sampled_from([f"v{i}" for i in range(VARIABLES)]),
    st.sampled_from([16, 64, -64, 1000]),
)  # fmt: skip
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(sorted(_NAMES)), inner, inner),
        st.tuples(st.just("select"), inner, inner, inner),
    ),
    max_leaves=12,
)


@settings(max_examples=600, deadline=None)
@given(TREES, st.lists(st.integers(-50, 100), min_size=VARIABLES, max_size=VARIABLES))
def test_simplification_keeps_values(tree: Any, values: list[int]) -> None:
    both = build(Launch(), tree, values)
    if both.value is not None:
        assert naive(both.expr, values) == both.value


@settings(max_examples=400, deadline=None)
@given(TREES, st.lists(st.integers(-50, 100), min_size=VARIABLES, max_size=VARIABLES))
def test_static_bounds_hold(tree: Any, values: list[int]) -> None:
    both = build(Launch(), tree, values)
    if both.value is not None:
        assert both.expr.lo is None or both.expr.lo <= both.value
        assert both.expr.hi is None or both.value <= both.expr.hi


def test_what_simplification_is_for() -> None:
    launch = Launch()
    n = launch.leaf(Op.PARAMETER, (0, 4, 1), (-(1 << 31), (1 << 31) - 1))
    threads = launch.leaf(Op.GRID, (0, 0, 0), (1, 1000))
    last = launch.min(launch.add(n, launch.const(-1)), launch.add(threads, launch.const(-1)))
    end = launch.add(launch.mul(last, launch.const(4)), launch.const(4))
    assert end is launch.mul(launch.min(n, threads), launch.const(4))
    assert launch.min(threads, launch.const(2000)) is threads
    assert launch.sub(launch.add(n, launch.const(3)), n) is launch.const(3)
    assert launch.floor_div(launch.mul(n, launch.const(12)), launch.const(4)) is launch.mul(
        n, launch.const(3)
    )


def test_numbers_beyond_64_bits_are_unbounded() -> None:
    launch = Launch()
    large = launch.min(launch.leaf(Op.GRID, (0, 0, 0), (1, None)), launch.const(1 << 70))
    mode, flags = Mode.READ, Flag(0)
    found = ByteRange(mode, flags, 0, None, launch.zero, launch.const(1 << 70), 0, "")
    nodes, accesses = assemble([found, replace(found, hi=large)], [1])
    summary = KernelSummary("k", Property(0), tuple(nodes), tuple(accesses), (), 8, 80)
    assert all(r.unbounded for r in evaluate(summary, 1, 1, bytes(8)))
