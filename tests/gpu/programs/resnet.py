# SPDX-License-Identifier: Apache-2.0
"""ResNet-50 inference with random weights."""

from common import run, seeded_torch

torch = seeded_torch()


def main() -> list["torch.Tensor"]:
    from torchvision.models import resnet50

    net = resnet50(weights=None).cuda().eval()
    x = torch.randn(4, 3, 224, 224, device="cuda")
    with torch.no_grad():
        return [net(x), net(x.flip(0))]


run(main)
