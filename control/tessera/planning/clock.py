# SPDX-License-Identifier: Apache-2.0
"""The clock that the planner's time limits go by: wall time, or this process's CPU time where
others keep the machine busy and a measurement should not show that.
"""

from __future__ import annotations

import time

SHARED = 5.0  # wall seconds that a CPU second may take before the solver has to give up


class _Choice:
    cpu = False


def use_cpu_time(wanted: bool = True) -> None:
    """From now on limits are CPU seconds of this process."""
    _Choice.cpu = wanted


def now() -> float:
    """Seconds since some moment."""
    return time.process_time() if _Choice.cpu else time.perf_counter()


def solver_limit(seconds: float) -> float:
    """The wall seconds that the solver, which knows no other, may take for so many."""
    return SHARED * seconds if _Choice.cpu else seconds
