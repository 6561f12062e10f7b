# SPDX-License-Identifier: Apache-2.0
"""Prefill and greedy decode of a small Mixtral-like mixture of experts with random weights."""

from common import greedy, run, seeded_torch

torch = seeded_torch()


def model() -> "torch.nn.Module":
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(
        hidden_size=512,
        intermediate_size=1024,
        num_hidden_layers=3,
        num_attention_heads=8,
        num_key_value_heads=4,
        num_local_experts=8,
        num_experts_per_tok=2,
        vocab_size=4000,
    )
    return MixtralForCausalLM(config).to("cuda", torch.bfloat16).eval()


def main() -> list["torch.Tensor"]:
    return greedy(model(), torch.randint(0, 4000, (2, 64), device="cuda"), steps=4)


run(main)
