# SPDX-License-Identifier: Apache-2.0
"""Pass 1: one kernel as one flat piece of code, with the device functions that it calls inlined.

Registers are numbered over all inlined copies; a `.param` variable that a caller passes and
the formal parameter that stands for it in the callee are one symbol.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tessera.native.ptx import NO_REGISTER, Function, Instruction, Module, OperandKind, Space, Type

MAX_INSTRUCTIONS = 400_000
MAX_CALL_DEPTH = 64


class TooHardError(Exception):
    """The kernel cannot be analysed as a whole; the message says why."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.line = line


@dataclass(eq=False, slots=True)
class Symbol:
    """A variable. `kind`: "parameter" (of the kernel), "slot" (.param of a call), "variable"."""

    name: str
    space: Space
    kind: str
    size: int  # bytes; 0: not known
    offset: int = 0  # parameters: in the parameter block
    initialized: bool = False
    is_pointer: bool = False
    shared_by_module: bool = False


class Frame:
    """One inlined copy of a function: where its registers start and what its names mean."""

    __slots__ = ("_module", "function", "register_base", "symbols")

    def __init__(
        self, function: Function, register_base: int, module_symbols: dict[str, Symbol]
    ) -> None:
        self.function = function
        self.register_base = register_base
        self._module = module_symbols
        self.symbols = {
            v.name: Symbol(
                v.name,
                v.space,
                "slot" if v.space is Space.PARAM else "variable",
                v.size,
                initialized=v.has_initializer,
            )
            for v in function.variables
        }

    def symbol(self, name: str) -> Symbol | None:
        """The variable of that name; None when it is a function or not known."""
        return self.symbols.get(name) or self._module.get(name)


@dataclass(eq=False, slots=True)
class Node:
    """A basic block: code[begin:end]. `conditions[i]` is the predicate register that is known on
    the way to `successors[i]`, and whether it is false there."""

    begin: int
    end: int = 0
    successors: list[int] = field(default_factory=list)
    conditions: list[tuple[int, bool] | None] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Program:
    """A kernel ready for analysis."""

    kernel: Function
    code: list[Instruction] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)  # of each instruction
    nodes: list[Node] = field(default_factory=list)
    register_types: list[Type] = field(default_factory=list)
    external_calls: list[tuple[int, str]] = field(default_factory=list)  # (code index, callee)
    indirect_calls: list[int] = field(default_factory=list)


def module_symbols(module: Module) -> dict[str, Symbol]:
    return {
        v.name: Symbol(
            v.name,
            v.space,
            "variable",
            v.size,
            # Addresses differ from device to device: such data is not constant.
            initialized=v.has_initializer and not v.holds_addresses,
            shared_by_module=True,
        )
        for v in module.variables
    }


def defined_functions(module: Module) -> dict[str, Function]:
    return {f.name: f for f in module.functions if not f.is_declaration and not f.is_entry}


def flatten(
    kernel: Function, functions: dict[str, Function], symbols: dict[str, Symbol]
) -> Program:
    """Inline every call. Raises TooHardError for what cannot be inlined."""
    return _Flattener(kernel, functions, symbols).run()


