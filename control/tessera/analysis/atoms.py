# SPDX-License-Identifier: Apache-2.0
"""The range of one atom, by what it is: an index, a counter, a quotient, a choice."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tessera.analysis.environment import Direction, Env
from tessera.analysis.intervals import UNBOUNDED, Range, is_natural, sign_of
from tessera.analysis.launch import Expr
from tessera.analysis.polynomial import Atom, Poly, constant
from tessera.analysis.seats import MAX_NESTED, Excluded

if TYPE_CHECKING:
    from tessera.analysis.bounds import Bounds

Handler = Callable[["Bounds", Atom, Env, Excluded], Range]
SMALL_MASK = 1 << 16
NARROW = 16  # bits of a number that is expected to wrap around


def _index(b: Bounds, atom: Atom, env: Env, excluded: Excluded) -> Range:
    most = b.most((atom,))
    assert most is not None
    return Range(b.launch.zero, b.lower(most))


def linked(b: Bounds, index: Atom, env: Env, excluded: Excluded) -> Range | None:
    """A thread or block index as far as facts bound it by a variable: `tid < s`."""
    about = env.links().get(index, ())
    if not about or len(excluded) > MAX_NESTED:
        return None
    best = _index(b, index, env, excluded)
    for direction in about:
        key = direction.poly
        if key not in excluded:
            best = no_more_than(b, best, index, direction, env, excluded | {key})
    return best


def _k(b: Bounds, atom: Atom, env: Env, excluded: Excluded) -> Range:
    """Iterations of a loop: as many as the facts about its variables allow."""
    best = Range(b.launch.zero, None)
    if len(excluded) > MAX_NESTED:
        return best
    for key, direction in env.directions().items():
        if key not in excluded:
            best = no_more_than(b, best, atom, direction, env, excluded | {key})
    return best


def no_more_than(
    b: Bounds, best: Range, atom: Atom, direction: Direction, env: Env, excluded: Excluded
) -> Range:
    """The range of an atom, where a combination that it is part of makes it smaller."""
    key = direction.poly
    step = key.split()[0].get((atom,))
    if step is None:
        return best
    rest = key - (step.times(Poly({(atom,): 1})) or key)
    if atom in rest.atoms:
        return best
    limit = _iterations(b, direction, step, rest, env, excluded)
    if limit is None or limit.hi is None:
        return best
    hi = limit.hi if best.hi is None else b.launch.min(best.hi, limit.hi)
    return best if hi is best.hi else Range(best.lo, hi, best.provisos | limit.provisos)


def _iterations(
    b: Bounds, direction: Direction, step: Poly, rest: Poly, env: Env, excluded: Excluded
) -> Range | None:
    """From `step * k + rest` at most (at least) something: the largest k."""
    sign = sign_of(step)
    facts = direction.upper if sign > 0 else direction.lower
    if sign == 0 or not facts:
        return None
    others = b.range(rest.scale(sign), env, excluded)
    if others.lo is None:
        return None
    divisor = b.lower(step.scale(sign))
    best: Expr | None = None
    provisos = others.provisos
    for fact, content in facts:
        limit = b.limit(fact, direction, content)
        if limit is None:
            continue
        hi = b.launch.floor_div(b.launch.sub(limit, others.lo), divisor)
        tighter = hi if best is None else b.launch.min(best, hi)
        if tighter is not best:
            best, provisos = tighter, provisos | {fact.proviso}
    return Range(None, best, provisos)


def _quot(b: Bounds, atom: Atom, env: Env, excluded: Excluded) -> Range:
    inner = b.range(atom.args[0], env, excluded)
    divisor = _divisor(b, atom, env, excluded)
    if divisor.lo is divisor.hi and divisor.lo is not None:
        lo = None if inner.lo is None else b.launch.floor_div(inner.lo, divisor.lo)
        hi = None if inner.hi is None else b.launch.floor_div(inner.hi, divisor.lo)
        return Range(lo, hi, inner.provisos | divisor.provisos)
    # The value is obliged to have a numerator of at least 0 and a divisor of at least 1.
    if inner.hi is None:
        return Range(b.launch.zero, None)
    least = b.launch.one
    if divisor.lo is not None:
        least = b.launch.max(b.launch.one, divisor.lo)
    hi = b.launch.floor_div(inner.hi, least)
    return Range(b.launch.zero, hi, inner.provisos | divisor.provisos)


def _rem(b: Bounds, atom: Atom, env: Env, excluded: Excluded) -> Range:
    divisor = _divisor(b, atom, env, excluded)
    inner = b.range(atom.args[0], env, excluded)
    most = None
    if divisor.hi is not None:
        most = b.launch.add(divisor.hi, b.launch.const(-1))
    if is_natural(inner.lo) and inner.hi is not None:
        if isinstance(atom.args[1], int) and inner.lo is not b.launch.zero:
            return window(b, inner, atom.args[1])
        hi = inner.hi if most is None else b.launch.min(most, inner.hi)
        return Range(b.launch.zero, hi, inner.provisos | divisor.provisos)
    return Range(b.launch.zero, most, divisor.provisos)


def _wrap(b: Bounds, atom: Atom, env: Env, excluded: Excluded) -> Range:
    poly, bits, signed = atom.args
    inner = b.range(poly, env, excluded)
    if bits > NARROW or inner.lo is None or inner.hi is None:
        return UNBOUNDED
    below = 1 << (bits - 1) if signed else 0
    return b.moved(window(b, b.moved(inner, below), 1 << bits), -below)


def window(b: Bounds, inner: Range, divisor: int) -> Range:
    """The remainders of numbers from some place on: all of them, unless no multiple of the
    divisor lies between the ends."""
    launch = b.launch
    assert inner.lo is not None
    assert inner.hi is not None
    size = launch.const(divisor)
    first, last = launch.floor_div(inner.lo, size), launch.floor_div(inner.hi, size)
    same = launch.less_equal(last, first)
    base = launch.mul(first, size)
    lo = launch.select(same, launch.sub(inner.lo, base), launch.zero)
    hi = launch.select(same, launch.sub(inner.hi, base), launch.const(divisor - 1))
    return Range(lo, hi, inner.provisos)


def _divisor(b: Bounds, atom: Atom, env: Env, excluded: Excluded) -> Range:
    divisor = atom.args[1]
    poly = constant(divisor) if isinstance(divisor, int) else divisor
    return b.range(poly, env, excluded)


def _min(b: Bounds, atom: Atom, env: Env, excluded: Excluded) -> Range:
    x, y = (b.range(p, env, excluded) for p in atom.args)
    lo = None if x.lo is None or y.lo is None else b.launch.min(x.lo, y.lo)
    known = [bound for bound in (x.hi, y.hi) if bound is not None]
    hi = b.launch.min(*known) if len(known) == 2 else next(iter(known), None)
    return Range(lo, hi, x.provisos | y.provisos)


def _max(b: Bounds, atom: Atom, env: Env, excluded: Excluded) -> Range:
    x, y = (b.range(p, env, excluded) for p in atom.args)
    hi = None if x.hi is None or y.hi is None else b.launch.max(x.hi, y.hi)
    known = [bound for bound in (x.lo, y.lo) if bound is not None]
    lo = b.launch.max(*known) if len(known) == 2 else next(iter(known), None)
    return Range(lo, hi, x.provisos | y.provisos)


def _and(b: Bounds, atom: Atom, env: Env, excluded: Excluded) -> Range:
    x, y = (b.range(p, env, excluded) for p in atom.args)
    highs = [r.hi for r in (x, y) if r.hi is not None]
    if not highs:
        return UNBOUNDED
    hi = highs[0] if len(highs) == 1 else b.launch.min(*highs)
    return Range(b.launch.zero, hi, x.provisos | y.provisos)


def _or(b: Bounds, atom: Atom, env: Env, excluded: Excluded) -> Range:
    """At most the sum; or, where one side is small, what its bits can fill up."""
    x, y = (b.range(p, env, excluded) for p in atom.args)
    if x.hi is None or y.hi is None:
        return UNBOUNDED
    provisos = x.provisos | y.provisos
    for most, least in ((x.hi, y.hi), (y.hi, x.hi)):
        if least.hi is not None and 0 <= least.hi < SMALL_MASK:
            size = b.launch.const(1 << least.hi.bit_length())
            high = b.launch.mul(b.launch.floor_div(most, size), size)
            hi = b.launch.add(high, b.launch.const(size.value - 1))
            return Range(b.launch.zero, hi, provisos)
    return Range(b.launch.zero, b.launch.add(x.hi, y.hi), provisos)


def _pow2(b: Bounds, atom: Atom, env: Env, excluded: Excluded) -> Range:
    inner = b.range(atom.args[0], env, excluded)
    if inner.lo is None or inner.hi is None:
        return UNBOUNDED
    one = b.launch.one
    return Range(b.launch.shl(one, inner.lo), b.launch.shl(one, inner.hi), inner.provisos)


def _other_lane(b: Bounds, atom: Atom, env: Env, excluded: Excluded) -> Range:
    return b.value_range(atom.args[0], b.environments.empty)


def _sel(b: Bounds, atom: Atom, env: Env, excluded: Excluded) -> Range:
    pred, x, y = atom.args
    for side, what in ((x, pred), (y, pred.negated())):
        if env.is_made_for(what):
            return b.value_range(side, env, excluded)
    # A fact about a choice may be what bounds its sides: each fact counts once on the way.
    first = b.value_range(x, b.environments.refine(env, pred), excluded)
    second = b.value_range(y, b.environments.refine(env, pred.negated()), excluded)
    return b.hull([first, second])


def _phi(b: Bounds, atom: Atom, env: Env, excluded: Excluded) -> Range:
    return b.joins.phi(atom)


def _stored(b: Bounds, atom: Atom, env: Env, excluded: Excluded) -> Range:
    return b.joins.stored(atom)


def _loopphi(b: Bounds, atom: Atom, env: Env, excluded: Excluded) -> Range:
    return b.joins.loopphi(atom)


HANDLERS: dict[str, Handler] = {
    "tid": _index, "ctaid": _index, "cluster_ctaid": _index, "k": _k, "quot": _quot, "rem": _rem,
    "wrap": _wrap, "min": _min, "max": _max, "and": _and, "or": _or, "xor": _or, "pow2": _pow2,
    "other_lane": _other_lane, "sel": _sel, "phi": _phi, "stored": _stored, "loopphi": _loopphi,
}  # fmt: skip
