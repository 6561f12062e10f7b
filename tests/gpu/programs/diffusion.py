# SPDX-License-Identifier: Apache-2.0
"""Steps of a diffusion transformer (DiT: attention modulated by the step) with random weights."""

import math

from common import run, seeded_torch

torch = seeded_torch()
WIDTH, HEADS, STEPS = 256, 4, 4


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.modulation = torch.nn.Linear(WIDTH, 6 * WIDTH)
        self.norms = torch.nn.ModuleList(
            torch.nn.LayerNorm(WIDTH, elementwise_affine=False) for _ in range(2)
        )
        self.qkv, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.mlp = torch.nn.Sequential(
            torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.GELU(), torch.nn.Linear(4 * WIDTH, WIDTH)
        )

    def attend(self, x: "torch.Tensor") -> "torch.Tensor":
        batch, tokens, _ = x.shape
        parts = self.qkv(x).view(batch, tokens, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = torch.nn.functional.scaled_dot_product_attention(*parts)
        return self.out(mixed.transpose(1, 2).reshape(batch, tokens, WIDTH))

    def forward(self, x: "torch.Tensor", step: "torch.Tensor") -> "torch.Tensor":
        six = self.modulation(torch.nn.functional.silu(step))[:, None].chunk(6, -1)
        x = x + six[2] * self.attend(self.norms[0](x) * (1 + six[1]) + six[0])
        return x + six[5] * self.mlp(self.norms[1](x) * (1 + six[4]) + six[3])


class Dit(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patch = torch.nn.Conv2d(4, WIDTH, 2, stride=2)
        self.blocks = torch.nn.ModuleList(Block() for _ in range(4))
        self.unpatch = torch.nn.ConvTranspose2d(WIDTH, 4, 2, stride=2)

    def forward(self, x: "torch.Tensor", step: "torch.Tensor") -> "torch.Tensor":
        rates = torch.exp(torch.arange(WIDTH // 2, device=x.device) * (-math.log(1e4) * 2 / WIDTH))
        angles = step[:, None] * rates
        embedded = torch.cat([angles.sin(), angles.cos()], -1).to(x.dtype)
        patches = self.patch(x)
        tokens = patches.flatten(2).transpose(1, 2)
        for block in self.blocks:
            tokens = block(tokens, embedded)
        return self.unpatch(tokens.transpose(1, 2).reshape(patches.shape))


def main() -> list["torch.Tensor"]:
    net = Dit().cuda().half().eval()
    x = torch.randn(2, 4, 32, 32, device="cuda", dtype=torch.half)
    with torch.no_grad():
        for step in range(STEPS):
            x = x - net(x, torch.full((2,), STEPS - step, device="cuda", dtype=torch.half)) / STEPS
    return [x]


run(main)
