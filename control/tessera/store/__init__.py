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
    TrialRecord,
)
from tessera.store.store import RulesChangedError, Store
from tessera.store.trials import passed_classes, summary_digest

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
    "TrialRecord",
    "passed_classes",
    "summary_digest",
]
