"""Samples of public functions whose gradient is wrong though that of each op is not."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tfjac.audit.samples import Sample, spread


def public(name, where, fn, *inputs) -> Sample:
    """Returns a sample of real numbers."""
    return Sample(name, where, fn, tuple(map(np.asarray, inputs)), dtypes=("float64", "float32"))


# fmt: off
SAMPLES = [
    *[public("tf.nn.moments", f"{what}, {where}", lambda x, o=o: tf.nn.moments(x, [0])[o], x)
      for o, what in enumerate(("mean", "variance"))
      for where, x in (("inside", spread(4, 2)), ("alike", np.ones([3, 1])))],
    public("tf.nn.weighted_moments", "variance", lambda x, w: tf.nn.weighted_moments(
        x, [0], w)[1], spread(4, 2), spread(4, 2, low=0.5, seed=1)),
    public("tf.math.reduce_variance", "inside", lambda x: tf.math.reduce_variance(x, 0),
           spread(4, 2)),
    *[public("tf.math.reduce_std", where, lambda x: tf.math.reduce_std(x, 0), x)
      for where, x in (("inside", spread(4, 2)), ("alike", np.ones([3, 1])))],
    *[public("tf.norm", where, tf.norm, x)
      for where, x in (("inside", spread(3)), ("zeros", np.zeros(2)))],
    *[public("tf.math.reduce_logsumexp", where, lambda x: tf.math.reduce_logsumexp(x, 0), x)
      for where, x in (("inside", spread(4, 2)), ("alike", np.ones([3, 1])))],
    public("tf.math.softmax", "inside", tf.math.softmax, spread(2, 3)),
    public("tf.nn.batch_normalization", "of moments", lambda x: tf.nn.batch_normalization(
        x, *tf.nn.moments(x, [0]), None, None, 1e-3), spread(4, 2)),
    *[public("tf.keras.layers.LayerNormalization", where, lambda x: _layer_norm(x), x)
      for where, x in (("inside", spread(2, 4)),)],
    public("tf.nn.swish", "inside", tf.nn.swish, spread(2, 3)),
    public("tf.nn.gelu", "inside", tf.nn.gelu, spread(2, 3)),
    *[public("tf.linalg.expm", where, tf.linalg.expm, x)
      for where, x in (("inside", spread(2, 2)), ("zeros", np.zeros([2, 2])))],
    *[public("tf.math.multiply_no_nan", where, tf.math.multiply_no_nan, *map(np.array, at))
      for where, at in (("inside", (1.2, 0.7)), ("zeros", (0.0, 0.0)))],
    *[public("tf.where", where, lambda x: tf.where(x > 0, tf.sqrt(x), 0.0), x)
      for where, x in (("inside", np.array([0.5, 2.0])), ("a branch not taken", np.array([-1.0])))],
]
# fmt: on


def _layer_norm(x):
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    return (x - mean) * tf.math.rsqrt(variance + 1e-3)
