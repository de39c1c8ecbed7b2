"""Maxima of overlapping windows, as the first layers of most convolutional nets have them."""

import maps
import numpy as np
import pytest
import tensorflow as tf

import tfjac
from tfjac.accumulation import opaque

K = np.random.default_rng(0).normal(size=(3, 3, 2, 3))
W = np.random.default_rng(1).normal(size=(2, 98))


def _reduced(x, padding):
    h = tf.nn.conv2d(x, K, 1, "SAME")
    left, right = (tf.nn.max_pool2d(part, 3, 2, padding) for part in (h, tf.tanh(h)))
    return tf.reduce_sum(left * right, [1, 2])


def _spread(z, padding):
    x = tf.reshape(tf.tanh(z @ W), [-1, 7, 7, 2])
    return tf.nn.max_pool2d(x, 3, 2, padding)


MODELS = {"reverse": (_reduced, [7, 7, 2]), "forward": (_spread, [2])}


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("way", MODELS)
@pytest.mark.parametrize("examples", [3, 1])
@pytest.mark.parametrize("known", [True, False])
def test_the_jacobian_of_each_example(way, padding, examples, known, monkeypatch):
    model, shape = MODELS[way]
    x = np.random.default_rng(examples).normal(size=[examples, *shape])
    spec = tf.TensorSpec([examples if known else None, *shape], tf.float64)
    monkeypatch.setattr(opaque, "Opaque", None)  # all is carried by kernels of its own
    jac = tfjac.prepare(
        lambda x: model(x, padding), batch=True, strategy="cross_country", input_signature=[spec]
    )
    found = jac(tf.constant(x))
    expected = maps.blocks_of(lambda x: model(x, padding), x, 1e-5).reshape(found.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("way", MODELS)
@pytest.mark.parametrize("examples", [2, 0])
def test_the_whole_jacobian_has_zeros_between_examples(way, examples):
    model, shape = MODELS[way]
    x = tf.constant(np.random.default_rng(4).normal(size=[examples, *shape]))
    spec = tf.TensorSpec([None, *shape], tf.float64)
    whole, each = (
        tfjac.prepare(
            lambda x: model(x, "SAME"), strategy="cross_country", batch=b, input_signature=[spec]
        )(x)
        for b in (False, True)
    )
    rank = len(each.shape) - len(shape)
    assert whole.shape == [*each.shape[:rank], examples, *shape]
    for one in range(examples):
        for other in range(examples):
            block = whole[one][(slice(None),) * (rank - 1) + (other,)]
            wanted = each[one] if one == other else tf.zeros_like(block)
            np.testing.assert_allclose(block, wanted, rtol=1e-12, atol=1e-12)


def test_the_result_is_differentiable():
    x = tf.constant(np.random.default_rng(2).normal(size=[2, 7, 7, 2]))

    def penalty(x):
        found = tfjac.batch_jacobian(_reduced(x, "SAME"), x, strategy="cross_country")
        return tf.reduce_sum(found**2)

    gradient = tf.function(lambda x: tf.gradients(penalty(x), x)[0])
    value = tf.function(penalty)
    for index in ((0, 2, 3, 1), (1, 6, 0, 0)):
        change = np.zeros(x.shape)
        change[index] = 1e-6
        expected = (value(x + change) - value(x - change)) / 2e-6
        np.testing.assert_allclose(gradient(x)[index], expected, rtol=1e-5)


@pytest.mark.parametrize(("size", "stride"), [(3, 1), (2, 1), (2, 3)])
def test_other_windows(size, stride):
    x = np.random.default_rng(3).normal(size=[2, 7, 7, 2])

    def fn(x):
        return tf.reduce_sum(tf.nn.max_pool2d(tf.sin(x), size, stride, "SAME") ** 2, [1, 2])

    jac = tfjac.prepare(fn, batch=True, strategy="cross_country")
    found = jac(tf.constant(x))
    expected = maps.blocks_of(fn, x, 1e-5).reshape(found.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
