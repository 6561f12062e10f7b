# SPDX-License-Identifier: Apache-2.0
"""Prefill and greedy decode of a small Llama with random weights, eager."""

import os

from common import greedy, run, seeded_torch

torch = seeded_torch()


def model() -> "torch.nn.Module":
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=1024,
        intermediate_size=2816,
        num_hidden_layers=4,
        num_attention_heads=16,
        num_key_value_heads=4,
        vocab_size=8000,
    )
    return LlamaForCausalLM(config).to("cuda", torch.bfloat16).eval()


def main() -> list["torch.Tensor"]:
    llama = model()
    if os.environ.get("COMPILE") == "1":
        llama = torch.compile(llama)
    return greedy(llama, torch.randint(0, 8000, (2, 128), device="cuda"), steps=8)


run(main)
