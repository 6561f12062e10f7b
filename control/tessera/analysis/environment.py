# SPDX-License-Identifier: Apache-2.0
"""Pass 5: what is known at a place in the program, from the branches that lead there.

Facts are polynomials that are at most 0 (or at most a `slack`). Each rests on a proviso: that
the comparison behind it did not wrap. Provisos are examined only for facts that are used, in
the environment in which the comparison was made; one that relies on itself does so by
induction over the time at which comparisons are executed, which is sound.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from tessera.analysis.flow import Edge
from tessera.analysis.launch import Expr
from tessera.analysis.polynomial import Atom, Monomial, Poly, without_extrema
from tessera.analysis.predicates import Pred, facts, fold
from tessera.analysis.values import NONE, Obligation

if TYPE_CHECKING:
    from tessera.analysis.registers import Registers


INDICES = frozenset(("tid", "ctaid", "cluster_ctaid"))
VARIABLES = frozenset(("phi", "loopphi"))


@dataclass(eq=False, slots=True)
class Proviso:
    """Something that must hold for a claim: obligations, seen from `env`; conditions on the
    launch; and further provisos."""

    obligations: frozenset[Obligation] = NONE
    env: Env | None = None
    conditions: tuple[Expr, ...] = ()
    needs: frozenset[Proviso] = frozenset()
    serial: int = field(default_factory=count().__next__)  # to sort by
    _ordered: tuple[Obligation, ...] | None = None

    def in_order(self) -> tuple[Obligation, ...]:
        """The obligations in an order that is the same in every run."""
        if self._ordered is None:
            found: Iterable[Obligation] = self.obligations
            if len(self.obligations) > 1:
                found = sorted(found, key=lambda o: (o[0].order(), o[1], o[2]))
            self._ordered = tuple(found)
        return self._ordered


@dataclass(eq=False, slots=True)
class Fact:
    """`poly <= slack` (0 where there is none), provided that `proviso` holds."""

    poly: Poly
    proviso: Proviso
    slack: Expr | None = None


@dataclass(eq=False, slots=True)
class Direction:
    """All that is known about one combination of varying monomials."""

    poly: Poly
    lead: Monomial  # its largest varying monomial
    upper: list[tuple[Fact, int]] = field(default_factory=list)  # (fact, its coefficient > 0)
    lower: list[tuple[Fact, int]] = field(default_factory=list)


class Env:
    """What holds at one place. Environments form the dominator tree, refined by predicates."""

    __slots__ = (
        "_building", "_directions", "_environments", "_facts", "_leads", "_links", "_told",
        "complete", "header", "learnt", "node", "nonzero", "parent", "pending",
    )  # fmt: skip

    def __init__(
        self,
        environments: Environments,
        parent: Env | None,
        node: int,
        preds: tuple[Pred, ...],
        header: int | None = None,
    ) -> None:
        self._environments = environments
        self.parent = parent
        self.node = node
        self.header = header  # the loop whose invariants belong here
        self.nonzero: list[tuple[Poly, Proviso]] = []
        self.complete = True  # the predicates are fully told by the facts
        self.learnt = 0  # facts that the predicates tell; the rest are a loop's invariants
        self.pending = preds  # what it is made for
        self._building = False
        self._facts: list[Fact] | None = None
        self._directions: dict[Poly, Direction] | None = None
        self._leads: dict[Monomial, list[Direction]] | None = None
        self._links: dict[Atom, list[Direction]] | None = None
        self._told: frozenset[Poly] = frozenset()

    @property
    def facts(self) -> list[Fact]:
        """The facts that this environment adds to its parent's."""
        if self._facts is None:
            self._facts = []
            self._building = True
            self._environments.building += 1
            for pred in self.pending:
                self._learn(pred)
            self.learnt = len(self._facts)
            if self.header is not None:
                self._facts += self._environments.invariants(self, self.header)
            self._building = False
            self._environments.building -= 1
        return self._facts

    def is_being_built(self) -> bool:
        """Whether facts of it, or of one that it lies in, are still to come."""
        self.facts  # noqa: B018 - finds them
        return self._environments.building > 0 and any(env._building for env in self.chain())

    def _learn(self, pred: Pred) -> None:
        pred, support = self._narrowed(pred)
        learnt = facts(pred)
        self.complete = self.complete and learnt.complete
        assert self._facts is not None
        for leaf in learnt.leaves:
            assert leaf.poly is not None
            proviso = Proviso(leaf.obligations, self.parent, needs=support)
            if leaf.kind == "ne":
                own = frozenset(o for o in leaf.obligations if o[0] != leaf.poly)
                self._learn_nonzero(leaf.poly, Proviso(own, self.parent, needs=support))
                continue
            self._facts.append(Fact(leaf.poly, proviso))
            if leaf.kind == "eq":
                self._facts.append(Fact(-leaf.poly, proviso))

    def _narrowed(self, pred: Pred) -> tuple[Pred, frozenset[Proviso]]:
        """A disjunction without the parts that cannot be true here."""
        if pred.kind != "or":
            return pred, frozenset()
        left, needs = [], set()
        for part in pred.parts:
            refuted = self._refutes(part)
            if refuted is None:
                left.append(part)
            else:
                needs |= refuted
        return (left[0], frozenset(needs)) if len(left) == 1 else (pred, frozenset())

    def _refutes(self, pred: Pred) -> set[Proviso] | None:
        """What shows a leaf to be false; None when nothing does."""
        if pred.kind != "le" or pred.poly is None:
            return None
        truth, obligations = fold(pred)
        if truth is False:
            return {Proviso(obligations, self.parent)}
        fact = self.implies((-pred.poly).shift(1))
        return None if fact is None else {fact.proviso, Proviso(pred.obligations, self.parent)}

    def _learn_nonzero(self, poly: Poly, proviso: Proviso) -> None:
        assert self._facts is not None
        self.nonzero.append((poly, proviso))
        lo, hi = poly.bound()
        for sign, known in ((1, lo is not None and lo >= 0), (-1, hi is not None and hi <= 0)):
            signed = poly.scale(sign)
            support = None if known else self.implies(-signed)
            if known or support is not None:
                needs = frozenset([support.proviso]) if support else frozenset()
                full = Proviso(NONE, None, (), needs | {proviso})
                self._facts.append(Fact((-signed).shift(1), full))
                return
        self.complete = self.complete and poly.uniform

    def chain(self) -> Iterator[Env]:
        env: Env | None = self
        while env is not None:
            yield env
            env = env.parent

    def is_made_for(self, pred: Pred) -> bool:
        """Whether a predicate is among those that lead here."""
        return any(pred in env.pending for env in self.chain())

    def implies(self, poly: Poly) -> Fact | None:
        """A fact of this environment or an outer one from which `poly <= 0` follows at once."""
        parts = without_extrema(poly)
        if len(parts) > 1:
            known = [self.implies(part) for part in parts]
            needs = frozenset(fact.proviso for fact in known if fact is not None)
            return None if None in known else Fact(poly, Proviso(needs=needs))
        for env in self.chain():
            for fact in env.facts:
                if fact.slack is None:
                    rest = (poly - fact.poly).constant
                    if rest is not None and rest <= 0:
                        return fact
        return None

    def directions(self) -> dict[Poly, Direction]:
        """Facts about varying quantities, by what they are about; inner and outer ones."""
        if self._directions is not None:
            return self._directions
        outer = self.parent.directions() if self.parent else {}
        touched: dict[Poly, Direction] = {}
        for fact in self.facts:
            _enter(fact, outer, touched)
        table = {**outer, **touched} if touched else outer
        settled = self.parent is None or self.parent._directions is not None
        if settled and not self._building:
            self._directions, self._told = table, frozenset(touched)
        return table

    def told(self) -> frozenset[Poly]:
        """What the facts are about that this environment adds, once all of them are known."""
        self.directions()
        return self._told

    def directions_by_lead(self) -> dict[Monomial, list[Direction]]:
        """The directions by their largest varying monomial."""
        if self._leads is not None:
            return self._leads
        table: dict[Monomial, list[Direction]] = {}
        directions = self.directions()
        if self.parent is not None and directions is self.parent._directions:
            table = self.parent.directions_by_lead()
        else:
            for direction in directions.values():
                table.setdefault(direction.lead, []).append(direction)
        if self._directions is not None:
            self._leads = table
        return table

    def tells_of(self, atom: Atom) -> bool:
        """Whether any fact about varying quantities names an atom."""
        return any(atom in about.varying_atoms for about in self.directions())

    def links(self) -> dict[Atom, list[Direction]]:
        """By thread and block indices: what is known of one beside one variable of a loop, or one
        that the way taken decides about, and nothing else."""
        if self._links is not None:
            return self._links
        directions = self.directions()
        if self.parent is not None and directions is self.parent._directions:
            table = self.parent.links()
        else:
            table = {}
            for direction in directions.values():
                if (index := _linked_index(direction.poly)) is not None:
                    table.setdefault(index, []).append(direction)
        if self._directions is not None:
            self._links = table
        return table

    def uniform_facts(self) -> Iterator[Fact]:
        """Facts about the launch alone."""
        for env in self.chain():
            for fact in env.facts:
                if not fact.poly.split()[0]:
                    yield fact

    def uniform_nonzero(self) -> Iterator[tuple[Poly, Proviso]]:
        """Values of the launch alone that are not 0."""
        for env in self.chain():
            if env.facts is not None:
                yield from (item for item in env.nonzero if item[0].uniform)


