"""Elementwise functions, and the variance of `tf.nn.moments`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
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
    return [x / tf.where(tf.equal(x, 0) & tf.equal(y, 0), tf.ones([], y.dtype), y)]


def _harmless(x: tf.Tensor, y: tf.Tensor, bound: float) -> tf.Tensor:
    """Returns y, or one where x is zero and the logarithm is not finite: the product is zero."""
    # Comparing complex numbers by size is not defined.
    is_bound = tf.equal(y, bound)
    outside = is_bound if y.dtype.is_complex else ~(y > bound) | tf.equal(y, float("inf"))
    return tf.where(tf.equal(x, 0) & outside, tf.ones([], y.dtype), y)


def _squared_difference(op: tf.Operation, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    apart = inputs[0] - inputs[1]
    return [tf.math.conj(apart) * apart]


def _multiplied(op: tf.Operation, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    x, y = inputs
    finite = tf.math.is_finite(tf.math.real(x)) & tf.math.is_finite(tf.math.imag(x))
    return [tf.where(tf.equal(y, 0) & ~finite, tf.zeros([], x.dtype), x) * y]


def _is_complex(op: tf.Operation, given: Sequence[bool]) -> bool:
    return op.inputs[0].dtype.is_complex


def _power(op: tf.Operation, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Chooses one for x ** 0 and x for x ** 1, where the formula multiplies zero by infinity."""
    x, exponent = inputs
    ones = tf.ones([], x.dtype)
    is_zero, is_one = tf.equal(exponent, 0), tf.equal(exponent, 1)
    power = tf.pow(tf.where(is_zero | is_one, ones, x), exponent)
    return [tf.where(is_zero, ones, tf.where(is_one, x, power))]


def _may_be_trivial_power(op: tf.Operation, given: Sequence[bool]) -> bool:
    # The gradient of a power has one less as its exponent: right where the power is.
    if given[1] or op.inputs[1].op.type == "Sub":
        return False
    exponent = tf.get_static_value(op.inputs[1])
    return exponent is None or bool(np.isin(exponent, (0, 1)).any())


def _of_moments(op: tf.Operation, given: Sequence[bool]) -> bool:
    return stops.is_of_moments(op)


TABLE = {
    "MulNoNan": Replacement(
        _multiplied, "the derivative of complex numbers is not conjugated", _is_complex
    ),
    "Pow": Replacement(
        _power, "derivatives of x ** 0 and x ** 1 at zero are NaN", _may_be_trivial_power
    ),
    "SquaredDifference": Replacement(
        _squared_difference, "the derivative of complex numbers is not conjugated", _is_complex
    ),
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
