# SPDX-License-Identifier: Apache-2.0
"""Diffusion transformers of the FLUX kind: text encoder, denoiser, image decoder."""

from __future__ import annotations

from dataclasses import dataclass

from tessera.planning.launches import Range, Work, Workload
from tessera.planning.models.tape import ELEMENT, Memory, Tape


@dataclass(frozen=True)
class Diffusion:
    """A configuration, in the words of the models' own files."""

    name: str
    hidden: int
    heads: int
    double_blocks: int
    single_blocks: int
    text_tokens: int
    encoder_layers: int
    encoder_hidden: int
    encoder_heads: int  # of 64
    encoder_wide: int
    wide: int = 4  # of the MLP, in hidden sizes


def unit(model: Diffusion, pixels: float, steps: float, batch: float) -> Workload:
    """One denoising step of `batch` images, and their share of encoding and decoding.

    `pixels`: the side of a square image.
    """
    memory = Memory()
    encode, denoise, decode = (Tape(memory, name) for name in ("encode", "denoise", "decode"))
    prompt = memory.state("prompt", batch * model.text_tokens * model.encoder_hidden * ELEMENT)
    latent = memory.state("latent", batch * (pixels / 8) ** 2 * 16 * ELEMENT)
    _encode(encode, model, batch, prompt)
    _denoise(denoise, model, batch, (pixels / 16) ** 2, prompt, latent)
    _decode(decode, batch, pixels, latent)
    return Workload(
        name=model.name,
        jobs=(encode.job(1 / steps), denoise.job(1.0), decode.job(1 / steps)),
        regions=tuple(memory.regions),
        outputs=batch / steps,
        requests=batch / steps,
        parameters={"pixels": pixels, "steps": steps, "batch": batch},
    )


def _encode(tape: Tape, model: Diffusion, batch: float, prompt: Range) -> None:
    """T5: pre-norm layers with a gated MLP."""
    memory, hidden, wide = tape.memory, model.encoder_hidden, model.encoder_wide
    rows, inner = batch * model.text_tokens, model.encoder_heads * 64
    x = memory.temporary("encode.x", rows * hidden * ELEMENT)
    norm = memory.temporary("encode.norm", rows * hidden * ELEMENT)
    qkv = memory.temporary("encode.qkv", rows * 3 * inner * ELEMENT)
    mixed = memory.temporary("encode.mixed", rows * inner * ELEMENT)
    both = memory.temporary("encode.both", rows * 2 * wide * ELEMENT)
    gated = memory.temporary("encode.gated", rows * wide * ELEMENT)
    tokens = memory.temporary("encode.tokens", rows * 4)
    table = memory.weights("encode.embedding", 32128 * hidden * ELEMENT)
    tape.launch("embedding", [tokens, table], [x], Work(0, "f32", 2.0 * x.size), "other")
    for layer in range(model.encoder_layers):
        tape.pointwise("rms_norm", [x], [norm], "projection")
        weights = memory.weights(f"encode.{layer}.qkv", hidden * 3 * inner * ELEMENT)
        tape.gemm(norm, qkv, weights, rows, 3 * inner, hidden, "projection")
        flops = 4.0 * batch * model.text_tokens**2 * inner
        work = Work(flops, "tensor_bf16", float(qkv.size + mixed.size), "attention")
        tape.launch("flash_bias", [qkv], [mixed], work, "attention")
        weights = memory.weights(f"encode.{layer}.o", inner * hidden * ELEMENT)
        tape.gemm(mixed, norm, weights, rows, hidden, inner, "projection")
        tape.pointwise("add_rms_norm", [norm, x], [norm, x], "ffn")
        weights = memory.weights(f"encode.{layer}.up", hidden * 2 * wide * ELEMENT)
        tape.gemm(norm, both, weights, rows, 2 * wide, hidden, "ffn")
        tape.pointwise("gelu_and_mul", [both], [gated], "ffn")
        weights = memory.weights(f"encode.{layer}.down", wide * hidden * ELEMENT)
        tape.gemm(gated, norm, weights, rows, hidden, wide, "ffn")
        tape.pointwise("add", [norm, x], [x], "ffn")
    tape.pointwise("rms_norm", [x], [prompt], "other")


