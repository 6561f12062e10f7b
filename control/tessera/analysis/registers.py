# SPDX-License-Identifier: Apache-2.0
"""Pass 4: the value of a register at its definition, computed when somebody asks for it.

Integers, addresses and predicates are followed; everything else is an opaque atom. Values
are those of the instance of the definition that dominates the use, so that an atom means the
same in every polynomial that is met at one place.
"""

from __future__ import annotations

from tessera.analysis.compare import predicate_of
from tessera.analysis.domain import Domain
from tessera.analysis.flow import Edge, Flow
from tessera.analysis.induction import find_induction
from tessera.analysis.launch import MAX_BLOCK, MAX_CLUSTER, MAX_GRID, type_bound
from tessera.analysis.opcodes import STORAGE_BITS
from tessera.analysis.polynomial import ZERO, Atom, Poly, constant, of_atom
from tessera.analysis.predicates import FALSE, Pred, conjunction, disjunction
from tessera.analysis.program import Program, Symbol
from tessera.analysis.reaching import Definition, Reaching
from tessera.analysis.slots import Slots
from tessera.analysis.transfer import HANDLERS, product_of
from tessera.analysis.values import Value, common_part, hull_of
from tessera.native.ptx import NO_REGISTER, Instruction, Operand, OperandKind


