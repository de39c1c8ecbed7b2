"""Means and extremes of segments, whose tangents are NaN where a segment is empty."""

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
    (extreme,) = tf_internals.same_op(op, inputs)
    count, places = tf.shape(extreme)[0], tf.maximum(segments, 0)

    def summed(v: tf.Tensor) -> tf.Tensor:
        # Entries whose segment is negative are dropped.
        return tf.math.unsorted_segment_sum(v, segments, count)

    is_extreme = x == tf.gather(extreme, places)
    ties = summed(tf.cast(is_extreme, x.dtype))
    share = tf.gather(tf.maximum(ties, tf.ones([], x.dtype)), places)
    found = summed(tf.where(is_extreme, x / share, tf.zeros_like(x)))
    return [tf.where(ties == 0, extreme, found)]


_EMPTY = "the gradient of the gradient at an empty segment is NaN"
TABLE = {
    "SegmentMean": Replacement(_mean, _EMPTY, first=False),
    **dict.fromkeys(
        ("SegmentMax", "SegmentMin", "UnsortedSegmentMax", "UnsortedSegmentMin"),
        Replacement(_extreme, _EMPTY, first=False),
    ),
}
