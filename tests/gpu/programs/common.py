# SPDX-License-Identifier: Apache-2.0
"""What the programs of the GPU tests share: fixed seeds, and their results as bytes."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any


def seeded_torch() -> Any:
    """The torch module, seeded and restricted to deterministic algorithms."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    import torch

    torch.manual_seed(20)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False
    return torch


def digests(arrays: Iterable[Any]) -> list[str]:
    """SHA-256 of the bytes of each torch tensor, or of whatever turns into a NumPy array."""
    return [hashlib.sha256(memoryview(host_bytes(array)).tobytes()).hexdigest() for array in arrays]


def host_bytes(array: Any) -> Any:
    """A buffer with the bytes of one tensor or array."""
    if not hasattr(array, "detach"):
        return array
    import torch

    return array.detach().contiguous().cpu().reshape(-1).view(torch.uint8).numpy()


def greedy(model: Any, tokens: Any, steps: int, keep: str = "past_key_values") -> list[Any]:
    """The logits of a prompt and of the `steps` tokens that the model likes best after it.

    `keep` names what the model hands from one step to the next.
    """
    import torch

    results = []
    with torch.no_grad():
        out = model(tokens, use_cache=True)
        results.append(out.logits)
        for _ in range(steps):
            best = out.logits[:, -1:].argmax(-1)
            out = model(best, use_cache=True, **{keep: getattr(out, keep)})
            results.append(out.logits)
    return results


def run(main: Callable[[], Iterable[Any]]) -> None:
    """Runs `main` and writes a digest of all it returns, and one of each result, a line each.

    The file is named by argv[1]. With the lines, a test that fails can say which result differs.
    """
    began = time.perf_counter()
    each = digests(main())
    result = hashlib.sha256("".join(each).encode()).hexdigest()
    lines = [result, *(f"{i} {text}" for i, text in enumerate(each))]
    Path(sys.argv[1]).write_text("\n".join(lines))
    print(f"{Path(sys.argv[0]).stem}: {result[:16]} in {time.perf_counter() - began:.2f} s")
