# SPDX-License-Identifier: Apache-2.0
"""Writes the evaluation: a page of tables, plots, and a trace, from plain results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tessera.planning import evaluation, experiment, goals, plots
from tessera.planning.comparison import KERNELS, PARALLEL, SINGLE, TODAY, Option
from tessera.planning.costs import Efficiency
from tessera.planning.machine import Device, LinkModel, load_catalogue, pick
from tessera.planning.models import ARCHITECTURES
from tessera.planning.models.catalogue import mixes
from tessera.planning.perfetto import write_trace
from tessera.planning.simulator import Flight, Interval, compile_job, simulate

COARSE = evaluation.COARSE
WINDOW = (0.7, 0.12)  # seconds of simulated time, from and how long, after the start-up
SHOWN = ("dense", ("H20", "L40S"), 1)  # what timeline and layer plot show


def write(results: dict[str, Any], folder: Path) -> None:
    """The whole of docs/evaluation. Raises OSError."""
    pairs, twins = (
        results["pairs"],
        {(one["architecture"], one["device"], one["mix"]): one for one in results["twins"]},
    )
    for one in pairs:
        one["twin"] = twins.get((one["architecture"], one["better"], one["mix"]))
    adapted = experiment.run()
    plots.throughput(
        folder / "throughput.png", pairs, {key: one["rate"] for key, one in twins.items()}
    )
    plots.cost(folder / "cost.png", _costs(pairs))
    plots.adaptation(folder / "adaptation.png", adapted)
    _pictures(folder)
    text = "\n".join(
        [
            _HEAD, *goals.table(pairs, adapted), "", *_summary(pairs), "", *goals.bounds(pairs), "",
            *_adaptation(adapted), "", *_assumptions(), "", *_sensitivity(results["sensitivity"], pairs), "", *_tables(pairs),
        ]
    )  # fmt: skip
    (folder / "README.md").write_text(text + "\n")


_HEAD = """# Evaluation of placements

Written by `python tools/evaluate.py`; do not edit. Every figure here comes from a model: the
roofline with the efficiencies below, the catalogue's devices and prices, and the simulator of
`tessera.planning.simulator`. Nothing here was measured on two GPUs. What the ways mean and how
launches are counted stands in [placement.md](../placement.md).

| way | meaning |
|---|---|
| single | the better GPU alone |
| data parallel | a whole replica on each GPU, each with its own best batch |
| pipeline | layers up to some depth on one GPU, the rest on the other |
| prefill/decode | one phase on each GPU (images: encoder, denoiser, decoder) |
| attention/FFN | attention or the state-space mixer on one GPU, the rest on the other, in all phases or some |
| by kernel | what the planner chooses: its own placement, or one of the above where that is best |
| today | one GPU for each kernel, and home keeps all weights and state: what the placement table and the library do now |
| bound | both GPUs always busy, links and memory free, launches split at will: nothing beats it |

