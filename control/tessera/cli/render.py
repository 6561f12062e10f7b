# SPDX-License-Identifier: Apache-2.0
"""How things look: fitted to a terminal, plain and whole in a pipe."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

_WIDE = 10000  # columns of a pipe: nothing is cut off
_GAP = 2  # blanks between columns


@dataclass(frozen=True)
class Column:
    """A column of a table. Widths in characters."""

    title: str
    right: bool = False
    least: int = 0  # not 0: shortened down to this when the terminal is too narrow
    drop: int = 0  # not 0: left out when that is not enough, the highest number first, all of it
    prose: bool = False  # shortened at the end; names lose their middle


def console(stream: IO[str] | None = None) -> Console:
    """A console for standard output, or for another stream."""
    target = stream or sys.stdout
    if target.isatty():
        return Console(file=target, highlight=False)
    return Console(file=target, highlight=False, width=_WIDE, no_color=True, legacy_windows=False)


def complain(text: str) -> None:
    """An error, on stderr; on a terminal lines are broken between words, and indented then."""
    if sys.stderr.isatty():
        width = console(sys.stderr).width
        text = "\n".join(wrapped(line, width) for line in text.split("\n"))
    print(text, file=sys.stderr)


def wrapped(line: str, width: int) -> str:
    """A line broken between words; what follows is indented a bit more than it."""
    indent = len(line) - len(line.lstrip())
    return textwrap.fill(
        line, max(width, indent + 20), subsequent_indent=" " * (indent + 2),
        break_long_words=False, break_on_hyphens=False, drop_whitespace=True,
    )  # fmt: skip


class Table:
    """Rows of cells without frames, each on one line, fitted to the width that there is."""

    def __init__(
        self, columns: Sequence[Column], rows: Sequence[Sequence[Any]], header: bool = True
    ) -> None:
        self._columns = columns
        titles = [Text(column.title, style="bold") for column in columns]
        self._header = 1 if header else 0
        self._rows = [titles] if header else []
        self._rows += [
            [cell if isinstance(cell, Text) else Text(str(cell)) for cell in row] for row in rows
        ]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        widths = self._fit(options.max_width)
        for row in self._rows:
            line = Text(no_wrap=True, overflow="crop", end="")
            for index, width in widths.items():
                cell = _shortened(row[index], width, self._columns[index].prose)
                blanks = " " * (width - cell.cell_len)
                parts: list[str | Text] = (
                    [blanks, cell] if self._columns[index].right else [cell, blanks]
                )
                line = Text.assemble(line, *parts, " " * _GAP)
            line.rstrip()
            yield line

    def _fit(self, available: int) -> dict[int, int]:
        """Widths of the columns that are shown, by their place."""
        natural = {
            i: max((row[i].cell_len for row in self._rows), default=0)
            for i in range(len(self._columns))
        }
        # A column that could be done without and says nothing is not shown at all.
        shown = [i for i in natural if not self._columns[i].drop or self._says_something(i)]
        while True:
            least = {i: min(natural[i], self._columns[i].least or natural[i]) for i in shown}
            spare = available - sum(least.values()) - _GAP * (len(shown) - 1)
            droppable = [i for i in shown if self._columns[i].drop]
            if spare >= 0 or not droppable:
                break
            last = max(self._columns[i].drop for i in droppable)
            shown = [i for i in shown if self._columns[i].drop != last]
        for i in shown:
            wanted = natural[i] - least[i]
            others = sum(natural[j] - least[j] for j in shown if j > i)
            # What this one may have, so that the others still get their part.
            share = spare if others == 0 else spare * wanted // (wanted + others or 1)
            given = max(0, min(wanted, share))
            least[i] += given
            spare -= given
        return least

    def _says_something(self, index: int) -> bool:
        return any(row[index].plain for row in self._rows[self._header :])


def _shortened(text: Text, width: int, prose: bool) -> Text:
    """The text cut to a width. Of a name, both ends tell something."""
    if text.cell_len <= width:
        return text
    if width <= 3:
        return Text(text.plain[:width], style=text.style)
    tail = 0 if prose or width < 16 else width // 3
    head = width - tail - 1
    return Text(text.plain[:head] + "…" + (text.plain[-tail:] if tail else ""), style=text.style)


def table(columns: Sequence[Column], rows: Sequence[Sequence[Any]], header: bool = True) -> Table:
    """A table without frames."""
    return Table(columns, rows, header)


def show(target: Console, *parts: Any) -> None:
    """Prints, without the blanks at the ends of lines that tables leave."""
    if target.is_terminal:
        target.print(*parts, sep="\n")
        return
    with target.capture() as captured:
        target.print(*parts, sep="\n")
    for line in captured.get().splitlines():
        print(line.rstrip(), file=target.file)


def size(count: float) -> str:
    """Bytes, for people: 0 B, 512 B, 1.5 KiB, 40 GiB."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            digits = 0 if unit == "B" or value >= 100 or value == int(value) else 1
            return f"{value:.{digits}f} {unit}"
        value /= 1024
    raise AssertionError("unreachable")


def duration(nanoseconds: float) -> str:
    """A duration, for people: 850 ns, 12.3 us, 1.5 ms, 3.20 s, 4 min 10 s, 2 h 05 min."""
    if nanoseconds < 1e3:
        return f"{nanoseconds:.0f} ns"
    if nanoseconds < 1e6:
        return f"{nanoseconds / 1e3:.1f} us"
    if nanoseconds < 1e9:
        return f"{nanoseconds / 1e6:.1f} ms"
    seconds = nanoseconds / 1e9
    if seconds < 60:
        return f"{seconds:.2f} s"
    minutes = int(seconds // 60)
    if minutes < 60:
        return f"{minutes} min {int(seconds % 60)} s"
    return f"{minutes // 60} h {minutes % 60:02} min"


def age(seconds: float) -> str:
    """How long something has been there: 5 s, 4 min 10 s."""
    return f"{seconds:.0f} s" if seconds < 59.5 else duration(seconds * 1e9)


def estimate(nanoseconds: float) -> str:
    """A duration that was not measured as such: ~1.5 ms."""
    return f"~{duration(nanoseconds)}"


def number(value: int) -> str:
    """1,234,567"""
    return f"{value:,}"


def capability(value: int) -> str:
    """9.0 for 90."""
    return f"{value // 10}.{value % 10}"


def count(value: int, word: str) -> str:
    """1 kernel, 2 kernels."""
    return f"{value:,} {word}{'' if value == 1 else 's'}"


def command(text: str, longest: int = 60) -> str:
    """A command line, shortened where it must be: folders go first, then its middle."""
    line = one_line(text, 1000)
    if len(line) > longest:
        line = " ".join(word.rpartition("/")[2] or word for word in line.split(" "))
    if len(line) > longest:
        tail = longest // 3
        line = f"{line[: longest - tail - 1]}…{line[-tail:]}"
    return line


def one_line(text: str, longest: int = 200) -> str:
    """Text of others without control characters, cut when it is very long."""
    clean = "".join(character if character.isprintable() else " " for character in text)
    return clean if len(clean) <= longest else clean[: longest - 1] + "…"
