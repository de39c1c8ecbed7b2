"""`check_jacobian` passes what is right and sees what is wrong."""

import numpy as np
import pytest
import tensorflow as tf
from scenarios import SCENARIOS, array

import tfjac
from tfjac.testing import JacobianMismatchError, check_jacobian


def net(x):
    return tf.tanh(x @ tf.constant(array(3, 2, seed=4), x.dtype))


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_right_jacobian_passes(batch, dtype):
    check_jacobian(net, array(4, 3, dtype=dtype), batch=batch)


@pytest.mark.parametrize("size", [1e-6, 1.0])
def test_one_wrong_entry_is_seen(size):
    def wrong(x):
        planted = tf.reshape(tf.one_hot(7, 96, dtype=x.dtype), [4, 2, 4, 3])
        return tfjac.prepare(net)(x) + size * planted

    with pytest.raises(JacobianMismatchError) as caught:
        check_jacobian(net, array(4, 3), jacobian=wrong)
    assert "u'Jv" in str(caught.value) and "direction 0 of seed 0" in str(caught.value)
    assert isinstance(caught.value, AssertionError)


def test_another_shape_is_seen():
    with pytest.raises(JacobianMismatchError, match="shape"):
        check_jacobian(net, array(4, 3), jacobian=tfjac.prepare(net, batch=True))


def test_examples_that_mix_are_seen():
    with pytest.raises(JacobianMismatchError, match="central difference"):
        check_jacobian(lambda x: x - tf.reduce_mean(x, 0), array(4, 3), batch=True)


def test_a_wrong_custom_gradient_is_seen_by_the_difference():
    @tf.custom_gradient
    def doubled(x):
        return x, lambda upstream: 2.0 * upstream

    with pytest.raises(JacobianMismatchError, match="central difference"):
        check_jacobian(doubled, array(3))


def test_another_argument_can_be_the_source():
    check_jacobian(lambda k, x: x**k, 3, array(4), argnums=1)


@pytest.mark.parametrize(
    "fn, x",
    [
        (lambda x: [x, x], array(2)),
        (lambda x: tf.cast(x, tf.complex128), array(2)),
        (lambda x: x, np.array([1, 2])),
    ],
)
def test_what_it_cannot_check_is_refused(fn, x):
    with pytest.raises(tfjac.errors.InvalidTypeError):
        check_jacobian(fn, x)


@pytest.mark.parametrize(
    "scenario",
    [
        s
        for s in SCENARIOS
        if len(s.inputs) == 1
        and s.inputs[0].dtype == np.float64
        and s.inputs[0].size
        and s.name
        not in (
            "custom_gradient",
            "stop_gradient",
            "real_to_complex",
            "float32_target_float64_source",
        )
    ],
    ids=lambda s: s.name,
)
def test_every_real_scenario_passes(scenario):
    check_jacobian(scenario.fn, scenario.inputs[0], batch=scenario.batch)