def _linked_index(poly: Poly) -> Atom | None:
    if len(poly.terms) != 2 or any(len(monomial) != 1 for monomial in poly.terms):
        return None
    (a,), (b,) = poly.terms
    if b.kind in INDICES:
        a, b = b, a
    return a if a.kind in INDICES and _is_variable(b) else None


def _is_variable(atom: Atom) -> bool:
    """Whether an atom is a variable, or part of one."""
    if atom.kind in ("quot", "rem"):
        return any(_is_variable(inner) for inner in atom.args[0].atoms)
    return atom.kind in VARIABLES


def _enter(fact: Fact, outer: dict[Poly, Direction], touched: dict[Poly, Direction]) -> None:
    varying = fact.poly.split()[0]
    if not varying:
        return
    part = fact.poly.varying_part()
    content = part.content()
    lead = max(part.terms)
    if part.terms[lead] < 0:
        content = -content
    key = part.divide_exactly(content)
    direction = touched.get(key)
    if direction is None:
        known = outer.get(key)
        direction = touched[key] = (
            Direction(key, known.lead, list(known.upper), list(known.lower))
            if known
            else Direction(key, max(varying))
        )
    (direction.upper if content > 0 else direction.lower).append((fact, abs(content)))


class Environments:
    """The environments of one program."""

    def __init__(self, registers: Registers) -> None:
        self._registers = registers
        self._flow = registers.flow
        self._nodes: dict[int, Env] = {}
        self._refined: dict[tuple[Env, Pred], Env] = {}
        self._edges: dict[Edge, Env] = {}
        self._claims: dict[tuple[frozenset[Obligation], Env], Proviso] = {}
        self.building = 0  # environments whose facts are being found
        self.empty = Env(self, None, -1, ())
        self.invariants = self._no_invariants

    def release(self) -> None:
        """Forget all environments, which know this table: nothing is left in a cycle. No question
        may follow."""
        self.__dict__.clear()

    def claim(self, obligations: frozenset[Obligation], env: Env) -> Proviso:
        """The proviso that obligations hold at a place."""
        key = (obligations, env)
        found = self._claims.get(key)
        if found is None:
            found = self._claims[key] = Proviso(obligations, env)
        return found

    def _no_invariants(self, env: Env, header: int) -> list[Fact]:
        return []

    def at_node(self, node: int) -> Env:
        found = self._nodes.get(node)
        if found is None:
            outer = self._flow.dominator[node]
            parent = self.empty if outer is None else self.at_node(outer)
            is_header = node in self._flow.loops and node not in self._flow.tangled
            edges = self._flow.loops[node].entry_edges if is_header else self._flow.incoming[node]
            preds = self._preds(edges[0]) if len(edges) == 1 else ()
            found = Env(self, parent, node, preds, node if is_header else None)
            self._nodes[node] = found
        return found

    def on_edge(self, edge: Edge) -> Env:
        """What holds on the way along an edge."""
        found = self._edges.get(edge)
        if found is None:
            preds = self._preds(edge)
            source = self.at_node(edge.source)
            found = Env(self, source, edge.source, preds) if preds else source
            self._edges[edge] = found
        return found

    def way(self, edge: Edge) -> list[Pred]:
        """What decides, between a join's dominator and the join, that it is entered along this
        edge; as far as no loop is passed on the way."""
        around = self._flow.loops_around(edge.target)
        env, preds = self.on_edge(edge), list[Pred]()
        while env.node >= 0 and env.node != self._flow.dominator[edge.target]:
            if env.header is None and self._flow.loops_around(env.node) == around:
                preds += env.pending
            if env.parent is None:
                break
            env = env.parent
        preds += self._preds(edge) if edge.source == self._flow.dominator[edge.target] else ()
        return preds[::-1]

    def refine(self, env: Env, pred: Pred) -> Env:
        """`env`, and `pred` besides."""
        found = self._refined.get((env, pred))
        if found is None:
            found = self._refined[env, pred] = Env(self, env, env.node, (pred,))
        return found

    def at(self, index: int) -> Env:
        """What holds when the instruction at a code index is executed."""
        env = self.at_node(self._registers.reaching.node_of[index])
        guard = self._registers.guard(index)
        return env if guard is None else self.refine(env, guard)

    def _preds(self, edge: Edge) -> tuple[Pred, ...]:
        pred = self._registers.edge_predicate(edge)
        return () if pred is None else (pred,)
