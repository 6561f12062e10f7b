# SPDX-License-Identifier: Apache-2.0
"""What sets of GPUs would do for a known model, before anybody buys them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tessera.planning.comparison import KERNELS, Case
from tessera.planning.costs import CostModel
from tessera.planning.machine import connect, load_catalogue, pick
from tessera.planning.models import workload
from tessera.planning.optimizer import Effort
from tessera.planning.problem import Options

BATCHES = (16, 32, 64, 128, 256, 512)
COARSE = ("pipeline", "prefill/decode", "attention/FFN")


@dataclass(frozen=True)
class Row:
    """One set of devices."""

    devices: str
    way: str  # the best way to use them
    rate: float  # outputs a second; 0: the model does not fit
    step: float  # seconds of a unit of work: what a user waits for the next token
    price: float  # dollars an hour
    bounded_by: str

    @property
    def per_dollar(self) -> float:
        """Outputs for a dollar."""
        return self.rate * 3600 / self.price if self.price else 0.0


def ask(
    sets: Sequence[str], architecture: str, prompt: float, output: float, seconds: float = 2.0
) -> list[Row]:
    """A row for each set, written `H100,L40S`. Raises CatalogueError, KeyError."""
    catalogue = load_catalogue()
    batches = (1, 2, 4) if architecture == "diffusion" else BATCHES
    rows = []
    for keys in sets:
        devices = pick(catalogue, keys.split(","))
        machine = connect(devices)
        case = Case(
            lambda batch: workload(architecture, prompt, output, batch),
            batches, machine, CostModel(), Options(),
        )  # fmt: skip
        given = [case.single(), case.parallel()]
        if machine.size > 1:
            given += [case.disaggregated(way) for way in COARSE]
        best = case.by_kernel(Effort(seconds, 0.01), given) if machine.size > 1 else given[0]
        way = next((one.way for one in given if one.result is best.result), KERNELS)
        bounded = ""
        if best.parts:
            from tessera.planning.objective import evaluate

            option = best.parts[0][0]
            outcome = evaluate(option.problem, option.assignment)
            bounded = (
                outcome.bottleneck(machine.labels()) if len(best.parts) == 1 else "all devices"
            )
        latency = best.result.latency if best.result else 0.0
        rows.append(Row(keys, way, best.rate, latency, machine.price, bounded))
    return rows
