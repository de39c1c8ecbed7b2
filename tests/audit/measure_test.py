"""The audit finds faults that are planted, and no other."""

import numpy as np
import pytest
import tensorflow as tf

from tfjac.audit import measure, verdicts
from tfjac.audit.samples import Sample, raw, spread

FIRST, FORWARD, SECOND = measure.FIRST_REVERSE, measure.FIRST_FORWARD, measure.SECOND


def verdicts_of(fn, *inputs, dtype="float64"):
    sample = Sample("Planted", "one", fn, tuple(map(np.asarray, inputs)))
    return {(row.input, row.derivative): row.verdict for row in measure.measure(sample, dtype)}


def with_gradient(value, gradient):
    @tf.custom_gradient
    def function(x):
        return value(x), lambda upstream: gradient(x, upstream)

    return function


PLANTED = {
    "a wrong factor": (lambda x, u: 2.0001 * x * u, ("wrong", "wrong", "wrong")),
    "zeros": (lambda x, u: tf.zeros_like(x), ("zero", "none", "none")),
    "NaN": (lambda x, u: u * np.nan, ("nan", "nan", "none")),
    "the first alone right": (lambda x, u: u * tf.stop_gradient(2 * x), ("right", "right", "none")),
    "no gradient of the gradient": (lambda x, u: tf.numpy_function(
        lambda a, b: 2 * a * b, [x, u], tf.float64), ("right", "none", "none")),
    "an op without one": (lambda x, u: tf.raw_ops.Lu(input=tf.eye(2, dtype=tf.float64))[0][0, 0] * (
        2 * x * u), ("right", "right", "right")),
    "a run that raises": (lambda x, u: tf.debugging.check_numerics(
        u * tf.math.log(-tf.abs(x)), "planted"), ("no kernel", "nan", "wrong")),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_of_the_square_is_found(name):
    gradient, expected = PLANTED[name]
    found = verdicts_of(with_gradient(tf.square, gradient), spread(3, low=0.4))
    assert [found["0", FIRST], found["0", FORWARD], found["0, 0", SECOND]] == list(expected)


def test_a_missing_gradient_and_one_that_raises_are_told_apart():
    found = verdicts_of(lambda x: tf.raw_ops.SoftsignGrad(gradients=x, features=x), spread(3))
    assert set(found.values()) == {"missing"}

    def refuses(x, upstream):
        raise ValueError("no gradient today")

    assert set(verdicts_of(with_gradient(tf.square, refuses), spread(3)).values()) == {"raises"}


def test_a_gradient_of_a_complex_number_is_held_to_the_convention_of_tensorflow():
    z = spread(2) + 1j * spread(2, seed=1)
    assert set(verdicts_of(lambda z: z * z, z, dtype="complex128").values()) == {"right"}
    unconjugated = with_gradient(tf.square, lambda z, u: 2 * z * u)
    assert verdicts_of(unconjugated, z, dtype="complex128")["0", FIRST] == "wrong"


def test_what_lies_between_the_sides_of_a_kink_is_right_and_a_second_is_not_defined():
    found = verdicts_of(tf.nn.relu, np.zeros(1))
    assert (found["0", FIRST], found["0, 0", SECOND]) == ("right", "undefined")
    beyond = with_gradient(tf.nn.relu, lambda x, u: -0.5 * u)
    assert verdicts_of(beyond, np.zeros(1))["0", FIRST] == "wrong"


def test_a_second_derivative_that_jumps_may_be_that_of_either_side():
    for left in (0.0, 1.0):

        def gradient(x, upstream, left=left):
            return upstream * tf.where(x > 0, tf.ones_like(x), tf.exp(left * x))

        found = verdicts_of(with_gradient(tf.nn.elu, gradient), np.zeros(1))
        assert found["0, 0", SECOND] in ("right", "undefined")


def test_a_dtype_that_an_op_does_not_take_gives_no_rows():
    assert measure.measure(raw("Relu", spread(2, 3)), "complex128") == []


def test_every_verdict_is_one_that_the_module_explains():
    words = {v for name, v in vars(verdicts).items() if name.isupper() and isinstance(v, str)}
    for word in words:
        assert f"\n{word}" in verdicts.__doc__, word
