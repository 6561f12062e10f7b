# SPDX-License-Identifier: Apache-2.0
"""Random programs under random placements end with the same memory, byte for byte.

The invariants of docs/design.md that this holds: transparent, coherent, ordered.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redirect.machine import Machine
from redirect.random_runs import ASKED, compare, compare_scattered, random_settings
from tessera.service.client import Client, ClientError

PROGRAM = Path(__file__).with_name("program.py")
# `sum` and its like read other elements than they write: source and target differ.
KINDS = ["fill", "combine", "every_other", "gather", "sum", "struct", "pointers"]
KINDS += ["memset", "copy", "upload", "download", "synchronize", "replace"]
THREADS = (32, 128, 192, 256)  # of a block: with the grid that follows, the launch classes
KERNELS = ["fill", "combine", "every_other", "gather", "sum", "by_struct", "through_pointers"]
RUNS = int(ASKED or 12)

regions = st.tuples(st.integers(0, 3), st.integers(0, 1))
pairs = st.tuples(regions, regions).filter(lambda pair: pair[0] != pair[1])


@st.composite
def operations(draw: st.DrawFn) -> list[dict[str, Any]]:
    drawn = []
    for _ in range(draw(st.integers(5, 60))):
        to, source = draw(pairs)
        drawn.append(
            {
                "kind": draw(st.sampled_from(KINDS)),
                "stream": draw(st.integers(0, 3)),
                "to": to,
                "from": source,
                "value": draw(st.integers(1, 2**31 - 1)),
                "threads": draw(st.sampled_from(THREADS)),
            }
        )
    return drawn


@st.composite
def rules(draw: st.DrawFn) -> str:
    """Rules that tell launches of a kernel apart: by grid, block and arguments."""
    bound = st.tuples(st.sampled_from(["<", "<=", "=", ">=", ">"]), st.integers(1, 100))
    conditions = st.one_of(
        bound.map(lambda drawn: f"grid{drawn[0]}{drawn[1]}"),
        st.sampled_from(THREADS).map(lambda threads: f"block={threads}"),
        st.sampled_from(["block.x<=128", "grid=94x1x1", "shared>0", "grid.y=1"]),
        st.tuples(st.integers(0, 4), st.integers(0, 2**31)).map(
            lambda drawn: f"arg{drawn[0]}>={drawn[1]}"
        ),
    )
    lines = []
    for _ in range(draw(st.integers(1, 8))):
        name = draw(st.sampled_from(["*", *KERNELS]))
        chosen = draw(st.lists(conditions, max_size=2))
        lines.append(" ".join([name, *chosen, "->", draw(st.sampled_from(["home", "1", "2"]))]))
    return "\n".join(lines)


@contextmanager
def changing(machine: Machine, texts: list[str]) -> Iterator[None]:
    """Puts the rules into force, one text after the other again and again, until the end."""
    ended = threading.Event()
    with Client(machine.folder / "run") as client:

        def put(text: str) -> None:
            try:
                client.request("set_rules", text=text)
            except ClientError as error:
                assert "no launch has such" in str(error.answer), error.answer

        def change() -> None:
            for text in itertools.cycle(texts[1:]):
                if ended.wait(0.05):
                    return
                put(text)

        put(texts[0])
        thread = threading.Thread(target=change)
        if len(texts) > 1:
            thread.start()
        try:
            yield
        finally:
            ended.set()
            if len(texts) > 1:
                thread.join()


@pytest.mark.timeout(60 + 15 * RUNS)
def test_random_programs_give_the_same_memory(machine: Machine, tmp_path: Path) -> None:
    compare_scattered(machine, tmp_path, PROGRAM, operations(), RUNS)


def same_memory_under(
    machine: Machine, folder: Path, program: list[dict[str, Any]], texts: list[str]
) -> None:
    """Runs the program at home, and under rules that change."""
    changes = changing(machine, texts)
    compare(machine, folder, PROGRAM, program, changes, TESSERA_ANALYSIS_WAIT_MS="60000")


@pytest.mark.timeout(60 + 15 * RUNS)
def test_random_programs_under_random_rules_for_launch_classes(
    machine: Machine, tmp_path: Path
) -> None:
    @random_settings(RUNS)
    @given(program=operations(), texts=st.lists(rules(), min_size=1, max_size=3))
    def same_memory(program: list[dict[str, Any]], texts: list[str]) -> None:
        same_memory_under(machine, tmp_path, program, texts)

    same_memory()


def test_all_kernels_under_rules_that_place_each_of_them_apart(
    machine: Machine, tmp_path: Path
) -> None:
    kinds = ["fill", "combine", "every_other", "gather", "sum", "struct", "pointers"]
    program = [
        {"kind": kind, "stream": i % 4, "to": (i % 4, 0), "from": ((i + 1) % 4, 1),
         "value": i + 1, "threads": threads}
        for i, (threads, kind) in enumerate(itertools.product(THREADS, kinds))
    ]  # fmt: skip
    same_memory_under(machine, tmp_path, program, ["* block<=32 -> 1\n* block=256 -> 2\n"])
    kernels = json.loads(machine.control("kernels", "--json"))
    assert sorted(kernel["name"] for kernel in kernels) == sorted(KERNELS)
    found = {kernel["name"]: devices_of(kernel) for kernel in kernels}
    # What follows pointers out of memory stays home.
    assert found.pop("through_pointers") <= {"0"}
    assert all(devices >= {"0", "1", "2"} for devices in found.values()), found


def devices_of(kernel: dict[str, Any]) -> set[str]:
    """Where launches of it ran that were told apart."""
    return {device for counts in kernel["classes"].values() for device in counts["launches"]}
