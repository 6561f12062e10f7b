# SPDX-License-Identifier: Apache-2.0
"""State-space models of the Mamba-2 kind."""

from __future__ import annotations

from dataclasses import dataclass

from tessera.planning.launches import Range, Work, Workload
from tessera.planning.models.tape import ELEMENT, Memory, Tape, part


@dataclass(frozen=True)
class StateSpace:
    """A configuration, in the words of the models' own files."""

    name: str
    layers: int
    hidden: int
    state: int  # d_state
    head_size: int
    groups: int
    vocabulary: int
    expand: int = 2
    convolution: int = 4
    chunk: int = 256

    @property
    def inner(self) -> int:
        return self.expand * self.hidden

    @property
    def heads(self) -> int:
        return self.inner // self.head_size

    @property
    def mixed(self) -> int:
        """Channels that go through the convolution: x, B and C."""
        return self.inner + 2 * self.groups * self.state

    @property
    def projected(self) -> int:
        """What the first product gives: z, x, B, C and the step sizes."""
        return self.inner + self.mixed + self.heads


def unit(model: StateSpace, prompt: float, output: float, batch: float) -> Workload:
    """One decode step of `batch` requests, and the prefill of their successors."""
    memory = Memory()
    prefill, decode = Tape(memory, "prefill"), Tape(memory, "decode")
    _pass(prefill, model, prompt, 1, batch)
    _pass(decode, model, batch, batch, batch)
    return Workload(
        name=model.name,
        jobs=(prefill.job(batch / output), decode.job(1.0)),
        regions=tuple(memory.regions),
        outputs=batch,
        requests=batch / output,
        parameters={"prompt": prompt, "output": output, "batch": batch},
    )


def _pass(tape: Tape, model: StateSpace, rows: float, requests: float, batch: float) -> None:
    memory = tape.memory
    row = rows * model.hidden * ELEMENT
    tokens = memory.temporary(f"{tape.name}.tokens", rows * 4)
    x = memory.temporary(f"{tape.name}.x", row)
    residual = memory.temporary(f"{tape.name}.residual", row)
    table = memory.weights("embedding", model.vocabulary * model.hidden * ELEMENT)
    tape.launch("embedding", [tokens, table], [x, residual], Work(0, "f32", 2 * row), "other")
    for layer in range(model.layers):
        _layer(tape, model, rows, requests, batch, layer, x, residual)
    last_row = requests * model.hidden * ELEMENT
    last = memory.temporary(f"{tape.name}.last", last_row)
    logits = memory.temporary(f"{tape.name}.logits", requests * model.vocabulary * ELEMENT)
    weights = memory.weights("lm_head", model.vocabulary * model.hidden * ELEMENT)
    work = Work(0.0, "f32", 3 * last_row)
    tape.launch("final_norm", [part(x, last_row), part(residual, last_row)], [last], work, "other")
    tape.gemm(last, logits, weights, requests, model.vocabulary, model.hidden, "other")
    tape.pointwise("sample", [logits], [part(tokens, requests * 4)], "other")


def _layer(
    tape: Tape,
    model: StateSpace,
    rows: float,
    requests: float,
    batch: float,
    layer: int,
    x: Range,
    residual: Range,
) -> None:
    memory = tape.memory
    norm = memory.temporary(f"{tape.name}.norm", rows * model.hidden * ELEMENT)
    wide = memory.temporary(f"{tape.name}.zxbcdt", rows * model.projected * ELEMENT)
    mixed = memory.temporary(f"{tape.name}.xbc", rows * model.mixed * ELEMENT)
    y = memory.temporary(f"{tape.name}.y", rows * model.inner * ELEMENT)
    gated = memory.temporary(f"{tape.name}.gated", rows * model.inner * ELEMENT)
    window = model.mixed * model.convolution * ELEMENT  # of one request
    tail = memory.state(f"conv.{layer}", batch * window)
    one_state = model.inner * model.state * ELEMENT
    state = memory.state(f"state.{layer}", batch * one_state)
    tape.pointwise("add_rms_norm", [x, residual], [norm, residual], "projection")
    weights = memory.weights(f"{layer}.in", model.hidden * model.projected * ELEMENT)
    tape.gemm(norm, wide, weights, rows, model.projected, model.hidden, "projection")
    touched = part(tail, requests * window)
    if tape.name == "decode":
        tape.pointwise("conv1d_update", [wide, touched], [mixed, touched], "attention", 8.0)
        _state_update(tape, model, rows, mixed, state, y)
    else:
        tape.pointwise("conv1d", [wide], [mixed, touched], "attention", 8.0)
        _scan(tape, model, rows, mixed, part(state, requests * one_state), y)
    tape.pointwise("gated_rms_norm", [y, part(wide, y.size)], [gated], "projection")
    weights = memory.weights(f"{layer}.out", model.inner * model.hidden * ELEMENT)
    tape.gemm(gated, x, weights, rows, model.hidden, model.inner, "projection")


def _state_update(
    tape: Tape, model: StateSpace, rows: float, mixed: Range, state: Range, y: Range
) -> None:
    """One step of the recurrence: reads and writes every request's whole state."""
    traffic = 2.0 * state.size + mixed.size + y.size
    work = Work(6.0 * rows * model.inner * model.state, "f32", traffic, "memory")
    tape.launch("selective_state_update", [mixed, state], [state, y], work, "attention")


def _scan(tape: Tape, model: StateSpace, rows: float, mixed: Range, state: Range, y: Range) -> None:
    """The chunked scan: four kernels as in the reference implementation."""
    memory = tape.memory
    chunks = max(1.0, rows / model.chunk)
    states = memory.temporary(f"{tape.name}.states", chunks * model.inner * model.state * 4)
    scores = memory.temporary(f"{tape.name}.cb", rows * model.chunk * model.groups * ELEMENT)
    outer = 2.0 * rows * model.inner * model.state
    work = Work(outer, "tensor_bf16", float(mixed.size + states.size), "scan")
    tape.launch("chunk_state", [mixed], [states], work, "attention")
    tape.pointwise("state_passing", [states], [states, state], "attention")
    inside = 2.0 * rows * model.chunk * model.groups * model.state
    work = Work(inside, "tensor_bf16", float(mixed.size + scores.size), "scan")
    tape.launch("bmm_chunk", [mixed], [scores], work, "attention")
    within = rows * model.chunk * model.inner + outer
    traffic = float(mixed.size + states.size + scores.size + y.size)
    work = Work(within, "tensor_bf16", traffic, "scan")
    tape.launch("chunk_scan", [mixed, states, scores], [y], work, "attention")
