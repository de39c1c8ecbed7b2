"""Losses whose second derivatives are at fault."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from tfjac.rewriting.replacement import Replacement


def _softmax_cross_entropy(op: tf.Operation, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    logits, labels = inputs
    logs = tf.nn.log_softmax(logits)
    # Where a label is zero its logarithm does not count, be it infinite.
    parts = tf.math.multiply_no_nan(logs, labels)
    # One of both may be of unknown size; where it is one it is broadcast to the other.
    known = [t.shape[-1] for t in (logs, labels) if t.shape[-1] not in (None, 1)]
    parts.set_shape([None, *known[:1]] if known else [None, None])
    loss = -tf.reduce_sum(parts, -1)
    # The gradient by the logits, also of labels that do not add up to one.
    return [loss, tf.exp(logs) * tf.reduce_sum(labels, -1, keepdims=True) - labels]


TABLE = {
    "SoftmaxCrossEntropyWithLogits": Replacement(
        _softmax_cross_entropy, "second derivatives by the labels are zero", first=False
    ),
}
