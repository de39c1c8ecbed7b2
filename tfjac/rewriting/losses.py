"""Losses whose second derivatives are at fault."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from tfjac import rules
from tfjac.rewriting.replacement import Replacement


def _softmax_cross_entropy(op: tf.Operation, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    # tf.nn makes rows of them, of a length that it does not tell.
    logits, labels = (_of_known_length(t) for t in inputs)
    logs = tf.nn.log_softmax(logits)
    # Where a label is zero its logarithm does not count, be it infinite.
    loss = -tf.reduce_sum(tf.math.multiply_no_nan(logs, labels), -1)
    # The gradient by the logits, also of labels that do not add up to one.
    return [loss, tf.exp(logs) * tf.reduce_sum(labels, -1, keepdims=True) - labels]


def _of_known_length(tensor: tf.Tensor) -> tf.Tensor:
    if tensor.op.type != "Reshape" or tensor.shape.is_fully_defined():
        return tensor
    return tf.ensure_shape(tensor, rules.reshaped(tensor.op))


TABLE = {
    "SoftmaxCrossEntropyWithLogits": Replacement(
        _softmax_cross_entropy, "second derivatives by the labels are zero", first=False
    ),
}
