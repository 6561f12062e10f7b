# SPDX-License-Identifier: Apache-2.0
"""placement show, set, edit, clear, policy."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from tessera.cli import editing, render
from tessera.cli.common import CliError, ask, ask_if_running, clear_errors, fail, store_path
from tessera.cli.help import Commands

app = Commands(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Say which kernels run where.\n\nRunning programs follow within a second. Without a "
    "controller the rules are checked as far as possible, and kept for the next one. Rules have "
    "effect under every policy but home; setting rules under that one makes it manual.",
)


@dataclass(frozen=True)
class Current:
    """The rules in force."""

    text: str
    revision: int
    policy: str
    running: bool
    workers: list[dict[str, Any]] = field(default_factory=list)
    errors: list[list[Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Outcome:
    """What checking or saving rules gave: [line, message] pairs."""

    errors: list[list[Any]]
    warnings: list[list[Any]]
    note: str = ""
    policy: str = ""
    policy_before: str = ""
    running: bool = False  # a controller has taken them: they are in force


def current() -> Current:
    """From the controller, or from the store when none runs."""
    answer = ask_if_running("rules")
    if answer is not None:
        return Current(
            answer["text"], answer["revision"], answer["policy"], True,
            answer["workers"], answer["errors"],
        )  # fmt: skip
    from tessera.store import Store

    if not store_path().exists():
        return Current("", 0, "home", False)
    with Store(store_path(), fall_back=True) as store:
        rules = store.rules()
        return Current(rules.text, rules.revision, store.setting("policy", "home"), False)


def save(text: str, base_revision: int | None = None, policy: str | None = None) -> Outcome:
    """Checks the text and makes it the rules, or changes nothing and returns the errors."""
    from tessera.service.client import ClientError, NotRunningError

    try:
        answer = ask("set_rules", text=text, base_revision=base_revision, policy=policy)
    except NotRunningError:
        return _save_offline(text, base_revision, policy)
    except ClientError as error:
        if "errors" not in error.answer:
            raise
        return Outcome(error.answer["errors"], [])
    note = memory_note(answer["in_memory"])
    policies = (answer["policy"], answer["policy_before"])
    return Outcome([], answer["warnings"], note, *policies, running=True)


def _save_offline(text: str, base_revision: int | None, policy: str | None) -> Outcome:
    from tessera.placement import parse_rules, policy_for_rules, unmatched_rules
    from tessera.store import Store

    rules = parse_rules(text, [])
    errors = [e for e in rules.errors if e not in rules.unknown_devices]
    if errors:
        return Outcome([[error.line, error.message] for error in errors], [])
    with Store(store_path()) as store:
        known = [(kernel.name, kernel.image) for kernel in store.kernels()]
        store.save_rules(text, base_revision)
        before = store.setting("policy", "home")
        after = policy or policy_for_rules(before, text_has_rules(text))
        store.save_setting("policy", after)
    warnings = [[f.line, f.message] for f in unmatched_rules(rules, known)] if known else []
    note = (
        "no controller runs: devices are checked when one starts" if rules.unknown_devices else ""
    )
    return Outcome([], warnings, note, after, before)


def memory_note(reason: str | None) -> str:
    """What it means that the controller could not write its store."""
    return f"not saved, and lost when the controller ends: {reason}" if reason else ""


def text_has_rules(text: str) -> bool:
    """Whether anything but comments is in the text."""
    from tessera.placement import parse_rules

    rules = parse_rules(text, [])
    return bool(rules.rules or rules.errors)


def print_findings(pairs: Sequence[Sequence[Any]], kind: str) -> None:
    for line, message in pairs:
        print(f"line {line}: {kind}{message}", file=sys.stderr)


def _finish(outcome: Outcome, done: str) -> None:
    if outcome.errors:
        print_findings(outcome.errors, "")
        fail("nothing was changed")
    print_findings(outcome.warnings, "warning: ")
    if outcome.note:
        print(f"note: {outcome.note}", file=sys.stderr)
    print(f"{done}{policy_words(outcome)}")


def policy_words(outcome: Outcome) -> str:
    """What the new rules mean for the policy, or it for them."""
    if outcome.policy != outcome.policy_before:
        switch = " (placement policy home switches the rules off)"
        how = switch if outcome.policy == "manual" else ""
        return f" The policy was {outcome.policy_before} and is now {outcome.policy}{how}."
    if outcome.policy in {"home", "manual"}:
        return ""
    return f" The policy stays {outcome.policy}: where no rule fits, its plan decides."


@app.command("show")
def show(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Print the rules in force.

    What is printed can be given to `placement set --file -`.

    \b
    Examples:
      tessera-ctl placement show
      tessera-ctl placement show > rules.txt
    """
    with clear_errors():
        found = current()
    if as_json:
        print(
            json.dumps(
                {"policy": found.policy, "revision": found.revision, "text": found.text,
                 "errors": found.errors}
            )
        )  # fmt: skip
        return
    print(f"# policy: {found.policy}")
    if found.policy == "home" and text_has_rules(found.text):
        print("# The rules below have no effect: tessera-ctl placement policy manual")
    if not found.text.strip():
        print("# There are no rules: every kernel stays home.")
    print(found.text.rstrip("\n")) if found.text.strip() else None
    print_findings(found.errors, "has no effect: ")


