"""Elementwise functions, and the variance of `tf.nn.moments`."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from tfjac.graph import stops
from tfjac.rewriting.replacement import Replacement


def _passed_on(op: tf.Operation, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    return [inputs[0]]


def _softsign(op: tf.Operation, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    (x,) = inputs
    return [x / (1 + tf.abs(x))]


def _softsign_gradient(op: tf.Operation, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    cotangent, x = inputs
    return [cotangent / tf.square(1 + tf.abs(x))]


def _xlogy(op: tf.Operation, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    x, y = inputs
    return [x * tf.math.log(_harmless(x, y, 0))]


def _xlog1py(op: tf.Operation, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    x, y = inputs
    return [x * tf.math.log1p(_harmless(x, y, -1))]


def _xdivy(op: tf.Operation, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    x, y = inputs
    return [x / tf.where((x == 0) & (y == 0), tf.ones([], y.dtype), y)]


def _harmless(x: tf.Tensor, y: tf.Tensor, bound: float) -> tf.Tensor:
    """Returns y, or one where x is zero and the logarithm is not finite: the product is zero."""
    # Comparing complex numbers by size is not defined.
    outside = y == bound if y.dtype.is_complex else ~(y > bound) | (y == float("inf"))
    return tf.where((x == 0) & outside, tf.ones([], y.dtype), y)


def _of_moments(op: tf.Operation, given: Sequence[bool]) -> bool:
    return stops.is_of_moments(op)


TABLE = {
    "Softsign": Replacement(_softsign, "it has no second derivative", first=False),
    "SoftsignGrad": Replacement(_softsign_gradient, "it has no derivative"),
    "StopGradient": Replacement(
        _passed_on,
        "the mean within the variance of tf.nn.moments counts as constant",
        _of_moments,
        first=False,
    ),
    "Xdivy": Replacement(_xdivy, "the derivative by x is zero where x is"),
    "Xlog1py": Replacement(_xlog1py, "the derivative by x is zero where x is"),
    "Xlogy": Replacement(_xlogy, "the derivative by x is zero where x is; complex ones are wrong"),
}
