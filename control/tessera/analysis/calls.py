# SPDX-License-Identifier: Apache-2.0
"""Functions that CUDA's runtime provides to device code."""

from __future__ import annotations

from tessera.analysis.model import NOTHING, Property

_KNOWN = {
    "vprintf": Property.PRINTS,
    "malloc": Property.ALLOCATES,
    "free": Property.ALLOCATES,
    "__assertfail": Property.ASSERTS,
    "__assert_fail": Property.ASSERTS,
    "__nvvm_reflect": NOTHING,
    "cudaCGGetIntrinsicHandle": Property.GRID_SYNC,
    "cudaCGSynchronize": Property.GRID_SYNC,
    "cudaCGSynchronizeGrid": Property.GRID_SYNC,
}
_LAUNCHING = ("cudaLaunchDevice", "cudaGetParameterBuffer", "__cudaCDP", "cudaDeviceSynchronize",
              "cudaStream", "cudaEvent")  # fmt: skip


def external_call(name: str) -> Property | None:
    """What a kernel that calls `name` does; None for a function that is not known."""
    if name.startswith(_LAUNCHING):
        return Property.LAUNCHES | Property.UNKNOWN  # what it launches may touch anything
    return _KNOWN.get(name)
