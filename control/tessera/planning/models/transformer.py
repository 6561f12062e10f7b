# SPDX-License-Identifier: Apache-2.0
"""Decoder-only transformers, dense and with experts."""

from __future__ import annotations

from dataclasses import dataclass

from tessera.planning.launches import Range, Work, Workload
from tessera.planning.models.tape import ELEMENT, Memory, Tape, part


@dataclass(frozen=True)
class Transformer:
    """A configuration, in the words of the models' own files."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    intermediate: int
    vocabulary: int
    experts: int = 0  # 0: dense
    experts_per_token: int = 0

    @property
    def q_size(self) -> int:
        return self.heads * self.head_size

    @property
    def kv_size(self) -> int:
        """Elements of keys and values of one token in one layer."""
        return 2 * self.kv_heads * self.head_size


@dataclass(frozen=True)
class _Step:
    """Rows that go through a layer, and what attention sees."""

    rows: float
    attention_flops: float
    cache_read: float  # bytes of one layer
    cache_written: float
    cache: float  # bytes of one layer that a unit in flight keeps
    last_rows: float  # rows that logits are wanted for


def unit(model: Transformer, prompt: float, output: float, batch: float) -> Workload:
    """One decode step of `batch` requests, and the prefill of those that take the place of
    the ones that end: batch / output of them a step.
    """
    memory = Memory()
    context = prompt + output / 2
    cache = batch * context * model.kv_size * ELEMENT
    prefill = _Step(
        rows=prompt,
        attention_flops=2.0 * prompt * prompt * model.q_size,  # causal: half of 4 n n d
        cache_read=prompt * model.kv_size * ELEMENT,
        cache_written=prompt * model.kv_size * ELEMENT,
        cache=cache,
        last_rows=1,
    )
    decode = _Step(
        rows=batch,
        attention_flops=4.0 * batch * context * model.q_size,
        cache_read=cache,
        cache_written=batch * model.kv_size * ELEMENT,
        cache=cache,
        last_rows=batch,
    )
    jobs = []
    for name, step, count in (("prefill", prefill, batch / output), ("decode", decode, 1.0)):
        tape = Tape(memory, name)
        _pass(tape, model, step)
        jobs.append(tape.job(count))
    return Workload(
        name=model.name,
        jobs=tuple(jobs),
        regions=tuple(memory.regions),
        outputs=batch,
        requests=batch / output,
        parameters={"prompt": prompt, "output": output, "batch": batch},
    )


def _pass(tape: Tape, model: Transformer, step: _Step) -> None:
    memory, rows = tape.memory, step.rows
    row = rows * model.hidden * ELEMENT
    tokens = memory.temporary(f"{tape.name}.tokens", rows * 4)
    x = memory.temporary(f"{tape.name}.x", row)
    residual = memory.temporary(f"{tape.name}.residual", row)
    table = memory.weights("embedding", model.vocabulary * model.hidden * ELEMENT)
    work = Work(0.0, "f32", 2 * row)
    tape.launch("embedding", [tokens, table], [x, residual], work, "other")
    for layer in range(model.layers):
        _attention(tape, model, step, layer, x, residual)
        norm = memory.temporary(f"{tape.name}.norm", row)
        tape.pointwise("add_rms_norm", [x, residual], [norm, residual], "ffn")
        if model.experts:
            _experts(tape, model, step, layer, norm, x)
        else:
            _feed_forward(tape, model, step, layer, norm, x)
    _head(tape, model, step, x, residual, tokens)


def _attention(
    tape: Tape, model: Transformer, step: _Step, layer: int, x: Range, residual: Range
) -> None:
    memory, rows = tape.memory, step.rows
    hidden, width = model.hidden, model.q_size + model.kv_size
    norm = memory.temporary(f"{tape.name}.norm", rows * hidden * ELEMENT)
    qkv = memory.temporary(f"{tape.name}.qkv", rows * width * ELEMENT)
    query = memory.temporary(f"{tape.name}.query", rows * model.q_size * ELEMENT)
    mixed = memory.temporary(f"{tape.name}.mixed", rows * model.q_size * ELEMENT)
    cache = memory.state(f"cache.{layer}", step.cache)
    written = part(cache, step.cache_written)
    tape.pointwise("add_rms_norm", [x, residual], [norm, residual], "projection")
    weights = memory.weights(f"{layer}.qkv", hidden * width * ELEMENT)
    tape.gemm(norm, qkv, weights, rows, width, hidden, "projection")
    tape.pointwise("rope_and_cache", [qkv], [query, written], "attention")
    seen = part(cache, step.cache_read)
    traffic = step.cache_read + 2 * rows * model.q_size * ELEMENT
    flash = "flash_prefill" if step.last_rows == 1 and rows > 1 else "paged_attention"
    work = Work(step.attention_flops, "tensor_bf16", traffic, "attention")
    tape.launch(flash, [query, seen], [mixed], work, "attention")
    weights = memory.weights(f"{layer}.o", model.q_size * hidden * ELEMENT)
    tape.gemm(mixed, x, weights, rows, hidden, model.q_size, "projection")


def _feed_forward(
    tape: Tape, model: Transformer, step: _Step, layer: int, norm: Range, x: Range
) -> None:
    memory, rows, wide = tape.memory, step.rows, model.intermediate
    both = memory.temporary(f"{tape.name}.gate_up", rows * 2 * wide * ELEMENT)
    gated = memory.temporary(f"{tape.name}.gated", rows * wide * ELEMENT)
    up = memory.weights(f"{layer}.gate_up", model.hidden * 2 * wide * ELEMENT)
    down = memory.weights(f"{layer}.down", wide * model.hidden * ELEMENT)
    tape.gemm(norm, both, up, rows, 2 * wide, model.hidden, "ffn")
    tape.pointwise("silu_and_mul", [both], [gated], "ffn")
    tape.gemm(gated, x, down, rows, model.hidden, wide, "ffn")


def _experts(
    tape: Tape, model: Transformer, step: _Step, layer: int, norm: Range, x: Range
) -> None:
    """Routing, a grouped product over the experts that the rows meet, and the way back."""
    memory, rows, wide = tape.memory, step.rows, model.intermediate
    count, chosen = model.experts, model.experts_per_token
    picked = rows * chosen
    met = count * (1.0 - (1.0 - chosen / count) ** rows)  # experts that any row meets
    scores = memory.temporary(f"{tape.name}.scores", rows * count * ELEMENT)
    routes = memory.temporary(f"{tape.name}.routes", picked * 8)
    spread = memory.temporary(f"{tape.name}.spread", picked * model.hidden * ELEMENT)
    both = memory.temporary(f"{tape.name}.gate_up", picked * 2 * wide * ELEMENT)
    gated = memory.temporary(f"{tape.name}.gated", picked * wide * ELEMENT)
    back = memory.temporary(f"{tape.name}.back", picked * model.hidden * ELEMENT)
    router = memory.weights(f"{layer}.router", model.hidden * count * ELEMENT)
    up = memory.weights(f"{layer}.experts_up", count * model.hidden * 2 * wide * ELEMENT)
    down = memory.weights(f"{layer}.experts_down", count * wide * model.hidden * ELEMENT)
    tape.gemm(norm, scores, router, rows, count, model.hidden, "ffn")
    tape.pointwise("topk_softmax", [scores], [routes], "ffn")
    tape.pointwise("moe_permute", [norm, routes], [spread], "ffn", 1.0)
    for source, target, weights, n, k in (
        (spread, both, up, 2 * wide, model.hidden),
        (gated, back, down, model.hidden, wide),
    ):
        traffic = ELEMENT * (picked * (n + k) + met * n * k)
        work = Work(2.0 * picked * n * k, "tensor_bf16", traffic, "gemm")
        tape.launch("grouped_gemm", [source, weights, routes], [target], work, "ffn")
        if target is both:
            tape.pointwise("silu_and_mul", [both], [gated], "ffn")
    tape.pointwise("moe_combine", [back, routes], [x], "ffn")


def _head(
    tape: Tape, model: Transformer, step: _Step, x: Range, residual: Range, tokens: Range
) -> None:
    memory, rows = tape.memory, step.last_rows
    row = rows * model.hidden * ELEMENT
    last = memory.temporary(f"{tape.name}.last", row)
    logits = memory.temporary(f"{tape.name}.logits", rows * model.vocabulary * ELEMENT)
    weights = memory.weights("lm_head", model.vocabulary * model.hidden * ELEMENT)
    work = Work(0.0, "f32", 3 * row)
    tape.launch("final_norm", [part(x, row), part(residual, row)], [last], work, "other")
    tape.gemm(last, logits, weights, rows, model.vocabulary, model.hidden, "other")
    tape.pointwise("sample", [logits], [part(tokens, rows * 4)], "other")
