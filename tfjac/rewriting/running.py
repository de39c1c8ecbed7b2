"""Products and sums of exponentials over an axis, whole and running, by doubling steps.

Step k combines each entry with the one 2^k places before it (D. Hillis and G. Steele, "Data
parallel algorithms", 1986), so that what is differentiated are products and sums of two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

from tfjac.rewriting.replacement import Replacement

Combine = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]


def _axis(op: tf.Operation) -> int | None:
    """Returns the axis of a running op, if it is told and of known size."""
    axis, rank = tf.get_static_value(op.inputs[1]), op.inputs[0].shape.rank
    if axis is None or rank is None or op.inputs[0].shape[int(axis)] is None:
        return None
    return int(axis) % rank


def _is_told(op: tf.Operation, given: Sequence[bool]) -> bool:
    return _axis(op) is not None


def _cut(tensor: tf.Tensor, axis: int, begin: int, end: int) -> tf.Tensor:
    return tensor[(slice(None),) * axis + (slice(begin, end),)]


def _running(op: tf.Operation, x: tf.Tensor, combine: Combine, neutral: tf.Tensor) -> tf.Tensor:
    axis = _axis(op)
    size, reverse = op.inputs[0].shape[axis], op.get_attr("reverse")
    if reverse:
        x = tf.reverse(x, [axis])
    step = 1
    while step < size:
        ahead = combine(_cut(x, axis, 0, size - step), _cut(x, axis, step, size))
        x = tf.concat([_cut(x, axis, 0, step), ahead], axis)
        step *= 2
    if op.get_attr("exclusive") and size:
        first = tf.zeros_like(_cut(x, axis, 0, 1)) + neutral
        x = tf.concat([first, _cut(x, axis, 0, size - 1)], axis)
    return tf.reverse(x, [axis]) if reverse else x


def _cumprod(op: tf.Operation, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    return [_running(op, inputs[0], tf.multiply, tf.ones([], inputs[0].dtype))]


def _cumulative_logsumexp(op: tf.Operation, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    x = inputs[0]
    # The value of an empty sum, as TensorFlow has it.
    neutral = tf.constant(x.dtype.min, x.dtype)
    return [_running(op, x, _log_of_sum, neutral)]


def _log_of_sum(one: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
    """Returns log(exp(one) + exp(other)), smooth also where they are equal."""
    # What is taken off is put on again: it has no derivative.
    larger = tf.stop_gradient(tf.maximum(one, other))
    larger = tf.where(tf.math.is_finite(larger), larger, tf.zeros_like(larger))
    return larger + tf.math.log(tf.exp(one - larger) + tf.exp(other - larger))


def _product(op: tf.Operation, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    x, axes = inputs[0], _reduced_axes(op)
    for axis in axes:
        x = _multiplied(x, axis)
    return [x if op.get_attr("keep_dims") else tf.squeeze(x, axes)]


def _multiplied(x: tf.Tensor, axis: int) -> tf.Tensor:
    """Returns the product along an axis, which stays with size one."""
    size = x.shape[axis]
    if size == 0:
        return tf.reduce_prod(x, axis, keepdims=True)
    while size > 1:
        half = size // 2
        found = _cut(x, axis, 0, half) * _cut(x, axis, half, 2 * half)
        x = found if size == 2 * half else tf.concat([found, _cut(x, axis, 2 * half, size)], axis)
        size -= half
    return x


def _reduced_axes(op: tf.Operation) -> list[int] | None:
    axes, shape = tf.get_static_value(op.inputs[1]), op.inputs[0].shape
    if axes is None or shape.rank is None:
        return None
    found = sorted({int(a) % max(shape.rank, 1) for a in axes.reshape(-1)}) if shape.rank else []
    return None if any(shape[a] is None for a in found) else found


def _has_several(op: tf.Operation, given: Sequence[bool]) -> bool:
    axes = _reduced_axes(op)
    return axes is not None and any(op.inputs[0].shape[a] > 1 for a in axes)


def _segment_product(op: tf.Operation, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Returns products of segments: running ones within each, of which the last are taken."""
    x, segments = inputs[0], tf.reshape(inputs[1], [-1])
    count = (
        inputs[2]
        if len(inputs) == 3
        else tf.reduce_max(tf.concat([tf.constant([-1], segments.dtype), segments], 0)) + 1
    )
    size, rest = op.inputs[1].shape.num_elements(), op.inputs[0].shape[op.inputs[1].shape.rank :]
    if not size:
        return [tf.ones([count, *rest], x.dtype)]
    order = tf.argsort(segments, stable=True)
    segments = tf.gather(segments, order)
    x = tf.gather(tf.reshape(x, [size, *rest]), order)
    ones = [1] * rest.rank
    step = 1
    while step < size:
        same = tf.reshape(tf.equal(segments[:-step], segments[step:]), [size - step, *ones])
        found = tf.where(same, x[:-step] * x[step:], x[step:])
        x, step = tf.concat([x[:step], found], 0), 2 * step
    numbers = tf.range(tf.cast(count, segments.dtype))
    last = tf.searchsorted(segments, numbers, side="right") - 1
    place = tf.maximum(last, 0)
    is_filled = (last >= 0) & tf.equal(tf.gather(segments, place), numbers)
    return [tf.where(tf.reshape(is_filled, [-1, *ones]), tf.gather(x, place), tf.ones([], x.dtype))]


def _has_known_size(op: tf.Operation, given: Sequence[bool]) -> bool:
    data, segments = op.inputs[0].shape, op.inputs[1].shape
    return (
        data.rank is not None
        and segments.is_fully_defined()
        and (data[segments.rank :].is_fully_defined())
    )


_PRODUCTS = "the second derivative is wrong at zeros, and that of complex numbers"
TABLE = {
    "SegmentProd": Replacement(_segment_product, _PRODUCTS, _has_known_size),
    "UnsortedSegmentProd": Replacement(_segment_product, _PRODUCTS, _has_known_size),
    "Cumprod": Replacement(_cumprod, "it is wrong at zeros, and of complex numbers", _is_told),
    "CumulativeLogsumexp": Replacement(
        _cumulative_logsumexp, "its second derivative by a zero cotangent is NaN", _is_told
    ),
    "Prod": Replacement(
        _product, "the second derivative is wrong at zeros", _has_several, first=False
    ),
}
