"""The ops between a target and its sources. Reads the graph; adds nothing and evaluates nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import tensorflow as tf

from tfjac import errors, tf_internals

# Registered as not differentiable because the derivative is zero, not because nobody wrote it.
_ZERO_DERIVATIVE = frozenset({"OnesLike", "StopGradient", "ZerosLike"})

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


def ops_between(target: tf.Tensor, sources: Sequence[tf.Tensor]) -> list[tf.Operation]:
    """Returns the ops on a differentiable path from `sources` to `target`, in topological order.

    Follows the tensors that a function body captures into the graphs around it. Bodies of called
    functions and of loops are not entered: their op stands for them. Iterative, so the depth of
    the graph does not matter; linear in its size.
    """
    source_names = {_key(source) for source in sources}
    dependent: set[tuple[int, str]] = set()
    ordered = []
    if _key(target) in source_names:
        return ordered
    for op, inputs in _post_order(target, source_names):
        if any(_key(t) in source_names or _op_key(t.op) in dependent for t in inputs):
            dependent.add(_op_key(op))
            if op.type != "Placeholder":
                ordered.append(op)
    return ordered


def tensors_behind(target: tf.Tensor) -> list[tf.Tensor]:
    """Returns `target` and all tensors that it is differentiably computed from."""
    found = {_key(target): target}
    for op, inputs in _post_order(target, frozenset()):
        del op
        found.update((_key(t), t) for t in inputs)
    return list(found.values())


def check_differentiable(ops: Sequence[tf.Operation]) -> None:
    """Raises if one of `ops`, all between x and y, passes floats on but has no derivative.

    `tf.gradients` would drop that path without a word and return too small a Jacobian.
    """
    for op in ops:
        if op.type in _ZERO_DERIVATIVE or not tf_internals.has_no_derivative(op.type):
            continue
        if any(_carries_derivative(t) for t in op.outputs):
            raise errors.NotDifferentiableError(
                f"op {op.name!r} of type {op.type}, between x and y, has no derivative in "
                "TensorFlow, so that the Jacobian would miss it. Wrap the computation in "
                "tf.custom_gradient, or its input in tf.stop_gradient where it counts as constant."
            )


def _post_order(target, source_names) -> Iterator[tuple[tf.Operation, list[tf.Tensor]]]:
    """Yields (op, its differentiable inputs), each after the ops that it needs."""
    captures_of: dict[int, dict[str, tf.Tensor]] = {}
    seen = {_op_key(target.op)}
    stack = [(target.op, *_start(target.op, captures_of))]
    while stack:
        op, inputs, waiting = stack[-1]
        child = next(waiting, None)
        if child is None:
            stack.pop()
            yield op, inputs
        elif _key(child) not in source_names and _op_key(child.op) not in seen:
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
    return [t for t in op.inputs if _carries_derivative(t)]


def _carries_derivative(tensor: tf.Tensor) -> bool:
    dtype = tensor.dtype.base_dtype
    return dtype.is_floating or dtype.is_complex or dtype in (tf.resource, tf.variant)


def _key(tensor: tf.Tensor) -> tuple[int, str]:
    return id(tensor.graph), tensor.name


def _op_key(op: tf.Operation) -> tuple[int, str]:
    return id(op.graph), op.name
