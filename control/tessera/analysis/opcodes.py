# SPDX-License-Identifier: Apache-2.0
"""What the analysis knows of PTX's instruction set: which opcodes exist, what they write.

A kernel with an opcode that is in none of these tables is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator

from tessera.native.ptx import Instruction, Operand, OperandKind, Type

EVALUATED = frozenset(
    "mov add sub mul mad mul24 mad24 shl shr and or xor not neg abs min max div rem cvt cvta"
    " setp selp ld ldu bfe bfi shfl popc clz bfind fns szext".split()
)
"""Opcodes whose results may take part in an address."""

REGISTERS_ONLY = frozenset(
    "addc subc madc sad brev bmsk dp4a dp2a testp copysign rcp sqrt rsqrt sin cos lg2 ex2 fma"
    " tanh set slct cnot lop3 shf prmt isspacep mapa getctarank vote match activemask redux elect"
    " vadd vsub vabsdiff vmin vmax vshl vshr vmad vset vadd2 vsub2 vavrg2 vabsdiff2 vmin2 vmax2"
    " vset2 vadd4 vsub4 vavrg4 vabsdiff4 vmin4 vmax4 vset4 mma movmatrix wgmma createpolicy"
    " istypep stacksave".split()
)
"""Opcodes that touch no global memory and whose results are not followed. `wgmma` reads shared
memory by descriptor."""

CONTROL = frozenset(
    "bra brx call ret exit bar barrier membar fence trap brkpt nanosleep pmevent setmaxnreg"
    " griddepcontrol".split()
)

SHARED_ONLY = frozenset("ldmatrix stmatrix mbarrier clusterlaunchcontrol tcgen05".split())
"""Opcodes whose addresses lie in shared or tensor memory, whatever they are computed from."""

MEMORY = frozenset(
    "st atom red wmma cp prefetch prefetchu discard applypriority st_async multimem".split()
)

TEXTURES = frozenset("tex tld4 txq suld sust sured suq".split())
QUERIES = frozenset("txq suq".split())
"""Those of them that look at the texture's or surface's description, not at its content."""

TENSOR_MAPS = frozenset(("tensormap",))
STACK = frozenset(("alloca", "stackrestore"))

KNOWN = EVALUATED | REGISTERS_ONLY | CONTROL | SHARED_ONLY | MEMORY | TEXTURES | TENSOR_MAPS | STACK

_NO_RESULT = frozenset(
    "st red prefetch prefetchu membar fence bra brx ret exit trap brkpt nanosleep pmevent"
    " setmaxnreg cp sust sured tensormap discard applypriority griddepcontrol stmatrix"
    " stackrestore".split()
)

INTEGER_BITS = {
    Type.B8: 8, Type.U8: 8, Type.S8: 8, Type.B16: 16, Type.U16: 16, Type.S16: 16,
    Type.B32: 32, Type.U32: 32, Type.S32: 32, Type.B64: 64, Type.U64: 64, Type.S64: 64,
}  # fmt: skip
SIGNED = frozenset((Type.S8, Type.S16, Type.S32, Type.S64))
FLOAT_BITS = {
    Type.F16: 16, Type.BF16: 16, Type.F16X2: 32, Type.BF16X2: 32, Type.F32: 32, Type.TF32: 32,
    Type.F64: 64, Type.F32X2: 64,
}  # fmt: skip
STORAGE_BITS = INTEGER_BITS | FLOAT_BITS | {
    Type.B128: 128, Type.U16X2: 32, Type.S16X2: 32, Type.E4M3: 8, Type.E5M2: 8, Type.E4M3X2: 16,
    Type.E5M2X2: 16, Type.E2M1X2: 8, Type.E2M3X2: 16, Type.E3M2X2: 16, Type.UE8M0X2: 16,
}  # fmt: skip


def results(instruction: Instruction) -> list[tuple[int, int]]:
    """(slot, register) of each register that the instruction writes. The slot is the place
    among the elements of a vector or pair. What is not surely an input counts as written."""
    operands = instruction.operands
    opcode = instruction.opcode
    if not operands or opcode in _NO_RESULT:
        return []
    first = operands[0]
    if first.kind is OperandKind.REGISTER:
        if opcode in ("bar", "barrier") and "red" not in instruction.modifiers:
            return []
        return [(0, first.register)]
    if first.kind in (OperandKind.VECTOR, OperandKind.PAIR, OperandKind.TUPLE):
        return [(i, e.register) for i, e in enumerate(_flat(first)) if e.register >= 0]
    return []


def _flat(operand: Operand) -> Iterator[Operand]:
    for element in operand.elements:
        if element.elements:
            yield from _flat(element)
        else:
            yield element


SPACES = ("global", "shared", "local", "const", "param")


def space_of(instruction: Instruction) -> str:
    """The state space that an instruction names; "" for a generic address."""
    for modifier in instruction.modifiers:
        head = modifier.split("::", 1)[0]
        if head in SPACES:
            return head
    return ""
