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
from tessera.cli.recording import Recording, confidence, value_of
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
        rows.append([found.title(node), labels[int(was)], labels[int(device)],
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
         _time(value_of(problem, one, "throughput")), render.count(found.elsewhere(one), "kernel")]
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
