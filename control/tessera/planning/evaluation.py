# SPDX-License-Identifier: Apache-2.0
"""All cases of the evaluation: architectures, pairs of GPUs, request mixes. Plain data out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tessera.planning.comparison import KERNELS, PARALLEL, SINGLE, TODAY, Answer, Case
from tessera.planning.costs import CostModel, Efficiency
from tessera.planning.machine import Device, LinkModel, connect
from tessera.planning.models import ARCHITECTURES, Mix, workload
from tessera.planning.models.catalogue import mixes
from tessera.planning.optimizer import Effort
from tessera.planning.problem import Options

PAIRS = (
    ("H100", "L40S"),
    ("A100", "L40S"),
    ("H100", "RTX PRO 6000"),
    ("H20", "L40S"),
    ("A100", "A10"),
)
COARSE = ("pipeline", "prefill/decode", "attention/FFN")
EFFORT = Effort(seconds=0.7, gap=0.01)


@dataclass(frozen=True)
class Assumptions:
    """What the figures rest on, beside the catalogue."""

    links: LinkModel = field(default_factory=LinkModel)
    efficiency: Efficiency = field(default_factory=Efficiency)

    def costs(self) -> CostModel:
        return CostModel(self.efficiency)


def cases(
    architectures: Sequence[str] = tuple(ARCHITECTURES), pairs: Sequence[tuple[str, str]] = PAIRS
) -> Iterator[tuple[str, tuple[str, str], Mix]]:
    for architecture in architectures:
        for pair in pairs:
            for mix in mixes(architecture):
                yield architecture, pair, mix


def case_of(
    architecture: str,
    devices: Sequence[Device],
    mix: Mix,
    assumptions: Assumptions,
    options: Options | None = None,
) -> Case:
    return Case(
        lambda batch: workload(architecture, mix.prompt, mix.output, batch),
        mix.batches,
        connect(devices, assumptions.links),
        assumptions.costs(),
        options,
    )


def ways(case: Case) -> list[Answer]:
    """Everything but placement by kernel."""
    return [case.single(), case.parallel(), *(case.disaggregated(way) for way in COARSE)]


def run_case(
    architecture: str, devices: Sequence[Device], mix: Mix, assumptions: Assumptions
) -> dict[str, Any]:
    """Rates of every way, in outputs a second, and the bound."""
    case = case_of(architecture, devices, mix, assumptions)
    found = ways(case)
    best = case.by_kernel(EFFORT, found)
    held = Options(tie_kernels=True, home_holds_all=True)
    today = case_of(architecture, devices, mix, assumptions, held).by_kernel(EFFORT, (), TODAY)
    single = found[0]
    better = int(single.parts[0][0].assignment[0]) if single.parts else 0
    own = bool(best.plan is not None)
    return {
        "architecture": architecture,
        "pair": [device.key for device in devices],
        "mix": mix.name,
        "rates": {one.way: one.rate for one in (*found, best, today)},
        "batches": {one.way: one.batch for one in (*found, best, today)},
        "bound": case.bound(),
        "linked_bound": case.linked_bound(),
        "price": sum(device.price for device in devices),
        "better": devices[better].key,
        "busy": best.result.busy.tolist() if best.result else [],
        "gap": best.plan.gap if best.plan else None,
        "own_plan": own,
    }


def run_twins(
    architecture: str, device: Device, mix: Mix, assumptions: Assumptions
) -> dict[str, Any]:
    """Two of one GPU, used in the best coarser way."""
    case = case_of(architecture, [device, device], mix, assumptions)
    best = max(ways(case), key=lambda one: one.rate)
    return {
        "architecture": architecture,
        "device": device.key,
        "mix": mix.name,
        "rate": best.rate,
        "way": best.way,
        "price": 2 * device.price,
    }


__all__ = [
    "ARCHITECTURES",
    "COARSE",
    "KERNELS",
    "PAIRS",
    "PARALLEL",
    "SINGLE",
    "TODAY",
    "Assumptions",
    "case_of",
    "cases",
    "run_case",
    "run_twins",
    "ways",
]
