# SPDX-License-Identifier: Apache-2.0
"""Three AdamW steps of a transformer encoder layer."""

from common import run, seeded_torch

torch = seeded_torch()


def main() -> list["torch.Tensor"]:
    layer = torch.nn.TransformerEncoderLayer(256, 4, 512, dropout=0.0, batch_first=True).cuda()
    optimizer = torch.optim.AdamW(layer.parameters(), lr=1e-3)
    x = torch.randn(8, 64, 256, device="cuda")
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = layer(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss)
    return [*losses, *layer.parameters()]


run(main)
