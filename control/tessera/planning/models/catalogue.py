# SPDX-License-Identifier: Apache-2.0
"""The models and request mixes that plans are evaluated on."""

from __future__ import annotations

from dataclasses import dataclass

from tessera.planning.launches import Workload
from tessera.planning.models import diffusion, state_space, transformer
from tessera.planning.models.diffusion import Diffusion
from tessera.planning.models.state_space import StateSpace
from tessera.planning.models.transformer import Transformer

Model = Transformer | StateSpace | Diffusion

ARCHITECTURES: dict[str, Model] = {
    "dense": Transformer("Llama-3.1-8B", 32, 4096, 32, 8, 128, 14336, 128256),
    "moe": Transformer("Qwen3-30B-A3B", 48, 2048, 32, 4, 128, 768, 151936, 128, 8),
    "ssm": StateSpace("Codestral-Mamba-7B", 64, 4096, 128, 64, 8, 32768),
    "diffusion": Diffusion("FLUX.1-dev", 3072, 24, 19, 38, 512, 24, 4096, 64, 10240),
}
"""Numbers as in the config.json that each model is published with; weights in bf16."""


@dataclass(frozen=True)
class Mix:
    """What requests are like: prompt and output tokens; pixels and steps of images."""

    name: str
    prompt: float
    output: float
    batches: tuple[int, ...]  # requests in one unit of work that are tried


_TOKENS = (16, 32, 64, 128, 256, 512)
_IMAGES = (1, 2, 4)
MIXES: dict[str, tuple[Mix, ...]] = {
    "text": (
        Mix("summarize 4096/256", 4096, 256, _TOKENS),
        Mix("chat 1024/512", 1024, 512, _TOKENS),
        Mix("write 256/1024", 256, 1024, _TOKENS),
    ),
    "image": (
        Mix("1024 px, 28 steps", 1024, 28, _IMAGES),
        Mix("512 px, 28 steps", 512, 28, _IMAGES),
        Mix("1024 px, 4 steps", 1024, 4, _IMAGES),
    ),
}


def mixes(architecture: str) -> tuple[Mix, ...]:
    """The request mixes of an architecture."""
    image = isinstance(ARCHITECTURES[architecture], Diffusion)
    return MIXES["image" if image else "text"]


def workload(architecture: str, prompt: float, output: float, batch: float) -> Workload:
    """The launches of one unit of work. Raises KeyError for an unknown architecture."""
    model = ARCHITECTURES[architecture]
    if isinstance(model, Transformer):
        return transformer.unit(model, prompt, output, batch)
    if isinstance(model, StateSpace):
        return state_space.unit(model, prompt, output, batch)
    return diffusion.unit(model, prompt, output, batch)
