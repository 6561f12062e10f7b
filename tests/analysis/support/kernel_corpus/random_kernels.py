# SPDX-License-Identifier: Apache-2.0
"""Random CUDA C++ kernels: index arithmetic of all kinds under guards, in loops, through pointers.

Each kernel works on three buffers whose pointers stand in the middle of 2**16 integers. An
index that leaves them makes the launch fail, and it does not count.
"""

from __future__ import annotations

import random

from kernel_corpus.launches import Buffer, Launch, i32

WORDS = 1 << 16
BUFFERS = ("a", "b", "c")
SCALARS = ("n", "m", "s")


class Writer:
    """Writes one kernel."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._names = ["x", "y", "n", "m", "s"]
        self._pointers = list(BUFFERS)
        self._count = 0
        self._lines: list[str] = []
        self._loops = 0

    def kernel(self, name: str) -> str:
        self._line("int x = threadIdx.x, y = blockIdx.x;")
        if self._rng.random() < 0.7:
            self._line("int i = blockIdx.x * blockDim.x + threadIdx.x;")
            self._names.append("i")
        for _ in range(self._rng.randint(2, 5)):
            self._statement(0)
        self._access(0)
        body = "\n".join(self._lines)
        parameters = ", ".join([f"int* {p}" for p in BUFFERS] + [f"int {s}" for s in SCALARS])
        return f'extern "C" __global__ void {name}({parameters}) {{\n{body}\n}}\n'

    def _line(self, text: str, depth: int = 0) -> None:
        self._lines.append("  " * (depth + 1) + text)

    def _fresh(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    # Expressions

    def _leaf(self) -> str:
        r = self._rng.random()
        if r < 0.75:
            return self._rng.choice(self._names)
        if r < 0.85:
            return self._rng.choice(["(int)blockDim.x", "(int)gridDim.x"])
        return str(self._rng.choice([0, 1, 2, 3, 5, 8, 31, 64, 100, -1, -7]))

    def expression(self, depth: int = 0) -> str:
        if depth > 2 or self._rng.random() < 0.3:
            return self._leaf()
        a, b = self.expression(depth + 1), self.expression(depth + 1)
        small = self._rng.choice([2, 3, 4, 7, 8, 16])
        power = self._rng.choice([2, 4, 8, 16, 32])
        return self._rng.choice(
            [
                f"({a} + {b})", f"({a} + {b})", f"({a} - {b})", f"({a} * {small})",
                f"({a} * {self._rng.choice(SCALARS)})", f"({a} / {small})", f"({a} % {small})",
                f"({a} >> {self._rng.randint(1, 4)})", f"({a} << {self._rng.randint(1, 3)})",
                f"({a} & {power - 1})", f"({a} & ~{power - 1})", f"(({a} & 7) | {power})",
                f"({a} ^ {self._rng.choice([1, 3, 5])})", f"min({a}, {b})", f"max({a}, {b})",
                f"({self.condition(depth + 1)} ? {a} : {b})", f"(int)(short)({a})",
                f"(int)(unsigned char)({a})", f"((int)((unsigned)({a}) / {small}u) & 1023)",
                f"((int)((unsigned)({a}) % {small}u))", f"abs({a})", f"({a} / max({b}, 1))",
                f"({a} % max({b}, 1))", f"(int)(((long long)({a}) * {small}) >> 1)", f"(-{a})",
            ]
        )  # fmt: skip

    def condition(self, depth: int = 0) -> str:
        a, b = self.expression(depth + 1), self.expression(depth + 1)
        relation = self._rng.choice(["<", "<=", ">", ">=", "==", "!=", "<"])
        kind = self._rng.random()
        if kind < 0.6:
            return f"{a} {relation} {b}"
        if kind < 0.75:
            return f"(unsigned)({a}) {relation} (unsigned)({b})"
        if kind < 0.85 and depth < 2:
            return f"({self.condition(depth + 1)} && {self.condition(depth + 1)})"
        if kind < 0.92 and depth < 2:
            return f"({self.condition(depth + 1)} || {self.condition(depth + 1)})"
        return f"(long long)({a}) * 3 {relation} (long long)({b})"

    # Statements

    def _statement(self, depth: int) -> None:
        choices = [
            self._define,
            self._define,
            self._access,
            self._access,
            self._pointer,
            self._load,
        ]
        if depth < 3:
            choices += [self._branch, self._branch, self._loop, self._guarded]
        self._rng.choice(choices)(depth)

    def _block(self, depth: int) -> None:
        names, pointers = list(self._names), list(self._pointers)
        for _ in range(self._rng.randint(1, 2)):
            self._statement(depth + 1)
        self._names, self._pointers = names, pointers

    def _define(self, depth: int) -> None:
        name = self._fresh("v")
        kind = self._rng.choice(["int", "int", "int", "unsigned", "long long", "short"])
        self._line(f"{kind} w{name} = {self.expression()};", depth)
        self._line(f"int {name} = (int)w{name};", depth)
        self._names.append(name)

    def _load(self, depth: int) -> None:
        name = self._fresh("d")
        self._line(f"int {name} = {self._place()};", depth)
        self._names.append(name)

    def _pointer(self, depth: int) -> None:
        name = self._fresh("p")
        one, two = self._rng.choice(self._pointers), self._rng.choice(self._pointers)
        if self._rng.random() < 0.5:
            self._line(f"int* {name} = {self.condition()} ? {one} : {two};", depth)
        else:
            self._line(f"int* {name} = {one} + ({self.expression()});", depth)
        self._pointers.append(name)

    def _place(self) -> str:
        pointer, index = self._rng.choice(self._pointers), self.expression()
        if self._rng.random() < 0.4:
            mask = self._rng.choice([15, 255, 1023])
            return f"{pointer}[({index}) & {mask}]"
        return f"{pointer}[{index}]"

    def _access(self, depth: int) -> None:
        target = self._place()
        if self._rng.random() < 0.15:
            self._line(f"atomicAdd(&{target}, 1);", depth)
        elif self._rng.random() < 0.5:
            self._line(f"{target} = {self.expression(1)};", depth)
        else:
            self._line(f"{target} = {self._place()};", depth)

    def _guarded(self, depth: int) -> None:
        name = self._fresh("g")
        limit = self._rng.choice(["n", "m", "100", "n + m"])
        self._line(f"int {name} = {self.expression()};", depth)
        self._line(f"if ({name} >= 0 && {name} < {limit}) {{", depth)
        self._names.append(name)
        self._line(f"{self._rng.choice(self._pointers)}[{name}] = 1;", depth + 1)
        self._block(depth)
        self._line("}", depth)

    def _branch(self, depth: int) -> None:
        self._line(f"if ({self.condition()}) {{", depth)
        self._block(depth)
        if self._rng.random() < 0.4:
            self._line("} else {", depth)
            self._block(depth)
        self._line("}", depth)

    def _loop(self, depth: int) -> None:
        if self._loops >= 3:
            return
        self._loops += 1
        k = self._fresh("k")
        first = self._rng.choice(
            ["0", "1", "x", "y", "(x & 3)", "i & 7" if "i" in self._names else "2"]
        )
        last = self._rng.choice(["n", "m", "10", "(n & 15)", "(x & 7)", "n + 3", "blockDim.x"])
        step = self._rng.choice(["1", "1", "2", "4", "blockDim.x", "s"])
        if self._rng.random() < 0.3:
            self._line("#pragma unroll 1")
        head = self._rng.choice(
            [
                f"for (int {k} = {first}; {k} < (int)({last}); {k} += max((int)({step}), 1))",
                f"for (int {k} = {first}; {k} < (int)({last}); ++{k})",
                f"for (int {k} = (int)({last}) - 1; {k} >= {first}; --{k})",
                f"for (unsigned {k} = {first}; {k} < (unsigned)({last}); {k} += 2)",
                f"for (int {k} = 0; {k} != ({last} & 15); ++{k})",
                f"for (unsigned {k} = ({last}) & 15; {k}-- > 0;)",
            ]
        )
        self._line(head + " {", depth)
        self._names.append(k)
        if self._rng.random() < 0.2:
            self._line(f"if ({self.condition()}) break;", depth + 1)
        self._block(depth)
        self._names.remove(k)
        self._line("}", depth)


def random_source(seed: int, count: int) -> str:
    """A module of `count` kernels: k0, k1, ..."""
    parts = [Writer(random.Random(f"{seed}/{place}")).kernel(f"k{place}") for place in range(count)]
    return "\n".join(parts)


def random_launch(rng: random.Random) -> Launch:
    """A small launch for any of the kernels."""
    block = rng.choice([1, 32, 33, 64])
    values = [rng.choice([0, 1, 3, 7, 16, 40, rng.randint(-5, 100)]) for _ in SCALARS]
    data = rng.randbytes(64) + b"\0" * 64
    buffers = [Buffer(4 * WORDS, data if rng.random() < 0.5 else b"", 2 * WORDS) for _ in BUFFERS]
    return Launch((rng.randint(1, 3), 1, 1), (block, 1, 1), [*buffers, *map(i32, values)])
