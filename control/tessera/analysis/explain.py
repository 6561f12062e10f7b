# SPDX-License-Identifier: Apache-2.0
"""A summary for the author of the kernel."""

from __future__ import annotations

from tessera.analysis.formula import describe_offset, short_names
from tessera.analysis.launch import Op
from tessera.analysis.model import HOME_ONLY, Access, Flag, KernelSummary, Mode, Property
from tessera.protocol.architectures import MAJORS

_WORDS = {
    Property.UNKNOWN: "may touch memory that its parameters do not tell",
    Property.PRINTS: "prints",
    Property.ALLOCATES: "allocates or frees device memory",
    Property.ASSERTS: "may fail an assertion",
    Property.LAUNCHES: "launches kernels",
    Property.WRITES_GLOBALS: "writes module variables",
    Property.READS_GLOBALS: "reads module variables that may change",
    Property.READS_CONSTANT_DATA: "reads constant data of its module",
    Property.TEXTURES: "uses textures or surfaces",
    Property.TENSOR_MAPS: "uses TMA descriptors",
    Property.DEVICE_DEPENDENT: "reads registers that differ between devices",
    Property.GRID_SYNC: "synchronises its whole grid",
    Property.INDIRECT_CALLS: "calls through pointers",
    Property.ORDER_DEPENDENT: "its results may depend on the order of its atomics",
    Property.SYSTEM_SCOPE: "talks to the host or to other devices while it runs",
    Property.CLUSTERS: "uses thread block clusters",
}
MAX_FORMULA = 240
_MODES = {Mode.READ: "reads", Mode.WRITE: "writes", Mode.READ | Mode.WRITE: "updates"}


def explain(summary: KernelSummary) -> str:
    """Several lines of text, without a newline at the end."""
    lines = [f"{summary.name}({_signature(summary)})", f"  {_where(summary)}"]
    for kind in Property:
        if summary.properties & kind:
            reason = summary.reasons.get(str(kind.name), "")
            lines.append(f"  {_WORDS[kind]}" + (f" ({reason})" if reason else ""))
    offsets = sorted({a.parameter_offset for a in summary.accesses})
    for offset in offsets:
        lines.append(f"  {describe_offset(summary.parameters, offset)}")
        for access in summary.accesses:
            if access.parameter_offset == offset:
                lines += [f"    {line}" for line in _access(summary, access)]
    untouched = _untouched(summary, offsets)
    if untouched:
        lines.append(f"  never used as a pointer: {', '.join(untouched)}")
    return "\n".join(lines)


def _signature(summary: KernelSummary) -> str:
    names = short_names(summary.parameters)
    parts = []
    for p in summary.parameters:
        kind = f"{p.size} bytes" if p.type == "b8" and p.size > 8 else p.type
        parts.append(f"{kind}{'*' if p.is_pointer else ''} {names[p.offset]}")
    return ", ".join(parts)


def _where(summary: KernelSummary) -> str:
    only, minimum = summary.only_architecture, summary.minimum_architecture
    if only >= MAJORS:
        devices = f"sm_{only} devices only"
    else:
        devices = f"sm_{minimum} devices and newer" + (f" ones of {only}.x" if only else "")
    home = summary.properties & HOME_ONLY
    return f"stays at home; built for {devices}" if home else f"may move to {devices}"


def _access(summary: KernelSummary, access: Access) -> list[str]:
    if access.flags & Flag.ANYTHING:
        text = "may touch anything"
    elif access.flags & Flag.UNBOUNDED:
        text = f"{_MODES[access.mode]} anywhere in its allocation"
    else:
        text = f"{_MODES[access.mode]} bytes {_interval(summary, access)}"
    if access.flags & Flag.MUST_WRITE:
        text += ", every one of them"
    elif access.flags & Flag.EXACT:
        text += ", all of them"
    if access.flags & Flag.INDIRECT:
        text += ", at places that depend on data"
    if access.flags & Flag.MAYBE:
        text += ", where it is a pointer at all"
    lines = [f"{text}  (line {access.line})", *_levels(summary, access)]
    if access.guard is not None:
        lines.append(f"  only when {_short(summary.formula(access.guard))}")
    condition = _condition(summary, access.lo)
    if condition is not None:
        lines.append(f"  unless the index arithmetic wraps: {_short(summary.formula(condition))}")
    if access.reason:
        lines.append(f"  {_doubt(access)}: {access.reason}")
    return lines


def _doubt(access: Access) -> str:
    """What a reason is the reason for."""
    return "not bounded" if access.flags & Flag.UNBOUNDED else "perhaps not all of them"


def _levels(summary: KernelSummary, access: Access) -> list[str]:
    """The copies of a row, one line a level."""
    lines = []
    for place, (pitch, count) in enumerate(access.levels):
        times, step = _short(summary.formula(count)), _short(summary.formula(pitch))
        start = "and so for each of" if place else "in each of"
        what = "such sets" if place else "rows"
        lines.append(f"  {start} {times} {what}, {step} bytes apart")
    return lines


def _short(text: str) -> str:
    """A formula as far as somebody would read it."""
    return text if len(text) <= MAX_FORMULA else text[: MAX_FORMULA - 1] + "…"


def _condition(summary: KernelSummary, lo: int | None) -> int | None:
    """The condition under which the range holds: `condition ? lo : unbounded`."""
    if lo is None:
        return None
    node = summary.nodes[lo]
    if node.op is Op.SELECT and summary.nodes[node.c].op is Op.FLOOR_DIV:
        divisor = summary.nodes[summary.nodes[node.c].b]
        if divisor.op is Op.CONST and divisor.value == 0:
            return node.a
    return None


def _interval(summary: KernelSummary, access: Access) -> str:
    lo = access.lo
    if lo is not None and _condition(summary, lo) is not None:
        lo = summary.nodes[lo].b
    return f"[{_short(summary.formula(lo))}, {_short(summary.formula(access.hi))})"


def _untouched(summary: KernelSummary, offsets: list[int]) -> list[str]:
    names = short_names(summary.parameters)
    return [names[p.offset] for p in summary.parameters if p.is_pointer and p.offset not in offsets]
