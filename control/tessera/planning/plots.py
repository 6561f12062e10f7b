# SPDX-License-Identifier: Apache-2.0
"""Plots of the evaluation. matplotlib is wanted here only, and is a development dependency."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from tessera.planning.experiment import Adaptation
from tessera.planning.perfetto import track_name
from tessera.planning.problem import Assignment, Problem
from tessera.planning.simulator import Interval

INK, GREY, GRID = "#1f2430", "#8a8f9c", "#e4e6eb"
MIXED = "mixed"  # of a stretch of launches that no role has most of
ROLES = {
    "attention": "#d1495b",
    "projection": "#edae49",
    "ffn": "#2f6f9f",
    "other": "#8a8f9c",
    MIXED: "#7b6fa8",
    "copy": "#5aa469",
}
WAYS = {
    "single": "#c9ccd4",
    "data parallel": "#a9aeba",
    "pipeline": "#c7b299",
    "prefill/decode": "#d99f6c",
    "attention/FFN": "#c76f5b",
    "by kernel": "#2f6f9f",
}
DEVICES = ("#2f6f9f", "#edae49", "#5aa469", "#d1495b")


def _style() -> None:
    plt.rcParams.update(
        {
            "font.family": "DejaVu Sans", "font.size": 9, "axes.edgecolor": GREY,
            "axes.labelcolor": INK, "text.color": INK, "xtick.color": INK, "ytick.color": INK,
            "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
            "grid.color": GRID, "axes.axisbelow": True, "figure.dpi": 130,
            "axes.titleweight": "bold", "axes.titlelocation": "left", "legend.frameon": False,
        }
    )  # fmt: skip


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, bbox_inches="tight", facecolor="white", metadata={"Software": None})
    plt.close(figure)


def timeline(
    path: Path, title: str, rows: Sequence[tuple[str, Sequence[Interval], Sequence[str]]]
) -> None:
    """Devices and links over time, one panel a placement: (name, intervals, device names)."""
    _style()
    figure, axes = plt.subplots(len(rows), 1, figsize=(10, 1.9 * len(rows) + 0.8), sharex=True)
    span = 1e3 * min(max(one.end for one in trace) for _, trace, _ in rows)
    for axis, (name, trace, labels) in zip(np.atleast_1d(axes), rows, strict=True):
        tracks = sorted({one.resource for one in trace})
        for one in trace:
            y = len(tracks) - 1 - tracks.index(one.resource)
            main = one.job in ("decode", "denoise")
            axis.barh(
                y, 1e3 * (one.end - one.begin), left=1e3 * one.begin, height=0.72,
                color=ROLES.get(one.label, GREY), alpha=1.0 if main else 0.5, linewidth=0,
            )  # fmt: skip
        axis.set_yticks(range(len(tracks)), [track_name(t, labels) for t in tracks][::-1])
        axis.set_xlim(0, span)
        axis.set_title(name, fontsize=9)
        axis.grid(axis="y", visible=False)
    np.atleast_1d(axes)[-1].set_xlabel("milliseconds")
    names = {MIXED: "several of these in a row"}
    handles = [Patch(color=color, label=names.get(role, role)) for role, color in ROLES.items()]
    handles.append(Patch(color=GREY, alpha=0.4, label="pale: prefill, else decode"))
    figure.legend(handles=handles, loc="lower center", ncol=7, fontsize=8,
                  bbox_to_anchor=(0.5, -0.04))  # fmt: skip
    figure.suptitle(title, x=0.06, ha="left", fontweight="bold")
    figure.tight_layout()
    _save(figure, path)


def throughput(path: Path, results: Sequence[dict[str, Any]], twins: dict[Any, float]) -> None:
    """Every way relative to the best single GPU: a panel for each architecture and pair."""
    _style()
    architectures = list(dict.fromkeys(one["architecture"] for one in results))
    figure, axes = plt.subplots(len(architectures), 1, figsize=(11, 2.5 * len(architectures)))
    for axis, architecture in zip(np.atleast_1d(axes), architectures, strict=True):
        mine = [one for one in results if one["architecture"] == architecture]
        for i, one in enumerate(mine):
            base = one["rates"]["single"] or max(one["rates"].values()) or 1.0
            for j, (way, color) in enumerate(WAYS.items()):
                axis.bar(i + (j - 2.5) * 0.14, one["rates"].get(way, 0.0) / base, 0.13, color=color)
            axis.plot([i - 0.44, i + 0.44], [one["bound"] / base] * 2, color=INK, lw=1.0, ls=":")
            if linked := one.get("linked_bound"):
                axis.plot([i - 0.44, i + 0.44], [linked / base] * 2, color=GREY, lw=1.0, ls="--")
            twin = twins.get((architecture, one["better"], one["mix"]), 0.0) / base
            axis.plot([i - 0.44, i + 0.44], [twin] * 2, color="#d1495b", lw=1.2)
            if i and one["pair"] != mine[i - 1]["pair"]:
                axis.axvline(i - 0.5, color=GREY, lw=0.6)
        axis.set_xticks(range(len(mine)), [_short(one["mix"]) for one in mine], fontsize=7)
        for i in range(0, len(mine), 3):
            axis.text(
                i + 1, axis.get_ylim()[1], " + ".join(mine[i]["pair"]), ha="center", fontsize=8
            )
        axis.set_xlim(-0.5, len(mine) - 0.5)
        axis.set_ylabel("x best single GPU")
        axis.set_title(architecture, pad=14)
        axis.grid(axis="x", visible=False)
    handles: list[Any] = [Patch(color=color, label=way) for way, color in WAYS.items()]
    handles.append(Line2D([], [], color="#d1495b", label="two of the better GPU"))
    handles.append(Line2D([], [], color=INK, ls=":", label="bound: both GPUs always busy"))
    handles.append(Line2D([], [], color=GREY, ls="--", label="bound: one placement, with links"))
    figure.suptitle(
        "Throughput of every way to use a pair of GPUs", x=0.06, ha="left", weight="bold"
    )
    figure.legend(
        handles=handles, loc="lower center", ncol=5, fontsize=8, bbox_to_anchor=(0.5, -0.035)
    )
    figure.tight_layout()
    _save(figure, path)


def cost(path: Path, rows: Sequence[tuple[str, float, float, float]]) -> None:
    """Outputs a dollar, best mix of each pair: (label, by kernel, best coarser, two of better)."""
    _style()
    figure, axis = plt.subplots(figsize=(9, 0.36 * len(rows) + 1.2))
    names = [row[0] for row in rows][::-1]
    series = (("two of the better GPU", 3, "#d1495b"), ("best coarser way", 2, "#d99f6c"),
              ("by kernel", 1, "#2f6f9f"))  # fmt: skip
    for j, (label, column, color) in enumerate(series):
        values = [row[column] for row in rows][::-1]
        axis.barh(np.arange(len(rows)) + (j - 1) * 0.26, values, 0.25, color=color, label=label)
    axis.set_yticks(range(len(rows)), names, fontsize=8)
    axis.set_ylim(-0.6, len(rows) - 0.4)
    axis.set_xlabel("outputs a dollar, relative to the best single GPU of the pair")
    axis.set_title("What a dollar buys (geometric mean over request mixes)")
    axis.axvline(1.0, color=INK, lw=0.8)
    axis.grid(axis="y", visible=False)
    shown, names = axis.get_legend_handles_labels()
    axis.legend(shown[::-1], names[::-1], loc="lower center", ncol=3, bbox_to_anchor=(0.5, -0.13))
    _save(figure, path)


def layers(path: Path, title: str, problem: Problem, plan: Assignment) -> None:
    """Where each kernel of the folded layer sequence runs, and what it takes there."""
    _style()
    jobs = problem.streams
    labels = problem.machine.labels()
    figure, axes = plt.subplots(len(jobs), 1, figsize=(11, 2.3 * len(jobs) + 0.6))
    for axis, job in zip(np.atleast_1d(axes), jobs, strict=True):
        left = 0.0
        for node, device in zip(problem.nodes, plan, strict=True):
            if node.job != job:
                continue
            width = 1e3 * node.count * node.times[int(device)].time
            axis.barh(
                len(labels) - 1 - int(device), width, left=left, height=0.8,
                color=ROLES.get(node.role, GREY), edgecolor="white", linewidth=0.25,
            )  # fmt: skip
            left += width
        axis.set_yticks(range(len(labels)), labels[::-1])
        axis.set_xlim(0, left)
        axis.set_title(f"{job}: launch order, width is time in a unit of work", fontsize=9)
        axis.set_xlabel("milliseconds of work")
        axis.grid(axis="y", visible=False)
    handles = [
        Patch(color=ROLES[role], label=role) for role in ROLES if role not in ("copy", "mixed")
    ]
    figure.legend(handles=handles, loc="lower center", ncol=4, bbox_to_anchor=(0.5, -0.03))
    figure.suptitle(title, x=0.06, ha="left", fontweight="bold")
    figure.tight_layout()
    _save(figure, path)


def adaptation(path: Path, found: Adaptation) -> None:
    """Latency of requests under three policies while the load steps."""
    _style()
    figure, (load, axis) = plt.subplots(
        2, 1, figsize=(10, 4.6), sharex=True, height_ratios=[1, 2.6]
    )
    begin = 0.0
    for phase in found.phases:
        load.fill_between([begin, begin + phase.seconds], phase.rate, color="#c9ccd4", lw=0)
        begin += phase.seconds
    for objective, level in found.capacity.items():
        load.axhline(level, color=INK, lw=0.8, ls="--" if objective == "latency" else ":")
        load.text(begin, level, f" {objective} plan", va="center", fontsize=8)
    load.set_ylabel("requests/s")
    load.set_title("A load that steps; dashed and dotted: what each plan sustains", fontsize=9)
    colors = {"latency": "#d1495b", "throughput": "#edae49", "adaptive": "#2f6f9f"}
    for name, one in found.served.items():
        edges = np.arange(0, begin + 0.5, 0.5)
        # Where nobody arrived there is nothing to draw.
        means = [1e3 * one.mean(a, b) or np.nan for a, b in pairwise(edges)]
        wide = 2.2 if name == "adaptive" else 1.2
        axis.plot(edges[:-1] + 0.25, means, color=colors[name], lw=wide, label=f"{name} policy")
    for when in found.switches:
        axis.axvline(when, color=INK, lw=0.6, ls=":")
    axis.set_yscale("log")
    axis.set_ylabel("latency, ms")
    axis.set_xlabel("simulated seconds; vertical lines: the adaptive policy changes its plan")
    axis.set_xlim(0, begin)
    axis.legend(loc="upper center", ncol=3, bbox_to_anchor=(0.5, 1.14))
    figure.tight_layout()
    _save(figure, path)


def _short(mix: str) -> str:
    return mix.replace(", ", "\n") if "," in mix else mix.replace(" ", "\n", 1)
