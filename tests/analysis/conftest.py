# SPDX-License-Identifier: Apache-2.0
"""Makes the corpus of kernels importable."""

import sys
from pathlib import Path

SUPPORT = Path(__file__).parent / "support"
if str(SUPPORT) not in sys.path:
    sys.path.insert(0, str(SUPPORT))
