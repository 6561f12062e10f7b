# SPDX-License-Identifier: Apache-2.0
"""Access summaries: which bytes a kernel reads and writes, from its PTX.

    summaries = analyze_module(ptx_text)
    print(summaries["softmax"].explain())

`pipeline.py` lists the passes; `summary.h` of native/access is the seam to the shim.
"""

from tessera.analysis.evaluate import evaluate
from tessera.analysis.model import (
    HOME_ONLY,
    Access,
    Flag,
    KernelSummary,
    Mode,
    Node,
    Parameter,
    Property,
)
from tessera.analysis.pipeline import analyze_module

__all__ = [
    "HOME_ONLY",
    "Access",
    "Flag",
    "KernelSummary",
    "Mode",
    "Node",
    "Parameter",
    "Property",
    "analyze_module",
    "evaluate",
]
