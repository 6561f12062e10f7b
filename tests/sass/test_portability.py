# SPDX-License-Identifier: Apache-2.0
"""Machine code runs on newer devices of its major version, or on the one it was made for."""

from __future__ import annotations

import pytest

pytest.importorskip("cuda.bindings")

from sass import images
from tessera.protocol.architectures import needs, runs_on
from tessera.sass import analyze_cubin

images.need_nvdisasm()


@pytest.mark.parametrize(
    ("target", "runs", "does_not"),
    [
        ("sm_75", [75], [80, 90]),
        ("sm_80", [80, 86, 89], [75, 87, 90, 100]),
        ("sm_86", [86, 89], [80, 87, 90]),
        ("sm_90", [90], [89, 100]),
        ("sm_90a", [90], [80, 100]),
        ("sm_100a", [100], [103, 110, 120]),
        ("sm_120", [120, 121], [100, 110]),
    ],
)
def test_where_a_cubin_runs(target: str, runs: list[int], does_not: list[int]) -> None:
    found = analyze_cubin(images.compile_source(images.source("loops", target), target)[1])
    assert found
    for summary in (one.summary for one in found.values()):
        minimum, only = summary.minimum_architecture, summary.only_architecture
        assert [device for device in runs if runs_on(minimum, only, device)] == runs
        assert [device for device in does_not if runs_on(minimum, only, device)] == []


def test_ptx_runs_on_everything_newer() -> None:
    assert [d for d in (70, 75, 87, 120) if runs_on(75, 0, d)] == [75, 87, 120]
    assert (needs(75, 0), needs(80, 8), needs(90, 90)) == (
        "sm_75 or newer", "sm_80 or newer of 8.x", "sm_90 and no other"
    )  # fmt: skip
