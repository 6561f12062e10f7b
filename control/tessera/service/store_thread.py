# SPDX-License-Identifier: Apache-2.0
"""The store on a thread of its own: a slow disk or a locked file never stops the socket loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from tessera.store import Store

log = logging.getLogger(__name__)
T = TypeVar("T")


class StoreThread:
    """Runs operations on the store one after the other."""

    def __init__(self, path: Path) -> None:
        """Raises StoreError for a file that is damaged or from a newer version."""
        self.path = path
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        try:
            self._store = self._executor.submit(Store, path, fall_back=True).result()
        except BaseException:
            self._executor.shutdown()
            raise
        self.memory_reason: str | None = None
        self._note_memory()

    async def run(self, operation: Callable[[Store], T]) -> T:
        """The operation's result, or its StoreError."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._executor, operation, self._store)
        finally:
            self._note_memory()

    def close(self) -> None:
        """Finishes what is under way."""
        self._executor.submit(self._store.close).result()
        self._executor.shutdown()

    def _note_memory(self) -> None:
        reason = self._store.memory_reason
        if reason is not None and self.memory_reason is None:
            log.warning("the store is kept in memory and lost at the end: %s", reason)
        self.memory_reason = reason
