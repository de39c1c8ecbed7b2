"""Which ops have the derivative zero because it is zero, and which only look so.

`tf.nn.moments` stops the gradient of the mean within the variance: of the mean of (x - mean) ** 2
the first derivative by the mean is zero. The second is not, so that the op is read as passing on.
"""

from __future__ import annotations

import tensorflow as tf

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
    return any(t.ref() == mean.inputs[0].ref() for t in square.inputs)


def _is_averaged(square: tf.Operation, mean: tf.Operation) -> bool:
    """Returns whether the squares are averaged as the data were."""
    readers = [r for r in square.outputs[0].consumers() if r.type not in _READERS]
    axes = tf.get_static_value(mean.inputs[1])
    return bool(readers) and all(
        r.type == "Mean" and _same(tf.get_static_value(r.inputs[1]), axes) for r in readers
    )


def _same(one, other) -> bool:
    return one is not None and other is not None and one.tolist() == other.tolist()
