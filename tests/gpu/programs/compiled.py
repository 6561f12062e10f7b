# SPDX-License-Identifier: Apache-2.0
"""An MLP under torch.compile: Inductor's Triton kernels, cubins loaded by path."""

from common import run, seeded_torch

torch = seeded_torch()


class Block(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = torch.nn.RMSNorm(width)
        self.up, self.gate, self.down = (
            torch.nn.Linear(width, width, bias=False) for _ in range(3)
        )

    def forward(self, x: "torch.Tensor") -> "torch.Tensor":
        y = self.norm(x)
        y = torch.nn.functional.silu(self.gate(y)) * self.up(y)
        return x + self.down(y) + torch.softmax(x, -1).cumsum(-1)


def main() -> list["torch.Tensor"]:
    net = torch.nn.Sequential(*(Block(512) for _ in range(3))).cuda().eval()
    compiled = torch.compile(net)
    x = torch.randn(64, 512, device="cuda")
    with torch.no_grad():
        return [compiled(x), compiled(x * 2)]


run(main)
