# SPDX-License-Identifier: Apache-2.0
"""Keeps the placement table what rules, kernels and workers make it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from tessera import protocol
from tessera.placement import (
    Finding,
    Kernel,
    Placement,
    Plans,
    Rules,
    Worker,
    make_policy,
    parse_rules,
    place,
)
from tessera.protocol.tables import MAX_CHOICES, Choice, PlacementTable
from tessera.store import KernelRecord, RulesRecord, Status


class Placer:
    """Everything that decides where kernels run, and the table that programs read."""

    def __init__(self) -> None:
        self.table = PlacementTable()
        self.kernels: dict[int, Kernel] = {}
        self.placements: dict[int, Placement] = {}
        self.workers: tuple[Worker, ...] = ()
        self.record = RulesRecord()
        self.policy = "home"
        self.plans = Plans()
        self._rules = Rules()
        self._verified: frozenset[tuple[str, str]] = frozenset()
        self._left_out: tuple[int, ...] = ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What is wrong with the rules in force: a device that has gone since they were set."""
        return self._rules.errors

    @property
    def problem(self) -> str:
        """What the table has no room for; empty when there is nothing."""
        if not self._left_out:
            return ""
        return (
            f"launches of {len(self._left_out)} kernels are not told apart, for there are more "
            f"than {MAX_CHOICES} conditions on kernels that are known: name them more narrowly"
        )

    def set_workers(self, workers: Sequence[Worker]) -> None:
        self.workers = tuple(workers)
        self._resolve_all()

    def set_rules(self, record: RulesRecord, policy: str) -> None:
        """Raises ValueError for an unknown policy."""
        make_policy(policy, Rules())
        self.record, self.policy = record, policy
        self._resolve_all()

    def set_plans(self, plans: Plans) -> None:
        """New plans, or another mode of the adaptive policy; running programs follow."""
        self.plans = plans
        self._resolve_all()

    def set_kernels(self, records: Iterable[KernelRecord]) -> None:
        """Adds kernels, or what is new about them. Those without an id are not placed."""
        changed = [kernel_of(record) for record in records if record.id is not None]
        self.kernels |= {kernel.id: kernel for kernel in changed}
        self._resolve(changed)

    def set_verified(self, kernels: frozenset[tuple[str, str]]) -> None:
        """Unknown kernels (image, name) that may move all the same, for trials of them passed."""
        self._verified = kernels
        self._resolve_all()

    def _resolve_all(self) -> None:
        self._rules = parse_rules(self.record.text, self.workers)
        self._resolve(self.kernels.values())

    def _resolve(self, kernels: Iterable[Kernel]) -> None:
        policy = make_policy(self.policy, self._rules, self.plans)
        placements = {
            kernel.id: place(self._as_trusted(kernel), policy, self.workers) for kernel in kernels
        }
        self.placements |= placements
        apart = {i: choices_of(one) for i, one in self.placements.items() if one.apart}
        self._left_out = self.table.write(
            {i: placement.device for i, placement in placements.items()},
            {i: choices for i, choices in apart.items() if choices},
        )

    def _as_trusted(self, kernel: Kernel) -> Kernel:
        if (kernel.image, kernel.name) not in self._verified:
            return kernel
        return dataclasses.replace(kernel, properties=kernel.properties & ~protocol.KERNEL_UNKNOWN)


def choices_of(placement: Placement) -> tuple[Choice, ...]:
    """As the table has them, without those at the end that change nothing."""
    apart = list(placement.apart)
    while apart and apart[-1].device == placement.device:
        apart.pop()
    return tuple(Choice(one.device, one.condition.terms) for one in apart)


def kernel_of(record: KernelRecord) -> Kernel:
    """A stored kernel as placement sees it."""
    ready = record.status == Status.READY
    waiting = "not analysed yet" if record.status == Status.PENDING else ""
    return Kernel(
        id=record.id if record.id is not None else protocol.MAX_KERNELS,
        name=record.name,
        image=record.image,
        has_summary=ready,
        reason="" if ready else (record.reason or waiting),
        properties=record.properties,
        minimum_architecture=record.minimum_architecture,
        only_architecture=record.only_architecture,
    )
