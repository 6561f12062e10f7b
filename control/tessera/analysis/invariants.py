# SPDX-License-Identifier: Apache-2.0
"""Facts that hold at a loop's header in every iteration, from the test that leads back to it.

Compilers rotate loops: the test stands at the end, and a copy of it before the loop. What the
test at the end of iteration k - 1 says holds in iteration k; that it holds in iteration 0 too
is shown from what is known before the loop, or made part of the fact as a slack.
"""

from __future__ import annotations

from tessera.analysis.bounds import Bounds
from tessera.analysis.environment import Env, Environments, Fact, Proviso
from tessera.analysis.flow import Edge, Loop
from tessera.analysis.induction import counter
from tessera.analysis.polynomial import ONE, Atom, Poly, constant, of_atom, without_extrema
from tessera.analysis.registers import Registers


class Invariants:
    """Finds the facts of loop headers; `Environments` calls it."""

    def __init__(self, registers: Registers, environments: Environments, bounds: Bounds) -> None:
        self._registers = registers
        self._environments = environments
        self._bounds = bounds
        self._launch = bounds.launch

    def __call__(self, env: Env, header: int) -> list[Fact]:
        loop = self._registers.flow.loops[header]
        if not loop.entry_edges:
            return []
        k = counter(self._registers, header)
        out: list[Fact] = []
        first, *others = [self._chain(edge, header) for edge in loop.back_edges]
        known_elsewhere = [{f.poly for e in chain for f in e.facts} for chain in others]
        for inner in first:
            for fact in inner.facts:
                if all(fact.poly in known for known in known_elsewhere):
                    out += self._from_test(fact, loop, k)
            if not others:
                for poly, proviso in inner.nonzero:
                    out += self._from_inequality(poly, proviso, loop, k)
        return out

    def _chain(self, edge: Edge, header: int) -> list[Env]:
        """The environments between the header and the end of a back edge."""
        out = []
        for env in self._environments.on_edge(edge).chain():
            if env.node == header and env.header == header:
                break
            out.append(env)
        return out

    def _before(self, poly: Poly, loop: Loop, k: Atom) -> Poly | None:
        """What a polynomial of iteration k - 1 is in terms of iteration k's counter."""
        inside = {a for a in poly.atoms if a.homes & loop.body}
        if inside != {k}:
            return None
        return poly.substitute(k, of_atom(k) - ONE)

    def _at_entry(self, poly: Poly, k: Atom) -> Poly | None:
        return poly.substitute(k, constant(0))

    def _from_test(self, fact: Fact, loop: Loop, k: Atom) -> list[Fact]:
        poly = self._before(fact.poly, loop, k)
        start = self._at_entry(poly, k) if poly is not None else None
        if poly is None or start is None or fact.slack is not None:
            return []
        needs = {fact.proviso}
        entry = self._entry_env(loop)
        if (support := entry.implies(start)) is not None:
            return [Fact(poly, Proviso(needs=frozenset(needs | {support.proviso})))]
        found = self._bounds.range(start, entry)
        if found.hi is None:
            return []
        proviso = Proviso(needs=frozenset(needs | found.provisos))
        if found.hi.hi is not None and found.hi.hi <= 0:
            return [Fact(poly, proviso)]
        return [Fact(poly, proviso, self._launch.max(self._launch.zero, found.hi))]

    def _from_inequality(self, poly: Poly, test: Proviso, loop: Loop, k: Atom) -> list[Fact]:
        """`i != n` with a step that hits n exactly: i stays on its side of n."""
        moved = self._before(poly, loop, k)
        start = self._at_entry(moved, k) if moved is not None else None
        if moved is None or start is None:
            return []
        step = (moved - start).ratio(of_atom(k))
        number = step.constant if step is not None else None
        if not number:
            return []
        towards = moved if number > 0 else -moved
        start = start if number > 0 else -start
        proviso = self._starts_below(start, abs(number), loop)
        if proviso is None:
            return []
        full = Proviso(needs=frozenset((proviso, test)))
        return [Fact(part, full) for part in without_extrema(towards.shift(abs(number)))]

    def _starts_below(self, start: Poly, step: int, loop: Loop) -> Proviso | None:
        """`start` is negative, and a multiple of `step`."""
        entry = self._entry_env(loop)
        conditions = []
        if start.content() % step:
            if not start.uniform:
                return None
            rest = self._launch.floor_mod(self._bounds.lower(start), self._launch.const(step))
            conditions.append(self._launch.equal(rest, self._launch.zero))
        if (support := entry.implies(start.shift(1))) is not None:
            return Proviso(conditions=tuple(conditions), needs=frozenset([support.proviso]))
        found = self._bounds.range(start, entry)
        if found.hi is None:
            return None
        negative = self._launch.less_equal(found.hi, self._launch.const(-1))
        if negative is self._launch.zero:
            return None
        return Proviso(conditions=(*conditions, negative), needs=found.provisos)

    def _entry_env(self, loop: Loop) -> Env:
        """What is known before the loop: on its one entry edge, or where all entries come from."""
        if len(loop.entry_edges) == 1:
            return self._environments.on_edge(loop.entry_edges[0])
        dominator = self._registers.flow.dominator[loop.header]
        assert dominator is not None
        return self._environments.at_node(dominator)
