# SPDX-License-Identifier: Apache-2.0
"""The corpus of kernels, compiled and recorded once for all tests."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parent / "support"
if str(SUPPORT) not in sys.path:
    sys.path.insert(0, str(SUPPORT))

Recorded = list[tuple[dict[str, object], list[tuple[int, int]]]]


def has_simulator() -> bool:
    folder = os.environ.get("TESSERA_NATIVE_DIR", "")
    return (Path(folder) / "sim" / "libcuda.so.1").exists()


@pytest.fixture(scope="session")
def simulator() -> None:
    """Leave a test out where the simulated driver was not built."""
    pytest.importorskip("cuda.bindings.driver")
    if not has_simulator():
        pytest.skip("the simulated driver is not among the native artefacts")


@pytest.fixture(scope="session")
def recorded_corpus(
    simulator: None, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], tuple[str, Recorded]]:
    """PTX of a corpus, and some launches of each of its kernels, recorded."""
    from kernel_corpus import corpora, oracle
    from kernel_corpus.compiler import compile_corpus

    known: dict[str, tuple[str, Recorded]] = {}

    def get(name: str) -> tuple[str, Recorded]:
        if name not in known:
            text = compile_corpus(name)
            launches = [(k, seed) for k in corpora.kernels_of(name) for seed in range(8)]
            done = oracle.record(tmp_path_factory.mktemp(name), name, text, launches)
            known[name] = text, done
        return known[name]

    return get
