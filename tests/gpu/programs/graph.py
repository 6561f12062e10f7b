# SPDX-License-Identifier: Apache-2.0
"""A CUDA graph, captured once and replayed with new input."""

from common import run, seeded_torch

torch = seeded_torch()


def main() -> list["torch.Tensor"]:
    weight = torch.randn(256, 256, device="cuda")
    x = torch.randn(256, 256, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            torch.relu(x @ weight).softmax(-1)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = torch.relu(x @ weight).softmax(-1)
    results = []
    for step in range(3):
        x.normal_().mul_(step + 1)
        graph.replay()
        results.append(y.clone())
    return results


run(main)
