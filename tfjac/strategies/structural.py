"""Linear maps, elementwise maps and movements: the Jacobian from their structure, no passes."""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf

from tfjac import rates, rules, shapes, stacks, tf_internals
from tfjac.accumulation import local, maps
from tfjac.graph import dependence, positions, subgraph
from tfjac.rules import Example, Kind, Local
from tfjac.stacks import Dense, Scattered
from tfjac.strategies import base

_PRODUCTS = frozenset({"MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"})
# Contributions to one tensor that are kept apart; each costs an entry for each row.
_MOST_TERMS = 16


@dataclasses.dataclass(frozen=True)
class Structural:
    """Carries rows back through the graph by their structure, writing out nothing before the end.

    Through elementwise ops and movements a row keeps its single entry for each way that leads to
    x; one matrix product turns rows into scaled rows of its weight. Nothing is multiplied by zero,
    so that an infinite derivative stays in its own entry.
    """

    name = "structural"

    def supports(self, problem: base.Problem) -> base.Support:
        """Says no unless every op on the way is elementwise, a movement, or one last product."""
        for part in (problem.y, *(s.value for s in problem.sources)):
            if isinstance(part, tf.Variable):
                return base.Support(False, "a variable has no positions in the graph")
            if part.dtype.is_complex:
                return base.Support(False, "complex tensors go by their own conventions")
            if not part.shape[problem.apart :].is_fully_defined():
                return base.Support(False, f"{part.name!r} has unknown sizes")
        try:
            for source in problem.sources:
                _Plan(problem, source)
        except _Refused as refused:
            return base.Support(False, str(refused))
        return base.SUPPORTED

    def cost(self, problem: base.Problem) -> base.Cost:
        """Counts no pass: what it takes is to write the result, and about an op for each one."""
        steps = len(problem.ops) * rates.current().op
        seconds = base.value_seconds(problem) + steps + rates.moving(0.0, problem.result_bytes)
        return base.Cost(0, seconds, graph_ops=2 * len(problem.ops), chunk_size=None)

    def build(self, problem: base.Problem) -> list[tf.Tensor | None]:
        """Adds a few ops for each op on the way."""
        return [self._by(problem, source) for source in problem.sources]

    def _by(self, problem: base.Problem, source: base.Source) -> tf.Tensor | None:
        plan = _Plan(problem, source)
        found = plan.sweep()
        if not found:
            return None
        entries = shapes.static_size(source.shape[problem.apart :])
        rows = stacks.total(found, entries, plan.positions, problem.y.dtype)
        if rows.shape[0] == 1 and problem.apart:
            rows = tf.broadcast_to(rows, [plan.positions, *rows.shape[1:]])
        return tf.reshape(rows, base.jacobian_shape(problem, source))


class _Refused(Exception):  # noqa: N818 (an answer)
    """Says why the structure of an op cannot be used."""


@dataclasses.dataclass(frozen=True, eq=False)
class _Step:
    """How rows go back from an output of an op to one of its inputs.

    Args:
      op: the op.
      i: the input.
      o: the output.
      kind: of the local Jacobian.
      sources: for each entry of the output at one position, that of the input, -1 where it comes
        from elsewhere; None for a product.
    """

    op: tf.Operation
    i: int
    o: int
    kind: Kind
    sources: np.ndarray | None

    @property
    def is_permutation(self) -> bool:
        """Whether each entry of the input goes to one entry of the output, and no other does."""
        given, out = self.op.inputs[self.i].shape, self.op.outputs[self.o].shape
        in_order = np.array_equal(np.sort(self.sources), np.arange(len(self.sources)))
        return in_order and given.num_elements() == out.num_elements()


