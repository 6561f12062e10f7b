# SPDX-License-Identifier: Apache-2.0
"""The rules that a user writes: text, one rule a line, and what is wrong with each line."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from dataclasses import dataclass

from tessera.placement.conditions import (
    ALWAYS,
    Condition,
    ConditionError,
    is_condition,
    looks_like_condition,
    parse_condition,
)
from tessera.placement.devices import DeviceNameError, Worker, find_device

MAX_TEXT = 128 * 1024  # bytes: a rules text has to fit into one message to the controller

HELP = """\
One rule a line, and the last rule that fits wins:

KERNEL [image:HASH] [CONDITION ...] -> DEVICE

KERNEL      a kernel's name; * ? [abc] stand for other characters; re:EXPRESSION is a
            regular expression that may fit anywhere in the name
image:HASH  only kernels of images whose hash starts so (tessera-ctl kernels shows them)
CONDITION   only launches for which it holds: grid>=64 (blocks in all), grid.x<8,
            grid=16x2x1, block=256 (threads of one), shared>0 (bytes of dynamic shared
            memory), arg2>=1024 (a kernel's third argument, as a number without sign); of
            calls of cuBLAS m n k batches. With = < > <= or >=, and no spaces in it
DEVICE      home, a worker's number (1), or the name of its GPU when only one has it (L40S)
#           starts a comment
"""


@dataclass(frozen=True)
class Rule:
    """One line of the rules."""

    line: int  # counted from 1
    pattern: str
    image: str  # prefix of the image hash; empty: any
    device: str  # as written
    index: int  # of the worker; 0 home
    expression: re.Pattern[str]
    condition: Condition = ALWAYS

    def fits(self, name: str, image: str) -> bool:
        """Whether it is about the kernel: of its launches, about those for which `condition`
        holds.
        """
        return image.startswith(self.image) and self.expression.search(name) is not None

    def __str__(self) -> str:
        image = f" image:{self.image}" if self.image else ""
        condition = f" {self.condition}" if self.condition else ""
        return f"{self.pattern}{image}{condition} -> {self.device}"


@dataclass(frozen=True)
class Finding:
    """Something to say about one line."""

    line: int
    message: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.message}"


@dataclass(frozen=True)
class Rules:
    """What a text of rules says. Rules with errors are not among `rules`."""

    rules: tuple[Rule, ...] = ()
    errors: tuple[Finding, ...] = ()
    unknown_devices: tuple[Finding, ...] = ()  # errors too, but only until such a worker comes


class _LineError(Exception):
    pass


def parse_rules(text: str, workers: Sequence[Worker]) -> Rules:
    """Reads all lines; never raises. Every line that is wrong is in `errors`, once."""
    if len(text.encode("utf-8", "replace")) > MAX_TEXT:
        return Rules(errors=(Finding(1, f"the rules are longer than {MAX_TEXT // 1024} KiB"),))
    rules, errors, unknown = [], [], []
    for number, raw in enumerate(text.split("\n"), start=1):
        line = _without_comment(raw)
        if not line:
            continue
        try:
            left, device = _split_line(line)
            words, condition = _split_condition(left.split())
            pattern, image = _split_image(words)
            expression = _compile(pattern)
            index = find_device(device, workers)
            rules.append(Rule(number, pattern, image, device, index, expression, condition))
        except (_LineError, ConditionError) as error:
            errors.append(Finding(number, str(error)))
        except DeviceNameError as error:
            errors.append(Finding(number, str(error)))
            unknown.append(errors[-1])
    return Rules(tuple(rules), tuple(errors), tuple(unknown))


def _without_comment(line: str) -> str:
    """`#` starts a comment at the start of a line and after a space: names may contain it."""
    return re.split(r"(?:^|\s)#", line, maxsplit=1)[0].strip()


def _split_line(line: str) -> tuple[str, str]:
    """What stands before the arrow, and the device."""
    left, arrow, device = line.rpartition("->")
    if not arrow:
        raise _LineError(f"no '->' in {line!r}: a rule is KERNEL -> DEVICE")
    left, device = left.strip(), device.strip()
    if not left:
        raise _LineError("no kernel before '->': write * for all of them")
    if not device:
        raise _LineError("no device after '->'")
    return left, device


def _split_condition(words: list[str]) -> tuple[list[str], Condition]:
    """The words that are no conditions, and all conditions together. Raises ConditionError.

    A regular expression may have spaces and signs in it: there a word is a condition only if it
    reads as one.
    """
    in_expression = bool(words) and words[0].startswith("re:")
    names: list[str] = []
    conditions: list[str] = []
    for word in words:
        if word.startswith("re:"):
            names.append(word)
        elif looks_like_condition(word) or (is_condition(word) and not in_expression):
            conditions.append(word)
        else:
            names.append(word)
    return names, parse_condition(conditions)


def _split_image(words: Sequence[str]) -> tuple[str, str]:
    images = [word for word in words if word.startswith("image:")]
    if len(images) > 1:
        raise _LineError("more than one image: in a rule")
    image = images[0].removeprefix("image:").lower() if images else ""
    if images and not re.fullmatch(r"[0-9a-f]{1,32}", image):
        raise _LineError(f"{images[0]!r}: 1 to 32 hexadecimal digits are wanted after image:")
    names = [word for word in words if not word.startswith("image:")]
    if not names:
        return "*", image
    if len(names) > 1 and not names[0].startswith("re:"):
        raise _LineError(f"{names[1]!r} is one word too many: a kernel's name has no spaces")
    return " ".join(names), image


def _compile(pattern: str) -> re.Pattern[str]:
    if not pattern.startswith("re:"):
        return re.compile(rf"\A(?:{fnmatch.translate(pattern)})")
    try:
        return re.compile(pattern.removeprefix("re:"))
    except re.error as error:
        raise _LineError(f"{pattern!r} is no regular expression: {error}") from None
