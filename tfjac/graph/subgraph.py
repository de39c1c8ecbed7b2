"""The ops between a target and its sources. Reads the graph; adds nothing and evaluates nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Iterator, Sequence

import tensorflow as tf

from tfjac import graph_memo, tf_internals
from tfjac.graph import stops

CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
# Op types that call a function: TensorFlow adds outputs to them when it differentiates them.
WITH_BODY = frozenset(
    {
        "Case",
        "If",
        "PartitionedCall",
        "StatefulPartitionedCall",
        "StatelessCase",
        "StatelessIf",
        "StatelessWhile",
        "While",
    }
)


class OuterTensors:
    """From the placeholders of function bodies to the tensors around them that they stand for."""

    def __init__(self) -> None:
        self._captures: dict[int, dict[str, tf.Tensor]] = {}

    def find(self, tensor: tf.Tensor, known: Container[tuple[int, str]]) -> tuple[int, str]:
        """Returns the key of the first among `known` of a tensor and those that it stands for.

        The outermost one's where none of them is known.
        """
        while key_of(tensor) not in known and tensor.op.type == "Placeholder":
            graph = tensor.graph
            if id(graph) not in self._captures:
                self._captures[id(graph)] = tf_internals.captures(graph)
            outer = self._captures[id(graph)].get(tensor.name)
            if outer is None or not tf.is_symbolic_tensor(outer):
                break
            tensor = outer
        return key_of(tensor)


@dataclasses.dataclass(frozen=True)
class Bodies:
    """The functions that an op calls, one of them or each in turn.

    Args:
      graphs: their graphs, None where one is not to be had; inputs and outputs are the op's own.
      skip: how many inputs of the op are not passed to them.
      repeats: whether what comes out goes in again.
    """

    graphs: tuple[tf.Graph | None, ...]
    skip: int = 0
    repeats: bool = False


def bodies(op: tf.Operation) -> Bodies | None:
    """Returns the functions that `op` calls; None for an op that calls none."""
    if op.type in CALLS:
        return Bodies((tf_internals.body_of(op, "f"),))
    if op.type in ("While", "StatelessWhile"):
        return Bodies((tf_internals.body_of(op, "body"),), repeats=True)
    if op.type in ("If", "StatelessIf"):
        branches = (tf_internals.body_of(op, f"{name}_branch") for name in ("then", "else"))
        return Bodies(tuple(branches), skip=1)
    if op.type in ("Case", "StatelessCase"):
        return Bodies(tuple(tf_internals.bodies_of(op, "branches")), skip=1)
    return None


def ops_between(target: tf.Tensor, sources: Sequence[tf.Tensor]) -> list[tf.Operation]:
    """Returns the ops on a differentiable path from `sources` to `target`, in topological order.

    Follows the tensors that a function body captures into the graphs around it. Bodies of called
    functions and of loops are not entered: their op stands for them. Iterative, so the depth of
    the graph does not matter; linear in its size.
    """
    source_names = {key_of(source) for source in sources}
    dependent: set[tuple[int, str]] = set()
    ordered = []
    if key_of(target) in source_names:
        return ordered
    for op, inputs in post_order(target, source_names):
        if any(key_of(t) in source_names or _op_key(t.op) in dependent for t in inputs):
            dependent.add(_op_key(op))
            if op.type != "Placeholder":
                ordered.append(op)
    return ordered


def chain(
    ops: Sequence[tf.Operation], sources: Sequence[tf.Tensor], y: tf.Tensor
) -> list[tf.Tensor]:
    """Returns the tensors through which every path from the sources to `y` runs, in order.

    Args:
      ops: the ops between them, in topological order.
      sources: where paths begin.
      y: the target, which is the last of them.
    """
    last_use: dict[tuple, int] = {key_of(y): len(ops)}
    for number, op in enumerate(ops):
        for tensor in op.inputs:
            last_use[key_of(tensor)] = max(number, last_use.get(key_of(tensor), 0))
    live = {key_of(t): t for t in sources if key_of(t) in last_use}
    found: list[tf.Tensor] = []
    for number, op in enumerate(ops):
        live.update((key_of(t), t) for t in op.outputs if key_of(t) in last_use)
        for tensor in op.inputs:
            if last_use[key_of(tensor)] <= number:
                live.pop(key_of(tensor), None)
        if len(live) == 1:
            found += [t for t in live.values() if not found or found[-1] is not t]
    return found


def tensors_behind(
    target: tf.Tensor, known: Container[tuple[int, str]] = frozenset()
) -> list[tf.Tensor]:
    """Returns `target` and all tensors that it is differentiably computed from.

    Args:
      target: the tensor.
      known: keys of tensors at which to stop; what only they come from is left out.
    """
    found = {key_of(target): target}
    for op, inputs in post_order(target, known):
        del op
        found.update((key_of(t), t) for t in inputs)
    return list(found.values())


def post_order(
    target: tf.Tensor, source_names: Container[tuple[int, str]]
) -> Iterator[tuple[tf.Operation, list[tf.Tensor]]]:
    """Yields (op, its differentiable inputs), each after the ops that it needs.

    Args:
      target: at whose op it ends.
      source_names: keys of the tensors behind which it does not look.
    """
    captures_of: dict[int, dict[str, tf.Tensor]] = {}
    seen = {_op_key(target.op)}
    stack = [(target.op, *_start(target.op, captures_of))]
    while stack:
        op, inputs, waiting = stack[-1]
        child = next(waiting, None)
        if child is None:
            stack.pop()
            yield op, inputs
        elif key_of(child) not in source_names and _op_key(child.op) not in seen:
            seen.add(_op_key(child.op))
            stack.append((child.op, *_start(child.op, captures_of)))


def _start(op, captures_of):
    inputs = _differentiable_inputs(op, captures_of)
    return inputs, iter(inputs)


def _differentiable_inputs(op: tf.Operation, captures_of) -> list[tf.Tensor]:
    if op.type == "Placeholder":
        graph = op.graph
        if id(graph) not in captures_of:
            captures_of[id(graph)] = tf_internals.captures(graph)
        outer = captures_of[id(graph)].get(op.outputs[0].name)
        # An eager tensor from outside every graph depends on nothing.
        return [outer] if outer is not None and tf.is_symbolic_tensor(outer) else []
    if stops.stops(op):
        return []
    inputs = [t for t in op.inputs if carries_derivative(t)]
    if is_by_hand(op):
        return [t for t, is_reached in zip(op.inputs, gradient_by_hand(op).reached) if is_reached]
    return inputs


@dataclasses.dataclass(frozen=True, eq=False)
class ByHand:
    """A gradient that was written by hand, as it was built once to be read.

    Args:
      reached: to which inputs of the op it passes anything back.
      ops: those of it that are stateful or call a function.
    """

    reached: tuple[bool, ...]
    ops: tuple[tf.Operation, ...] = ()


def is_by_hand(op: tf.Operation) -> bool:
    """Returns whether an op is what `tf.custom_gradient` makes of the results of a function."""
    return op.type == "IdentityN" and "_gradient_op_type" in op.node_def.attr


def gradient_by_hand(op: tf.Operation) -> ByHand:
    """Returns what is known of the gradient that was written for an op by hand.

    The results of the function are inputs of the op too, though it is not through the op that they
    are differentiated.
    """
    return graph_memo.memoized(("by hand", op), lambda: _read_by_hand(op))


def _read_by_hand(op: tf.Operation) -> ByHand:
    with tf_internals.scratch_graph(op.graph).as_default() as graph:
        try:
            found = tf_internals.gradient_of(op, [tf.ones_like(t) for t in op.outputs])
        except (NotImplementedError, TypeError, ValueError, LookupError):
            # It was written for other uses, and tells nothing here.
            return ByHand(tuple(carries_derivative(t) for t in op.inputs))
    reached = [carries_derivative(t) and g is not None for t, g in zip(op.inputs, found)]
    ops = [
        part
        for part in graph.get_operations()
        if part.type in WITH_BODY or tf_internals.is_stateful(part.type)
    ]
    return ByHand(tuple(reached), tuple(ops))


def carries_derivative(tensor: tf.Tensor) -> bool:
    """Returns whether derivatives pass through a tensor of this dtype."""
    dtype = tensor.dtype.base_dtype
    return dtype.is_floating or dtype.is_complex or dtype in (tf.resource, tf.variant)


def key_of(tensor: tf.Tensor) -> tuple[int, str]:
    """Returns what identifies a tensor among those of all graphs that are alive."""
    return id(tensor.graph), tensor.name


def _op_key(op: tf.Operation) -> tuple[int, str]:
    return id(op.graph), op.name
