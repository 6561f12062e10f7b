# SPDX-License-Identifier: Apache-2.0
"""What a launch costs on a device: measured where there are samples, else by the roofline."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tessera.planning.launches import Launch, Work
from tessera.planning.machine import Device

UNCERTAIN = 0.35  # relative spread given to a roofline estimate


@dataclass(frozen=True)
class Sample:
    """Measured launches of one class on one device: enough to tell mean and spread."""

    launch_class: str
    device: str  # Device.key, or the driver's name
    count: int
    total: float  # seconds over all launches
    squares: float = 0.0  # sum of squared seconds; 0: the spread is not known

    @property
    def mean(self) -> float:
        return self.total / self.count

    def __add__(self, other: Sample) -> Sample:
        return Sample(
            self.launch_class,
            self.device,
            self.count + other.count,
            self.total + other.total,
            self.squares + other.squares,
        )


@dataclass(frozen=True)
class Estimate:
    """Seconds of one launch. `spread` is the standard deviation of one launch."""

    time: float
    spread: float
    count: int  # launches measured; 0: an estimate

    @property
    def measured(self) -> bool:
        return self.count > 0

    @property
    def error(self) -> float:
        """Standard error of `time`: what more samples make smaller."""
        return self.spread / math.sqrt(max(1, self.count))


@dataclass(frozen=True)
class Efficiency:
    """Shares of the nominal rates that kernels reach: the assumptions behind all estimates."""

    gemm: float = 0.70  # of the tensor rate, large matrix products
    attention: float = 0.50  # of the tensor rate, fused attention of many queries
    scan: float = 0.40  # of the tensor rate, chunked state-space scans
    conv: float = 0.50
    vector: float = 0.60  # of the vector rate, everything else
    memory: float = 0.80  # of the memory bandwidth

    def compute(self, family: str) -> float:
        return float(getattr(self, family, self.vector)) if family != "memory" else self.vector


def roofline(work: Work, device: Device, efficiency: Efficiency) -> float:
    """Seconds: launch overhead, and the longer of arithmetic and memory traffic."""
    rate = device.flops.get(work.kind) or device.flops.get("f32", 0.0)
    arithmetic = work.flops / (rate * efficiency.compute(work.family)) if work.flops else 0.0
    traffic = work.memory / (device.bandwidth * efficiency.memory)
    return device.launch_overhead + max(arithmetic, traffic)


class UnknownCostError(Exception):
    """Nothing is known about a launch: not measured anywhere, and no work to estimate from."""


@dataclass
class CostModel:
    """Estimates for launches; learns from samples."""

    efficiency: Efficiency = field(default_factory=Efficiency)
    samples: dict[tuple[str, str], Sample] = field(default_factory=dict)
    enough: int = 3  # samples that are believed against the roofline

    def learn(self, samples: Iterable[Sample]) -> None:
        """Adds measurements; those of one class and device are put together."""
        for sample in samples:
            if sample.count <= 0:
                continue
            key = (sample.launch_class, sample.device)
            self.samples[key] = self.samples[key] + sample if key in self.samples else sample

    def estimate(self, launch: Launch, device: Device, devices: Iterable[Device]) -> Estimate:
        """Time of a launch on a device. Raises UnknownCostError.

        Measured there; else what it took elsewhere, scaled as the roofline says for the two
        devices; else the roofline alone.
        """
        sample = self._sample(launch.launch_class, device)
        if sample is not None and (sample.count >= self.enough or launch.work is None):
            return _measured(sample)
        elsewhere = [
            (other, found)
            for other in devices
            if other is not device and (found := self._sample(launch.launch_class, other))
        ]
        if elsewhere:
            other, found = max(elsewhere, key=lambda pair: pair[1].count)
            time = found.mean * self._ratio(launch.work, device, other)
            return Estimate(time, UNCERTAIN * time, 0)
        if launch.work is None:
            raise UnknownCostError(
                f"{launch.kernel} was never timed: run the program once under Tessera"
            )
        time = roofline(launch.work, device, self.efficiency)
        return Estimate(time, UNCERTAIN * time, 0)

    def _sample(self, launch_class: str, device: Device) -> Sample | None:
        key = self.samples.get((launch_class, device.key))
        return key or self.samples.get((launch_class, device.name))

    def _ratio(self, work: Work | None, device: Device, other: Device) -> float:
        """How much longer it takes here than there. Without knowledge, as memory traffic."""
        if work is None:
            return other.bandwidth / device.bandwidth
        return roofline(work, device, self.efficiency) / roofline(work, other, self.efficiency)


def _measured(sample: Sample) -> Estimate:
    mean = sample.mean
    variance = max(0.0, sample.squares / sample.count - mean * mean) if sample.squares else 0.0
    spread = math.sqrt(variance) if sample.squares else 0.1 * mean
    return Estimate(mean, spread, sample.count)


def merge(samples: Iterable[Sample]) -> Mapping[tuple[str, str], Sample]:
    """Samples by class and device, put together."""
    model = CostModel()
    model.learn(samples)
    return model.samples