class _Flattener:
    def __init__(
        self, kernel: Function, functions: dict[str, Function], symbols: dict[str, Symbol]
    ) -> None:
        self._functions = functions
        self._symbols = symbols
        self._program = Program(kernel)

    def run(self) -> Program:
        kernel = self._program.kernel
        frame = self._frame(kernel)
        for parameter in kernel.parameters:
            frame.symbols[parameter.name] = Symbol(
                parameter.name,
                Space.PARAM,
                "parameter",
                parameter.size,
                parameter.offset,
                is_pointer=parameter.is_pointer,
            )
        self._expand(kernel, frame, (kernel.name,), None)
        return self._program

    def _frame(self, function: Function) -> Frame:
        frame = Frame(function, len(self._program.register_types), self._symbols)
        self._program.register_types += [r.type for r in function.registers]
        return frame

    def _expand(
        self, function: Function, frame: Frame, stack: tuple[str, ...], return_to: int | None
    ) -> int:
        """Append a function's code. Gives the node where it starts."""
        if function.is_broken:
            raise TooHardError(f"{function.name} could not be parsed as a whole", function.line)
        if function.has_indirect_branch:
            raise TooHardError(
                f"{function.name} has an indirect branch without a list", function.line
            )
        nodes = self._program.nodes
        first = len(nodes)
        nodes += [Node(0) for _ in function.blocks]
        instructions = function.instructions
        for index, block in enumerate(function.blocks):
            if not block.is_reachable:
                continue
            node = nodes[first + index]
            node.begin = len(self._program.code)
            for instruction in instructions[block.begin : block.end]:
                self._program.code.append(instruction)
                self._program.frames.append(frame)
                if instruction.opcode == "call":
                    node = self._call(instruction, frame, stack, node)
            node.end = len(self._program.code)
            last = instructions[block.end - 1] if block.end > block.begin else None
            _connect(node, last, [first + s for s in block.successors], frame, return_to)
        if len(self._program.code) > MAX_INSTRUCTIONS:
            raise TooHardError("the kernel is too large with its functions inlined", function.line)
        return first

    def _call(self, call: Instruction, frame: Frame, stack: tuple[str, ...], node: Node) -> Node:
        """Inline one call; gives the node in which the code after it goes on."""
        name = next((o.text for o in call.operands if o.kind is OperandKind.SYMBOL), None)
        position = len(self._program.code) - 1
        if name is None or frame.symbol(name) is not None:
            self._program.indirect_calls.append(position)
            return node
        callee = self._functions.get(name)
        if callee is None:
            self._program.external_calls.append((position, name))
            return node
        if name in stack:
            raise TooHardError(f"{name} calls itself", call.line)
        if len(stack) > MAX_CALL_DEPTH:
            raise TooHardError("calls nest too deeply", call.line)
        inner = self._frame(callee)
        _bind(call, callee, frame, inner)
        node.end = len(self._program.code)
        after = len(self._program.nodes)
        self._program.nodes.append(Node(0))
        start = self._expand(callee, inner, (*stack, name), after)
        _connect_call(node, call, start, after, frame)
        out = self._program.nodes[after]
        out.begin = len(self._program.code)
        return out


def _bind(call: Instruction, callee: Function, frame: Frame, inner: Frame) -> None:
    """Let the formal parameters and returns of `callee` mean the variables that are passed."""
    at = next(i for i, o in enumerate(call.operands) if o.kind is OperandKind.SYMBOL)
    results = call.operands[0].elements if at == 1 else ()
    has_arguments = len(call.operands) > at + 1
    arguments = call.operands[at + 1].elements if has_arguments else ()
    for formals, actuals in ((callee.returns, results), (callee.parameters, arguments)):
        if len(formals) != len(actuals):
            raise TooHardError(
                f"{callee.name} is called with other parameters than it has", call.line
            )
        for formal, actual in zip(formals, actuals, strict=True):
            symbol = frame.symbol(actual.text) if actual.kind is OperandKind.SYMBOL else None
            if symbol is None or formal.space is not Space.PARAM or symbol.space is not Space.PARAM:
                raise TooHardError(f"{callee.name} is passed something else than .param", call.line)
            inner.symbols[formal.name] = symbol


def _guard(instruction: Instruction, frame: Frame, holds: bool) -> tuple[int, bool] | None:
    if instruction.guard == NO_REGISTER:
        return None
    return frame.register_base + instruction.guard, instruction.guard_negated is holds


def _connect(
    node: Node,
    last: Instruction | None,
    successors: list[int],
    frame: Frame,
    return_to: int | None,
) -> None:
    """Fill in where control goes at the end of a block of the original function."""
    opcode = last.opcode if last is not None else ""
    conditions: list[tuple[int, bool] | None] = [None] * len(successors)
    if last is not None and opcode == "bra" and len(successors) == 2:
        conditions = [_guard(last, frame, True), _guard(last, frame, False)]
    elif last is not None and opcode in ("ret", "exit", "trap") and successors:
        conditions = [_guard(last, frame, False)]
    if return_to is not None and (opcode == "ret" or (not successors and opcode not in _ENDS)):
        successors = [*successors, return_to]
        conditions.append(_guard(last, frame, True) if last and opcode == "ret" else None)
    node.successors, node.conditions = successors, conditions


_ENDS = ("exit", "trap", "bra", "brx")


def _connect_call(node: Node, call: Instruction, start: int, after: int, frame: Frame) -> None:
    node.successors, node.conditions = [start], [_guard(call, frame, True)]
    if call.guard != NO_REGISTER:
        node.successors.append(after)
        node.conditions.append(_guard(call, frame, False))
