# SPDX-License-Identifier: Apache-2.0
"""One causal transformer block with random weights, its kernels written in Triton.

Layer norm, attention, a projection, layer norm, an MLP with GELU, and a softmax
over the outputs, checked against NumPy.

    python examples/transformer_block.py --tokens 96
"""

import argparse
import sys
from typing import Any

import numpy as np
import numpy.typing as npt
from support import minilm_numpy as reference
from support.device_array import DeviceArray, use_device
from support.kernels import add_layer_norm, attention, gelu, linear, softmax

WIDTH, HEADS, HIDDEN = 128, 4, 512
EPSILON = 1e-5

Array = npt.NDArray[Any]
Weights = dict[str, Array]


def random_weights(generator: np.random.Generator) -> Weights:
    """Weights that float16 holds exactly, so that both sides multiply by the same numbers."""
    shapes = {"qkv": (WIDTH, 3 * WIDTH), "out": (WIDTH, WIDTH)}
    shapes |= {"up": (WIDTH, HIDDEN), "down": (HIDDEN, WIDTH)}
    weights: Weights = {}
    for name, shape in shapes.items():
        values = generator.normal(0.0, shape[0] ** -0.5, shape)
        weights[f"{name}.weight"] = values.astype(np.float16).astype(np.float32)
        weights[f"{name}.bias"] = generator.normal(0.0, 0.1, shape[1]).astype(np.float32)
    for name in ("norm1", "norm2"):
        weights[f"{name}.weight"] = generator.normal(1.0, 0.1, WIDTH).astype(np.float32)
        weights[f"{name}.bias"] = generator.normal(0.0, 0.1, WIDTH).astype(np.float32)
    return weights


def on_device(weights: Weights, x: Array) -> Array:
    """The block on the GPU."""

    def dense(name: str) -> tuple[DeviceArray, DeviceArray]:
        return (
            DeviceArray.of(weights[f"{name}.weight"], np.float16),
            DeviceArray.of(weights[f"{name}.bias"]),
        )

    def norm(name: str) -> tuple[DeviceArray, DeviceArray]:
        return DeviceArray.of(weights[f"{name}.weight"]), DeviceArray.of(weights[f"{name}.bias"])

    inputs = DeviceArray.of(x)
    length = DeviceArray.of([len(x)], np.int32)
    nothing = DeviceArray.of(np.zeros_like(x))
    normed = add_layer_norm(inputs, nothing, *norm("norm1"), EPSILON)
    mixed = attention(linear(normed, *dense("qkv")), length, HEADS, causal=True)
    normed = add_layer_norm(linear(mixed, *dense("out")), inputs, *norm("norm2"), EPSILON)
    return softmax(linear(gelu(linear(normed, *dense("up"))), *dense("down"))).numpy()


def on_host(weights: Weights, x: Array) -> Array:
    """The same block in NumPy."""

    def dense(value: Array, name: str) -> Array:
        return value @ weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def split(value: Array) -> Array:
        return value.reshape(len(x), HEADS, -1).transpose(1, 0, 2)

    normed = reference.layer_norm(x, weights, "norm1", EPSILON)
    query, key, value = (split(part) for part in np.split(dense(normed, "qkv"), 3, axis=1))
    score = query @ key.transpose(0, 2, 1) / np.float32(np.sqrt(WIDTH // HEADS))
    score = np.where(np.tri(len(x), dtype=bool), score, -np.inf)
    mixed = (reference.softmax(score) @ value).transpose(1, 0, 2).reshape(x.shape)
    normed = reference.layer_norm(dense(mixed, "out") + x, weights, "norm2", EPSILON)
    return reference.softmax(dense(reference.gelu(dense(normed, "up")), "down"))


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)

    use_device()
    generator = np.random.default_rng(options.seed)
    weights = random_weights(generator)
    x = generator.normal(0.0, 1.0, (options.tokens, WIDTH)).astype(np.float32)
    result = on_device(weights, x)
    expected = on_host(weights, x)
    worst = float((np.abs(result - expected) / expected).max())
    if not worst < 0.02:  # float16 activations in four products, then an exponential
        raise SystemExit(f"WRONG: a probability is off by {worst:.2%}")
    print(
        f"{options.tokens} tokens agree with NumPy: no probability is off by more than {worst:.2%}"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
