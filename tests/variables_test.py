"""A source that is a variable, read any number of times, equals one that is a tensor."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import tfjac

pytestmark = pytest.mark.filterwarnings("ignore::tfjac.errors.LoopFallbackWarning")

_RNG = np.random.default_rng(7)
MATRIX = _RNG.normal(size=(3, 3)) + 2 * np.eye(3)
INPUTS = tf.constant(_RNG.normal(size=(6, 3)))
LABELS = tf.constant([0, 1, 2, 1, 1, 0])


def cross_entropy(read, regularize):
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(LABELS, INPUTS @ read())
    return tf.reduce_mean(losses) + regularize(read())


def spectrally_normalized(w):
    u = tf.constant([[0.3], [-0.5], [0.8]], w.dtype)
    for _ in range(2):
        v = tf.math.l2_normalize(tf.linalg.matvec(w, u[:, 0], transpose_a=True))[:, None]
        u = tf.math.l2_normalize(w @ v)
    return w / (tf.transpose(u) @ w @ v)


def through_a_call(read):
    @tf.function
    def inner():
        return tf.linalg.inv(read()) + read()

    return inner() * read()


def through_a_branch(read):
    return tf.cond(tf.reduce_sum(read()) > 0, lambda: tf.linalg.inv(read()), read) + read() ** 2


def through_a_loop(read):
    start = (tf.constant(0), read())
    return tf.while_loop(
        lambda i, _: i < 3, lambda i, m: (i + 1, 0.5 * m @ read()), start, maximum_iterations=3
    )[1] + tf.sin(read())


# From a function that reads the source to the target.
TARGETS = {
    "a square and an inverse": lambda read: read() ** 2 + tf.linalg.inv(read()),
    "a matrix times its inverse": lambda read: read() @ tf.linalg.inv(read()),
    "a determinant times each entry": lambda read: tf.linalg.det(read()) * tf.sin(read()),
    "its decomposition and itself": lambda read: tf.linalg.qr(read())[1] * read(),
    "a spectral normalization": lambda read: spectrally_normalized(read()),
    "read anew for each factor": lambda read: tf.tanh(INPUTS @ read()) @ read() + INPUTS @ read(),
    "inside a called function and outside": through_a_call,
    "inside a branch and outside": through_a_branch,
    "inside a loop and outside": through_a_loop,
}
LOSSES = {
    "cross entropy and its squares": lambda read: cross_entropy(
        read, lambda w: 0.01 * tf.reduce_sum(w**2)
    ),
    "cross entropy and an inverse": lambda read: cross_entropy(
        read, lambda w: tf.reduce_sum(tf.linalg.inv(w) ** 2)
    ),
    "a determinant of itself": lambda read: tf.linalg.logdet(
        read() @ tf.transpose(read()) + tf.eye(3, dtype=tf.float64)
    ),
}
QUANTITIES = {
    "gramian": tfjac.gramian,
    "det": tfjac.det,
    "slogdet": lambda y, x: tfjac.slogdet(y, x)[1],
    "trace": tfjac.trace,
    "frobenius_norm": tfjac.frobenius_norm,
    "spectral_norm": tfjac.spectral_norm,
    "singular_values": tfjac.singular_values,
}


def by_variable(target, operator):
    """Returns what an operator gives by a variable that is read anew each time."""
    w = tf.Variable(MATRIX)

    def read():
        return w.read_value() if _turn() else tf.convert_to_tensor(w)

    turns = []

    def _turn():
        turns.append(1)
        return len(turns) % 2

    return tf.function(lambda: operator(target(read), w), autograph=False)().numpy()


def by_tensor(target, operator):
    """Returns the same by a tensor of the same values."""
    run = tf.function(lambda w: operator(target(lambda: w), w), autograph=False)
    return run(tf.constant(MATRIX)).numpy()


def differences(target):
    """Returns the Jacobian by central differences."""
    h, columns = 1e-5, []
    for k in range(MATRIX.size):
        step = h * np.eye(1, MATRIX.size, k).reshape(MATRIX.shape)
        ahead, behind = (
            target(lambda at=at: tf.constant(at)).numpy() for at in (MATRIX + step, MATRIX - step)
        )
        columns.append((ahead - behind) / (2 * h))
    return np.stack(columns, -1).reshape(*columns[0].shape, *MATRIX.shape)


def check_close(found, wanted, tolerance):
    np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance * max(1, np.abs(wanted).max()))


STRATEGIES = [name for name in tfjac.strategies.names() if name != "structural"]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", TARGETS)
def test_the_jacobian_by_a_variable_is_that_by_differences(name, strategy):
    found = by_variable(TARGETS[name], lambda y, w: tfjac.jacobian(y, w, strategy))
    check_close(found, differences(TARGETS[name]), 1e-7)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", LOSSES)
def test_the_hessian_by_a_variable_is_that_by_a_tensor(name, strategy):
    operator = lambda y, w: tfjac.hessian(y, w, strategy)  # noqa: E731
    found = by_variable(LOSSES[name], operator)
    check_close(found, by_tensor(LOSSES[name], operator), 1e-10)

    def gradient(read):
        w = tf.convert_to_tensor(read())
        with tf.GradientTape() as tape:
            tape.watch(w)
            loss = LOSSES[name](lambda: w)
        return tape.gradient(loss, w)

    check_close(found, differences(gradient), 1e-6)


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_a_quantity_by_a_variable_is_that_by_a_tensor(quantity):
    for target in ("a square and an inverse", "a spectral normalization"):
        found = by_variable(TARGETS[target], QUANTITIES[quantity])
        check_close(found, by_tensor(TARGETS[target], QUANTITIES[quantity]), 1e-9)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_hessian_of_a_keras_classifier_with_a_regularizer(strategy):
    layer = tf.keras.layers.Dense(
        3, dtype="float64", kernel_regularizer=tf.keras.regularizers.L2(0.125)
    )
    layer.build((None, 3))

    def loss(kernel):
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(LABELS, INPUTS @ kernel)
        return tf.reduce_mean(losses) + 0.125 * tf.reduce_sum(kernel**2)

    @tf.function(autograph=False)
    def by_layer():
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(LABELS, layer(INPUTS))
        whole = tf.reduce_mean(losses) + tf.add_n(layer.losses)
        return tfjac.hessian(whole, layer.kernel, strategy)

    by_tensor_ = tf.function(lambda k: tfjac.hessian(loss(k), k, strategy), autograph=False)
    wanted = by_tensor_(tf.constant(layer.kernel.numpy())).numpy()
    check_close(by_layer().numpy(), wanted, 1e-10)
