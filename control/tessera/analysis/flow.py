# SPDX-License-Identifier: Apache-2.0
"""Pass 2: dominators, dominance frontiers and natural loops of a flat program."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from tessera.analysis.program import Program


class Edge(NamedTuple):
    """The `slot`-th way out of `source`."""

    source: int
    target: int
    condition: tuple[int, bool] | None  # predicate register, and whether it is false


@dataclass(slots=True)
class Loop:
    """A natural loop. `parent` is the header of the loop around it."""

    header: int
    body: frozenset[int]
    back_edges: tuple[Edge, ...]
    entry_edges: tuple[Edge, ...]


@dataclass(slots=True)
class Flow:
    """Only reachable nodes appear in any of these."""

    order: list[int] = field(default_factory=list)  # reverse post-order
    incoming: dict[int, list[Edge]] = field(default_factory=dict)
    outgoing: dict[int, list[Edge]] = field(default_factory=dict)
    dominator: dict[int, int | None] = field(default_factory=dict)
    frontier: dict[int, set[int]] = field(default_factory=dict)
    loops: dict[int, Loop] = field(default_factory=dict)
    tangled: set[int] = field(default_factory=set)  # entered by a retreating edge that is no loop's
    position: dict[int, int] = field(default_factory=dict)
    _around: dict[int, frozenset[int]] = field(default_factory=dict)
    _depth_in: dict[int, int] = field(default_factory=dict)
    _depth_out: dict[int, int] = field(default_factory=dict)

    def dominates(self, a: int, b: int) -> bool:
        return self._depth_in[a] <= self._depth_in[b] and self._depth_out[b] <= self._depth_out[a]

    def loops_around(self, node: int) -> frozenset[int]:
        """The headers of the loops that a node lies in."""
        found = self._around.get(node)
        if found is None:
            found = frozenset(h for h, loop in self.loops.items() if node in loop.body)
            self._around[node] = found
        return found


def analyze_flow(program: Program) -> Flow:
    flow = Flow()
    _walk(program, flow)
    _find_dominators(flow)
    _number_tree(flow)
    _find_frontiers(flow)
    _find_loops(flow)
    return flow


def _walk(program: Program, flow: Flow) -> None:
    nodes = program.nodes
    post: list[int] = []
    seen = {0}
    stack = [(0, iter(nodes[0].successors))]
    while stack:
        node, successors = stack[-1]
        for successor in successors:
            if successor not in seen:
                seen.add(successor)
                stack.append((successor, iter(nodes[successor].successors)))
                break
        else:
            post.append(node)
            stack.pop()
    flow.order = post[::-1]
    flow.position = {node: i for i, node in enumerate(flow.order)}
    flow.incoming = {node: [] for node in flow.order}
    for node in flow.order:
        pairs = zip(nodes[node].successors, nodes[node].conditions, strict=True)
        flow.outgoing[node] = edges = [Edge(node, s, c) for s, c in pairs]
        for edge in edges:
            flow.incoming[edge.target].append(edge)


def _find_dominators(flow: Flow) -> None:
    """Cooper, Harvey and Kennedy's iteration."""
    position, dominator = flow.position, flow.dominator
    dominator[flow.order[0]] = None
    changed = True
    while changed:
        changed = False
        for node in flow.order[1:]:
            best: int | None = None
            for edge in flow.incoming[node]:
                if edge.source not in dominator:
                    continue
                best = edge.source if best is None else _meet(best, edge.source, flow)
            if dominator.get(node, -1) != best:
                dominator[node] = best
                changed = True
    assert len(dominator) == len(position)


def _meet(a: int, b: int, flow: Flow) -> int:
    position, dominator = flow.position, flow.dominator
    while a != b:
        while position[a] > position[b]:
            a = _known(dominator[a])
        while position[b] > position[a]:
            b = _known(dominator[b])
    return a


def _known(node: int | None) -> int:
    assert node is not None
    return node


def _number_tree(flow: Flow) -> None:
    children: dict[int, list[int]] = {node: [] for node in flow.order}
    for node in flow.order[1:]:
        children[_known(flow.dominator[node])].append(node)
    clock = 0
    stack = [(flow.order[0], iter(children[flow.order[0]]))]
    flow._depth_in[flow.order[0]] = clock
    while stack:
        node, rest = stack[-1]
        clock += 1
        for child in rest:
            flow._depth_in[child] = clock
            stack.append((child, iter(children[child])))
            break
        else:
            flow._depth_out[node] = clock
            stack.pop()


def _find_frontiers(flow: Flow) -> None:
    flow.frontier = {node: set() for node in flow.order}
    for node in flow.order:
        edges = flow.incoming[node]
        if len(edges) < 2 and flow.dominator[node] is not None:
            continue
        stop = flow.dominator[node]
        for edge in edges:
            runner: int | None = edge.source
            while runner is not None and runner != stop:
                flow.frontier[runner].add(node)
                runner = flow.dominator[runner]


def _find_loops(flow: Flow) -> None:
    back: dict[int, list[Edge]] = {}
    for node in flow.order:
        for edge in flow.outgoing[node]:
            if flow.dominates(edge.target, node):
                back.setdefault(edge.target, []).append(edge)
            elif flow.position[edge.target] <= flow.position[node]:
                flow.tangled.add(edge.target)
    for header, edges in back.items():
        body = {header}
        stack = [edge.source for edge in edges]
        while stack:
            node = stack.pop()
            if node not in body:
                body.add(node)
                stack += [edge.source for edge in flow.incoming[node]]
        entries = [e for e in flow.incoming[header] if e not in edges]
        flow.loops[header] = Loop(header, frozenset(body), tuple(edges), tuple(entries))
