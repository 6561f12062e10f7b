# SPDX-License-Identifier: Apache-2.0
"""kernels and show."""

from __future__ import annotations

import fnmatch
import json
import time
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from tessera.cli import catalogue, kernel_table, render
from tessera.cli.common import clear_errors
from tessera.cli.render import Column


def complete_kernel(incomplete: str) -> list[str]:
    """Names for shell completion; nothing when that is not to be had quickly."""
    try:
        return [k["name"] for k in catalogue.all_kernels() if k["name"].startswith(incomplete)]
    except Exception:  # a completion that fails must not garble the user's line
        return []


def kernels(
    pattern: Annotated[
        str, typer.Argument(metavar="PATTERN", help="Only names that fit; * and ? as in a shell.")
    ] = "*",
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Also kernels that no program has launched.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON list.")] = False,
) -> None:
    """List the kernels that are known, where they run, and why.

    \b
    Examples:
      tessera-ctl kernels
      tessera-ctl kernels 'triton_*'
      tessera-ctl kernels --all --json
    """
    with clear_errors():
        found = [
            kernel
            for kernel in catalogue.all_kernels(everything)
            if fnmatch.fnmatchcase(kernel["name"], pattern)
        ]
    if as_json:
        print(json.dumps(found))
        return
    out = render.console()
    if not found:
        out.print("No kernels are known." if pattern == "*" else f"No kernel fits {pattern!r}.")
        return
    columns = [
        Column("ID", right=True),
        Column("KERNEL", least=20),
        Column("IMAGE", drop=1),
        Column("GRADE", drop=2),
        Column("TRIALS", drop=3),
        Column("ON"),
        Column("WHY", least=20, prose=True),
    ]
    render.show(out, render.table(columns, [_row(kernel) for kernel in found]))


def _row(kernel: dict[str, Any]) -> list[Any]:
    return [
        "" if kernel["id"] is None else kernel["id"],
        render.one_line(kernel["name"]),
        kernel["image"][:8],
        kernel.get("grade_word", ""),
        kernel.get("trials", ""),
        _place(kernel),
        render.one_line(kernel_table.reasons(kernel)),
    ]


def _place(kernel: dict[str, Any]) -> Text:
    moves = any(one["device"] for one in (kernel, *kernel.get("apart", [])))
    return Text(kernel_table.places(kernel), style="green" if moves else "")


def show(
    kernel: Annotated[
        str,
        typer.Argument(
            metavar="KERNEL",
            help="A name, the start of one, a glob, or a number from tessera-ctl kernels.",
            autocompletion=complete_kernel,
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Show what one kernel reads and writes, and where it runs.

    \b
    Examples:
      tessera-ctl show matmul_kernel
      tessera-ctl show 17
    """
    with clear_errors():
        found = catalogue.details(catalogue.find(kernel))
    if as_json:
        print(json.dumps(found))
        return
    out = render.console()
    lines = _facts(found["kernel"], found["image"])
    width = max(len(name) for name, _ in lines)
    for name, value in lines:
        line = _wrapped(f"{name:<{width}}  {value}", out)
        out.print(Text.assemble((line[:width], "bold"), line[width:]), soft_wrap=True)
    explanation = _explanation(found["kernel"])
    if explanation:
        out.print()
        text = "\n".join(_wrapped(line, out) for line in explanation.split("\n"))
        out.print(Text(text), soft_wrap=True)


def _wrapped(line: str, out: Console) -> str:
    """Broken between words for a terminal, whole in a pipe."""
    return render.wrapped(line, out.width) if out.is_terminal else line


def _facts(kernel: dict[str, Any], image: dict[str, Any] | None) -> list[tuple[str, str]]:
    facts = [("Kernel", kernel["name"])]
    if kernel["id"] is not None:
        facts.append(("Number", str(kernel["id"])))
    facts += _place_facts(kernel)
    if kernel["status"] == "ready":
        facts.append(("May move", "yes" if kernel["may_move"] else "no"))
    if kernel.get("grade"):
        facts.append(("Known from", kernel_table.source_and_grade(kernel["grade"])))
    if kernel.get("trials"):
        facts.append(("Trials", f"launch classes: {kernel['trials']}"))
    facts.append(("Properties", ", ".join(kernel["properties"]) or "none"))
    if needs := _needs(kernel):
        facts.append(("Needs", needs))
    if image is not None:
        facts += _image_facts(image)
    return facts


def _place_facts(kernel: dict[str, Any]) -> list[tuple[str, str]]:
    """Where it runs and why, and the classes of its launches that were told apart."""
    word = kernel_table.place_word
    facts = [
        ("Runs on", f"{word(one['device'])} where {one['condition']}: {one['reason']}")
        for one in kernel.get("apart", [])
    ]
    rest = " otherwise" if facts else ""
    facts.append(("Runs on", f"{word(kernel['device'])}{rest}: {kernel['reason']}"))
    for name, one in kernel.get("classes", {}).items():
        facts.append(("Class", f"{name} on {word(one['device'])}; {_launches(one['launches'])}"))
    return facts


def _launches(by_device: dict[str, int]) -> str:
    counted = [
        f"{render.number(launches)} on {kernel_table.place_word(int(device))}"
        for device, launches in sorted(by_device.items(), key=lambda item: int(item[0]))
    ]
    return f"launched {', '.join(counted)}" if counted else "not launched"


def _needs(kernel: dict[str, Any]) -> str:
    from tessera.protocol import architectures

    return architectures.needs(kernel["minimum_architecture"], kernel["only_architecture"])


def _image_facts(image: dict[str, Any]) -> list[tuple[str, str]]:
    from_file = f", {image['path']}" if image["path"] else ""
    kind = image["kind"] or "not analysed"
    facts = [("Image", f"{image['hash']} ({kind}, {render.size(image['size'])}{from_file})")]
    if image["analysis_version"]:
        taken = render.duration(image["analysis_ms"] * 1e6)
        facts.append(("Analysis", f"version {image['analysis_version']}, {taken}"))
    if image["first_seen"]:
        seen = time.strftime("%Y-%m-%d %H:%M", time.localtime(image["first_seen"]))
        facts.append(("First seen", seen))
    return facts


def _explanation(kernel: dict[str, Any]) -> str:
    if not kernel["summary"]:
        return ""
    from tessera.analysis import KernelSummary

    try:
        return str(KernelSummary.from_dict(kernel["summary"]).explain()).rstrip()
    except (KeyError, TypeError, ValueError) as error:
        return (
            f"The summary was made by another version of the analysis ({error}): "
            "it is made anew when a program loads the image."
        )
