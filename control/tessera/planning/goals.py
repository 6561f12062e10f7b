# SPDX-License-Identifier: Apache-2.0
"""What the evaluation was to show, what it shows, and what its bounds leave possible."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tessera.planning import evaluation, experiment
from tessera.planning.comparison import KERNELS, PARALLEL, SINGLE
from tessera.planning.machine import load_catalogue, pick

Case = dict[str, Any]
CLAIM, CLAIM_PER_DOLLAR = 2.3, 1.6  # the paper's
HIGHER = 1.005  # times the best baseline: more is a gain
CLOSE = 0.98  # of the physical bound: nothing is much better
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


def per_dollar(rate: Callable[[Case], float]) -> Callable[[Case], float]:
    return lambda one: rate(one) / one["price"] / homogeneous(one)


def over_twins(one: Case) -> float:
    """Over two of the better GPU, where these cost more; 0: they do not."""
    twin = one["twin"]
    cheaper = twin and twin["rate"] and one["price"] < twin["price"]
    return ours(one) / float(twin["rate"]) if cheaper else 0.0


def table(cases: Sequence[Case], adapted: experiment.Adaptation) -> list[str]:
    """Goal by goal: reached or not, the figure, and what the bound says."""
    usable = [one for one in cases if ours(one) > 0]
    return [
        "## Goals",
        "",
        "| goal | reached | what was found | what the bound says |",
        "|---|---|---|---|",
        _over_baselines(usable),
        _over_coarse(usable),
        _over_dollars(usable),
        _over_twins(usable),
        _of_bound(usable),
        *_adaptation(adapted),
    ]


def _over_baselines(usable: Sequence[Case]) -> str:
    lower = [one for one in usable if ours(one) < 0.999 * baseline(one)]
    gains = [ours(one) / baseline(one) for one in usable if ours(one) > HIGHER * baseline(one)]
    equal = [one for one in usable if ours(one) <= HIGHER * baseline(one)]
    best_possible = [one for one in equal if ours(one) >= CLOSE * physical(one)]
    left = [physical(one) / ours(one) for one in equal if ours(one) < CLOSE * physical(one)]
    above = f"above by {_range(gains)} in {len(gains)}" if gains else "above in none"
    found = (f"below in {len(lower)} of {len(usable)} cases, {above}, the best coarser way itself "
             f"in {len(equal)}: the planner may choose that, too")  # fmt: skip
    said = f"in {len(best_possible)} of those {len(equal)} no way is more than 2 % better"
    if left:
        said += f"; in the other {len(left)} it leaves {_range(left)} open"
    return _row("at least the best baseline everywhere", not lower, found, said)


def _over_coarse(usable: Sequence[Case]) -> str:
    gain, where = best(usable, over_coarse(ours))
    most, there = best(usable, over_coarse(physical))
    single, at = best(usable, over_coarse(linked))
    said = (f"**proof**: at most {most:.2f}x on these traces ({name(there)})" if most < CLAIM
            else f"allows {most:.2f}x ({name(there)})")  # fmt: skip
    said += f"; estimate for one placement, with links and order, {single:.2f}x ({name(at)})"
    return _row(f"{CLAIM}x the best coarser disaggregation of the same GPUs", gain >= CLAIM,
                f"{gain:.2f}x ({name(where)})", said)  # fmt: skip


def _over_dollars(usable: Sequence[Case]) -> str:
    gain, where = best(usable, per_dollar(ours))
    most, there = best(usable, per_dollar(physical))
    possible = sum(per_dollar(physical)(one) >= CLAIM_PER_DOLLAR for one in usable)
    said = (f"**proof**: at most {most:.2f}x on these traces ({name(there)})"
            if most < CLAIM_PER_DOLLAR else
            f"at most {most:.2f}x ({name(there)}); {CLAIM_PER_DOLLAR}x is within it in {possible} "
            f"of {len(usable)} cases")  # fmt: skip
    return _row(f"{CLAIM_PER_DOLLAR}x per dollar on some pair", gain >= CLAIM_PER_DOLLAR,
                f"{gain:.2f}x the better of one GPU of the pair and two of the better one "
                f"({name(where)})", said)  # fmt: skip


def _over_twins(usable: Sequence[Case]) -> str:
    above = [one for one in usable if over_twins(one) > 1.0]
    found = f"{len(above)} cases"
    if above:
        gain, where = best(above, over_twins)
        found += f", the best {gain:.2f}x at {where['price'] / where['twin']['price']:.2f} of the "
        found += f"price ({name(where)})"
    return _row("a mixed pair above two of its better GPU, for less", bool(above), found, "")


def _of_bound(usable: Sequence[Case]) -> str:
    shares = [ours(one) / physical(one) for one in usable]
    mean = float(np.exp(np.mean(np.log(shares))))
    found = (f"{mean:.0%} of it in the geometric mean, {min(shares):.0%} to {max(shares):.0%}; "
             f"{sum(one >= 0.9 for one in shares)} of {len(shares)} cases above 90 %")  # fmt: skip
    return _row("report the physical bound and the ratio reached", True, found,
                "both GPUs always busy, links free, launches split at will")  # fmt: skip


def _range(values: Sequence[float]) -> str:
    mean = float(np.exp(np.mean(np.log(values))))
    return f"{min(values):.2f}x to {max(values):.2f}x (mean {mean:.2f}x)"


def _row(goal: str, reached: bool, found: str, said: str = "") -> str:
    return f"| {goal} | {'yes' if reached else '**no**'} | {found} | {said} |"


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
completed in it, of whatever batches side by side, are therefore at most what a linear program
gives: how often a second each launch of each batch runs on each GPU, no GPU more than all the time,
all launches of a unit as often, and the outputs made most. It has every batch that fits into both
memories together, and HiGHS solves it to optimality. Transfers, queues, the order of launches and
memory only take from that. So no way to use the pair, data parallel among them, has a higher rate
within the cost model and the batches tried, and no gain over the best coarser way is above that
bound over what the way reaches. *One placement* has the constraints of the planner's own program,
relaxed to shares. It is an estimate, no proof: transfers of a stream count one after another in it,
and the simulator lets them overlap, so that some cases are above it; so may data parallel be, which
is two placements side by side. Rates are counted over a finite time, with an error of about one
percent: 101 % of a bound is that.

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