class Registers:
    """Values and predicates of one program."""

    def __init__(self, program: Program, flow: Flow, reaching: Reaching, domain: Domain) -> None:
        self.program = program
        self.flow = flow
        self.reaching = reaching
        self.domain = domain
        self._values: dict[Definition, Value] = {}
        self._preds: dict[Definition, Pred] = {}
        self._opaque_preds = 0
        self.slots = Slots(self)

    def release(self) -> None:
        """Cut the cycle with what knows this table. No question may follow."""
        del self.slots

    # Operands of the instruction at a code index

    def operand(self, index: int, operand: Operand) -> Value:
        kind = operand.kind
        if kind is OperandKind.REGISTER:
            if operand.component >= 0:
                return self.opaque(index, 64)  # an element of a vector register
            value = self.register(index, operand.register)
            return Value(-value.poly, value.obligations) if operand.negated else value
        if kind is OperandKind.INTEGER:
            return Value(constant(operand.signed))
        if kind is OperandKind.SPECIAL:
            return Value(self.special(index, operand.text, operand.component))
        if kind is OperandKind.SYMBOL:
            return self._symbol(index, operand)
        return self.opaque(index, 64)

    def address(self, index: int, operand: Operand) -> Value:
        """The address that an operand in brackets stands for, in its state space."""
        if operand.kind is not OperandKind.ADDRESS or len(operand.elements) != 1:
            return self.opaque(index, 64)
        base = self.operand(index, operand.elements[0])
        return Value(base.poly.shift(operand.offset), base.obligations)

    def product(self, index: int, instruction: Instruction) -> Value | None:
        """The product that a `mul` or `mad` computes, before anything is added to it."""
        return product_of(self, index, instruction)

    def register(self, index: int, register: int) -> Value:
        base = self.program.frames[index].register_base
        return self.value(self.reaching.before(base + register, index))

    def predicate(self, index: int, operand: Operand) -> Pred:
        if operand.kind is OperandKind.INTEGER:
            return FALSE.negated() if operand.bits else FALSE
        if operand.kind is not OperandKind.REGISTER:
            return self.opaque_predicate()
        base = self.program.frames[index].register_base
        pred = self.pred(self.reaching.before(base + operand.register, index))
        return pred.negated() if operand.negated else pred

    def guard(self, index: int) -> Pred | None:
        """What holds when a predicated instruction is executed; None: always executed."""
        instruction = self.program.code[index]
        if instruction.guard == NO_REGISTER:
            return None
        base = self.program.frames[index].register_base
        pred = self.pred(self.reaching.before(base + instruction.guard, index))
        return pred.negated() if instruction.guard_negated else pred

    def edge_predicate(self, edge: Edge) -> Pred | None:
        """What holds on the way along an edge; None: nothing is known."""
        if edge.condition is None:
            return None
        register, is_false = edge.condition
        end = self.program.nodes[edge.source].end
        pred = self.pred(self.reaching.before(register, end - 1))
        return pred.negated() if is_false else pred

    # Definitions

    def value(self, definition: Definition) -> Value:
        found = self._values.get(definition)
        if found is None:
            found = self._compute(definition)
            self._values.setdefault(definition, found)
            found = self._values[definition]
        return found

    def pred(self, definition: Definition) -> Pred:
        found = self._preds.get(definition)
        if found is None:
            if definition.kind == "code":
                found = self._guarded_pred(definition)
            elif definition.kind == "phi":
                found = self._join_preds(definition)
            else:
                found = self.opaque_predicate()
            self._preds[definition] = found
        return found

    def _compute(self, definition: Definition) -> Value:
        if definition.kind == "none":
            return self._opaque_of(definition, 0)
        if definition.kind == "phi":
            return self._phi(definition)
        index = definition.at
        instruction = self.program.code[index]
        handler = HANDLERS.get(instruction.opcode)
        value = handler(self, index, instruction, definition.slot) if handler else None
        if value is None:
            value = self._opaque_of(definition, self.reaching.node_of[index])
        guard = self.guard(index)
        if guard is None:
            return value
        before = self.reaching.before(definition.variable, index)
        if before.kind == "none":
            return value
        return self.domain.select(guard, value, self.value(before))

    def _phi(self, definition: Definition) -> Value:
        node = definition.at
        if node in self.flow.tangled or self.flow.dominator[node] is None:
            return self._opaque_of(definition, node)
        inputs = self.reaching.inputs(definition)
        if node in self.flow.loops:
            found = find_induction(self, definition, inputs)
            if found is not None:
                return found
            return Value(of_atom(self.phi_atom(definition, inputs)))
        values = [self.value(d) for _, d in inputs]
        if all(value == values[0] for value in values):
            return values[0]
        return self.merge(definition, inputs, values)

    def merge(
        self, definition: Definition, inputs: list[tuple[Edge, Definition]], values: list[Value]
    ) -> Value:
        """A join outside of loop headers: what all inputs share stays in the open."""
        common = values[0].poly
        for value in values[1:]:
            common = common_part(common, value.poly)
        rests = [Value(v.poly - common, v.obligations) for v in values]
        if all(rest == rests[0] for rest in rests):
            return values[0]
        edges = tuple(edge for edge, _ in inputs)
        atom = self.domain.fresh("phi", (edges, tuple(rests)), hull_of(rests), (definition.at,))
        atom.loaded = any(rest.poly.loaded for rest in rests)
        return Value(common + of_atom(atom))

    def phi_atom(self, definition: Definition, inputs: list[tuple[Edge, Definition]]) -> Atom:
        """A join of which nothing is known yet; its inputs are looked at when it is bounded."""
        bits = self.bits_of(definition)
        bound = type_bound(bits, True)
        return self.domain.fresh("loopphi", (definition, tuple(inputs)), bound, (definition.at,))

    def _opaque_of(self, definition: Definition, node: int) -> Value:
        bound = type_bound(self.bits_of(definition), True)
        atom = self.domain.fresh("opaque", (definition,), bound, (node,))
        if definition.kind == "code":
            atom.loaded = self._depends_on_memory(self.program.code[definition.at])
        else:
            atom.loaded = True
        return Value(of_atom(atom))

    def _depends_on_memory(self, instruction: Instruction) -> bool:
        """Whether an opaque result may come from memory: all but special registers."""
        return not any(o.kind is OperandKind.SPECIAL for o in instruction.operands)

    def opaque(self, index: int, bits: int) -> Value:
        atom = self.domain.fresh(
            "opaque", (index,), type_bound(bits, True), (self.reaching.node_of[index],), loaded=True
        )
        return Value(of_atom(atom))

    def opaque_predicate(self) -> Pred:
        self._opaque_preds += 1
        return Pred("opaque", serial=self._opaque_preds)

    def bits_of(self, definition: Definition) -> int:
        variable = definition.variable
        if isinstance(variable, int):
            return STORAGE_BITS.get(self.program.register_types[variable], 64)
        assert isinstance(variable, tuple)
        return 8 * int(variable[2])

    # Predicates

    def _guarded_pred(self, definition: Definition) -> Pred:
        pred = predicate_of(self, definition.at, definition.slot)
        guard = self.guard(definition.at)
        if guard is None:
            return pred
        before = self.reaching.before(definition.variable, definition.at)
        if before.kind == "none":
            return pred
        old = self.pred(before)
        return disjunction(conjunction(guard, pred), conjunction(guard.negated(), old))

    def _join_preds(self, definition: Definition) -> Pred:
        """`phi(false, q)` implies q; `phi(true, q)` is implied by q."""
        node = definition.at
        if node in self.flow.loops or node in self.flow.tangled:
            return self.opaque_predicate()
        preds = [self.pred(d) for _, d in self.reaching.inputs(definition)]
        if all(pred == preds[0] for pred in preds):
            return preds[0]
        others = [pred for pred in preds if pred.kind not in ("true", "false")]
        constants = {pred.kind for pred in preds} - {"opaque", "le", "eq", "ne", "and", "or"}
        if not others or len(constants) != 1 or any(pred != others[0] for pred in others):
            return self.opaque_predicate()
        if constants == {"false"}:
            return conjunction(others[0], self.opaque_predicate())
        return disjunction(others[0], self.opaque_predicate())

    # Leaves

    def _symbol(self, index: int, operand: Operand) -> Value:
        symbol = self.program.frames[index].symbol(operand.text)
        if symbol is None:
            return self.opaque(index, 64)
        return Value(of_atom(self.symbol_atom(symbol)).shift(operand.offset))

    def symbol_atom(self, symbol: Symbol) -> Atom:
        return self.domain.leaf("symbol", (symbol,), (None, None), uniform=False)

    def parameter(self, offset: int, width: int, signed: bool) -> Poly:
        """A scalar parameter, or a part of one: `width` bytes at `offset` of the block."""
        bound = type_bound(8 * width, signed)
        return of_atom(self.domain.leaf("param", (offset, width, signed), bound, uniform=True))

    def special(self, index: int, name: str, component: int) -> Poly:  # noqa: PLR0912 - a table of names
        kernel = self.program.kernel
        axis = max(component, 0)
        required, most = kernel.required_threads[axis], kernel.max_threads[axis]
        limit = min(most, MAX_BLOCK[axis]) if any(kernel.max_threads) and most else MAX_BLOCK[axis]
        match name:
            case "%tid":
                bound = (0, (required or limit) - 1)
                thread = self._leaf("tid", axis, bound)
                for atom in thread.atoms:
                    atom.required = required > 0
                return thread if bound[1] else ZERO
            case "%ntid":
                if required:
                    return constant(required)
                return self._leaf("block", axis, (1, limit), uniform=True)
            case "%ctaid":
                return self._leaf("ctaid", axis, (0, MAX_GRID[axis] - 1))
            case "%nctaid":
                return self._leaf("grid", axis, (1, MAX_GRID[axis]), uniform=True)
            case "%laneid":
                return self._leaf("lane", 0, (0, 31))
            case "%cluster_ctaid":
                return self._leaf("cluster_ctaid", axis, (0, MAX_CLUSTER - 1))
            case "%cluster_nctaid":
                return self._leaf("cluster", axis, (1, MAX_CLUSTER), uniform=True)
            case "%dynamic_smem_size":
                return self._leaf("dynamic_shared", 0, (0, 1 << 24), uniform=True)
            case "%clusterid" | "%cluster_ctarank":
                return self._leaf(name, axis, (0, MAX_GRID[0] - 1))
            case "%nclusterid" | "%cluster_nctarank":
                return self._leaf(name, axis, (1, MAX_GRID[0]))
        if name.startswith("%envreg"):
            return of_atom(self.domain.leaf("driver", (name,), (None, None), uniform=False))
        atom = self.domain.fresh(
            "opaque", (index, name), type_bound(64, True), (self.reaching.node_of[index],)
        )
        return of_atom(atom)

    def _leaf(self, kind: str, axis: int, bound: tuple[int, int], *, uniform: bool = False) -> Poly:
        return of_atom(self.domain.leaf(kind, (axis,), bound, uniform=uniform))
