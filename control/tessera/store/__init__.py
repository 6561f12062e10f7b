# SPDX-License-Identifier: Apache-2.0
"""What outlives a controller: images, kernels and their summaries, rules, history."""

from tessera.store.errors import (
    CorruptStoreError,
    NewerStoreError,
    StoreError,
    StoreUnavailableError,
)
from tessera.store.records import (
    ClassDependency,
    CostRecord,
    Dependency,
    ImageRecord,
    KernelRecord,
    ProgramRecord,
    RulesRecord,
    Status,
)
from tessera.store.store import RulesChangedError, Store

__all__ = [
    "ClassDependency",
    "CorruptStoreError",
    "CostRecord",
    "Dependency",
    "ImageRecord",
    "KernelRecord",
    "NewerStoreError",
    "ProgramRecord",
    "RulesChangedError",
    "RulesRecord",
    "Status",
    "Store",
    "StoreError",
    "StoreUnavailableError",
]