class _Plan:
    """The steps from y back to x. Reads the graph; raises _Refused where the structure ends."""

    def __init__(self, problem: base.Problem, source: base.Source) -> None:
        self._problem = dataclasses.replace(problem, sources=(source,))
        self._apart = problem.apart
        self._x = source.value
        self._check_leading_axes()
        # Within a function, loop or branch x may be captured from around it.
        inner = tf_internals.known_in_graph(problem.y.graph, self._x)
        if problem.ops and (
            inner is None or any(op.graph is not inner.graph for op in problem.ops)
        ):
            raise _Refused("an op on the way lies outside the body in which the target is")
        self._begin = subgraph.key_of(self._x if inner is None else inner)
        reached = {self._begin}
        self._steps: list[tuple[tuple, list[_Step]]] = []
        for op in self._problem.ops:
            for o, output in enumerate(op.outputs):
                steps = self._steps_of(op, o, reached)
                if steps:
                    self._steps.append((subgraph.key_of(output), steps))
            reached.update(subgraph.key_of(output) for output in op.outputs)
        self._check_terms()

    @property
    def positions(self) -> shapes.Size:
        """How many positions the leading axes have."""
        return shapes.size_of(shapes.shape_of(self._problem.y)[: self._apart])

    def sweep(self) -> list[stacks.Stack]:
        """Adds the ops, and returns the stacks that arrive at x."""
        return self._swept(stacks.identity(self._problem.rows), self._back)

    def _swept(self, seed: stacks.Stack, back) -> list[stacks.Stack]:
        waiting = {subgraph.key_of(self._problem.y): [seed]}
        for key, steps in reversed(self._steps):
            arrived = stacks.merged(waiting.pop(key, []))
            if len(arrived) > _MOST_TERMS:
                raise _Refused(f"more than {_MOST_TERMS} ways lead from an entry of x to one of y")
            for step in steps if arrived else ():
                found = waiting.setdefault(subgraph.key_of(step.op.inputs[step.i]), [])
                found += [back(step, stack) for stack in arrived]
        return stacks.merged(waiting.get(self._begin, []))

    def _back(self, step: _Step, stack: stacks.Stack) -> stacks.Stack:
        if step.sources is None:
            return stack.times(self._matrix(step))
        if step.kind is Kind.DIAGONAL:
            chooses = step.op.type in maps.CHOOSES
            return stack.scaled(self._derivative(step), step.sources, chooses=chooses)
        return stack.moved(step.sources)

    def _check_terms(self) -> None:
        """Follows the rows without their values, to see that their structure lasts."""

        def back(step: _Step, stack: stacks.Stack) -> stacks.Stack:
            if isinstance(stack, Scattered):
                return Dense(None) if step.sources is None else stack.moved(step.sources)
            if step.sources is None or not step.is_permutation:
                raise _Refused(f"{base.named(step.op)} comes before a product of matrices")
            return stack

        self._swept(stacks.identity(self._problem.rows), back)

    def _check_leading_axes(self) -> None:
        for axis in range(self._apart):
            states = dependence.states(self._problem.y, self._x, axis)
            for op in self._problem.ops:
                for output in op.outputs:
                    if states(output) not in (None, Example(axis)):
                        raise _Refused(f"{base.named(op)} moves an axis that is kept apart")

    def _steps_of(self, op: tf.Operation, o: int, reached: set) -> list[_Step]:
        """Returns the steps from an output to the inputs that depend on x."""
        if not subgraph.carries_derivative(op.outputs[o]):
            return []
        inputs = [i for i, t in enumerate(op.inputs) if subgraph.key_of(t) in reached]
        rule = rules.rule_of(op)
        if rule is None:
            raise _Refused(f"{base.named(op)} has no rule")
        locals_ = [(i, rule.local(op, i, o)) for i in inputs]
        return [self._step(op, i, o, local) for i, local in locals_ if local.kind is not Kind.ZERO]

    def _step(self, op: tf.Operation, i: int, o: int, local: Local) -> _Step:
        if op.outputs[o].dtype.is_complex or op.inputs[i].dtype.is_complex:
            # A number for each entry is not enough there, and half of it would be dropped.
            raise _Refused(f"{base.named(op)} is complex")
        if op.type in _PRODUCTS:
            self._check_product(op, i)
            return _Step(op, i, o, local.kind, None)
        sources = positions.sources_of(op, i, o, local)
        if sources is None or (op.type in _SCALED_BY_GROUPS and i > 0):
            raise _Refused(f"{base.named(op)} is {local.kind.value}, not elementwise or a movement")
        return _Step(op, i, o, local.kind, self._at_one_position(sources, op, i, o))

    def _at_one_position(self, sources: np.ndarray, op: tf.Operation, i: int, o: int) -> np.ndarray:
        """Returns where entries come from at a position of the leading axes, the same at each."""
        entries, given = self._entries(op.outputs[o]), self._entries(op.inputs[i])
        rows = sources.reshape(-1, entries) if entries else sources.reshape(1, 0)
        within = np.where(rows >= 0, rows - given * np.arange(len(rows))[:, np.newaxis], -1)
        if (within != within[:1]).any():
            raise _Refused(f"{base.named(op)} moves entries in another way at each position")
        return within[0] if len(within) else np.zeros(entries, int)

    def _entries(self, tensor: tf.Tensor) -> int:
        return tensor.shape[self._apart :].num_elements()

    def _check_product(self, op: tf.Operation, i: int) -> None:
        out, other = op.outputs[0].shape, op.inputs[1 - i].shape
        kept = out.rank is not None and out.is_fully_defined() and other.is_fully_defined()
        # A row times a matrix, or a matrix times a column: its Jacobian is the matrix.
        is_vector = kept and (
            (out.rank == self._apart + 1 or out[-2] == 1) if i == 0 else out[-1] == 1
        )
        if not is_vector or other.rank != 2:
            raise _Refused(f"{base.named(op)} is not a matrix times a vector")

    def _matrix(self, step: _Step) -> tf.Tensor:
        """Returns `[1, entries of the output, entries of the input]`."""
        op, other = step.op, step.op.inputs[1 - step.i]
        name = ("transpose_b", "adj_y") if step.i == 0 else ("transpose_a", "adj_x")
        transposed = op.get_attr(name[0] if op.type == "MatMul" else name[1])
        # x W has the Jacobian W transposed; A x has A.
        turned = transposed if step.i == 1 else not transposed
        matrix = tf.cast(other, self._problem.y.dtype)
        return (tf.transpose(matrix) if turned else matrix)[tf.newaxis]

    def _derivative(self, step: _Step) -> tf.Tensor:
        """Returns the diagonal, `[positions or 1, entries of the output at one position]`."""
        op, out = step.op, step.op.outputs[step.o]
        if op.type in maps.ADDS:
            return tf.ones([1, self._entries(out)], self._problem.y.dtype)
        # In y's precision all the way, whatever the ops in between have.
        found = local.derivative(op, step.i, step.o, self._problem.y.dtype)
        return tf.reshape(found, [self.positions, self._entries(out)])


# The gradient of these by all but the first input adds up groups of entries.
_SCALED_BY_GROUPS = frozenset({"FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"})
