"""Hessians: of scalars and of each example, against closed forms and finite differences."""

import numpy as np
import pytest
import tensorflow as tf
from scenarios import array

import tfjac
from tfjac.errors import ExamplesMixError, InvalidValueError

W, V = array(4, 5, seed=5), array(5, 3, seed=6)


def in_graph(body):
    return tf.function(body, autograph=False)


def energy(x):
    return tf.reduce_sum(tf.tanh(tf.sin(x @ tf.constant(W)) @ tf.constant(V)) ** 2, 1)


def differences(gradient, x, step=1e-4):
    """Returns the derivative of a function of an array, by fourth-order central differences."""
    rows = []
    for k in range(x.size):
        unit = np.zeros(x.size)
        unit[k] = step
        unit = unit.reshape(x.shape)
        near = gradient(x + unit) - gradient(x - unit)
        far = gradient(x + 2 * unit) - gradient(x - 2 * unit)
        rows.append((8 * near - far) / (12 * step))
    return np.moveaxis(np.stack(rows), 0, -1).reshape(x.shape + x.shape)


@in_graph
def gradient(x):
    return tf.gradients(tf.reduce_sum(energy(x)), x)[0]


@pytest.mark.parametrize("strategy", ["auto", "unstack", "forward", "cross_country"])
def test_the_hessian_is_that_of_finite_differences(strategy):
    x = array(2, 4)
    found = in_graph(lambda x: tfjac.hessian(tf.reduce_sum(energy(x)), x, strategy))(x).numpy()
    wanted = differences(lambda x: gradient(tf.constant(x)).numpy(), x)
    np.testing.assert_allclose(found, wanted, atol=1e-8)
    matrix = found.reshape(8, 8)
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-13)


@pytest.mark.parametrize("strategy", ["auto", "unstack", "forward", "cross_country"])
@pytest.mark.parametrize("examples", [3, None])
def test_hessians_of_examples_are_the_blocks_of_the_whole(strategy, examples):
    if strategy == "unstack" and examples is None:
        pytest.skip("goes row by row of one example, whose number is known")
    x = array(3, 4)
    spec = tf.TensorSpec([examples, 4], tf.float64)
    each = tf.function(
        lambda x: tfjac.batch_hessian(energy(x), x, strategy),
        autograph=False,
        input_signature=[spec],
    )
    whole = in_graph(lambda x: tfjac.hessian(tf.reduce_sum(energy(x)), x))(x).numpy()
    found = each(x).numpy()
    assert found.shape == (3, 4, 4)
    for b in range(3):
        np.testing.assert_allclose(found[b], whole[b, :, b], atol=1e-13)


def test_several_sources_give_every_pair():
    a, b = array(2), array(3, seed=1)

    @in_graph
    def run(a, b):
        y = tf.reduce_sum(a**3) + tf.reduce_sum(a) * tf.reduce_sum(b)
        return tfjac.hessian(y, {"a": a, "b": b})

    found = run(a, b)
    np.testing.assert_allclose(found["a"]["a"], np.diag(6 * a), atol=1e-14)
    np.testing.assert_allclose(found["a"]["b"], np.ones((2, 3)), atol=1e-14)
    np.testing.assert_allclose(found["b"]["a"], np.ones((3, 2)), atol=1e-14)
    np.testing.assert_array_equal(found["b"]["b"], np.zeros((3, 3)))


def test_a_source_that_y_does_not_depend_on_has_zeros():
    x = array(3)
    found = in_graph(lambda x: tfjac.hessian(tf.constant(1.0, tf.float64), x))(x)
    np.testing.assert_array_equal(found, np.zeros((3, 3)))


def test_the_hessian_is_differentiable():
    x = array(3)

    @in_graph
    def third(x):
        h = tfjac.hessian(tf.reduce_sum(x**4), x)
        return tf.gradients(tf.reduce_sum(h), x)[0]

    np.testing.assert_allclose(third(x), 24 * x, atol=1e-12)


def test_it_works_in_a_session():
    with tf.Graph().as_default():
        x = tf.compat.v1.placeholder(tf.float64, [2])
        h = tfjac.hessian(tf.reduce_prod(x), x)
        with tf.compat.v1.Session() as session:
            found = session.run(h, {x: [3.0, 5.0]})
    np.testing.assert_allclose(found, [[0, 1], [1, 0]], atol=1e-14)


def test_another_shape_of_y_is_refused():
    with pytest.raises(InvalidValueError, match="`y` must be a scalar"):
        in_graph(lambda x: tfjac.hessian(x**2, x))(array(3))
    with pytest.raises(InvalidValueError, match="one number for each example"):
        in_graph(lambda x: tfjac.batch_hessian(tf.reduce_sum(x), x))(array(3, 2))


def test_examples_that_mix_are_refused():
    with pytest.raises(ExamplesMixError):
        in_graph(lambda x: tfjac.batch_hessian(tf.reduce_sum(x**2, 1) * tf.reduce_sum(x), x))(
            array(3, 2)
        )
