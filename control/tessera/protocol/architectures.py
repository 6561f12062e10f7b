# SPDX-License-Identifier: Apache-2.0
"""Which devices run a kernel's code, by the two architecture fields of its summary.

Architectures and devices are major * 10 + minor. The shim has the same rule (runs_on).
"""

from __future__ import annotations

from tessera.protocol.headers import constant

MAJORS = constant("TS_ARCHITECTURE_MAJORS")
# Devices of embedded boards: machine code goes neither from them nor to them.
_EMBEDDED = frozenset({53, 62, 72, 87, 101, 110})


def only_within_major(architecture: int) -> int:
    """The `only_architecture` of plain machine code: that of its major version, from it on."""
    return architecture if architecture in _EMBEDDED else architecture // 10


def runs_on(minimum: int, only: int, capability: int) -> bool:
    """Whether a device of that compute capability runs the code."""
    if only >= MAJORS:
        return capability == only
    if only:
        return capability // 10 == only and capability >= minimum and capability not in _EMBEDDED
    return capability >= minimum


def needs(minimum: int, only: int) -> str:
    """The same in words, such as "sm_80 or newer of 8.x"; empty when nothing is known."""
    if only >= MAJORS:
        return f"sm_{only} and no other"
    if only:
        return f"sm_{minimum} or newer of {only}.x"
    return f"sm_{minimum} or newer" if minimum else ""
