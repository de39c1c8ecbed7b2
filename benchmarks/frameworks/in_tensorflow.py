"""The vocabulary of the nets in TensorFlow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

einsum = tf.einsum
exp = tf.exp
gelu = tf.nn.gelu
matvec = tf.linalg.matvec
mean = tf.reduce_mean
relu = tf.nn.relu
sigmoid = tf.sigmoid
softmax = tf.nn.softmax
tanh = tf.tanh


def tensor(array: np.ndarray) -> tf.Tensor:
    """Returns an array as a float32 tensor."""
    return tf.constant(array, tf.float32)


def weight(array: np.ndarray) -> tf.Variable:
    """Returns an array as what a net is trained by."""
    return tf.Variable(array.astype(np.float32))


def layer_norm(x: tf.Tensor, gain: tf.Tensor, offset: tf.Tensor) -> tf.Tensor:
    """Returns x normalized over its last axis."""
    average, variance = tf.nn.moments(x, [-1], keepdims=True)
    return tf.nn.batch_normalization(x, average, variance, offset, gain, 1e-3)


def reshape(x: tf.Tensor, old: tuple[int, ...], new: tuple[int, ...]) -> tf.Tensor:
    """Returns x with its last axes, of sizes `old`, as axes of sizes `new`."""
    return tf.reshape(x, [*x.shape[: x.shape.rank - len(old)], *new])


def as_image(x: tf.Tensor) -> tf.Tensor:
    """Returns pictures with an axis of channels, where the framework has it."""
    return x[..., tf.newaxis]


def flatten_image(x: tf.Tensor) -> tf.Tensor:
    """Returns pictures as vectors: height, width, channel."""
    return tf.reshape(x, [x.shape[0], -1])


def picture(x: tf.Tensor, height: int, width: int, channels: int) -> tf.Tensor:
    """Returns vectors as pictures: the inverse of `flatten_image`."""
    return tf.reshape(x, [x.shape[0], height, width, channels])


def enlarge(x: tf.Tensor) -> tf.Tensor:
    """Returns pictures of twice the height and width, each pixel repeated."""
    return tf.repeat(tf.repeat(x, 2, axis=1), 2, axis=2)


def join(x: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
    """Returns the channels of both."""
    return tf.concat([x, other], axis=-1)


def convolve(x: tf.Tensor, kernel: tf.Tensor, padded: bool) -> tf.Tensor:
    """Returns x convolved with a kernel of height, width, input and output channels."""
    return tf.nn.conv2d(x, kernel, strides=1, padding="SAME" if padded else "VALID")


def max_pool(x: tf.Tensor) -> tf.Tensor:
    """Returns the maxima of windows of 2x2."""
    return tf.nn.max_pool2d(x, 2, 2, "VALID")


def pad_last(x: tf.Tensor) -> tf.Tensor:
    """Returns x with a zero before and after it, along the last axis."""
    return tf.pad(x, [[0, 0]] * (x.shape.rank - 1) + [[1, 1]])


def zeros_per_example(x: tf.Tensor, trailing: int, size: int) -> tf.Tensor:
    """Returns zeros of that size for each example of x, which has so many axes besides."""
    return tf.zeros([*x.shape[: x.shape.rank - trailing], size])


def scan(step: Callable[[Any, Any], Any], state: Any, x: tf.Tensor, steps: int) -> Any:
    """Returns the state after `step(state, x[..., t, :])` for each t of the last axis but one."""
    along = tf.transpose(x, [1, 0, 2])

    def body(t, *state):
        return (t + 1, *step(state, along[t]))

    return tf.while_loop(
        lambda t, *_: t < steps, body, (tf.constant(0), *state), maximum_iterations=steps
    )[1:]
