"""Models that are trained or changed between calls, and variables made at the first."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import tfjac

# Those that take any model; structure_test.py is about the other.
STRATEGIES = [name for name in tfjac.strategies.names() if name != "structural"]

X = np.array([[0.3, -0.5, 0.8], [1.1, 0.2, -0.7]])


def dense_model():
    layers = tf.keras.layers
    return tf.keras.Sequential([tf.keras.Input((3,)), layers.Dense(4, "tanh"), layers.Dense(2)])


def of_dense(model, x):
    first, last = model.layers
    (w, b), (v, _) = ([p.numpy() for p in layer.weights] for layer in (first, last))
    t = np.tanh(x @ w + b)
    return np.einsum("bh,ih,ho->boi", 1 - t**2, w, v)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_model_that_is_trained_between_calls_is_seen_as_it_is(strategy):
    model, x = dense_model(), X.astype(np.float32)
    model.compile(tf.keras.optimizers.SGD(0.1), "mse")
    jac = tfjac.prepare(model, batch=True, strategy=strategy)
    found = []
    for _ in range(3):
        found.append(jac(x).numpy())
        np.testing.assert_allclose(found[-1], of_dense(model, x), atol=1e-6)
        model.fit(x, np.ones([2, 2]), verbose=0)
    assert not np.allclose(found[0], found[1])
    assert jac.cache_info().misses == 1


def with_layers_swapped(model):
    model.pop()
    model.add(tf.keras.layers.Dense(5))


def with_another_policy(model):
    for layer in model.layers:
        layer.dtype_policy = "mixed_bfloat16"


def with_frozen_statistics(model):
    model.layers[0].trainable = False


@pytest.mark.parametrize("change", [with_layers_swapped, with_another_policy])
@pytest.mark.parametrize("as_method", [False, True])
def test_a_model_that_is_changed_between_calls_is_built_anew(change, as_method):
    model, x = dense_model(), X.astype(np.float32)
    jac = tfjac.prepare(model.call if as_method else model, batch=True)
    jac(x)
    assert jac(x).shape == (2, 2, 3)
    change(model)
    for _ in range(2):
        j = jac(x)
        assert j.dtype == model(x).dtype
        np.testing.assert_allclose(tf.cast(j, tf.float32), of_dense(model, x), atol=2e-2)
    assert jac.cache_info()[:2] == (2, 2) and jac.cache_info().currsize == 1


def test_batch_normalization_that_is_frozen_between_calls_keeps_examples_apart():
    model = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.BatchNormalization()])
    jac, x = tfjac.prepare(model, batch=True), X.astype(np.float32)
    with pytest.raises(tfjac.errors.ExamplesMixError):
        jac(x, training=True)
    with_frozen_statistics(model)
    wanted = np.broadcast_to(np.eye(3) / np.sqrt(1.001), [2, 3, 3])
    np.testing.assert_allclose(jac(x, training=True), wanted, rtol=1e-6)
    model.layers[0].trainable = True
    with pytest.raises(tfjac.errors.ExamplesMixError):
        jac(x, training=True)


def test_what_else_is_changed_of_a_layer_is_seen_when_the_cache_is_cleared():
    model, x = dense_model(), X.astype(np.float32)
    jac = tfjac.prepare(model, batch=True)
    jac(x)
    model.layers[0].activation = tf.keras.activations.linear
    jac.cache_clear()
    w, v = (layer.kernel.numpy() for layer in model.layers)
    np.testing.assert_allclose(jac(x), np.broadcast_to((w @ v).T, [2, 2, 3]), atol=1e-6)


def test_a_model_that_makes_its_layers_at_its_first_call_is_built_once():
    class Late(tf.keras.Model):
        def build(self, shape):
            self.inner = tf.keras.Sequential([tf.keras.layers.Dense(2), tf.keras.layers.Dense(1)])
            self.inner.build(shape)

        def call(self, x):
            return self.inner(x)

    model, x = Late(), X.astype(np.float32)
    jac = tfjac.prepare(model, batch=True)
    for _ in range(3):
        assert jac(x).shape == (2, 1, 3)
    model.compile("sgd", "mse", metrics=["mae"])
    model.fit(x, np.ones([2, 1]), verbose=0)
    jac(x)
    assert jac.cache_info()[:2] == (3, 1)


def test_variables_made_inside_the_function_at_the_first_call_are_kept():
    made = []

    def fn(x):
        if not made:
            made.append(tf.Variable(2.0 * tf.ones([3], x.dtype)))
        return made[0] * x**2

    jac = tfjac.prepare(fn)
    for k in (2.0, 5.0):
        if made:
            made[0].assign(k * tf.ones([3], tf.float64))
        np.testing.assert_allclose(jac(X[0]), np.diag(2 * k * X[0]))
    assert len(made) == 1


def test_variables_made_at_every_trace_raise():
    def fn(x):
        return tf.Variable(2.0 * tf.ones([3], x.dtype)) * x**2

    with pytest.raises(ValueError, match="[Vv]ariable"):
        tfjac.prepare(fn)(X[0])