def _denoise(
    tape: Tape, model: Diffusion, batch: float, image_tokens: float, prompt: Range, latent: Range
) -> None:
    memory, hidden = tape.memory, model.hidden
    rows = {"img": batch * image_tokens, "txt": batch * model.text_tokens}
    sides = {
        side: memory.temporary(f"denoise.{side}", count * hidden * ELEMENT)
        for side, count in rows.items()
    }
    shift = memory.temporary("denoise.modulation", batch * 6 * hidden * ELEMENT)
    for side, source, width in (
        ("img", latent, 64),
        ("txt", prompt, model.encoder_hidden),
    ):
        weights = memory.weights(f"{side}_in", width * hidden * ELEMENT)
        tape.gemm(source, sides[side], weights, rows[side], hidden, width, "other")
    tokens = image_tokens + model.text_tokens
    for block in range(model.double_blocks):
        _double(tape, model, batch, tokens, f"double.{block}", rows, sides, shift)
    joint = memory.temporary("denoise.joint", batch * tokens * hidden * ELEMENT)
    tape.pointwise("concat", [sides["txt"], sides["img"]], [joint], "other", 0.0)
    for block in range(model.single_blocks):
        _single(tape, model, batch, tokens, f"single.{block}", joint, shift)
    out = memory.temporary("denoise.velocity", rows["img"] * 64 * ELEMENT)
    weights = memory.weights("final", hidden * 64 * ELEMENT)
    tape.gemm(joint, out, weights, rows["img"], 64, hidden, "other")
    tape.pointwise("euler_step", [out, latent], [latent], "other")


def _modulation(tape: Tape, model: Diffusion, batch: float, name: str, shift: Range) -> None:
    parts = 3 if name.startswith("single") else 6
    weights = tape.memory.weights(f"{name}.mod", model.hidden * parts * model.hidden * ELEMENT)
    vector = tape.memory.temporary("denoise.vector", batch * model.hidden * ELEMENT)
    tape.gemm(vector, shift, weights, batch, parts * model.hidden, model.hidden, "projection")


def _double(
    tape: Tape,
    model: Diffusion,
    batch: float,
    tokens: float,
    name: str,
    rows: dict[str, float],
    sides: dict[str, Range],
    shift: Range,
) -> None:
    """Text and image with weights of their own, and one attention over both."""
    memory, hidden = tape.memory, model.hidden
    query = memory.temporary("denoise.query", batch * tokens * 3 * hidden * ELEMENT)
    mixed = memory.temporary("denoise.mixed", batch * tokens * hidden * ELEMENT)
    for side, count in rows.items():
        _modulation(tape, model, batch, f"{name}.{side}", shift)
        norm = memory.temporary(f"denoise.{side}.norm", count * hidden * ELEMENT)
        qkv = memory.temporary(f"denoise.{side}.qkv", count * 3 * hidden * ELEMENT)
        tape.pointwise("norm_modulate", [sides[side], shift], [norm], "projection")
        weights = memory.weights(f"{name}.{side}.qkv", hidden * 3 * hidden * ELEMENT)
        tape.gemm(norm, qkv, weights, count, 3 * hidden, hidden, "projection")
        begin = query.begin if side == "img" else query.end - qkv.size
        tape.pointwise("qk_norm_rope", [qkv], [Range(begin, begin + qkv.size)], "attention")
    _flash(tape, model, batch, tokens, query, mixed)
    for side, count in rows.items():
        norm = memory.temporary(f"denoise.{side}.norm", count * hidden * ELEMENT)
        begin = mixed.begin if side == "img" else mixed.end - norm.size
        seen = Range(begin, begin + norm.size)
        weights = memory.weights(f"{name}.{side}.o", hidden * hidden * ELEMENT)
        tape.gemm(seen, norm, weights, count, hidden, hidden, "projection")
        tape.pointwise("gated_add", [norm, sides[side], shift], [sides[side]], "projection")
        tape.pointwise("norm_modulate", [sides[side], shift], [norm], "ffn")
        wide = memory.temporary(f"denoise.{side}.wide", count * model.wide * hidden * ELEMENT)
        weights = memory.weights(f"{name}.{side}.up", hidden * model.wide * hidden * ELEMENT)
        tape.gemm(norm, wide, weights, count, model.wide * hidden, hidden, "ffn")
        tape.pointwise("gelu", [wide], [wide], "ffn")
        weights = memory.weights(f"{name}.{side}.down", hidden * model.wide * hidden * ELEMENT)
        tape.gemm(wide, norm, weights, count, hidden, model.wide * hidden, "ffn")
        tape.pointwise("gated_add", [norm, sides[side], shift], [sides[side]], "ffn")


