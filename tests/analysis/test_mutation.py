# SPDX-License-Identifier: Apache-2.0
"""Faults seeded into the analysis: the oracle has to catch each of them.

A fault is a patch of one function. What it is caught by are launches of the corpora, the same
as the tests of soundness judge: what lets a fault pass here would let it pass there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

pytest.importorskip("cuda.bindings.nvrtc")

from kernel_corpus import oracle
from tessera.analysis import (
    Mode,
    analyze_module,
    atoms,
    bounds,
    counts,
    coverage,
    digits,
    domain,
    environment,
    families,
    guards,
    intervals,
    invariants,
    launch,
    pointers,
    provisos,
    ranges,
    registers,
    sides,
    slots,
    touches,
    transfer,
    values,
)
from tessera.analysis.polynomial import ONE, ZERO, Poly, constant

Patch = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Fault:
    name: str
    patch: Patch
    corpora: tuple[str, ...]


FAULTS: list[Fault] = []


def fault(*corpora: str) -> Callable[[Patch], Patch]:
    def register(patch: Patch) -> Patch:
        FAULTS.append(Fault(patch.__name__, patch, corpora))
        return patch

    return register


def wrap(patch: pytest.MonkeyPatch, owner: Any, name: str, change: Callable[..., Any]) -> None:
    """Replace a function by `change(original, *arguments)`."""
    original = getattr(owner, name)
    patch.setattr(owner, name, lambda *args, **kw: change(original, *args, **kw))


def swap_handler(patch: pytest.MonkeyPatch, opcode: str, change: Callable[..., Any]) -> None:
    original = transfer.HANDLERS[opcode]
    patch.setitem(transfer.HANDLERS, opcode, lambda *args: change(original, *args))


# What is touched


@fault("elementwise")
def a_store_is_overlooked(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(touches._HANDLERS, "st", lambda *_: iter(()))


@fault("elementwise")
def a_load_is_overlooked(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(touches._HANDLERS, "ld", lambda *_: iter(()))


@fault("indirect", "effects")
def an_atomic_only_reads(patch: pytest.MonkeyPatch) -> None:
    def only_read(original: Any, *args: Any) -> Iterator[Any]:
        for found in original(*args):
            yield replace(found, mode=Mode.READ) if isinstance(found, touches.Touch) else found

    original = touches._HANDLERS["red"]
    for opcode in ("atom", "red"):
        patch.setitem(touches._HANDLERS, opcode, lambda *args: only_read(original, *args))


@fault("elementwise")
def a_vector_is_one_element(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(touches, "elements", lambda operand: (operand,))


@fault("effects")
def an_asynchronous_copy_is_overlooked(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(touches._HANDLERS, "cp", lambda *_: iter(()))


@fault("pointers")
def a_choice_of_pointers_has_one_side(patch: pytest.MonkeyPatch) -> None:
    wrap(
        patch, pointers.Attribution, "targets",
        lambda original, *args: (found := original(*args)) and found[:1],
    )  # fmt: skip


@fault("pointers", "indirect")
def a_select_has_one_side(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(domain.Domain, "select", lambda self, pred, a, b: a)


@fault("pointers", "loops", "indirect")
def a_join_has_one_input(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(registers.Registers, "merge", lambda self, phi, inputs, values: values[0])


@fault("pointers")
def a_store_to_a_slot_is_overlooked(patch: pytest.MonkeyPatch) -> None:
    wrap(
        patch, slots.Slots, "words",
        lambda original, *args: (found := original(*args)) and found[:1],
    )  # fmt: skip


# Arithmetic


@fault("elementwise")
def an_addend_is_dropped(patch: pytest.MonkeyPatch) -> None:
    swap_handler(patch, "add", lambda _, r, i, ins, slot: r.operand(i, ins.operands[1]))


@fault("elementwise", "loops")
def a_term_is_dropped(patch: pytest.MonkeyPatch) -> None:
    def without_one(original: Any, *args: Any) -> Any:
        member = original(*args)
        member.terms = member.terms[:-1]
        return member

    wrap(patch, ranges, "member_of", without_one)


@fault("elementwise", "loops")
def a_product_is_its_first_factor(patch: pytest.MonkeyPatch) -> None:
    swap_handler(patch, "mad", lambda original, r, i, ins, slot: r.operand(i, ins.operands[3]))


@fault("indirect")
def numbers_never_wrap(patch: pytest.MonkeyPatch) -> None:
    def without_proviso(original: Any, self: Any, value: Any, *args: Any) -> Any:
        return values.Value(original(self, value, *args).poly, value.obligations)

    wrap(patch, domain.Domain, "interpret", without_proviso)


@fault("indirect")
def conditions_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(provisos.Provisos, "_within", lambda self, found, least, most: self._launch.one)


@fault("indirect", "elementwise")
def a_remainder_is_its_numerator(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(domain.Domain, "remainder", lambda self, poly, divisor: poly)


@fault("indirect", "elementwise")
def a_quotient_is_zero(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        domain.Domain, "quotient",
        lambda self, value, divisor, bound=None: values.Value(ZERO, value.obligations),
    )  # fmt: skip


@fault("elementwise")
def a_part_of_two_digits_is_dropped(patch: pytest.MonkeyPatch) -> None:
    def fewer(original: Any, domain: Any, digit: Any, cuts: list[int]) -> Poly:
        return original(domain, digit, [*cuts[:1], *cuts[2:]])

    wrap(patch, digits, "_in_parts", fewer)


@fault("elementwise", "indirect")
def a_maximum_is_a_minimum(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(atoms.HANDLERS, "max", atoms.HANDLERS["min"])


@fault("indirect")
def data_is_zero(patch: pytest.MonkeyPatch) -> None:
    def zero(b: Any, *_: Any) -> bounds.Range:
        return bounds.Range(b.launch.zero, b.launch.zero)

    patch.setitem(atoms.HANDLERS, "load", zero)


@fault("indirect")
def other_lanes_are_this_one(patch: pytest.MonkeyPatch) -> None:
    swap_handler(patch, "shfl", lambda _, r, i, ins, slot: r.operand(i, ins.operands[1]))


# Bounds


@fault("elementwise")
def the_last_block_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    def fewer(original: Any, self: Any, monomial: Any) -> Poly | None:
        most = original(self, monomial)
        return most.shift(-1) if most is not None and monomial[0].kind == "ctaid" else most

    wrap(patch, bounds.Bounds, "most", fewer)


@fault("elementwise", "loops")
def a_guard_is_stricter_by_one(patch: pytest.MonkeyPatch) -> None:
    def stricter(original: Any, self: Any, *args: Any) -> Any:
        limit = original(self, *args)
        return None if limit is None else self.launch.add(limit, self.launch.const(-1))

    wrap(patch, bounds.Bounds, "limit", stricter)


@fault("loops")
def a_loop_ends_one_iteration_early(patch: pytest.MonkeyPatch) -> None:
    def earlier(original: Any, self: Any, *args: Any) -> Any:
        return [replace_poly(fact, fact.poly.shift(1)) for fact in original(self, *args)]

    def replace_poly(fact: Any, poly: Poly) -> Any:
        return environment.Fact(poly, fact.proviso, fact.slack)

    wrap(patch, invariants.Invariants, "__call__", earlier)


@fault("elementwise", "loops")
def a_guard_of_the_launch_is_inverted(patch: pytest.MonkeyPatch) -> None:
    def inverted(original: Any, self: Any, env: Any) -> Any:
        guard = original(self, env)
        return None if guard is None else self._launch.negate(guard)

    wrap(patch, guards.Guards, "of", inverted)


@fault("elementwise")
def a_level_has_a_row_less(patch: pytest.MonkeyPatch) -> None:
    def shorter(original: Any, self: Any, found: Any, *args: Any) -> Any:
        box = original(self, found, *args)
        minus = found.launch.const(-1)
        levels = tuple((pitch, found.launch.add(n, minus)) for pitch, n in box.levels)
        return replace(box, levels=levels)

    wrap(patch, families.Hull, "box", shorter)


@fault("elementwise")
def a_level_has_another_pitch(patch: pytest.MonkeyPatch) -> None:
    def closer(original: Any, self: Any, found: Any, *args: Any) -> Any:
        box = original(self, found, *args)
        one = found.launch.one
        return replace(box, levels=tuple((found.launch.add(p, one), n) for p, n in box.levels))

    wrap(patch, families.Hull, "box", closer)


@fault("loops", "elementwise")
def negative_factors_are_positive(patch: pytest.MonkeyPatch) -> None:
    for module in (intervals, bounds, atoms):
        patch.setattr(module, "sign_of", lambda poly: 1)


@fault("pointers")
def a_word_of_an_array_is_never_met(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(guards.Guards, "meets", lambda self, *_: self._launch.zero)


@fault("pointers")
def the_ways_to_a_join_are_exchanged(patch: pytest.MonkeyPatch) -> None:
    def other(original: Any, self: Any, edge: Any) -> Any:
        return [pred.negated() for pred in original(self, edge)]

    wrap(patch, environment.Environments, "way", other)


@fault("indirect", "elementwise")
def remainders_of_a_range_never_come_round(patch: pytest.MonkeyPatch) -> None:
    def straight(_: Any, self: Any, inner: Any, divisor: int) -> Any:
        base = self.launch.mul(
            self.launch.floor_div(inner.lo, self.launch.const(divisor)), self.launch.const(divisor)
        )
        lo, hi = self.launch.sub(inner.lo, base), self.launch.const(divisor - 1)
        return bounds.Range(lo, hi, inner.provisos)

    wrap(patch, atoms, "window", straight)


@fault("indirect")
def a_ring_comes_round_once_at_most(patch: pytest.MonkeyPatch) -> None:
    wrap(patch, sides.Sides, "_rounds", lambda original, *args: original(*args)[:2])


@fault("indirect")
def a_ring_never_comes_round(patch: pytest.MonkeyPatch) -> None:
    wrap(patch, sides.Sides, "_rounds", lambda original, *args: original(*args)[::2])


@fault("loops")
def an_index_stays_two_below_a_variable(patch: pytest.MonkeyPatch) -> None:
    def lower(original: Any, self: Any, *args: Any) -> Any:
        found = original(self, *args)
        minus = self.launch.const(-1)
        return found and bounds.Range(found.lo, self.launch.add(found.hi, minus), found.provisos)

    wrap(patch, bounds, "linked", lower)


@fault("indirect", "elementwise")
def all_bits_are_low_ones(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(values.Value, "low_bits", lambda self, _: self.narrow[0] if self.narrow else self)


# Promises that every byte is touched


@fault("elementwise", "loops")
def a_predicate_is_no_condition_of_a_promise(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(environment.Environments, "at", lambda self, index: self.at_node(
        self._registers.reaching.node_of[index]
    ))  # fmt: skip


@fault("elementwise", "loops", "indirect")
def facts_are_no_condition_of_a_promise(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(coverage._Judge, "_restricting", lambda self, path, digits: [])


@fault("elementwise", "loops", "indirect", "effects")
def what_a_launch_must_satisfy_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(counts.Needs, "require", lambda self, condition: None)


@fault("elementwise", "loops", "indirect", "pointers")
def every_path_is_taken(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(coverage.Paths, "_always_after", lambda self, node, dominator: True)
    patch.setattr(coverage.Paths, "_is_simple", lambda self, loop: True)
    patch.setattr(environment.Env, "complete", property(lambda _: True, lambda *_: None))


@fault("elementwise", "loops", "indirect")
def gaps_do_not_count(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(counts.Counts, "run", lambda self, part, shifts, units, cuts: constant(1))
    patch.setattr(coverage._Judge, "_cut_short", lambda self, term, count, cuts: ONE)


@fault("elementwise", "loops", "indirect", "effects")
def digits_are_always_independent(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(coverage, "overlap", lambda a, b: False)
    patch.setattr(digits, "overlap", lambda a, b: False)


@fault("elementwise", "loops", "indirect")
def all_comparisons_of_a_launch_hold(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        launch.Launch, "less_equal",
        lambda self, a, b: self.one if not (a.is_const and b.is_const) else (
            self.const(int(a.value <= b.value))
        ),
    )  # fmt: skip


@pytest.mark.parametrize("seeded", FAULTS, ids=lambda seeded: seeded.name)
def test_the_oracle_catches(
    seeded: Fault,
    recorded_corpus: Callable[[str], Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seeded.patch(monkeypatch)
    for name in seeded.corpora:
        text, recorded = recorded_corpus(name)
        if oracle.judge(analyze_module(text), recorded).violations:
            return
    pytest.fail("the oracle found nothing wrong")