Every way gets its best variant, its best batch and its best number of units in flight, from the
six options that promise most by a cheap estimate, which the simulator looks at. Placements by
kernel get twelve, as they differ in more than the estimate sees; of the best three of different
batches or units in flight, coarser ways among them, the planner then moves parts for two CPU
seconds each and keeps what the simulator finds better.
"""


def _mean(values: Iterable[float]) -> float:
    kept = [value for value in values if value > 0]
    return float(np.exp(np.mean(np.log(kept)))) if kept else 0.0


def _summary(pairs: Sequence[dict[str, Any]]) -> list[str]:
    usable = [one for one in pairs if goals.ours(one) > 0]
    own = [one for one in usable if goals.ours(one) > goals.HIGHER * goals.baseline(one)]
    beats = sorted((one for one in usable if goals.over_twins(one) > 1), key=goals.over_twins)[::-1]
    gains = "; ".join(
        f"{goals.name(one)} {goals.ours(one) / goals.baseline(one):.2f}x"
        for one in sorted(own, key=lambda one: -goals.ours(one) / goals.baseline(one))[:8]
    )
    twins = "; ".join(
        f"{goals.name(one)} {goals.over_twins(one):.2f}x at "
        f"{one['price'] / one['twin']['price']:.2f} of the price"
        for one in beats[:8]
    )
    return [
        "## Summary",
        "",
        f"- {len(pairs)} cases; in {len(pairs) - len(usable)} the model fits in no way.",
        f"- Above every baseline, data parallel among them, in {len(own)} cases"
        + (f"; the most: {gains}." if own else "."),
        f"- Above two of the better GPU at a lower price in {len(beats)} cases"
        + (f": {twins}." if beats else "."),
        *_all_untuned(pairs),
        "- Which goals are reached, and what no placement could reach, is in the table above.",
        "",
        "![Throughput of every way](throughput.png)",
        "",
        "![What a dollar buys](cost.png)",
        "",
        "![A timeline of both devices](timeline.png)",
        "",
        "The same as a trace for Perfetto or chrome://tracing: [trace.json](trace.json).",
        "",
        "![The plan over the layer sequence](layers.png)",
    ]


def _costs(pairs: Sequence[dict[str, Any]]) -> list[tuple[str, float, float, float]]:
    prices = {device.key: device.price for device in load_catalogue().values()}
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for one in pairs:
        groups.setdefault((one["architecture"], " + ".join(one["pair"])), []).append(one)
    rows = []
    for (architecture, pair), cases in groups.items():
        base = [(one["rates"][SINGLE] or 0) / prices[one["better"]] for one in cases]
        if not all(base):
            continue
        ours = [one["rates"][KERNELS] / one["price"] for one in cases]
        coarse = [max(goals.coarse(one), one["rates"][PARALLEL]) / one["price"] for one in cases]
        two = [one["twin"]["rate"] / one["twin"]["price"] if one["twin"] else 0.0 for one in cases]
        means = [
            _mean(a / b for a, b in zip(values, base, strict=True))
            for values in (ours, coarse, two)
        ]
        rows.append((f"{architecture}: {pair}", means[0], means[1], means[2]))
    return rows


def _adaptation(found: experiment.Adaptation) -> list[str]:
    lines = [
        "## Adaptation",
        "",
        f"Single requests ({experiment.PROMPT} prompt tokens, {experiment.OUTPUT} steps) to the dense "
        f"model on {' + '.join(experiment.DEVICES)}, Poisson arrivals, phases of "
        f"{experiment.SECONDS:g} s. Mean latency in ms of the requests that arrive in each phase:",
        "",
        "| phase | requests/s | latency plan | throughput plan | adaptive | adaptive / better | the same after 2 s | settled after |",
        "|---|---|---|---|---|---|---|---|",
    ]
    rows = zip(
        found.phases, found.means(), found.means(experiment.SETTLED), found.settling(), strict=True
    )
    for i, (phase, row, later, settled) in enumerate(rows, start=1):
        better = min(row["latency"], row["throughput"])
        lines.append(
            f"| {i} | {phase.rate:.1f} | {1e3 * row['latency']:.0f} | {1e3 * row['throughput']:.0f} | "
            f"{1e3 * row['adaptive']:.0f} | {row['adaptive'] / better:.2f} | "
            f"{later['adaptive'] / min(later['latency'], later['throughput']):.2f} | {settled:.2f} s |"
        )
    lines += [
        "",
        f"The adaptive policy changed its plan {len(found.switches)} times.",
        "",
        "![Adaptation](adaptation.png)",
    ]
    return lines


def _assumptions() -> list[str]:
    plain, links = Efficiency(), LinkModel()
    catalogue = load_catalogue()
    keys = list(dict.fromkeys(key for pair in evaluation.PAIRS for key in pair))
    lines = [
        "## What the figures rest on",
        "",
        f"- Shares of nominal rates: matrix products {plain.gemm:.0%}, attention of many queries "
        f"{plain.attention:.0%}, scans {plain.scan:.0%}, convolutions {plain.conv:.0%}, other "
        f"arithmetic {plain.vector:.0%}, memory {plain.memory:.0%}; the same on every GPU.",
        f"- Links: {links.efficiency:.0%} of the slower port, each direction for itself, and "
        f"{links.handoff * 1e6:.0f} us for a pair of flags between two processes on one host "
        "(6.3 us a round trip was measured under MPS).",
        "- No caches, no occupancy, no clock that falls; weights in bf16; 90 % of memory is used.",
        "- Prices are list prices of an hour and change quickly; each with its source in the "
        "catalogue.",
        "",
        "| GPU | bf16 TFLOP/s | TB/s | GB | link GB/s | $/h | sources |",
        "|---|---|---|---|---|---|---|",
    ]
    for device in pick(catalogue, keys):
        lines.append(
            f"| {device.key} | {device.flops['tensor_bf16'] / 1e12:.0f} | "
            f"{device.bandwidth / 1e12:.2f} | {device.memory / 1e9:.0f} | "
            f"{device.port_bandwidth / 1e9:.0f} | {device.price:.2f} | {device.source} |"
        )
    lines += ["", "| architecture | model |", "|---|---|"]
    lines += [f"| {name} | {model.name} |" for name, model in ARCHITECTURES.items()]
    return lines


def _sensitivity(rows: Sequence[dict[str, Any]], pairs: Sequence[dict[str, Any]]) -> list[str]:
    lines = [
        "## How sensitive the result is",
        "",
        "One assumption changed at a time: by kernel over the best coarser disaggregation, and over "
        "the best baseline of any kind. Plans are looked for under a time limit and the simulated "
        "queues are sensitive to them: rows that go up where links get slower show that noise, about "
        "ten percent, and differences below it mean nothing.",
        "",
        "| case | assumption | by kernel | / best coarser | / best baseline | of the bound |",
        "|---|---|---|---|---|---|",
    ]
    same = [(one["architecture"], one["pair"], one["mix"]) for one in rows]
    plain = [one for one in pairs if (one["architecture"], one["pair"], one["mix"]) in same]
    for one in sorted([*plain, *rows], key=goals.name):
        ours = one["rates"][KERNELS]
        lines.append(
            f"| {goals.name(one)} | {one['variation'] or 'as above'}{_untuned(one)} | {ours:,.1f} | "
            f"{_ratio(ours, goals.coarse(one))} | {_ratio(ours, goals.baseline(one))} | "
            f"{ours / one['bound']:.0%} |"
        )
    return lines


def _all_untuned(pairs: Sequence[dict[str, Any]]) -> list[str]:
    names = [goals.name(one) for one in pairs if _untuned(one)]
    return [f"- Not tuned with the simulator: {'; '.join(names)}."] if names else []


def _untuned(one: dict[str, Any]) -> str:
    """Rows of before there was tuning say so: they are lower by as much as it gains."""
    return "" if one.get("tuned", True) else " (not tuned)"


def _ratio(one: float, other: float) -> str:
    return f"{one / other:.2f}x" if other else "-"


def _tables(pairs: Sequence[dict[str, Any]]) -> list[str]:
    lines = [
        "## All cases",
        "",
        "Tokens (or images) a second. Batch: requests in a unit of work x units in flight. "
        "`0` does not fit.",
    ]
    for architecture in dict.fromkeys(one["architecture"] for one in pairs):
        lines += [
            "",
            f"### {architecture}: {ARCHITECTURES[architecture].name}",
            "",
            "| pair | mix | single | data parallel | pipeline | prefill/ decode | attention/ FFN | "
            "by kernel | batch | / coarser | / baseline | today | two of better | bound | reached |",
            "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
        ]
        digits = 2 if architecture == "diffusion" else 0
        for one in (case for case in pairs if case["architecture"] == architecture):
            rates = one["rates"]
            cells = [f"{rates[way]:,.{digits}f}" for way in (SINGLE, PARALLEL, *COARSE, KERNELS)]
            twin = f"{one['twin']['rate']:,.{digits}f} ({one['better']})" if one["twin"] else "-"
            ours = rates[KERNELS]
            lines.append(
                f"| {' + '.join(one['pair'])} | {one['mix']} | {' | '.join(cells)} | "
                f"{one['batches'][KERNELS]} | {_ratio(ours, goals.coarse(one))} | "
                f"{_ratio(ours, goals.baseline(one))} | {rates[TODAY]:,.{digits}f} | {twin} | "
                f"{one['bound']:,.{digits}f} | {ours / one['bound'] if one['bound'] else 0:.0%} |"
            )
    return lines


def _pictures(folder: Path) -> None:
    """The timeline and the layer plot of one case."""
    architecture, keys, number = SHOWN
    devices: list[Device] = pick(load_catalogue(), keys)
    case = evaluation.case_of(
        architecture, devices, mixes(architecture)[number], evaluation.Assumptions()
    )
    ways = [case.parallel(), case.disaggregated("prefill/decode")]
    plans = case.by_kernel(evaluation.EFFORT, [case.disaggregated("attention/FFN")])
    rows = []
    for answer in (*ways, replace(plans, way=KERNELS)):
        options = [option for option, _ in answer.parts]
        flights = [_flight(option) for option in options]
        trace = _window(simulate(options[0].problem, flights, 200, record=sum(WINDOW)).trace)
        labels = case.machine.labels()
        rows.append((f"{answer.way}: {answer.rate:,.0f} tokens a second", trace, labels))
    write_trace(folder / "trace.json", rows[-1][1], case.machine.labels())
    title = f"{ARCHITECTURES[architecture].name} on {' + '.join(keys)}"
    plots.timeline(folder / "timeline.png", title, rows)
    shown = plans.parts[0][0]
    plots.layers(
        folder / "layers.png", f"{title}: the plan by kernel", shown.problem, shown.assignment
    )


def _window(trace: Sequence[Interval]) -> list[Interval]:
    """What happens in WINDOW, with its begin as time zero."""
    begin, length = WINDOW
    kept = []
    for one in trace:
        first, last = max(0.0, one.begin - begin), min(length, one.end - begin)
        if last > first:
            kept.append(replace(one, begin=first, end=last))
    return kept


def _flight(option: Option) -> Flight:
    scripts = compile_job(option.problem, option.assignment)
    return Flight(scripts, option.problem.in_flight, option.problem.outputs)
