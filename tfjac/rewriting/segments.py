"""Sums, means and extremes of segments, whose derivatives are at fault where one is empty."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from tfjac import tf_internals
from tfjac.rewriting.replacement import Replacement


def _mean(op: tf.Operation, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    x, segments = inputs
    counts = tf.math.segment_sum(tf.ones_like(segments, x.dtype), segments)
    counts = tf.reshape(
        counts, tf.concat([tf.shape(counts), tf.ones([tf.rank(x) - 1], tf.int32)], 0)
    )
    return [tf.math.segment_sum(x, segments) / tf.maximum(counts, tf.ones([], x.dtype))]


def _extreme(op: tf.Operation, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Returns the mean of those entries of each segment that are as large as its extreme."""
    x, segments = inputs[:2]
    # Only where it is, and how often, depends on the extreme itself.
    extreme = tf.stop_gradient(tf_internals.same_op(op, inputs)[0])
    count, places = tf.shape(extreme)[0], tf.maximum(segments, 0)

    def summed(v: tf.Tensor) -> tf.Tensor:
        # Entries whose segment is negative are dropped.
        return tf.math.unsorted_segment_sum(v, segments, count)

    is_extreme = tf.equal(x, tf.gather(extreme, places))
    ties = summed(tf.cast(is_extreme, x.dtype))
    share = tf.gather(tf.maximum(ties, tf.ones([], x.dtype)), places)
    found = summed(tf.where(is_extreme, x / share, tf.zeros_like(x)))
    return [tf.where(tf.equal(ties, 0), extreme, found)]


def _weights(op: tf.Operation, segments: tf.Tensor, count: tf.Tensor, dtype) -> tf.Tensor:
    """Returns what the sum of each segment is multiplied by, shape `[segments, 1]`."""
    sizes = tf.math.unsorted_segment_sum(tf.ones_like(segments, dtype), segments, count)
    sizes = tf.maximum(sizes, tf.ones([], dtype))[:, tf.newaxis]
    if "Sum" in op.type:
        return tf.ones_like(sizes)
    return 1 / sizes if "Mean" in op.type else tf.math.rsqrt(sizes)


def _of_rows(op: tf.Operation, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    x, indices, segments, count = inputs
    rest = tf.shape(x)[1:]
    rows = tf.reshape(tf.gather(x, indices), [tf.size(indices), tf.reduce_prod(rest)])
    found = tf.math.unsorted_segment_sum(rows, segments, count)
    found *= _weights(op, segments, count, x.dtype)
    return [tf.reshape(found, tf.concat([[tf.cast(count, tf.int32)], rest], 0))]


def _gradient_of_rows(op: tf.Operation, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    cotangent, indices, segments, size = inputs
    count, rest = tf.shape(cotangent)[0], tf.shape(cotangent)[1:]
    flat = tf.reshape(cotangent, [count, tf.reduce_prod(rest)])
    flat *= _weights(op, segments, count, cotangent.dtype)
    found = tf.math.unsorted_segment_sum(tf.gather(flat, segments), indices, size)
    return [tf.reshape(found, tf.concat([[size], rest], 0))]


_KINDS = ("SparseSegmentMean", "SparseSegmentSqrtN", "SparseSegmentSum")
_MIXED = "a vectorized map of the gradient mixes up segments where the last are empty"
_EMPTY = "the gradient of the gradient at an empty segment is NaN"
TABLE = {
    **{f"{kind}WithNumSegments": Replacement(_of_rows, _MIXED) for kind in _KINDS},
    **{
        f"{kind}Grad": Replacement(_gradient_of_rows, f"it has no derivative, and {_MIXED}")
        for kind in _KINDS
    },
    "SegmentMean": Replacement(_mean, _EMPTY, first=False),
    **dict.fromkeys(
        ("SegmentMax", "SegmentMin", "UnsortedSegmentMax", "UnsortedSegmentMin"),
        Replacement(_extreme, _EMPTY, first=False),
    ),
}
