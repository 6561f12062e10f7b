# SPDX-License-Identifier: Apache-2.0
"""Access summaries from machine code, for images that hold no PTX.

    for name, found in analyze_cubin(data).items():
        print(found.grade, found.summary.explain())

`opcodes.py` is the table of what has been taught; docs/sass.md says what the grades mean.
"""

from tessera.sass.disassembly import DisassemblyError
from tessera.sass.kernel import Grade
from tessera.sass.pipeline import SassSummary, analyze_cubin, merge

__all__ = ["DisassemblyError", "Grade", "SassSummary", "analyze_cubin", "merge"]
