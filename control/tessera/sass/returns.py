# SPDX-License-Identifier: Apache-2.0
"""Whether each return goes back to the call that it was taken to belong to."""

from __future__ import annotations

from tessera.sass.program import TooHardError, constant_of
from tessera.sass.syntax import STACK, Instruction
from tessera.sass.values import Values
from tessera.sass.writes import Node

MAX_NODES = 500


def check_returns(values: Values) -> None:
    """Raises TooHardError where the register of a return may hold another address."""
    for index, wanted in values.program.returns:
        ins = values.program.code[index]
        register = ins.operands[0].variable
        if register is None or not _is_always(values, values.before(index, register), wanted):
            raise TooHardError("where a function returns to is not known")


def _is_always(values: Values, start: Node, wanted: int) -> bool:
    """Follows moves, meetings and the stack back to the numbers they started from."""
    seen = {start}
    work = [start]
    while work:
        node = work.pop()
        before = _origins(values, node, wanted)
        if before is None or len(seen) > MAX_NODES:
            return False
        for origin in before:
            if origin not in seen:
                seen.add(origin)
                work.append(origin)
    return True


def _origins(values: Values, node: Node, wanted: int) -> list[Node] | None:
    """Where a value was before; nothing when it is the number itself, None when it is not."""
    if node[0] == "e":
        return None
    if node[0] == "f":
        return values.arguments(node)
    _, index, variable = node
    ins = values.program.code[index]
    if variable >= STACK:
        source = ins.operands[-1].variable
        word = values.word_of(index, variable)
        return None if source is None else [values.before(index, source + word)]
    if ins.guard is not None:
        return None
    if (number := constant_of(ins)) is not None:
        return [] if number == wanted else None
    if ins.base == "LDL":
        slot = values.stack.slot_read(index, values.word_of(index, variable))
        return None if slot is None else [values.before(index, STACK + slot)]
    moved = _moved(ins)
    return None if moved is None else [values.before(index, moved)]


def _moved(ins: Instruction) -> int | None:
    """The register that an instruction copies."""
    if ins.base in ("MOV", "UMOV", "R2UR") or (ins.base == "IMAD" and ins.has("MOV", "U32")):
        registers = [o for o in ins.operands[1:] if o.kind == "register"]
        used = [o.variable for o in registers if o.variable is not None and not o.negative]
        return used[0] if len(used) == 1 else None
    return None
