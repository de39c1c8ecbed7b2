"""What is made of a Jacobian without writing it."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import tfjac
import tfjac.keras

B, N, M = 5, 40, 30


def layer(activation, seed=0):
    w = tf.constant(np.random.default_rng(seed).normal(size=[N, M]), tf.float64)
    return lambda x: activation(x @ w)


FUNCTIONS = {
    "sigmoid": layer(tf.sigmoid),
    "relu": layer(tf.nn.relu),
    "linear": layer(tf.identity),
    "scaled": lambda x: 3 * layer(tf.tanh)(tf.sin(x)),
    "skipped": lambda x: layer(tf.tanh)(x) @ tf.ones([M, N], tf.float64) + x**2,
    "outer": lambda x: tf.sin(x)[:, :, None] * tf.reduce_sum(x**2, 1)[:, None, None],
}


@pytest.mark.parametrize("batch", [True, False])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_squares_sum_to_those_of_the_jacobian(name, batch):
    fn = FUNCTIONS[name]

    @tf.function
    def f(x):
        y = fn(x)
        made = tfjac.batch_jacobian(y, x) if batch else tfjac.jacobian(y, x)
        return tfjac.frobenius_norm(y, x, batch=batch), made

    norm, jacobian = f(tf.constant(np.random.default_rng(1).normal(size=[B, N])))
    flat = np.reshape(jacobian, [B if batch else 1, -1])
    np.testing.assert_allclose(np.ravel(norm), np.linalg.norm(flat, axis=1), rtol=1e-12)


@pytest.mark.parametrize("name", ["sigmoid", "relu"])
def test_the_norm_of_a_layer_and_its_gradient_form_no_jacobian(name):
    fn = FUNCTIONS[name]

    @tf.function(autograph=False)
    def f(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            norm = tfjac.frobenius_norm(fn(x), x, batch=True)
        return tape.gradient(norm, x)

    graph = f.get_concrete_function(tf.TensorSpec([B, N], tf.float64)).graph
    sizes = [t.shape.num_elements() or 0 for op in graph.get_operations() for t in op.outputs]
    assert max(sizes) == N * M
