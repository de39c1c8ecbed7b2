"""Special functions whose later derivatives are at fault where a formula has zero over zero.

There the quotient goes by its power series, so that all of its derivatives are right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import tensorflow as tf

from tfjac.rewriting.replacement import Build, Replacement

# Terms enough for float64 within the bounds below, and for some derivatives of the series.
_TERMS = 18


def _near(x: tf.Tensor, bound: float, series: Sequence[float], beyond: Callable) -> tf.Tensor:
    """Returns a power series where abs(x) is less than a bound, and a function elsewhere."""
    is_near = tf.abs(x) < bound
    within = tf.where(is_near, x, tf.zeros_like(x))
    value = tf.zeros_like(x)
    for factor in reversed(series):
        value = value * within + factor
    return tf.where(is_near, value, beyond(tf.where(is_near, tf.ones_like(x), x)))


def _ratio(x: tf.Tensor, sign: int, function: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
    """Returns I1(x) / x, or J1(x) / x for sign -1."""
    # sum (sign / 4)^k x^2k / (2 k! (k + 1)!)
    even = [
        0.5 * (sign / 4) ** k / math.factorial(k) / math.factorial(k + 1) for k in range(_TERMS)
    ]
    series = [even[k // 2] if k % 2 == 0 else 0.0 for k in range(_TERMS)]
    return _near(x, 0.5, series, lambda far: function(x) / far)


@tf.custom_gradient
def _bessel_i0(x: tf.Tensor):
    return tf.math.bessel_i0(x), lambda cotangent: cotangent * _bessel_i1(x)


@tf.custom_gradient
def _bessel_i1(x: tf.Tensor):
    def pulled(cotangent):
        return cotangent * (_bessel_i0(x) - _ratio(x, 1, _bessel_i1))  # I1' = I0 - I1 / x

    return tf.math.bessel_i1(x), pulled


@tf.custom_gradient
def _bessel_i0e(x: tf.Tensor):
    def pulled(cotangent):
        return cotangent * (_bessel_i1e(x) - tf.sign(x) * _bessel_i0e(x))

    return tf.math.bessel_i0e(x), pulled


@tf.custom_gradient
def _bessel_i1e(x: tf.Tensor):
    def pulled(cotangent):
        # I1e = exp(-abs x) I1
        slope = _bessel_i0e(x) - tf.exp(-tf.abs(x)) * _ratio(x, 1, _bessel_i1)
        far = _bessel_i0e(x) - _bessel_i1e(x) / tf.where(tf.equal(x, 0), tf.ones_like(x), x)
        # exp(-abs x) I1 is zero times infinity far from zero.
        slope = tf.where(tf.abs(x) < 0.5, slope, far)
        return cotangent * (slope - tf.sign(x) * _bessel_i1e(x))

    return tf.math.bessel_i1e(x), pulled


@tf.custom_gradient
def _bessel_j0(x: tf.Tensor):
    return tf.math.special.bessel_j0(x), lambda cotangent: -cotangent * _bessel_j1(x)


@tf.custom_gradient
def _bessel_j1(x: tf.Tensor):
    def pulled(cotangent):
        return cotangent * (_bessel_j0(x) - _ratio(x, -1, _bessel_j1))  # J1' = J0 - J1 / x

    return tf.math.special.bessel_j1(x), pulled


@tf.custom_gradient
def _spence(x: tf.Tensor):
    def pulled(cotangent):
        # The derivative is -log(1 + t) / t at t = x - 1; log(1 + t) / t = sum (-t)^k / (k + 1).
        series = [(-1) ** k / (k + 1) for k in range(_TERMS)]
        return -cotangent * _near(x - 1, 0.1, series, lambda t: tf.math.log1p(t) / t)

    return tf.math.special.spence(x), pulled


def _incomplete_gamma(function: Callable[..., tf.Tensor], sign: int) -> Build:
    @tf.custom_gradient
    def of_one_shape(a: tf.Tensor, x: tf.Tensor):
        def pulled(cotangent):
            # By x: x^(a - 1) e^-x / Gamma(a), in which x^0 is one at zero too.
            density = tf.exp(tf.math.xlogy(a - 1, x) - x - tf.math.lgamma(a))
            by_a = tf.raw_ops.IgammaGradA(a=a, x=x)
            return sign * cotangent * by_a, sign * cotangent * density

        return function(a, x), pulled

    def build(op: tf.Operation, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        shape = tf.broadcast_dynamic_shape(*map(tf.shape, inputs))
        return [of_one_shape(*(tf.broadcast_to(t, shape) for t in inputs))]

    return build


def _of_one(function: Callable[[tf.Tensor], tf.Tensor]) -> Build:
    return lambda op, inputs: [function(inputs[0])]


# At one point only the first derivative of these is at fault, NaN there: not a reason to refuse.
_AT_ZERO = "the derivative by x at a = 1, x = 0 is NaN"
TABLE = {
    "BesselI0": Replacement(_of_one(_bessel_i0), "the second derivative at zero is wrong"),
    "BesselI1": Replacement(_of_one(_bessel_i1), "the derivative at zero is wrong"),
    "BesselI1e": Replacement(
        _of_one(_bessel_i1e), "the second derivative at zero is NaN", first=False
    ),
    "BesselJ0": Replacement(_of_one(_bessel_j0), "the third derivative at zero is NaN"),
    "BesselJ1": Replacement(_of_one(_bessel_j1), "the second derivative at zero is NaN"),
    "Igamma": Replacement(_incomplete_gamma(tf.math.igamma, 1), _AT_ZERO, first=False),
    "Igammac": Replacement(_incomplete_gamma(tf.math.igammac, -1), _AT_ZERO, first=False),
    "Spence": Replacement(_of_one(_spence), "the second derivative at one is NaN", first=False),
}
