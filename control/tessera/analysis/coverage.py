# SPDX-License-Identifier: Apache-2.0
"""Whether a group of touches covers every byte between its ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tessera.analysis.pointers import Target
    from tessera.analysis.ranges import Group


class Coverage:
    def is_whole(self, group: Group, target: Target) -> bool:
        return False
