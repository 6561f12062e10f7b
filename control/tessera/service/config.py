# SPDX-License-Identifier: Apache-2.0
"""What one controller is to do."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tessera.cluster.fleet import Patience
from tessera.service.analyzer import DEFAULT_ANALYSIS
from tessera.settings import Settings, SettingsError, definition

TRUSTS_TRIALS = "verified"
TRUST = ("proven", TRUSTS_TRIALS)


@dataclass(frozen=True)
class Config:
    """Times in seconds."""

    folder: Path  # of socket, lock and logs
    store: Path
    devices: tuple[int, ...] | None = None  # ordinals for workers; None: all but the first
    analysis_wait: float = 2.0  # how long a kernel query may wait for an analysis
    analysis_timeout: float = 120.0  # how long one image may take
    hello_timeout: float = 5.0  # how long a connection may stay silent at first
    analysis: str = DEFAULT_ANALYSIS
    worker_command: tuple[str, ...] = ()  # in place of tessera-worker, for tests
    patience: Patience = field(default_factory=Patience)
    trust: str = TRUST[0]  # whose claims are good enough to move a kernel

    @classmethod
    def from_settings(cls, settings: Settings, devices: tuple[int, ...] | None = None) -> Config:
        """Raises SettingsError."""
        # A program waits `timeout_ms` for any answer: PENDING has to come before that.
        wait = min(settings.integer("analysis_wait_ms"), 0.8 * settings.integer("timeout_ms"))
        trust = settings.text("trust")
        if trust not in TRUST:
            name = definition("trust").environment
            raise SettingsError(f"{name} is {trust!r}: {' or '.join(TRUST)} is wanted")
        return cls(
            trust=trust,
            folder=settings.runtime_folder().absolute(),
            store=settings.store_path().absolute(),
            devices=devices,
            analysis_wait=max(0.0, wait / 1e3),
        )