@app.command("set")
def set_(
    rules: Annotated[
        list[str] | None, typer.Argument(metavar="RULE", help="'KERNEL -> DEVICE'")
    ] = None,
    file: Annotated[
        str, typer.Option("--file", "-f", metavar="FILE", help="Read rules here; - is stdin.")
    ] = "",
    append: Annotated[
        bool, typer.Option("--append", "-a", help="Keep the present rules, and add these.")
    ] = False,
) -> None:
    """Replace the rules, or add to them.

    A rule is KERNEL [image:HASH] [CONDITION ...] -> DEVICE. KERNEL is a name with
    * and ?, or re:EXPRESSION; a CONDITION is about a launch's grid, block or arguments,
    such as grid>=64 (tessera-ctl placement edit explains them all); DEVICE is home, a
    worker's number, or the name of its GPU. The last rule that fits a launch wins.

    Rules that are set have effect: under the policy `home`, which would ignore them, the
    policy becomes `manual`, and the command says so.

    \b
    Examples:
      tessera-ctl placement set '* -> 1'
      tessera-ctl placement set --append 'softmax* -> home' 're:^triton_ -> L40S'
      tessera-ctl placement set 'gemm* -> home' 'gemm* grid>=64 -> 1'
      tessera-ctl placement set --file rules.txt
    """
    with clear_errors():
        given = _read(file) if file else ""
        given += "".join(f"{rule}\n" for rule in rules or [])
        if not given.strip():
            raise CliError("no rules were given: 'KERNEL -> DEVICE', or --file FILE", 2)
        before = current() if append else None
        kept = before.text if before else ""
        if kept and not kept.endswith("\n"):
            kept += "\n"
        outcome = save(kept + given, before.revision if before else None)
    _finish(outcome, "The rules are in force." if outcome.running else "The rules are saved.")


def _read(file: str) -> str:
    try:
        if file == "-":
            return sys.stdin.read()
        text = Path(file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise CliError(f"{file}: {why}") from None
    return text if text.endswith("\n") else text + "\n"


@app.command("edit")
def edit() -> None:
    """Edit the rules in $VISUAL or $EDITOR.

    What is wrong is named line by line, and nothing is changed before all lines are right.

    \b
    Example:
      EDITOR=nano tessera-ctl placement edit
    """
    with clear_errors():
        before = current()
        editing.edit_rules(before, save)


@app.command("clear")
def clear() -> None:
    """Drop all rules: every kernel stays home, or where a plan says.

    The policy `manual` becomes `home`, where new rules start from; one that follows plans
    stays.

    \b
    Example:
      tessera-ctl placement clear
    """
    with clear_errors():
        outcome = save("")
    planned = outcome.policy not in {"home", "manual"}
    rest = "." if planned else ": every kernel stays home."
    _finish(outcome, f"There are no rules any more{rest}")


@app.command("policy")
def policy(
    name: Annotated[
        str,
        typer.Argument(
            metavar="home|manual|latency|throughput|adaptive",
            help="home: everything; manual: by the rules; the others: by plans, rules first.",
        ),
    ] = "",
) -> None:
    """Show or choose what decides where kernels run.

    `home` switches the rules off and keeps them, until `manual` or the next
    `placement set` or `edit` switches them on. `latency`
    and `throughput` follow the plans that `tessera-ctl plan --apply` has made, where no
    rule fits; `adaptive` changes between the two with the load.

    \b
    Examples:
      tessera-ctl placement policy
      tessera-ctl placement policy home
    """
    from tessera.placement import POLICIES
    from tessera.store import Store

    with clear_errors():
        if not name:
            print(current().policy)
            return
        if name not in POLICIES:
            raise CliError(f"unknown policy {name!r}: {' or '.join(POLICIES)}", 2)
        answer = ask_if_running("set_policy", policy=name)
        if answer is None:
            with Store(store_path()) as store:
                store.save_setting("policy", name)
        elif answer["in_memory"]:
            print(f"note: {memory_note(answer['in_memory'])}", file=sys.stderr)
    render.console().print(f"The policy is {name}.")
