# SPDX-License-Identifier: Apache-2.0
"""How help texts look: arguments by their names, never by Python's types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperArgument, TyperCommand


class Commands(typer.Typer):
    """A group whose commands have help texts of ours."""

    def command(self, *names: Any, **options: Any) -> Callable[[Any], Any]:
        return super().command(*names, **{"cls": Command} | options)


class Command(TyperCommand):
    """Writes `COMMAND...` and `--seconds SECONDS`, whatever the version of typer writes."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        pieces = ["[OPTIONS]"]
        for param in self.get_params(ctx):
            if isinstance(param, TyperArgument) and not param.hidden:
                name = _name(param) + ("..." if param.nargs != 1 else "")
                pieces.append(name if param.required else f"[{name}]")
        return pieces

    def format_options(self, ctx: Any, formatter: Any) -> None:
        arguments, options = [], []
        for param in self.get_params(ctx):
            if isinstance(param, TyperArgument):
                if record := param.get_help_record(ctx):
                    arguments.append((_name(param), record[1]))
                continue
            takes_value = not getattr(param, "is_flag", False) and not getattr(param, "count", 0)
            if takes_value and not param.metavar:
                param.metavar = str(param.name).upper()
            if record := param.get_help_record(ctx):
                options.append(record)
        for title, rows in (("Arguments", arguments), ("Options", options)):
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def _name(param: TyperArgument) -> str:
    return param.metavar or str(param.name).upper()
