# SPDX-License-Identifier: Apache-2.0
"""Environments of the processes that the controller starts."""

from __future__ import annotations

import os
from pathlib import Path

import tessera


def clean_environment() -> dict[str, str]:
    """The environment without LD_PRELOAD: nothing of Tessera itself is to be interposed."""
    environment = dict(os.environ)
    environment.pop("LD_PRELOAD", None)
    return environment


def python_environment() -> dict[str, str]:
    """The same, for `python -P -m tessera...`: the child finds this very package."""
    environment = clean_environment()
    root = str(Path(tessera.__file__).resolve().parent.parent)
    if Path(root).name not in {"site-packages", "dist-packages"}:
        before = environment.get("PYTHONPATH", "")
        parts = [root, *(part for part in before.split(os.pathsep) if part and part != root)]
        environment["PYTHONPATH"] = os.pathsep.join(parts)
    return environment
