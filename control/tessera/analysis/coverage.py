# SPDX-License-Identifier: Apache-2.0
"""Whether a family of touches covers every byte between its ends."""

from __future__ import annotations

from dataclasses import dataclass

from tessera.analysis.environment import Proviso
from tessera.analysis.families import Family
from tessera.analysis.launch import Expr


@dataclass(frozen=True, slots=True)
class Whole:
    """Every byte is touched, if the launch meets `condition` and the provisos hold."""

    condition: Expr
    provisos: frozenset[Proviso]


class Coverage:
    def of(self, family: Family) -> Whole | None:
        return None