def _single(
    tape: Tape,
    model: Diffusion,
    batch: float,
    tokens: float,
    name: str,
    joint: Range,
    shift: Range,
) -> None:
    """Attention and MLP side by side, from one product and into one."""
    memory, hidden, rows = tape.memory, model.hidden, batch * tokens
    wide = model.wide * hidden
    norm = memory.temporary("denoise.single.norm", rows * hidden * ELEMENT)
    both = memory.temporary("denoise.single.both", rows * (3 * hidden + wide) * ELEMENT)
    query = memory.temporary("denoise.query", rows * 3 * hidden * ELEMENT)
    mixed = memory.temporary("denoise.single.mixed", rows * (hidden + wide) * ELEMENT)
    attended = Range(mixed.begin, mixed.begin + int(rows * hidden * ELEMENT))
    _modulation(tape, model, batch, name, shift)
    tape.pointwise("norm_modulate", [joint, shift], [norm], "projection")
    weights = memory.weights(f"{name}.linear1", hidden * (3 * hidden + wide) * ELEMENT)
    tape.gemm(norm, both, weights, rows, 3 * hidden + wide, hidden, "projection")
    qkv = Range(both.begin, both.begin + int(rows * 3 * hidden * ELEMENT))
    tape.pointwise("qk_norm_rope", [qkv], [query], "attention")
    _flash(tape, model, batch, tokens, query, attended)
    rest = Range(qkv.end, both.end)
    tape.pointwise("gelu", [rest], [Range(attended.end, mixed.end)], "ffn")
    weights = memory.weights(f"{name}.linear2", (hidden + wide) * hidden * ELEMENT)
    tape.gemm(mixed, norm, weights, rows, hidden, hidden + wide, "ffn")
    tape.pointwise("gated_add", [norm, joint, shift], [joint], "ffn")


def _flash(
    tape: Tape, model: Diffusion, batch: float, tokens: float, query: Range, mixed: Range
) -> None:
    flops = 4.0 * batch * tokens * tokens * model.hidden
    work = Work(flops, "tensor_bf16", float(query.size + mixed.size), "attention")
    tape.launch("flash_prefill", [query], [mixed], work, "attention")


def _decode(tape: Tape, batch: float, pixels: float, latent: Range) -> None:
    """The image decoder of latent diffusion: residual blocks at four resolutions."""
    memory = tape.memory
    source = latent
    for level, (scale, channels, inputs) in enumerate(
        ((8, 512, 512), (4, 512, 512), (2, 256, 512), (1, 128, 256))
    ):
        area = batch * (pixels / scale) ** 2
        for block in range(3):
            wide = inputs if block == 0 else channels
            for half in range(2):
                width = wide if half == 0 else channels
                name = f"decode.{level}.{block}.{half}"
                before = memory.temporary(f"decode.{level}.{block}.{half}.a", area * width * 2)
                target = memory.temporary(f"decode.{level}.{half}.b", area * channels * 2)
                tape.pointwise("group_norm_silu", [source], [before], "other", 8.0)
                weights = memory.weights(name, 9 * width * channels * ELEMENT)
                traffic = float(before.size + target.size + weights.size)
                work = Work(18.0 * area * width * channels, "tensor_bf16", traffic, "conv")
                tape.launch("conv3x3", [before, weights], [target], work, "other")
                source = target
