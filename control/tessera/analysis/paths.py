# SPDX-License-Identifier: Apache-2.0
"""When exactly a place is reached: the facts that are not only necessary for it but sufficient.

Walks up the dominator tree. A branch must be told completely by facts; a join must lie on every
way from its dominator; a loop on the way must have one exit, so that it goes on for exactly as
long as its invariant holds.
"""

from __future__ import annotations

from dataclasses import dataclass

from tessera.analysis.environment import Env, Environments, Fact
from tessera.analysis.flow import Flow, Loop


@dataclass(frozen=True, slots=True)
class Path:
    """The place is reached by every thread, in every iteration, for which all facts hold."""

    facts: tuple[Fact, ...]
    loops: tuple[int, ...]  # headers of the loops around the place


class Paths:
    """Paths to the nodes of one program."""

    def __init__(self, flow: Flow, environments: Environments) -> None:
        self._flow = flow
        self._environments = environments
        self._known: dict[int, Path | None] = {}
        self._doubts: dict[int, int] = {}
        self._after: dict[int, set[int]] | None = None

    def to(self, env: Env) -> Path | None:
        """The path to a place; None when its facts do not say all."""
        facts: list[Fact] = []
        place: Env | None = env
        node_env = self._environments.at_node(env.node)
        while place is not None and place is not node_env:  # refined by a predicate
            facts += place.facts
            if not place.complete:
                return None
            place = place.parent
        path = self._to_node(env.node)
        return None if path is None else Path((*path.facts, *facts), path.loops)

    def doubt(self, env: Env) -> int | None:
        """The node at whose end it is decided, by who knows what, whether a place without a path
        is reached; None: at the place itself."""
        return self._doubts.get(env.node)

    def _to_node(self, node: int) -> Path | None:
        if node not in self._known:
            self._known[node] = self._walk(node)
        return self._known[node]

    def _walk(self, node: int) -> Path | None:
        facts: list[Fact] = []
        loops: list[int] = []
        current = node
        while True:
            loop = self._flow.loops.get(current)
            if loop is not None and node in loop.body:
                if not self._is_simple(loop):
                    self._doubts[node] = loop.back_edges[0].source
                    return None
                facts += self._invariants(current)
                loops.append(current)
            outer = self._flow.dominator[current]
            if outer is None:
                return Path(tuple(facts), tuple(loops))
            left = self._left(outer, current, node)
            if left is not None:
                if not self._is_simple(left):
                    self._doubts[node] = left.back_edges[0].source
                    return None
                current = left.header
                continue
            edges = loop.entry_edges if loop is not None else self._flow.incoming[current]
            if len(edges) == 1:
                env = self._environments.at_node(current)
                facts += env.facts[: env.learnt]
                if not env.complete:
                    self._doubts[node] = edges[0].source
                    return None
            elif not self._always_after(current, outer):
                self._doubts[node] = outer
                return None
            current = outer

    def _invariants(self, header: int) -> list[Fact]:
        env = self._environments.at_node(header)
        return env.facts[env.learnt :]

    def _left(self, outer: int, inner: int, place: int) -> Loop | None:
        """The outermost loop that is left on the way from `outer` to `inner`."""
        found: Loop | None = None
        for loop in self._flow.loops.values():
            leaves = outer in loop.body and inner not in loop.body and place not in loop.body
            if leaves and (found is None or found.header in loop.body):
                found = loop
        return found

    def _is_simple(self, loop: Loop) -> bool:
        """One way round, one way out, and the test for it known."""
        exits = [
            edge
            for node in loop.body
            for edge in self._flow.outgoing[node]
            if edge.target not in loop.body
        ]
        ends = any(not self._flow.outgoing[node] for node in loop.body)
        return len(exits) == 1 and len(loop.back_edges) == 1 and not ends

    def _always_after(self, node: int, dominator: int) -> bool:
        """Whether every way from `dominator` leads through `node`."""
        if self._after is None:
            self._after = self._post_dominators()
        return node in self._after[dominator]

    def _post_dominators(self) -> dict[int, set[int]]:
        order = self._flow.order[::-1]
        everything = set(order)
        after = dict.fromkeys(order, everything)
        changed = True
        while changed:
            changed = False
            for node in order:
                successors = [after[e.target] for e in self._flow.outgoing[node]]
                new = set.intersection(*successors) | {node} if successors else {node}
                if new != after[node]:
                    after[node] = new
                    changed = True
        return after
