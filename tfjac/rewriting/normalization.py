"""Fused batch normalization, and the Euclidean norm."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from tfjac import gradients, tf_internals
from tfjac.rewriting.replacement import Replacement


def _is_training(op: tf.Operation) -> bool:
    return bool(op.get_attr("is_training"))


def _by_statistics(op: tf.Operation, given: Sequence[bool]) -> bool:
    return _is_training(op) or given[3] or given[4]


def _channels_last(op: tf.Operation) -> bool:
    return op.get_attr("data_format").endswith(b"C")


def _normalized(op: tf.Operation, x, scale, offset, mean=None, variance=None) -> list[tf.Tensor]:
    """Returns the result, and the mean and variance that it was made with, in float32."""
    rank = x.shape.rank
    axes = list(range(rank - 1)) if _channels_last(op) else [0, *range(2, rank)]

    def spread(v: tf.Tensor) -> tf.Tensor:
        return v if _channels_last(op) else tf.reshape(v, [-1] + [1] * (rank - 2))

    wide = tf.cast(x, scale.dtype)
    if mean is None:
        mean = tf.reduce_mean(wide, axes)
        variance = tf.reduce_mean(tf.square(wide - spread(mean)), axes)
    root = tf.math.rsqrt(variance + op.get_attr("epsilon"))
    y = (wide - spread(mean)) * spread(root * scale) + spread(offset)
    return [tf.cast(y, x.dtype), mean, variance]


def _batch_norm(op: tf.Operation, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    x, scale, offset, mean, variance = inputs
    if not _is_training(op):
        y, *_ = _normalized(op, x, scale, offset, mean, variance)
        return [y, tf.identity(mean), tf.identity(variance), *tf_internals.same_op(op, inputs)[3:]]
    y, mean_of_batch, variance_of_batch = _normalized(op, x, scale, offset)
    # The kernel gives the variance of a sample, averaged with what is known by a factor.
    count = tf.cast(tf.size(x) / tf.size(scale), scale.dtype)
    sample = variance_of_batch * count / tf.maximum(count - 1, 1)
    factor = _factor(op)
    if factor != 1:
        mean_of_batch = (1 - factor) * mean + factor * mean_of_batch
        sample = (1 - factor) * variance + factor * sample
    return [y, mean_of_batch, sample, *tf_internals.same_op(op, inputs)[3:]]


def _factor(op: tf.Operation) -> float:
    known = "exponential_avg_factor" in op.node_def.attr
    return op.get_attr("exponential_avg_factor") if known else 1.0


def _batch_norm_gradient(op: tf.Operation, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    cotangent, x, scale, *statistics = inputs
    offset = tf.zeros_like(scale)
    # In training they are of the batch; else those that were given.
    given = [] if _is_training(op) else statistics[:2]
    y, *_ = _normalized(op, x, scale, offset, *given)
    found = gradients.gradients(y, [x, scale, offset], [cotangent])
    return [*found, *tf_internals.same_op(op, inputs)[3:]]


def _euclidean_norm(op: tf.Operation, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    x, axes = inputs
    squares = tf.math.conj(x) * x if x.dtype.is_complex else tf.square(x)
    return [tf.sqrt(tf.reduce_sum(squares, axes, keepdims=op.get_attr("keep_dims")))]


_STATISTICS = "derivatives by and of mean and variance are missing, second ones are wrong"
_NORM = Replacement(_batch_norm, _STATISTICS, _by_statistics)
_GRADIENT = Replacement(_batch_norm_gradient, "the second derivative is wrong", _by_statistics)
_TYPES = ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
TABLE = {
    **dict.fromkeys(_TYPES, _NORM),
    **dict.fromkeys([t.replace("Norm", "NormGrad") for t in _TYPES], _GRADIENT),
    "EuclideanNorm": Replacement(
        _euclidean_norm, "the second derivative by a zero cotangent is NaN; complex ones are wrong"
    ),
}
