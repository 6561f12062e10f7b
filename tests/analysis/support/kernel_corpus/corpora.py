# SPDX-License-Identifier: Apache-2.0
"""All corpora, by name."""

from __future__ import annotations

from kernel_corpus import effects, elementwise, indirect, loops, pointers
from kernel_corpus.launches import REGISTRY, Maker

NAMES = ("elementwise", "loops", "pointers", "indirect", "effects")
MODULES = (elementwise, loops, pointers, indirect, effects)

DATA_DECIDES = frozenset(
    "data_guard predicated_by_data conditional_step early_exit skipping until_found rows_of_lists"
    " gather gather_long gather_rows scatter lookup_byte lookup_masked lookup_guarded"
    " lookup_guarded_unsigned histogram append"
    # Triton
    " embedding paged_keys paged_attention cache_update cross_entropy expert_matmul".split()
)
"""Kernels of which bytes in memory decide what they touch: no summary of theirs can be exact."""


def kernels_of(corpus: str) -> list[str]:
    """The kernels of a corpus that can be launched."""
    if corpus == "triton":
        from kernel_corpus.triton_support import variants

        return sorted(variants())
    return sorted(REGISTRY.makers[corpus])


def maker_of(corpus: str, kernel: str) -> Maker:
    if corpus == "triton":
        from kernel_corpus.triton_support import variants

        return variants()[kernel].maker
    if corpus == "random":
        from kernel_corpus.random_kernels import random_launch

        return random_launch
    return REGISTRY.makers[corpus][kernel]
