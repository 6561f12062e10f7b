# SPDX-License-Identifier: Apache-2.0
"""Slots of addresses: one a program, for as long as it lives."""

import subprocess
from pathlib import Path

import pytest
from tessera.cluster.processes import ProcessIdentity
from tessera.service.slots import FIRST_BASE, SLOT_SIZE, SLOTS, Slots, SlotsExhaustedError, base_of


def test_bases_do_not_overlap_and_stay_below_what_drivers_refuse() -> None:
    assert base_of(0) == FIRST_BASE
    assert all(base_of(slot + 1) - base_of(slot) == SLOT_SIZE for slot in range(SLOTS))
    assert base_of(SLOTS - 1) + SLOT_SIZE <= 0x540000000000


def test_a_slot_is_kept_while_its_owner_lives_even_by_a_later_controller(tmp_path: Path) -> None:
    path = tmp_path / "slots.json"
    process = subprocess.Popen(["sleep", "60"])
    owner = ProcessIdentity.of(process.pid)
    first = Slots(path)
    slot = first.acquire(owner)
    later = Slots(path)
    assert later.acquire(owner) == slot
    me = ProcessIdentity.of(1)
    taken = {later.acquire(me, frozenset()) for _ in range(3)}
    assert slot not in taken
    process.kill()
    process.wait()
    mine: set[int] = set()
    for _ in range(SLOTS):
        mine.add(later.acquire(me, frozenset(mine)))
    assert mine == set(range(SLOTS))
    with pytest.raises(SlotsExhaustedError, match=f"{SLOTS} programs"):
        later.acquire(me, frozenset(mine))
    later.release(5)
    mine.remove(5)
    assert later.acquire(me, frozenset(mine)) == 5


@pytest.mark.parametrize("content", ["", "{", "[[1]]", '[["a", "b", "c"]]', "7", "[[99, 1, 1]]"])
def test_a_damaged_file_is_ignored(tmp_path: Path, content: str) -> None:
    path = tmp_path / "slots.json"
    path.write_text(content)
    assert 0 <= Slots(path).acquire(ProcessIdentity.of(1)) < SLOTS
