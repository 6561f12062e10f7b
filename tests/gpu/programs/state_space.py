# SPDX-License-Identifier: Apache-2.0
"""Prefill and greedy decode of a small Mamba-like state space model with random weights."""

from common import greedy, run, seeded_torch

torch = seeded_torch()


def model() -> "torch.nn.Module":
    from transformers import MambaConfig, MambaForCausalLM

    config = MambaConfig(hidden_size=256, state_size=16, num_hidden_layers=2, vocab_size=4000)
    return MambaForCausalLM(config).to("cuda").eval()


def main() -> list["torch.Tensor"]:
    mamba, tokens = model(), torch.randint(0, 4000, (2, 16), device="cuda")
    return greedy(mamba, tokens, steps=3, keep="cache_params")


run(main)
