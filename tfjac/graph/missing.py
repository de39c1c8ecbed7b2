"""Ops on the way that have no derivative in TensorFlow, or none by one of their inputs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import tensorflow as tf

from tfjac import errors, tf_internals
from tfjac.graph import bodies, stops, subgraph

# Inputs by which TensorFlow gives no derivative though there is one: None, which counts as zero.
NONE_BY_INPUT = {
    "Betainc": {0: "a", 1: "b"},
    "Polygamma": {0: "a"},
    "Zeta": {0: "x"},
}


def check_differentiable(tensors: Iterable[tf.Tensor], ops: Sequence[tf.Operation]) -> None:
    """Raises if an op between x and y, or in a body there, passes floats on without derivative.

    `tf.gradients` would drop that path without a word and return too small a Jacobian.

    Args:
      tensors: the sources.
      ops: the ops between, in topological order.
    """
    for op, given in bodies.walk(ops, bodies.Reached.after(tensors, ops)):
        if not any(subgraph.carries_derivative(t) for t in op.outputs):
            continue
        names = NONE_BY_INPUT.get(op.type, {})
        missing = [f"{i} (`{name}`)" for i, name in names.items() if given[i]]
        if missing:
            raise _error(op, f"no derivative by its input {' and '.join(missing)}")
        if op.type not in stops.ZERO_DERIVATIVE and tf_internals.has_no_derivative(op.type):
            raise _error(op, "no derivative")


def _error(op: tf.Operation, what: str) -> errors.NotDifferentiableError:
    return errors.NotDifferentiableError(
        f"op {op.name!r} of type {op.type}, between x and y, has {what} in TensorFlow, so that the "
        "Jacobian would miss it. Wrap the computation in tf.custom_gradient, or its input in "
        "tf.stop_gradient where it counts as constant."
    )
