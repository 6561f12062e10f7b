# SPDX-License-Identifier: Apache-2.0
"""MiniLM in NumPy, float32 throughout: what the GPU's result is checked against."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Weights = dict[str, Array]

_erf = np.vectorize(math.erf, otypes=[np.float32])


def layer_norm(x: Array, weights: Weights, name: str, epsilon: float) -> Array:
    """Layer norm over the last axis with the gain and bias of `name`."""
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred * centred).mean(axis=-1, keepdims=True)
    scaled = centred / np.sqrt(variance + np.float32(epsilon))
    return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def gelu(x: Array) -> Array:
    """The exact GELU."""
    return 0.5 * x * (1.0 + _erf(x / np.float32(math.sqrt(2.0))))


def softmax(x: Array) -> Array:
    """Softmax over the last axis."""
    power = np.exp(x - x.max(axis=-1, keepdims=True))
    return power / power.sum(axis=-1, keepdims=True)


def encode(weights: Weights, tokens: Array, heads: int, epsilon: float) -> Array:
    """The last layer's output for one sentence without padding: [tokens, width]."""
    embeddings = "embeddings"
    x = weights[f"{embeddings}.word_embeddings.weight"][tokens]
    x = x + weights[f"{embeddings}.position_embeddings.weight"][: len(tokens)]
    x = x + weights[f"{embeddings}.token_type_embeddings.weight"][0]
    x = layer_norm(x, weights, f"{embeddings}.LayerNorm", epsilon)

    def dense(value: Array, name: str) -> Array:
        return value @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def split(value: Array) -> Array:
        return value.reshape(len(tokens), heads, -1).transpose(1, 0, 2)

    index = 0
    while f"encoder.layer.{index}.output.dense.weight" in weights:
        layer = f"encoder.layer.{index}"
        own = f"{layer}.attention.self"
        query, key, value = (split(dense(x, f"{own}.{part}")) for part in ("query", "key", "value"))
        score = query @ key.transpose(0, 2, 1) / np.float32(math.sqrt(query.shape[-1]))
        mixed = (softmax(score) @ value).transpose(1, 0, 2).reshape(x.shape)
        x = x + dense(mixed, f"{layer}.attention.output.dense")
        x = layer_norm(x, weights, f"{layer}.attention.output.LayerNorm", epsilon)
        wide = gelu(dense(x, f"{layer}.intermediate.dense"))
        x = x + dense(wide, f"{layer}.output.dense")
        x = layer_norm(x, weights, f"{layer}.output.LayerNorm", epsilon)
        index += 1
    return x


def embed(weights: Weights, tokens: Array, lengths: Array, heads: int, epsilon: float) -> Array:
    """A unit vector for each row of `tokens`, whose rows are padded past `lengths`."""
    means = [
        encode(weights, row[:length], heads, epsilon).mean(axis=0)
        for row, length in zip(tokens, lengths, strict=True)
    ]
    vectors = np.stack(means)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
