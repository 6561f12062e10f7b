# SPDX-License-Identifier: Apache-2.0
"""Launch expressions: values that are the same for every thread of one launch.

They are what a summary's nodes are made of. Expressions are interned, simplified as they
are built, and carry static bounds, so that `min(n, 4)` with `n` known to be at most 2 is `n`.
An expression stands for a mathematical integer; the evaluator reports where 64 bits
are not enough for it, so every rewriting here keeps the value wherever it is defined.
"""

from __future__ import annotations

import enum

Bound = tuple[int | None, int | None]  # inclusive; None: infinite

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1

# What the hardware allows, by dimension.
MAX_BLOCK = (1024, 1024, 64)
MAX_GRID = ((1 << 31) - 1, 65535, 65535)
MAX_CLUSTER = 16

INFINITE: Bound = (None, None)
BOOLEAN: Bound = (0, 1)


class Op(enum.IntEnum):
    """`TS_OP_*` of summary.h; a test compares the two."""

    CONST = 0
    PARAMETER = 1
    GRID = 2
    BLOCK = 3
    CLUSTER = 4
    DYNAMIC_SHARED = 5
    ADD = 10
    SUB = 11
    MUL = 12
    FLOOR_DIV = 13
    FLOOR_MOD = 14
    MIN = 15
    MAX = 16
    NEG = 17
    SHL = 18
    SHR = 19
    AND = 20
    OR = 21
    XOR = 22
    LESS = 23
    LESS_EQUAL = 24
    EQUAL = 25
    NOT_EQUAL = 26
    NOT = 27
    SELECT = 28
    WRAP = 29
    TRUNC_DIV = 30
    TRUNC_MOD = 31
    BOUNDED = 32
    AND_LESS_EQUAL = 33
    ADD_MUL = 34
    AND3 = 35
    ADD3 = 36
    MIN3 = 37


LEAVES = frozenset((Op.CONST, Op.PARAMETER, Op.GRID, Op.BLOCK, Op.CLUSTER, Op.DYNAMIC_SHARED))
ARITY = dict.fromkeys(LEAVES, 0) | {
    Op.NEG: 1, Op.NOT: 1, Op.WRAP: 1, Op.BOUNDED: 1, Op.SELECT: 3,
    Op.AND_LESS_EQUAL: 3, Op.ADD_MUL: 3, Op.AND3: 3, Op.ADD3: 3, Op.MIN3: 3,
}  # fmt: skip
"""Operands that are expressions; two where not listed."""


class Expr:
    """One interned launch expression. Compare by identity."""

    __slots__ = ("args", "hi", "is_const", "literals", "lo", "op", "serial", "value")

    def __init__(
        self,
        op: Op,
        args: tuple[Expr, ...],
        literals: tuple[int, int, int],
        value: int,
        serial: int,
    ) -> None:
        self.op = op
        self.args = args
        self.literals = literals  # a, b, c where they are not operands
        self.value = value  # CONST
        self.serial = serial  # operands have smaller serials
        self.lo: int | None = None
        self.hi: int | None = None
        self.is_const = op is Op.CONST

    def __repr__(self) -> str:
        inner = self.value if self.is_const else (*self.args, *self.literals)
        return f"{self.op.name.lower()}{inner}"


