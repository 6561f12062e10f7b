# SPDX-License-Identifier: Apache-2.0
"""The clock that the planner's time limits go by: wall time, or this process's CPU time where
others keep the machine busy and a measurement should not show that.
"""

from __future__ import annotations

import time

SHARED = 5.0  # wall seconds that a CPU second may take at most


class _Choice:
    cpu = False
    wall_before = 0.0  # of the last look at both clocks
    cpu_before = 0.0
    ratio = 1.0


def use_cpu_time(wanted: bool = True) -> None:
    """From now on limits are CPU seconds of this process."""
    _Choice.cpu = wanted
    _Choice.wall_before, _Choice.cpu_before = time.perf_counter(), time.process_time()
    _Choice.ratio = 1.0


def now() -> float:
    """Seconds since some moment."""
    return time.process_time() if _Choice.cpu else time.perf_counter()


def solver_limit(seconds: float) -> float:
    """The wall seconds that the solver, which knows no other, may take for so many."""
    return SHARED * seconds if _Choice.cpu else seconds


def brief_limit(seconds: float) -> float:
    """The same for one of many calls: as many more as this process lately waited for its CPU."""
    if not _Choice.cpu:
        return seconds
    wall, cpu = time.perf_counter(), time.process_time()
    if cpu - _Choice.cpu_before > 0.2:
        lately = (wall - _Choice.wall_before) / (cpu - _Choice.cpu_before)
        _Choice.ratio = min(SHARED, max(1.0, lately))
        _Choice.wall_before, _Choice.cpu_before = wall, cpu
    return _Choice.ratio * seconds
