"""Which ops have the derivative zero because it is zero, and which only look so.

`tf.nn.moments` stops the gradient of the mean within the variance: of the mean of (x - mean) ** 2
the first derivative by the mean is zero. The second is not, so that the op is read as passing on.
"""

from __future__ import annotations

import tensorflow as tf

from tfjac import tf_internals

# Registered as not differentiable because the derivative is zero, not because nobody wrote it.
ZERO_DERIVATIVE = frozenset({"OnesLike", "StopGradient", "ZerosLike"})

# What else may read the stopped mean: ops of the gradient of the variance, and its own loops.
_READERS = frozenset({"Identity", "OptionalFromValue", "Shape", "Sub", "TensorListPushBack"})


def stops(op: tf.Operation) -> bool:
    """Returns whether no derivative passes through an op, and none is missing."""
    return op.type in ZERO_DERIVATIVE and not is_of_moments(op)


def is_of_moments(op: tf.Operation) -> bool:
    """Returns whether an op stops the mean within a variance, as `tf.nn.moments` has it."""
    if op.type != "StopGradient" or op.inputs[0].op.type != "Mean":
        return False
    mean = op.inputs[0].op
    readers = op.outputs[0].consumers()
    squares = [r for r in readers if r.type == "SquaredDifference"]
    return (
        bool(squares)
        and all(r.type in _READERS for r in readers if r not in squares)
        and all(_is_centered(square, mean) and _is_averaged(square, mean) for square in squares)
    )


def _is_centered(square: tf.Operation, mean: tf.Operation) -> bool:
    """Returns whether what is squared is the distance from the mean of the same data."""
    return any(_are_alike(t, mean.inputs[0]) for t in square.inputs)


def _is_averaged(square: tf.Operation, mean: tf.Operation) -> bool:
    """Returns whether the squares are averaged as the data were."""
    readers = [r for r in square.outputs[0].consumers() if r.type not in _READERS]
    return bool(readers) and all(
        r.type == "Mean" and _are_alike(r.inputs[1], mean.inputs[1]) for r in readers
    )


def _are_alike(one: tf.Tensor, other: tf.Tensor) -> bool:
    """Returns whether two tensors are computed alike, so that they are equal.

    As two reads of a variable, or axes that `tf.vectorized_map` computes for each op anew.
    """
    if one.ref() == other.ref():
        return True
    values = tf.get_static_value(one), tf.get_static_value(other)
    if values[0] is not None and values[1] is not None:
        return values[0].tolist() == values[1].tolist()
    ops = one.op, other.op
    is_read = one.op.type == "ReadVariableOp"
    return (
        bool(one.op.inputs)
        and ops[0].type == ops[1].type
        and (is_read or not tf_internals.is_stateful(one.op.type))
        and one.op.node_def.attr == other.op.node_def.attr
        and len(ops[0].inputs) == len(ops[1].inputs)
        and all(map(_are_alike, ops[0].inputs, ops[1].inputs))
    )
