"""Convolutions of float64 whose gradients have no kernel on the CPU."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from tfjac import tf_internals
from tfjac.rewriting.replacement import Replacement


def _lacks_a_kernel(op: tf.Operation, given: Sequence[bool]) -> bool:
    if op.inputs[0].dtype != tf.float64 or op.get_attr("data_format") != b"NHWC":
        return False
    if not op.inputs[1].shape.is_fully_defined():
        return False
    return _groups(op) != 1 or set(op.get_attr("dilations")) != {1}


def _groups(op: tf.Operation) -> int:
    channels, own = op.inputs[0].shape[-1], op.inputs[1].shape[2]
    return channels // own if channels else 1


def _by_groups(op: tf.Operation, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Returns the convolutions of each group, their filters spread to what dilations make them."""
    x, filters = inputs
    filters = _spread(filters, op.get_attr("dilations")[1:3])
    parts = zip(tf.split(x, _groups(op), -1), tf.split(filters, _groups(op), -1))
    found = [tf_internals.same_op(op, pair, dilations=[1, 1, 1, 1])[0] for pair in parts]
    return [tf.concat(found, -1) if len(found) > 1 else found[0]]


def _spread(filters: tf.Tensor, dilations: Sequence[int]) -> tf.Tensor:
    """Returns filters with zeros between their entries."""
    for axis, n in enumerate(dilations):
        if n > 1:
            parts = tf.expand_dims(filters, axis + 1)
            zeros = tf.zeros_like(tf.repeat(parts, n - 1, axis + 1))
            shape = filters.shape.as_list()
            shape[axis] *= n
            wide = tf.reshape(tf.concat([parts, zeros], axis + 1), shape)
            filters = wide[(slice(None),) * axis + (slice(0, shape[axis] - n + 1),)]
    return filters


TABLE = {
    "Conv2D": Replacement(
        _by_groups,
        "the gradients of grouped and of dilated convolutions in float64 have no kernel on the CPU",
        _lacks_a_kernel,
    ),
}
