# SPDX-License-Identifier: Apache-2.0
"""From an image to the PTX that describes what it runs.

The driver chooses one entry of an image for each device. A PTX text describes that choice
when it is the choice, or when the choice is machine code that was made from the text. The
second is taken as shown when architecture, kernel names and parameter sizes agree, and, for
a file beside a cubin, when both were written together. In all other cases the image counts
as not described, and its kernels stay at home.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tessera.native import ptx
from tessera.sass.elf import read_cubin

WRITTEN_TOGETHER = 1.0  # seconds between two files
_LARGEST_PTX = 1 << 28  # bytes of a neighbouring file


class NotDescribedError(Exception):
    """No PTX describes the image; the message says why."""


@dataclass(frozen=True)
class Text:
    """PTX of one architecture."""

    text: bytes
    architecture: int  # 90 for sm_90 and sm_90a


@dataclass(frozen=True)
class Extraction:
    """The texts that describe an image on the devices asked for; one at least."""

    kind: str
    texts: tuple[Text, ...]


def kind_word(kind: ptx.ImageKind) -> str:
    return {
        ptx.ImageKind.PTX: "ptx",
        ptx.ImageKind.ELF: "cubin",
        ptx.ImageKind.FATBIN: "fatbin",
        ptx.ImageKind.FATBIN_WRAPPER: "fatbin",
    }.get(kind, "unknown")


def kind_of(data: bytes) -> str:
    """ptx, cubin, fatbin or unknown."""
    return kind_word(ptx.open_image(data).kind)


def extract(data: bytes, path: str = "", capabilities: Sequence[int] = ()) -> Extraction:
    """The PTX of an image for devices of those compute capabilities; without any, for all.

    Raises NotDescribedError.
    """
    image = ptx.open_image(data)
    kind = kind_word(image.kind)
    if image.kind == ptx.ImageKind.UNKNOWN:
        raise NotDescribedError("the image is neither PTX nor cubin nor fatbin")
    if image.kind == ptx.ImageKind.PTX:
        text = _read(image.entries[0]) if image.entries else data.rstrip(b"\0")
        return Extraction(
            kind, (Text(text, image.entries[0].architecture if image.entries else 0),)
        )
    if image.kind == ptx.ImageKind.ELF:
        return Extraction(kind, (_neighbour(data, path, image.entries),))
    return Extraction(kind, _from_fatbin(image, capabilities))


def _read(entry: ptx.Entry) -> bytes:
    try:
        return entry.read()
    except ValueError as error:
        raise NotDescribedError(f"an entry of the image cannot be read: {error}") from None


def _from_fatbin(image: ptx.Image, capabilities: Sequence[int]) -> tuple[Text, ...]:
    if image.errors:
        raise NotDescribedError(f"the image cannot be read: {image.errors[0]}")
    texts = [entry for entry in image.entries if entry.kind == ptx.EntryKind.PTX]
    cubins = [entry for entry in image.entries if entry.kind == ptx.EntryKind.ELF]
    if not texts:
        raise NotDescribedError(f"no PTX in this image: {_count(len(cubins), 'cubin')}")
    chosen_texts, chosen_cubins = _choices(texts, cubins, capabilities)
    for cubin in chosen_cubins:
        same = [text for text in texts if text.architecture == cubin.architecture]
        if not same:
            raise NotDescribedError(
                f"the cubin for sm_{cubin.architecture} has no PTX of its own in this image"
            )
        _check_pair(_read(cubin), _read(same[0]))
        chosen_texts.append(same[0])
    if not chosen_texts:
        wanted = ", ".join(f"sm_{capability}" for capability in capabilities)
        raise NotDescribedError(f"nothing in this image runs on {wanted}")
    unique = {text.architecture: text for text in chosen_texts}
    return tuple(Text(_read(text), number) for number, text in sorted(unique.items()))


def chosen_cubins(data: bytes, capabilities: Sequence[int] = ()) -> list[bytes]:
    """The machine code of an image that devices of those capabilities run; all of it without any.

    Raises NotDescribedError where one of them would run something else.
    """
    image = ptx.open_image(data)
    if image.kind == ptx.ImageKind.ELF:
        return [data]
    if image.kind not in (ptx.ImageKind.FATBIN, ptx.ImageKind.FATBIN_WRAPPER):
        raise NotDescribedError("the image holds no machine code")
    cubins = [entry for entry in image.entries if entry.kind == ptx.EntryKind.ELF]
    chosen: dict[int, ptx.Entry] = {}
    for capability in capabilities:
        mine = _choices([], cubins, [capability])[1]
        if not mine:
            raise NotDescribedError(f"the image has no machine code for sm_{capability}")
        chosen |= {id(entry): entry for entry in mine}
    return [_read(entry) for entry in (chosen.values() if capabilities else cubins)]


def _choices(
    texts: list[ptx.Entry], cubins: list[ptx.Entry], capabilities: Sequence[int]
) -> tuple[list[ptx.Entry], list[ptx.Entry]]:
    """The entries that a driver may choose on any of the devices."""
    if not capabilities:
        return list(texts), list(cubins)
    chosen_texts: list[ptx.Entry] = []
    chosen_cubins: list[ptx.Entry] = []
    for capability in capabilities:
        # Machine code runs within its major version; the driver can be told to prefer PTX.
        chosen_cubins += _newest(
            entry
            for entry in cubins
            if entry.architecture // 10 == capability // 10 and entry.architecture <= capability
        )
        chosen_texts += _newest(entry for entry in texts if entry.architecture <= capability)
    return chosen_texts, chosen_cubins


def _newest(entries: Iterable[ptx.Entry]) -> list[ptx.Entry]:
    """All entries of the highest architecture: which one of several is chosen is not known."""
    found = list(entries)
    highest = max((entry.architecture for entry in found), default=0)
    return [entry for entry in found if entry.architecture == highest]


def _neighbour(data: bytes, path: str, entries: Sequence[ptx.Entry]) -> Text:
    """The `.ptx` beside the `.cubin` that the program loaded by its path."""
    lone = f"no PTX in this image: {_count(max(1, len(entries)), 'cubin')}"
    if not path.endswith(".cubin"):
        raise NotDescribedError(lone)
    cubin, text_path = Path(path), Path(path).with_suffix(".ptx")
    try:
        if cubin.read_bytes() != data:
            raise NotDescribedError(f"{lone}, and {cubin.name} has changed since it was loaded")
        if text_path.stat().st_size > _LARGEST_PTX:
            raise NotDescribedError(f"{lone}, and {text_path.name} beside it is too large")
        text = text_path.read_bytes()
    except OSError as error:
        raise NotDescribedError(f"{lone}, and {text_path.name}: {error.strerror}") from None
    if not _written_together(cubin, text_path):
        raise NotDescribedError(
            f"{lone}, and {text_path.name} beside it was not written together with the cubin"
        )
    _check_pair(data, text)
    return Text(text, _target(ptx.parse(text).target))


def _written_together(cubin: Path, text: Path) -> bool:
    """Triton lists the files of one compilation; for others, the times of writing tell."""
    group = cubin.with_name(f"__grp__{cubin.stem}.json")
    try:
        members = json.loads(group.read_text("utf-8"))["child_paths"]
        if {cubin.name, text.name} <= set(members):
            return True
    except (OSError, ValueError, KeyError, TypeError):
        pass  # not Triton's, or not its format of today: the times decide
    return abs(cubin.stat().st_mtime - text.stat().st_mtime) <= WRITTEN_TOGETHER


def _check_pair(cubin_data: bytes, text: bytes) -> None:
    """Raises NotDescribedError when the cubin cannot have been made from the text."""
    try:
        cubin = read_cubin(cubin_data)
    except ValueError as error:
        raise NotDescribedError(f"a cubin cannot be read: {error}") from None
    module = ptx.parse(text)
    entries = {entry.name: entry.parameter_block_size for entry in module.entries}
    missing = sorted(set(cubin.parameter_sizes) - set(entries))
    if missing:
        raise NotDescribedError(f"the PTX lacks kernel {missing[0]} of the cubin beside it")
    for name, size in entries.items():
        if name not in cubin.functions:
            raise NotDescribedError(f"the cubin lacks kernel {name} of the PTX beside it")
        if cubin.parameter_sizes.get(name, size) != size:
            raise NotDescribedError(
                f"kernel {name} has {size} bytes of parameters in the PTX, "
                f"{cubin.parameter_sizes[name]} in the cubin"
            )


def _target(target: str) -> int:
    match = re.search(r"sm_(\d+)", target)
    return int(match[1]) if match else 0


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
