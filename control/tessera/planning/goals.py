# SPDX-License-Identifier: Apache-2.0
"""What the evaluation was to show, what it shows, and what its bounds leave possible."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tessera.planning import evaluation, experiment
from tessera.planning.comparison import KERNELS, PARALLEL, SINGLE
from tessera.planning.machine import load_catalogue, pick

Case = dict[str, Any]
CLAIM, CLAIM_PER_DOLLAR = 2.3, 1.6  # the paper's
WITHIN, SETTLES = 1.1, 2.0  # of the better policy; seconds


def coarse(one: Case) -> float:
    """The best coarser disaggregation, outputs a second."""
    return max(float(one["rates"][way]) for way in evaluation.COARSE)


def baseline(one: Case) -> float:
    """The best way that is not by kernel, outputs a second."""
    return max(float(one["rates"][way]) for way in (SINGLE, PARALLEL, *evaluation.COARSE))


def homogeneous(one: Case) -> float:
    """Outputs a second and dollar an hour of the best choice without unlike GPUs."""
    prices = {device.key: device.price for device in load_catalogue().values()}
    twin = one["twin"]
    others = [one["rates"][SINGLE] / prices[one["better"]]]
    others += [twin["rate"] / twin["price"]] if twin else []
    return float(max(1e-12, *others))


def over_coarse(rate: Callable[[Case], float]) -> Callable[[Case], float]:
    return lambda one: rate(one) / coarse(one) if coarse(one) else 0.0


def ours(one: Case) -> float:
    return float(one["rates"][KERNELS])


def physical(one: Case) -> float:
    return float(one["bound"])


def linked(one: Case) -> float:
    return float(one["linked_bound"])


def best(cases: Sequence[Case], what: Callable[[Case], float]) -> tuple[float, Case]:
    """The greatest value, and the case that has it."""
    return max(((what(one), one) for one in cases), key=lambda entry: entry[0])


def name(one: Case) -> str:
    return f"{one['architecture']}, {' + '.join(one['pair'])}, {one['mix']}"


def table(cases: Sequence[Case], adapted: experiment.Adaptation) -> list[str]:
    """Goal by goal: reached or not, and the figure."""
    usable = [one for one in cases if ours(one) > 0]
    lower = [one for one in usable if ours(one) < 0.999 * baseline(one)]
    gain, where = best(usable, over_coarse(ours))
    most, there = best(usable, over_coarse(physical))
    single, at = best(usable, over_coarse(linked))
    dollars, cheap = best(usable, lambda one: ours(one) / one["price"] / homogeneous(one))
    possible, _ = best(usable, lambda one: physical(one) / one["price"] / homogeneous(one))
    above = [one for one in usable if one["twin"] and ours(one) > one["twin"]["rate"]
             and one["price"] < one["twin"]["price"]]  # fmt: skip
    return [
        "## Goals",
        "",
        "| goal | | what was found |",
        "|---|---|---|",
        _row("at least the best baseline everywhere", not lower,
             f"below it in {len(lower)} of {len(usable)} cases; the planner may choose a baseline, "
             "and does where that is best"),
        _row(f"{CLAIM}x the best coarser disaggregation", gain >= CLAIM,
             f"{gain:.2f}x at most ({name(where)}). {_possible(most, there, single, at)}"),
        _row(f"{CLAIM_PER_DOLLAR}x per dollar on some pair", dollars >= CLAIM_PER_DOLLAR,
             f"{dollars:.2f}x the best of one GPU of the pair and two of the better one "
             f"({name(cheap)}); the physical bound allows {possible:.2f}x"),
        _row("a mixed pair above two of its better GPU, for less", bool(above),
             f"{len(above)} cases, listed above"),
        *_adaptation(adapted),
    ]  # fmt: skip


def _row(goal: str, reached: bool, found: str) -> str:
    return f"| {goal} | {'reached' if reached else '**not reached**'} | {found} |"


def _possible(most: float, there: Case, single: float, at: Case) -> str:
    allowed = "no placement can reach it on these traces" if most < CLAIM else "the bound allows it"
    return (f"With both GPUs always busy and free links it would be {most:.2f}x at most "
            f"({name(there)}): {allowed}. For one placement, with links, memory and order: "
            f"{single:.2f}x at most ({name(at)})")  # fmt: skip


def _adaptation(found: experiment.Adaptation) -> list[str]:
    def worst(after: float) -> float:
        rows = found.means(after)
        return max(row["adaptive"] / min(row["latency"], row["throughput"]) for row in rows)

    all_of_it, later, slowest = worst(0.0), worst(experiment.SETTLED), max(found.settling())
    return [
        _row("adaptive within 10 % of the better fixed policy in each phase", all_of_it <= WITHIN,
             f"{all_of_it:.2f}x its latency in the worst phase, {later:.2f}x when the first "
             f"{experiment.SETTLED:g} s of each phase are left out"),
        _row(f"adaptive settles in {SETTLES:g} s", slowest <= SETTLES, f"{slowest:.2f} s"),
    ]  # fmt: skip


_EXPLAINED = """\
Three figures over the best coarser disaggregation of the case, each the greatest of the pair's
request mixes: *physical*, where every launch may be shared out between both GPUs at will, nothing
has to travel, and memory is pooled; *one placement*, where each position of the folded sequence
has one GPU (or any mean of placements that do), and what it hands on, the memory it needs and the
order of launches within the units in flight count; and what was *reached* in the simulator.

Why nothing is above the physical bound: in a time T each GPU works at most T. The units that are
completed in it, times the seconds that a unit costs the busier GPU when its launches are shared
out in the best way, are therefore at most T. The best way is a linear program (a share of each
launch for each GPU, the greater load least), which HiGHS solves to optimality for every batch that
fits into both memories together. So no way to use the pair has a rate above the greatest of them,
within the cost model and the batches tried, and no gain over the best coarser way is above that
bound over what the way reaches. *One placement* is the same argument with the constraints of the
planner's own program, relaxed to shares; data parallel is two placements side by side, for which
it is no bound. Rates are counted over a finite time, with an error of about one percent: 101 % of
a bound is that.

*Unlikeness* is how much the two GPUs' matrix operations for each byte of memory traffic differ. It
says where placement can gain by giving each GPU what it is good at, and comes from data sheets
alone. Kernels reach the same share of the nominal rates on every GPU here: figures by kernel and
GPU that could tell otherwise were not looked for. What differs by the same factor for all kernels
of a GPU would move no kernel.""".split("\n")


def unlikeness(pair: Sequence[str]) -> float:
    """How much the operations for each byte of memory traffic differ between two GPUs."""
    devices = pick(load_catalogue(), pair)
    ratios = [device.flops["tensor_bf16"] / device.bandwidth for device in devices]
    return max(ratios) / min(ratios)


def bounds(cases: Sequence[Case]) -> list[str]:
    """What could be gained at most, by architecture and pair."""
    lines = [
        "## What the traces allow",
        "",
        *_EXPLAINED,
        "",
        "| architecture | pair | unlikeness | physical | one placement | reached |",
        "|---|---|---|---|---|---|",
    ]
    groups: dict[tuple[str, str], list[Case]] = {}
    for one in cases:
        if coarse(one):
            groups.setdefault((one["architecture"], " + ".join(one["pair"])), []).append(one)
    for (architecture, pair), members in groups.items():
        figures = [best(members, over_coarse(rate))[0] for rate in (physical, linked, ours)]
        cells = " | ".join(f"{figure:.2f}x" for figure in figures)
        lines.append(
            f"| {architecture} | {pair} | {unlikeness(members[0]['pair']):.1f}x | {cells} |"
        )
    return lines
