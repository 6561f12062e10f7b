# SPDX-License-Identifier: Apache-2.0
"""plan: computes placements, explains them, compares and applies them; answers what-if."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from tessera.cli import render
from tessera.cli.common import CliError, ask, clear_errors
from tessera.cli.render import Column

RECORDING_SECONDS = 15.0  # programs give up after ten
SURE, FAIR = 0.9, 0.4  # shares of the time that is measured, for "high" and "medium"


def plan(
    objective: Annotated[
        str, typer.Option(metavar="throughput|latency", help="What to make good.")
    ] = "throughput",
    apply: Annotated[
        bool, typer.Option("--apply", help="Make it the policy; running programs follow.")
    ] = False,
    as_rules: Annotated[
        bool, typer.Option("--rules", help="Print it as rules, for `placement set`.")
    ] = False,
    compare: Annotated[
        bool, typer.Option("--compare", help="Home, what is in force, and both objectives.")
    ] = False,
    what_if: Annotated[
        list[str] | None,
        typer.Option("--what-if", metavar="DEVICES", help="A set of GPUs: H100,L40S. Repeatable."),
    ] = None,
    model: Annotated[
        str, typer.Option(help="For --what-if: dense, moe, ssm or diffusion.")
    ] = "dense",
    prompt: Annotated[float, typer.Option(help="Prompt tokens; pixels of images.")] = 1024,
    output: Annotated[float, typer.Option(help="Output tokens; steps of images.")] = 512,
    seconds: Annotated[float, typer.Option(help="How long to look for a plan.")] = 5.0,
    record: Annotated[
        int,
        typer.Option(metavar="N", help="First record what the next N launches hand to each other."),
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Plan where the kernels of a program run best.

    Times are those that programs have measured; where a kernel has not run yet, they are
    scaled from another GPU. Rules win over plans. --what-if needs no controller.

    \b
    Examples:
      tessera-ctl plan
      tessera-ctl plan --objective latency --apply
      tessera-ctl plan --record 5000
      tessera-ctl plan --compare
      tessera-ctl plan --what-if H100 --what-if H100,L40S --what-if H20,L40S
    """
    with clear_errors():
        if what_if:
            _what_if(what_if, model, prompt, output, seconds, as_json)
            return
        if objective not in ("throughput", "latency"):
            raise CliError(f"unknown objective {objective!r}: throughput or latency", 2)
        if record:
            _record(record)
        found = Recording.read()
        if compare:
            _compare(found, seconds)
            return
        made = found.optimize(objective, seconds)
        if as_json:
            print(json.dumps(found.described(made)))
        elif as_rules:
            print("\n".join(found.rules(made)))
        else:
            _explain(found, made)
        if apply:
            ask("set_plan", objective=objective, devices=found.rows(made), policy=objective)
            render.console().print(f"The plan is in force, as policy {objective}.")


@dataclasses.dataclass
class Recording:
    """The problem of what runs under the controller."""

    problem: Any
    kernels: dict[str, Any]  # by launch class
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
        measured = [_measured(one, status["workers"]) for one in status["kernels"]]
        counts = {int(kernel): count for kernel, count in recording["launches"].items()}
        edges = recorded.scaled(recording["edges"], counts, measured)
        edges = edges or ask("dependencies")["dependencies"]
        try:
            problem = recorded.problem(measured, devices, edges)
        except UnknownCostError as error:
            raise CliError(str(error)) from None
        kernels = {f"{one['image']}/{one['name']}": one for one in status["kernels"]}
        now = np.array([kernels[node.launch_class]["device"] for node in problem.nodes])
        return cls(problem, kernels, now, len(problem.values))

    def optimize(self, objective: str, seconds: float) -> Any:
        from tessera.planning.optimizer import Effort, optimize
        from tessera.planning.problem import InfeasibleError

        kind: Any = objective
        try:
            return optimize(self.problem, kind, Effort(seconds), [self.now])
        except InfeasibleError as error:
            raise CliError(str(error)) from None

    def rows(self, made: Any) -> list[list[Any]]:
        """[image, kernel, device] of every kernel that is planned for."""
        return [
            [self.kernels[node.launch_class]["image"], node.name, int(device)]
            for node, device in zip(self.problem.nodes, made.assignment, strict=True)
        ]

    def rules(self, made: Any) -> list[str]:
        return [
            f"{name} image:{image[:12]} -> {device or 'home'}"
            for image, name, device in self.rows(made)
            if device
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
                for image, name, device in self.rows(made)
            ],
        }


def _record(launches: int) -> None:
    """Waits until all programs have told the order of their launches. Raises CliError."""
    if launches < 1:
        raise CliError(f"{launches} launches cannot be recorded", 2)
    ask("record", launches=launches)
    deadline = time.monotonic() + RECORDING_SECONDS
    while ask("recording")["pending"]:
        if time.monotonic() > deadline:
            raise CliError("a program does not tell the order of its launches: is it stopped?")
        time.sleep(0.05)
    if not ask("recording")["launches"]:
        raise CliError("the programs launched nothing meanwhile: record while they work")


def _last_program() -> list[dict[str, Any]]:
    """The kernels of the program that ended last, with its counters; empty when none did."""
    ended = ask("history", limit=1)["programs"]
    known = {one["id"]: one for one in ask("kernels", all=False)["kernels"]}
    counted = ended[0]["counters"].get("kernels", []) if ended else []
    return [known[one["id"]] | one for one in counted if one["id"] in known]


