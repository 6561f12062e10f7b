# SPDX-License-Identifier: Apache-2.0
"""What is known about kernels: from the store, or from an analysis that a query starts."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import logging
import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from weakref import WeakSet

from tessera.protocol import KERNEL_UNKNOWN, MAX_KERNELS, KernelInfo, KernelQuery, KernelStatus
from tessera.service.pool import AnalyzerPool, PoolError
from tessera.service.store_thread import StoreThread
from tessera.store import (
    ImageRecord,
    KernelRecord,
    Status,
    TrialRecord,
    passed_classes,
    summary_digest,
)

log = logging.getLogger(__name__)
LARGEST_IMAGE = 1 << 31  # bytes
# The image that calls of host libraries count as kernels of; see native/protocol, blas_call.h.
LIBRARY_CALLS = "746573736572613a6c6962726172793a"
ROUNDS = 4  # analyses that one query may wait for: those of other kernels, then its own


class Knowledge:
    """Answers kernel queries. One analysis at a time for an image, however many programs ask:
    PTX gives all its kernels at once, machine code the one that is asked for."""

    def __init__(
        self,
        store: StoreThread,
        pool: AnalyzerPool,
        wait: float,
        changed: Callable[[Iterable[KernelRecord]], None],
    ) -> None:
        """`wait`: seconds that a query may wait. `changed` hears of new and changed kernels."""
        self._store = store
        self._pool = pool
        self._wait = wait
        self._changed = changed
        self._images: dict[str, ImageRecord] = {}
        self._kernels: dict[tuple[str, str], KernelRecord] = {}
        self._jobs: dict[str, asyncio.Task[None]] = {}
        self._waited_out: WeakSet[asyncio.Task[None]] = WeakSet()
        # Of analyses that crashed: tried anew by the next controller.
        self._failures: dict[tuple[str, str], str] = {}
        self.done = 0

    @property
    def failed(self) -> int:
        return len(self._failures)

    def known_kernels(self) -> list[KernelRecord]:
        """The kernels that programs of this controller have asked for."""
        return list(self._kernels.values())

    async def answer(
        self, query: KernelQuery, fd: int | None, capabilities: Sequence[int], pid: int = 0
    ) -> KernelInfo:
        """The answer to a query, within the wait. `fd` holds the image and stays the caller's.

        `capabilities`: of every device that may run the kernel. `pid`: the program's, whose
        caches may hold the PTX of a cubin. Raises StoreError.
        """
        if query.image == LIBRARY_CALLS:
            return await self._library_call(query)
        image = await self._image(query)
        if image.size != query.image_size:
            sizes = f"{image.size} and {query.image_size} bytes"
            return _failed(None, f"two images with one hash: {sizes}")
        kernel = await self._kernel(image, query.name)
        key = (image.hash, query.name)
        deadline = time.monotonic() + self._wait
        for _ in range(ROUNDS):
            image, kernel = self._images[image.hash], self._kernels[key]
            if self._is_current(image, query, capabilities) and kernel.status != Status.PENDING:
                return await self._ready(query, kernel)
            job = self._jobs.get(image.hash)
            if job is None and key in self._failures:
                return _failed(kernel.id, self._failures[key])
            if job is None and fd is None:
                return KernelInfo(KernelStatus.NEED_IMAGE, _id(kernel))
            if job is None and fd is not None:
                job = self._start(image, query, fd, capabilities, pid)
            assert job is not None
            # A program waits once for an analysis, not once for each of its kernels.
            wait = 0.0 if job in self._waited_out else deadline - time.monotonic()
            await asyncio.wait([job], timeout=max(0.0, wait))
            if not job.done():
                self._waited_out.add(job)
                break
        return KernelInfo(KernelStatus.PENDING, _id(kernel), reason="being analysed")

    async def _library_call(self, query: KernelQuery) -> KernelInfo:
        """The number of a library's call. What it touches the program knows from its arguments."""
        key = (query.image, query.name)
        if key not in self._kernels:
            image = ImageRecord(
                query.image,
                0,
                kind="library calls",
                status=Status.READY,
                analysis_version=self._pool.version,
            )

            def claim(store: Any) -> list[KernelRecord]:
                store.claim(image, query.name)
                known: list[KernelRecord] = store.kernels_of(image.hash)
                calls = [
                    dataclasses.replace(call, status=Status.READY, reason="", grade="exact")
                    for call in known
                ]
                store.save_analysis(image, calls)
                return calls

            calls = await self._store.run(claim)
            self._images[image.hash] = image
            self._note(call for call in calls if call.id is not None)
        return KernelInfo(KernelStatus.READY, _id(self._kernels[key]))

    async def _ready(self, query: KernelQuery, kernel: KernelRecord) -> KernelInfo:
        """The answer for a kernel that is known; of an unknown one, with what trials showed."""
        info = _info(kernel)
        if not query.wants_passed or not kernel.properties & KERNEL_UNKNOWN:
            return info
        return dataclasses.replace(info, passed=await self._passed(kernel))

    async def _passed(self, kernel: KernelRecord) -> tuple[int, ...]:
        key = (kernel.image, kernel.name)
        digest = summary_digest(kernel.blob)
        records = await self._store.run(lambda store: store.trials(kernel=key))
        return passed_classes([record for record in records if record.summary == digest])

    async def take_trial(self, record: TrialRecord) -> KernelRecord | None:
        """Keeps what a trial showed. The kernel, when it has to stay home from now on."""
        marked = await self._store.run(lambda store: store.add_trial(record))
        if marked is not None:
            log.error("kernel %s: %s; it stays home", record.name, marked.reason)
            self._note([marked])
        return marked

    async def close(self) -> None:
        for job in self._jobs.values():
            job.cancel()
        await asyncio.gather(*self._jobs.values(), return_exceptions=True)

    async def _image(self, query: KernelQuery) -> ImageRecord:
        image = self._images.get(query.image)
        if image is None:
            path = query.path.encode("utf-8", "replace").decode("utf-8")
            fresh = ImageRecord(query.image, query.image_size, path=path)
            known = await self._store.run(lambda store: store.image(query.image))
            image = self._images.setdefault(query.image, known or fresh)
            if known is not None:
                await self._store.run(lambda store: store.touch_image(query.image))
        return image

    async def _kernel(self, image: ImageRecord, name: str) -> KernelRecord:
        kernel = self._kernels.get((image.hash, name))
        if kernel is None:
            kernel = await self._store.run(lambda store: store.claim(image, name))
            if kernel.status == Status.PENDING and image.status == Status.FAILED:
                kernel = dataclasses.replace(kernel, status=Status.FAILED, reason=image.reason)
            self._note([kernel])
        return self._kernels[image.hash, name]

    def _note(self, kernels: Iterable[KernelRecord]) -> None:
        noted = list(kernels)
        self._kernels |= {(kernel.image, kernel.name): kernel for kernel in noted}
        self._changed(noted)

    def _is_current(
        self, image: ImageRecord, query: KernelQuery, capabilities: Sequence[int]
    ) -> bool:
        """Whether what is stored about an image still answers the query."""
        if image.status == Status.PENDING or image.analysis_version != self._pool.version:
            return False
        if image.status == Status.FAILED and image.kind == "cubin":
            # A cubin that came from memory may come from a file now, with its PTX beside it.
            return not query.path or query.path == image.path
        return image.kind != "fatbin" or set(capabilities) <= set(image.capabilities)

    def _start(
        self, image: ImageRecord, query: KernelQuery, fd: int, capabilities: Sequence[int], pid: int
    ) -> asyncio.Task[None]:
        wanted = tuple(sorted({*capabilities, *image.capabilities}))
        job = asyncio.create_task(self._analyse(image, query, os.dup(fd), wanted, pid))
        self._jobs[image.hash] = job
        job.add_done_callback(lambda _: self._jobs.pop(image.hash, None))
        return job

    async def _analyse(
        self,
        image: ImageRecord,
        query: KernelQuery,
        fd: int,
        capabilities: tuple[int, ...],
        pid: int,
    ) -> None:
        job = {
            "kind": "image",
            "size": query.image_size,
            "path": query.path,
            "capabilities": list(capabilities),
            "pid": pid,
            "name": query.name,
        }
        key = (image.hash, query.name)
        try:
            if query.image_size > LARGEST_IMAGE:
                raise PoolError(f"the image has {query.image_size} bytes, more than are analysed")
            result = await self._pool.run(job, fd)
            await self._save(image, query, capabilities, result)
        except PoolError as error:
            log.warning("image %s: %s", image.hash, error)
            self._failures[key] = f"the analysis failed: {error}"
        except Exception as error:  # whatever it is, those who wait must hear of it
            log.exception("image %s", image.hash)
            self._failures[key] = f"the analysis failed: {type(error).__name__}: {error}"
        finally:
            os.close(fd)

    async def _save(
        self,
        image: ImageRecord,
        query: KernelQuery,
        capabilities: tuple[int, ...],
        result: dict[str, Any],
    ) -> None:
        record = ImageRecord(
            image.hash,
            image.size,
            kind=result["kind"],
            path=query.path.encode("utf-8", "replace").decode("utf-8"),
            status=Status.FAILED if result["reason"] else Status.READY,
            reason=result["reason"],
            analysis_version=self._pool.version,
            capabilities=capabilities,
            analysis_ms=result["milliseconds"],
        )
        kernels = [self._record(image.hash, kernel) for kernel in result["kernels"]]
        holds = image.status == Status.READY and image.analysis_version == self._pool.version
        holds = holds and image.capabilities == capabilities

        def save(store: Any) -> list[KernelRecord]:
            others = _others(store, record, query.name, holds) if result["partial"] else []
            store.save_analysis(record, others + kernels)
            found: list[KernelRecord] = store.kernels_of(image.hash)
            return found

        stored = await self._store.run(save)
        self._images[image.hash] = record
        self.done += 1
        self._note(kernel for kernel in stored if kernel.id is not None)
        log.info("image %s: %s, %d kernels", image.hash, record.status, len(kernels))

    def _record(self, image: str, kernel: dict[str, Any]) -> KernelRecord:
        return KernelRecord(
            image,
            kernel["name"],
            status=Status(kernel["status"]),
            reason=kernel["reason"],
            grade=kernel["grade"],
            properties=kernel["properties"],
            minimum_architecture=kernel["minimum"],
            only_architecture=kernel["only"],
            summary=kernel["summary"],
            blob=base64.b64decode(kernel["blob"]),
            analysis_version=self._pool.version,
            first_seen=time.time(),
        )


def _others(store: Any, image: ImageRecord, name: str, holds: bool) -> list[KernelRecord]:
    """The other kernels of an image as they are to be after an analysis of that one alone."""
    if image.status != Status.READY:
        return []
    return [
        kernel
        if holds and kernel.analysis_version == image.analysis_version
        else dataclasses.replace(kernel, status=Status.PENDING, reason="", summary={}, blob=b"")
        for kernel in store.kernels_of(image.hash)
        if kernel.name != name
    ]


def _id(kernel: KernelRecord) -> int:
    return MAX_KERNELS if kernel.id is None else kernel.id


def _failed(kernel_id: int | None, reason: str) -> KernelInfo:
    return KernelInfo(
        KernelStatus.FAILED, MAX_KERNELS if kernel_id is None else kernel_id, reason=reason
    )


def _info(kernel: KernelRecord) -> KernelInfo:
    if kernel.status != Status.READY:
        return _failed(kernel.id, kernel.reason or "no summary")
    return KernelInfo(KernelStatus.READY, _id(kernel), kernel.blob)