class Launch:
    """Builds the launch expressions of one kernel."""

    def __init__(self) -> None:
        self._interned: dict[tuple[object, ...], Expr] = {}
        self._numbers: dict[int, Expr] = {}
        self.zero = self.const(0)
        self.one = self.const(1)
        self.overflow = self.floor_div(self.zero, self.zero)
        """Division by zero: an expression that the evaluator always finds unbounded."""

    def const(self, value: int) -> Expr:
        found = self._numbers.get(value)
        if found is None:
            found = self._make(Op.CONST, (), value=value, bound=(value, value))
            self._numbers[value] = found
        return found

    def leaf(self, op: Op, literals: tuple[int, int, int], bound: Bound) -> Expr:
        return self._make(op, (), literals, bound=bound)

    def add(self, a: Expr, b: Expr) -> Expr:
        if a.is_const:
            a, b = b, a
        if b.is_const:
            return self._add_const(a, b.value)
        for x, y in ((a, b), (b, a)):
            if y.op is Op.MUL and y.args[1].is_const and y.args[1].value < 0:
                return self.sub(x, self.mul(y.args[0], self.const(-y.args[1].value)))
        return self._make(Op.ADD, (a, b), bound=(_plus(a.lo, b.lo), _plus(a.hi, b.hi)))

    def _add_const(self, a: Expr, number: int) -> Expr:
        """Constants go inside products and minima, where they meet their like: 4*min(n - 1, m)
        + 4 becomes 4*min(n, m + 1)."""
        if number == 0:
            return a
        if a.is_const:
            return self.const(a.value + number)
        first, second = (*a.args, None, None)[:2]
        if first is not None and second is not None:
            if a.op is Op.MUL and second.is_const and number % second.value == 0:
                return self.mul(self._add_const(first, number // second.value), second)
            if a.op in (Op.MIN, Op.MAX):
                pick = self.min if a.op is Op.MIN else self.max
                return pick(self._add_const(first, number), self._add_const(second, number))
            if a.op is Op.ADD and second.is_const:
                return self._add_const(first, second.value + number)
            if a.op is Op.ADD:
                return self._add_to_sum(a, first, second, number)
        b = self.const(number)
        return self._make(Op.ADD, (a, b), bound=(_plus(a.lo, number), _plus(a.hi, number)))

    def _add_to_sum(self, whole: Expr, first: Expr, second: Expr, number: int) -> Expr:
        for x, y in ((second, first), (first, second)):
            if x.op in (Op.MIN, Op.MAX) or (
                x.op is Op.MUL and x.args[1].is_const and number % x.args[1].value == 0
            ):
                return self.add(y, self._add_const(x, number))
        bound = (_plus(whole.lo, number), _plus(whole.hi, number))
        return self._make(Op.ADD, (whole, self.const(number)), bound=bound)

    def sub(self, a: Expr, b: Expr) -> Expr:
        if b.is_const:
            return self.add(a, self.const(-b.value))
        (a_base, a_number), (b_base, b_number) = _split(a), _split(b)
        if a_base is b_base:
            return self.const(a_number - b_number)
        if b.op is Op.MUL and b.args[1].is_const and (b.args[1].value < 0 or a is self.zero):
            negated = self.mul(b.args[0], self.const(-b.args[1].value))
            return negated if a is self.zero else self.add(a, negated)
        if (lesser := self._minus_extremum(a, b)) is not None:
            return lesser
        return self._make(Op.SUB, (a, b), bound=(_minus(a.lo, b.hi), _minus(a.hi, b.lo)))

    def _minus_extremum(self, a: Expr, b: Expr) -> Expr | None:
        """n - min(m, n - 1) is max(n - m, 1)."""
        if b.op not in (Op.MIN, Op.MAX):
            return None
        base, number = _split(a)
        for x, y in (b.args, b.args[::-1]):
            other, offset = _split(x)
            if other is base:
                pick = self.max if b.op is Op.MIN else self.min
                return pick(self.const(number - offset), self.sub(a, y))
        return None

    def mul(self, a: Expr, b: Expr) -> Expr:
        if a.is_const:
            a, b = b, a
        if b.is_const:
            if a.is_const:
                return self.const(a.value * b.value)
            if b.value == 0:
                return self.zero
            if b.value == 1:
                return a
            if a.op is Op.MUL and a.args[1].is_const:
                return self.mul(a.args[0], self.const(a.args[1].value * b.value))
        return self._make(Op.MUL, (a, b), bound=product_bound((a.lo, a.hi), (b.lo, b.hi)))

    def floor_div(self, a: Expr, b: Expr) -> Expr:
        """Precondition: `b` is not 0, or the summary is unbounded when it is."""
        if a.is_const and a.value == 0 and not (b.is_const and b.value == 0):
            return a
        if b.is_const and b.value > 0:
            if a.is_const:
                return self.const(a.value // b.value)
            if b.value == 1:
                return a
            if a.op is Op.MUL and a.args[1].is_const and a.args[1].value % b.value == 0:
                return self.mul(a.args[0], self.const(a.args[1].value // b.value))
            bound = (_floor_div(a.lo, b.value), _floor_div(a.hi, b.value))
            if bound[0] is not None and bound[0] == bound[1]:
                return self.const(bound[0])
            return self._make(Op.FLOOR_DIV, (a, b), bound=bound)
        return self._make(Op.FLOOR_DIV, (a, b), bound=INFINITE)

    def floor_mod(self, a: Expr, b: Expr) -> Expr:
        if b.is_const and b.value > 0:
            if a.is_const:
                return self.const(a.value % b.value)
            if a.lo is not None and a.hi is not None and a.lo >= 0 and a.hi < b.value:
                return a
            return self._make(Op.FLOOR_MOD, (a, b), bound=(0, b.value - 1))
        positive = b.lo is not None and b.lo > 0
        return self._make(
            Op.FLOOR_MOD, (a, b), bound=(0, _plus(b.hi, -1)) if positive else INFINITE
        )

    def min(self, a: Expr, b: Expr) -> Expr:
        return self._extremum(Op.MIN, a, b)

    def max(self, a: Expr, b: Expr) -> Expr:
        return self._extremum(Op.MAX, a, b)

    def _extremum(self, op: Op, a: Expr, b: Expr) -> Expr:
        if a is b:
            return a
        if surely_le(a, b):
            return a if op is Op.MIN else b
        if surely_le(b, a):
            return b if op is Op.MIN else a
        for x, y in ((a, b), (b, a)):
            if x.op is op:
                if y in x.args:
                    return x
                for kept, other in (x.args, x.args[::-1]):
                    if surely_le(y, other) if op is Op.MIN else surely_le(other, y):
                        return self._extremum(op, kept, y)  # `other` never counts
                    if surely_le(other, y) if op is Op.MIN else surely_le(y, other):
                        return x
        if (shared := self._shared(op, a, b)) is not None:
            return shared
        if a.serial > b.serial:
            a, b = b, a
        if op is Op.MIN:
            return self._make(op, (a, b), bound=(_min(a.lo, b.lo), _min_known(a.hi, b.hi)))
        return self._make(op, (a, b), bound=(_max_known(a.lo, b.lo), _max(a.hi, b.hi)))

    def _shared(self, op: Op, a: Expr, b: Expr) -> Expr | None:
        """What both sides share, outside: max(4*x, 4*y) is 4*max(x, y), and so on."""
        if a.op is not b.op or len(a.args) != 2:
            return None
        (a1, a2), (b1, b2) = a.args, b.args
        if a.op is Op.MUL and a2 is b2 and a2.is_const:
            if a2.value > 0:
                return self.mul(self._extremum(op, a1, b1), a2)
            return None
        if a.op is Op.ADD or (a.op in (Op.MIN, Op.MAX) and a.op is not op):
            for x, p in ((a1, a2), (a2, a1)):
                for y, q in ((b1, b2), (b2, b1)):
                    if x is y and not x.is_const:
                        inner = self._extremum(op, p, q)
                        return (
                            self.add(x, inner) if a.op is Op.ADD else self._extremum(a.op, inner, x)
                        )
        return None

    def shl(self, a: Expr, b: Expr) -> Expr:
        if b.is_const and 0 <= b.value <= 62:
            return self.mul(a, self.const(1 << b.value))
        return self._make(Op.SHL, (a, b), bound=(0, None) if _is_natural(a) else INFINITE)

    def bits(self, op: Op, a: Expr, b: Expr) -> Expr:
        """AND, OR or XOR of two's complement values."""
        if a.is_const and b.is_const:
            return self.const(_BITS[op](a.value, b.value))
        bound = INFINITE
        if _is_natural(a) and _is_natural(b):
            if op is Op.AND:
                bound = (0, _min_known(a.hi, b.hi))
            elif a.hi is not None and b.hi is not None:
                bound = (0, (1 << max(a.hi, b.hi).bit_length()) - 1)
        return self._make(op, (a, b), bound=bound)

    def less_equal(self, a: Expr, b: Expr) -> Expr:
        if surely_le(a, b):
            return self.one
        if b.is_const:
            if a.op is Op.ADD and a.args[1].is_const:
                return self.less_equal(a.args[0], self.const(b.value - a.args[1].value))
            if a.op is Op.MUL and a.args[1].is_const:
                x, factor = a.args[0], a.args[1].value
                if factor > 0:
                    return self.less_equal(x, self.const(b.value // factor))
                return self.less_equal(self.const(-(b.value // -factor)), x)
            if a.op is Op.MAX:  # both
                return self.both(self.less_equal(a.args[0], b), self.less_equal(a.args[1], b))
        if a is self.zero and b.op is Op.FLOOR_DIV and b.args[1].is_const and b.args[1].value > 0:
            return self.less_equal(a, b.args[0])
        if a.is_const and b.op is Op.MIN:
            return self.both(self.less_equal(a, b.args[0]), self.less_equal(a, b.args[1]))
        if a.lo is not None and b.hi is not None and a.lo > b.hi:
            return self.zero
        return self._make(Op.LESS_EQUAL, (a, b), bound=BOOLEAN)

    def equal(self, a: Expr, b: Expr) -> Expr:
        if a is b:
            return self.one
        if a.is_const and b.is_const:
            return self.const(int(a.value == b.value))
        return self._make(Op.EQUAL, (a, b), bound=BOOLEAN)

    def not_equal(self, a: Expr, b: Expr) -> Expr:
        return self.negate(self.equal(a, b))

    def negate(self, a: Expr) -> Expr:
        """1 where `a` is 0, else 0."""
        if a.is_const:
            return self.const(int(a.value == 0))
        if a.op is Op.EQUAL:
            return self._make(Op.NOT_EQUAL, a.args, bound=BOOLEAN)
        return self._make(Op.NOT, (a,), bound=BOOLEAN)

    def both(self, a: Expr, b: Expr) -> Expr:
        """Conjunction of two expressions that are 0 or 1."""
        if a.is_const:
            return b if a.value else a
        if b.is_const:
            return a if b.value else b
        if _is_conjunct(b, a):
            return a
        if _is_conjunct(a, b):
            return b
        if a.op is b.op is Op.LESS_EQUAL and a.args[0] is b.args[0]:
            (_, x), (_, y) = a.args, b.args
            if x.is_const and y.is_const:
                return a if x.value <= y.value else b
        if b.op is Op.AND and b.hi == 1:  # one by one, so that none is there twice
            return self.both(self.both(a, b.args[0]), b.args[1])
        return self._make(Op.AND, (a, b), bound=BOOLEAN)

    def either(self, a: Expr, b: Expr) -> Expr:
        """Disjunction of two expressions that are 0 or 1."""
        if a.is_const:
            return a if a.value else b
        if b.is_const:
            return b if b.value else a
        return a if a is b else self._make(Op.OR, (a, b), bound=BOOLEAN)

    def select(self, condition: Expr, a: Expr, b: Expr) -> Expr:
        if condition.is_const:
            return a if condition.value else b
        if a is b:
            return a
        return self._make(Op.SELECT, (condition, a, b), bound=(_min(a.lo, b.lo), _max(a.hi, b.hi)))

    def wrap(self, a: Expr, bits: int, signed: bool) -> Expr:
        lo, hi = type_bound(bits, signed)
        if a.lo is not None and a.hi is not None and a.lo >= lo and a.hi <= hi:
            return a
        return self._make(Op.WRAP, (a,), (0, bits, int(signed)), bound=(lo, hi))

    def bounded(self, a: Expr) -> Expr:
        if a.op in LEAVES and not (a.op is Op.PARAMETER and a.literals[1] == 8):
            return self.one
        return self._make(Op.BOUNDED, (a,), bound=BOOLEAN)

    def _make(
        self,
        op: Op,
        args: tuple[Expr, ...],
        literals: tuple[int, int, int] = (0, 0, 0),
        value: int = 0,
        *,
        bound: Bound,
    ) -> Expr:
        key = (op, args, literals, value)
        found = self._interned.get(key)
        if found is None:
            found = Expr(op, args, literals, value, len(self._interned))
            found.lo, found.hi = bound
            self._interned[key] = found
        return found


_BITS = {
    Op.AND: lambda a, b: a & b,
    Op.OR: lambda a, b: a | b,
    Op.XOR: lambda a, b: a ^ b,
}


def type_bound(bits: int, signed: bool) -> tuple[int, int]:
    """The smallest and largest value of an integer type."""
    if signed:
        return -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    return 0, (1 << bits) - 1


def scaled_bound(bound: Bound, factor: int) -> Bound:
    """Bounds of a multiple, by a number other than 0."""
    lo, hi = bound if factor > 0 else bound[::-1]
    return (None if lo is None else lo * factor, None if hi is None else hi * factor)


def product_bound(a: Bound, b: Bound) -> Bound:
    """Bounds of a product of two values that lie within `a` and `b`."""
    if a == (0, 0) or b == (0, 0):
        return (0, 0)
    if None not in a and None not in b:
        corners = [x * y for x in a for y in b]  # type: ignore[operator]
        return (min(corners), max(corners))
    a_lo, b_lo = a[0], b[0]
    if a_lo is not None and b_lo is not None and a_lo >= 0 and b_lo >= 0:
        return (a_lo * b_lo, None)
    return INFINITE


def _plus(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


def _minus(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a - b


def _floor_div(a: int | None, b: int) -> int | None:
    return None if a is None else a // b


def _min(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else min(a, b)


def _max(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else max(a, b)


def _min_known(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else min(a, b)


def _max_known(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else max(a, b)


def _is_natural(a: Expr) -> bool:
    return a.lo is not None and a.lo >= 0


def _split(a: Expr) -> tuple[Expr | None, int]:
    """`a` as something plus a constant."""
    if a.is_const:
        return None, a.value
    if a.op is Op.ADD and a.args[1].is_const:
        return a.args[0], a.args[1].value
    return a, 0


def _is_conjunct(part: Expr, whole: Expr) -> bool:
    """Whether a conjunction, made from the left as `Launch.both` makes it, has a part."""
    while whole is not part and whole.op is Op.AND and whole.hi == 1:
        if whole.args[1] is part:
            return True
        whole = whole.args[0]
    return whole is part


def surely_le(a: Expr, b: Expr) -> bool:
    if a.hi is not None and b.lo is not None and a.hi <= b.lo:
        return True
    (a_base, a_const), (b_base, b_const) = _split(a), _split(b)
    return a_base is b_base and a_const <= b_const
