"""Convolutions of float64 whose gradients have no kernel on the CPU."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from tfjac import gradients
from tfjac.rewriting.replacement import Replacement


def _lacks_a_kernel(channels: int | None, op: tf.Operation, filters: tf.TensorShape) -> bool:
    if op.outputs[0].dtype != tf.float64 or op.get_attr("data_format") != b"NHWC":
        return False
    if not filters.is_fully_defined() or channels is None:
        return False
    return channels != filters[2] or set(op.get_attr("dilations")) != {1}


def _forward(op: tf.Operation, given: Sequence[bool]) -> bool:
    x = op.inputs[0].shape
    return _lacks_a_kernel(None if x.rank is None else x[-1], op, op.inputs[1].shape)


def _of_input(op: tf.Operation, given: Sequence[bool]) -> bool:
    x = op.outputs[0].shape
    known = x.rank is not None and x[1:].is_fully_defined()
    return known and _lacks_a_kernel(x[-1], op, op.inputs[1].shape)


def _of_filter(op: tf.Operation, given: Sequence[bool]) -> bool:
    x = op.inputs[0].shape
    return _lacks_a_kernel(None if x.rank is None else x[-1], op, op.outputs[0].shape)


def _convolved(op: tf.Operation, x: tf.Tensor, filters: tf.Tensor) -> tf.Tensor:
    """Returns the convolutions of each group, by filters spread to what dilations make of them."""
    groups = x.shape[-1] // filters.shape[2]
    filters = _spread(filters, op.get_attr("dilations")[1:3])
    found = [
        tf.nn.conv2d(part, own, op.get_attr("strides"), _padding(op))
        for part, own in zip(tf.split(x, groups, -1), tf.split(filters, groups, -1))
    ]
    return tf.concat(found, -1) if groups > 1 else found[0]


def _padding(op: tf.Operation) -> str | list[list[int]]:
    padding, edges = op.get_attr("padding").decode(), op.get_attr("explicit_paddings")
    return [edges[2 * k : 2 * k + 2] for k in range(4)] if padding == "EXPLICIT" else padding


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


def _convolution(op: tf.Operation, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    return [_convolved(op, *inputs)]


def _input_gradient(op: tf.Operation, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    _, filters, cotangent = inputs
    examples = tf.shape(cotangent)[:1]
    x = tf.zeros(tf.concat([examples, op.outputs[0].shape[1:].as_list()], 0), cotangent.dtype)
    x.set_shape(op.outputs[0].shape)
    return gradients.gradients(_convolved(op, x, filters), [x], [cotangent])


def _filter_gradient(op: tf.Operation, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    x, _, cotangent = inputs
    filters = tf.zeros(op.outputs[0].shape, cotangent.dtype)
    return gradients.gradients(_convolved(op, x, filters), [filters], [cotangent])


_FAULT = "the gradients of grouped and dilated convolutions in float64 have no kernel on the CPU"
TABLE = {
    "Conv2D": Replacement(_convolution, _FAULT, _forward),
    "Conv2DBackpropFilter": Replacement(_filter_gradient, _FAULT, _of_filter),
    "Conv2DBackpropInput": Replacement(_input_gradient, _FAULT, _of_input),
}
