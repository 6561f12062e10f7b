# SPDX-License-Identifier: Apache-2.0
"""Pass 3: which definition of a register, or of an exactly addressed memory slot, reaches a use.

Most registers of compiled PTX are written once; the others get phi nodes on their iterated
dominance frontier, when somebody asks for them first.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable
from typing import NamedTuple

from tessera.analysis.flow import Edge, Flow
from tessera.analysis.opcodes import results
from tessera.analysis.program import Program
from tessera.native.ptx import NO_REGISTER

Variable = Hashable  # a register number, or whatever names a memory slot


class Definition(NamedTuple):
    """kind "code": the instruction at `at` writes it (its `slot`-th result).
    kind "phi": the node `at` joins several. kind "none": nothing has written it."""

    kind: str
    at: int
    slot: int
    variable: Variable


class Reaching:
    """Definitions of the variables of one program."""

    def __init__(self, program: Program, flow: Flow) -> None:
        self._flow = flow
        self.node_of: list[int] = [-1] * len(program.code)
        self._sites: dict[Variable, list[tuple[int, int]]] = {}  # (code index, slot), in order
        self._joins: dict[Variable, set[int]] = {}
        self._by_node: dict[Variable, dict[int, list[int]]] = {}
        self._slots: dict[tuple[Variable, int], int] = {}
        for node in flow.order:
            block = program.nodes[node]
            for index in range(block.begin, block.end):
                self.node_of[index] = node
                instruction = program.code[index]
                found = results(instruction)
                if found:
                    base = program.frames[index].register_base
                    for slot, register in found:
                        self.add_site(base + register, index, slot)
        self._guarded = {
            index
            for index, instruction in enumerate(program.code)
            if instruction.guard != NO_REGISTER
        }

    def add_site(self, variable: Variable, index: int, slot: int) -> None:
        """Say that the instruction at `index` writes `variable`. Before the first question only."""
        self._sites.setdefault(variable, []).append((index, slot))

    def has_sites(self, variable: Variable) -> bool:
        return variable in self._sites

    def before(self, variable: Variable, index: int) -> Definition:
        """The definition that the instruction at `index` sees."""
        sites = self._sites.get(variable)
        node = self.node_of[index]
        if sites is None:
            return Definition("none", 0, 0, variable)
        if len(sites) == 1:
            site, slot = sites[0]
            home = self.node_of[site]
            if site not in self._guarded and (
                (home == node and site < index)
                or (home != node and self._flow.dominates(home, node))
            ):
                return Definition("code", site, slot, variable)
        local = self._nodes(variable).get(node)
        if local is not None:
            place = bisect_left(local, index)
            if place:
                return self._code(variable, local[place - 1])
        return self._at_start(variable, node)

    def at_end(self, variable: Variable, node: int) -> Definition:
        """The definition at the end of a node."""
        if variable not in self._sites:
            return Definition("none", 0, 0, variable)
        local = self._nodes(variable).get(node)
        return self._code(variable, local[-1]) if local else self._at_start(variable, node)

    def inputs(self, phi: Definition) -> list[tuple[Edge, Definition]]:
        """What a phi joins, by edge."""
        edges = self._flow.incoming[phi.at]
        return [(edge, self.at_end(phi.variable, edge.source)) for edge in edges]

    def _code(self, variable: Variable, index: int) -> Definition:
        return Definition("code", index, self._slots[variable, index], variable)

    def _at_start(self, variable: Variable, node: int) -> Definition:
        joins = self._joins_of(variable)
        by_node = self._nodes(variable)
        current: int | None = node
        while current is not None:
            if current in joins:
                return Definition("phi", current, 0, variable)
            current = self._flow.dominator[current]
            if current is not None and current in by_node:
                return self._code(variable, by_node[current][-1])
        return Definition("none", 0, 0, variable)

    def _nodes(self, variable: Variable) -> dict[int, list[int]]:
        found = self._by_node.get(variable)
        if found is None:
            found = {}
            for index, slot in self._sites[variable]:
                found.setdefault(self.node_of[index], []).append(index)
                self._slots[variable, index] = slot
            for indices in found.values():
                indices.sort()
            self._by_node[variable] = found
        return found

    def _joins_of(self, variable: Variable) -> set[int]:
        joins = self._joins.get(variable)
        if joins is None:
            joins = set()
            work = list(self._nodes(variable))
            while work:
                for node in self._flow.frontier[work.pop()]:
                    if node not in joins:
                        joins.add(node)
                        work.append(node)
            self._joins[variable] = joins
        return joins
