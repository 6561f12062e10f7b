# SPDX-License-Identifier: Apache-2.0
"""The placement problem of what runs under the controller, and what its solution means there."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tessera.cli.common import CliError, ask


@dataclasses.dataclass
class Recording:
    """The problem of what runs under the controller."""

    problem: Any
    kernels: dict[str, Any]  # by image/name
    nodes: dict[str, Any]  # recorded.Measured by launch class of the problem
    now: Any  # the assignment in force
    edges: int

    @classmethod
    def read(cls) -> Recording:
        """From the controller. Raises ClientError, CliError when nothing has run."""
        import numpy as np

        from tessera.planning import recorded
        from tessera.planning.costs import UnknownCostError
        from tessera.planning.machine import CatalogueError, load_catalogue

        status = ask("status")["status"]
        recording = ask("recording")
        try:
            catalogue = load_catalogue()
        except CatalogueError as error:
            raise CliError(str(error)) from None
        home = next((one["devices"][0] for one in status["programs"] if one["devices"]), "")
        if not status["kernels"]:
            status["kernels"] = _last_program()
            home = next((one["name"] for one in status["devices"] if one["ordinal"] == 0), "")
        devices = recorded.devices_of(home, status["workers"], catalogue)
        measured = _all_measured(status, recording["classes"])
        edges = _edges(recording, measured)
        try:
            problem = recorded.problem(list(measured.values()), devices, edges)
        except UnknownCostError as error:
            raise CliError(str(error)) from None
        kernels = {_key(one): one for one in status["kernels"]}
        nodes = {one.key: one for one in measured.values()}
        now = [
            place_of(kernels[_key_of(nodes[node.launch_class])], nodes[node.launch_class])["device"]
            for node in problem.nodes
        ]
        return cls(problem, kernels, nodes, np.array(now), len(problem.values))

    def optimize(self, objective: str, seconds: float) -> Any:
        from tessera.planning.optimizer import Effort, optimize
        from tessera.planning.problem import InfeasibleError

        kind: Any = objective
        try:
            return optimize(self.problem, kind, Effort(seconds), [self.now])
        except InfeasibleError as error:
            raise CliError(str(error)) from None

    def title(self, node: Any) -> str:
        """What a node is called."""
        return f"{node.name} {self.nodes[node.launch_class].launch_class}".rstrip()

    def elsewhere(self, assignment: Any) -> int:
        """How many kernels have launches that are not at home."""
        pairs = zip(self.problem.nodes, assignment, strict=True)
        return len({_key_of(self.nodes[node.launch_class]) for node, device in pairs if device})

    def rows(self, made: Any) -> list[list[Any]]:
        """[image, kernel, device] of every kernel that is planned for; where its launches are to
        go apart, before that [image, kernel, device, condition], the first that holds decides.
        """
        from tessera.placement.partition import partition

        rows: list[list[Any]] = []
        for key, classes in self._placed(made).items():
            kernel = self.kernels[key]
            apart, rest = partition(classes)
            name = [kernel["image"], kernel["name"]]
            rows += [[*name, device, str(condition)] for condition, device in apart]
            rows.append([*name, rest])
        return rows

    def _placed(self, made: Any) -> dict[str, list[Any]]:
        """By kernel: its classes, or it as a whole, with the devices of a plan. What a plan does
        not know, as it was never timed, stays where it is.
        """
        from tessera.placement.partition import PlacedClass

        devices = {
            node.launch_class: int(device)
            for node, device in zip(self.problem.nodes, made.assignment, strict=True)
        }
        planned = {_key_of(self.nodes[key]) for key in devices}
        placed: dict[str, list[Any]] = {}
        for key, node in self.nodes.items():
            kernel = _key_of(node)
            if kernel not in planned:
                continue
            stays = place_of(self.kernels[kernel], node)["device"]
            one = PlacedClass(node.launch_class, devices.get(key, stays), node.launches)
            placed.setdefault(kernel, []).append(one)
        return placed

    def rules(self, made: Any) -> list[str]:
        """As lines of rules, of which the last that fits wins."""
        rows = self.rows(made)
        apart = {(image, name) for image, name, _, *condition in rows if condition}
        return [
            " ".join([name, f"image:{image[:12]}", *condition, "->", str(device or "home")])
            for image, name, device, *condition in reversed(rows)
            if device or (image, name) in apart
        ]

    def described(self, made: Any) -> dict[str, Any]:
        labels = self.problem.machine.labels()
        return {
            "objective": made.objective,
            "seconds": made.value,
            "seconds_now": value_of(self.problem, self.now, made.objective),
            "bound": made.bound,
            "gap": made.gap,
            "bounded_by": made.outcome.bottleneck(labels),
            "confidence": confidence(self.problem, made.assignment),
            "transfers_known": bool(self.edges),
            "kernels": [
                {"image": image, "name": name, "device": device}
                | ({"condition": condition[0]} if condition else {})
                for image, name, device, *condition in self.rows(made)
            ],
        }


def _key(kernel: Mapping[str, Any]) -> str:
    return f"{kernel['image']}/{kernel['name']}"


def _key_of(node: Any) -> str:
    return f"{node.image}/{node.name}"


def place_of(kernel: Mapping[str, Any], node: Any) -> Mapping[str, Any]:
    """Where a kernel's launches, or those of the node's class, run now, as `device` and `line`."""
    found: Mapping[str, Any] = kernel.get("classes", {}).get(node.launch_class, kernel)
    return found


def _last_program() -> list[dict[str, Any]]:
    """The kernels of the program that ended last, with its counters; empty when none did."""
    from tessera.service.report import with_classes

    ended = ask("history", limit=1)["programs"]
    known = {one["id"]: one for one in ask("kernels", all=False)["kernels"]}
    counted = ended[0]["counters"].get("kernels", []) if ended else []
    return [
        with_classes(known[one["id"]], one.get("classes", {}))
        | {key: value for key, value in one.items() if key != "classes"}
        for one in counted
        if one["id"] in known
    ]


Nodes = dict[tuple[int, str], Any]
"""recorded.Measured by kernel and launch class; "" for kernels that are planned for whole."""


def _all_measured(status: Mapping[str, Any], classes: Sequence[Mapping[str, Any]]) -> Nodes:
    """A node for each kernel, or for each of its classes that the recording has told apart."""
    from tessera.planning import recorded

    told: dict[int, dict[str, int]] = {}
    for one in classes:
        told.setdefault(one["kernel"], {})[one["class"]] = one["launches"]
    nodes: Nodes = {}
    for kernel in status["kernels"]:
        counted = kernel.get("classes", {})
        of_kernel = {
            name: n for name, n in told.get(kernel["id"], {}).items() if not name or name in counted
        }
        launches = sum(kernel["launches"].values())
        parts = recorded.parts(launches, of_kernel if kernel["may_move"] else {})
        for name, count in parts.items():
            nodes[kernel["id"], name] = _measured(
                len(nodes), kernel, name, count, status["workers"]
            )
    return nodes


def _measured(
    number: int,
    kernel: Mapping[str, Any],
    launch_class: str,
    launches: int,
    workers: Sequence[Mapping[str, Any]],
) -> Any:
    from tessera.planning.recorded import Measured
    from tessera.protocol import architectures

    allowed = {0}
    if kernel["may_move"]:
        only, least = kernel["only_architecture"], kernel["minimum_architecture"]
        for one in workers:
            has = one["device"]["compute_capability"]
            if one["state"] == "up" and architectures.runs_on(least, only, has):
                allowed.add(one["index"])
    place = kernel["classes"][launch_class] if launch_class else kernel
    counted = place if place["timed"] else kernel
    times = {
        int(device): (total * 1e-9, counted["timed"].get(device, 0))
        for device, total in counted["time_ns"].items()
    }
    return Measured(
        number, kernel["name"], kernel["image"], launches, times, frozenset(allowed),
        place["device"] if place["line"] else None, launch_class,
    )  # fmt: skip


def _edges(recording: Mapping[str, Any], nodes: Nodes) -> list[dict[str, int]]:
    """What nodes hand to each other: as recorded, else as the store knows of whole kernels."""
    from tessera.planning import recorded

    def number(kernel: int, launch_class: str) -> int | None:
        node = nodes.get((kernel, launch_class)) or nodes.get((kernel, ""))
        return node.id if node is not None else None

    def numbered(edges: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
        return [e for e in edges if e["source"] is not None and e["target"] is not None]

    counts: dict[int, int] = {}
    for one in recording["classes"]:
        node = number(one["kernel"], one["class"])
        if node is not None:
            counts[node] = counts.get(node, 0) + one["launches"]
    told = numbered(
        one | {"source": number(*one["source"]), "target": number(*one["target"])}
        for one in recording["class_edges"]
    )
    if told:
        return recorded.scaled(told, counts, list(nodes.values()))
    return numbered(
        one | {"source": number(one["source"], ""), "target": number(one["target"], "")}
        for one in ask("dependencies")["dependencies"]
    )


def value_of(problem: Any, assignment: Any, objective: str) -> float:
    """Seconds of all launches by an objective."""
    from tessera.planning.objective import evaluate

    outcome = evaluate(problem, assignment)
    return outcome.latency if objective == "latency" else outcome.period


def confidence(problem: Any, assignment: Any) -> float:
    """The share of the planned time that is measured where it is planned."""
    total = measured = 0.0
    for node, device in zip(problem.nodes, assignment, strict=True):
        estimate = node.times[int(device)]
        total += node.count * estimate.time
        measured += node.count * estimate.time if estimate.measured else 0.0
    return measured / total if total else 0.0
