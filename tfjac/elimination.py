"""Determinants by Gaussian elimination, for XLA, which has no op for them (TensorFlow 2.21)."""

from __future__ import annotations

import numpy as np
import tensorflow as tf


@tf.custom_gradient
def slogdet(matrices: tf.Tensor):
    """Returns sign and logarithm of the absolute determinant, 0 and -inf where singular.

    Args:
      matrices: `[..., n, n]`, real.

    Returns:
      Two tensors `[...]`. The gradient is that of the logarithm, the transposed inverse.

    Cost:
      n steps, each of which reads and writes all matrices.
    """
    lead, n = tf.shape(matrices)[:-2], matrices.shape[-1]
    n = tf.shape(matrices)[-1] if n is None else n
    sign, log = _eliminated(tf.reshape(matrices, [-1, n, n]), n)
    sign, log = (
        tf.ensure_shape(tf.reshape(part, lead), matrices.shape[:-2]) for part in (sign, log)
    )

    def gradient(d_sign: tf.Tensor, d_log: tf.Tensor) -> tf.Tensor:
        del d_sign  # constant but where the determinant is zero
        return d_log[..., None, None] * tf.linalg.matrix_transpose(tf.linalg.inv(matrices))

    return (sign, log), gradient


def _eliminated(matrices: tf.Tensor, n: tf.Tensor | int):
    """Returns sign and logarithm for matrices `[count, n, n]`, by partial pivoting."""
    places = tf.range(n)
    one = tf.ones_like(matrices[:, 0, 0])

    def step(k, rest, sign, log):
        column = tf.abs(rest[:, :, k])
        # What is not a number comes first: tf.argmax might pass over it.
        column = tf.where(tf.math.is_nan(column), tf.constant(np.inf, rest.dtype), column)
        column = tf.where(places < k, -one[:, None], column)
        chosen = tf.argmax(column, -1, tf.int32)
        pivot_row = tf.gather(rest, chosen, batch_dims=1)
        # The two rows change places, but that no later step reads the k-th.
        is_chosen = tf.equal(places, chosen[:, None])[:, :, None]
        rest = tf.where(is_chosen, rest[:, k, None, :], rest)
        pivot = pivot_row[:, k]
        sign *= tf.sign(pivot) * tf.where(tf.equal(chosen, k), one, -one)
        log += tf.math.log(tf.abs(pivot))
        safe = tf.where(tf.equal(pivot, 0), one, pivot)
        ratios = tf.where(places > k, rest[:, :, k] / safe[:, None], tf.zeros_like(column))
        rest -= ratios[:, :, None] * pivot_row[:, None, :]
        return k + 1, rest, sign, log

    state = (tf.constant(0), matrices, one, tf.zeros_like(one))
    _, _, sign, log = tf.while_loop(lambda k, *_: k < n, step, state, maximum_iterations=n)
    return sign, log