def _measured(kernel: dict[str, Any], workers: Sequence[dict[str, Any]]) -> Any:
    from tessera.planning.recorded import Measured
    from tessera.protocol import architectures

    allowed = {0}
    if kernel["may_move"]:
        only, least = kernel["only_architecture"], kernel["minimum_architecture"]
        for one in workers:
            has = one["device"]["compute_capability"]
            if one["state"] == "up" and architectures.runs_on(least, only, has):
                allowed.add(one["index"])
    times = {
        int(device): (total * 1e-9, kernel["timed"].get(device, 0))
        for device, total in kernel["time_ns"].items()
    }
    return Measured(
        kernel["id"], kernel["name"], kernel["image"], sum(kernel["launches"].values()),
        times, frozenset(allowed), kernel["device"] if kernel["line"] else None,
    )  # fmt: skip


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


def _explain(found: Recording, made: Any) -> None:
    out, problem = render.console(), found.problem
    labels = problem.machine.labels()
    before, home = (value_of(problem, one, made.objective)
                    for one in (found.now, problem.everything_on(0)))  # fmt: skip
    columns = [Column("KERNEL", least=16), Column("FROM"), Column("TO"),
               Column("TIME THERE", right=True), Column("WHY")]  # fmt: skip
    rows = []
    for node, device, was in zip(problem.nodes, made.assignment, found.now, strict=True):
        if device == was:
            continue
        here, there = node.times[int(was)], node.times[int(device)]
        ratio = there.time / here.time if here.time else 0.0
        source = f"measured {there.count} times" if there.measured else "estimated"
        why = f"{ratio:.1f}x its time before, {source}; frees {labels[int(was)]}"
        rows.append([node.name, labels[int(was)], labels[int(device)],
                     render.duration(there.time * 1e9), why])  # fmt: skip
    if rows:
        render.show(out, render.table(columns, rows))
    else:
        out.print("Nothing moves: what is in force is as good as anything that was found.")
    word = "one unit alone" if made.objective == "latency" else "the busiest device or link"
    out.print(f"Plan for {made.objective}: {_time(made.value)} on {word}, "
              f"{_time(before)} now, {_time(home)} with everything at home.")  # fmt: skip
    out.print(f"No placement is better than {_time(made.bound)} (gap {made.gap:.1%}, "
              f"{made.method}, {made.seconds:.1f} s). It is bounded by "
              f"{made.outcome.bottleneck(labels)}.")  # fmt: skip
    share = confidence(problem, made.assignment)
    level = "high" if share > SURE else "medium" if share > FAIR else "low"
    out.print(f"Confidence: {level}; {share:.0%} of the planned time is measured where it is "
              "planned." + ("" if found.edges else " What kernels hand to each other is not "
              "recorded (--record): transfers are not in these figures."))  # fmt: skip


def _time(seconds: float) -> str:
    return render.duration(seconds * 1e9)


def _compare(found: Recording, seconds: float) -> None:
    problem = found.problem
    choices = [("home", problem.everything_on(0)), ("in force", found.now)]
    choices += [(one, found.optimize(one, seconds).assignment) for one in ("latency", "throughput")]
    columns = [Column("PLACEMENT"), Column("ONE UNIT ALONE", right=True),
               Column("BUSIEST", right=True), Column("ELSEWHERE", right=True)]  # fmt: skip
    rows = [
        [name, _time(value_of(problem, one, "latency")),
         _time(value_of(problem, one, "throughput")), render.count(int((one != 0).sum()), "kernel")]
        for name, one in choices
    ]  # fmt: skip
    render.show(render.console(), render.table(columns, rows))


def _what_if(
    sets: Sequence[str], model: str, prompt: float, output: float, seconds: float, as_json: bool
) -> None:
    from tessera.planning import whatif
    from tessera.planning.machine import CatalogueError
    from tessera.planning.models import ARCHITECTURES

    if model not in ARCHITECTURES:
        raise CliError(f"unknown model {model!r}: {', '.join(ARCHITECTURES)}", 2)
    try:
        rows = whatif.ask(sets, model, prompt, output, seconds)
    except CatalogueError as error:
        raise CliError(str(error), 2) from None
    if as_json:
        print(
            json.dumps([dataclasses.asdict(one) | {"per_dollar": one.per_dollar} for one in rows])
        )
        return
    unit = "IMAGES" if model == "diffusion" else "TOKENS"
    columns = [Column("DEVICES"), Column(f"{unit}/S", right=True), Column("STEP", right=True),
               Column("$/H", right=True), Column(f"{unit}/$", right=True), Column("BEST USED AS"),
               Column("BOUNDED BY")]  # fmt: skip
    table = [
        [one.devices, f"{one.rate:,.1f}" if one.rate else "does not fit", _time(one.step),
         f"{one.price:.2f}", f"{one.per_dollar:,.0f}", one.way if one.rate else "", one.bounded_by]
        for one in rows
    ]  # fmt: skip
    out = render.console()
    render.show(out, render.table(columns, table))
    out.print(f"{ARCHITECTURES[model].name}; figures of a model: docs/placement.md says which.")
