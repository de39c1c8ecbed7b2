"""Models with a loop that were saved and loaded again: several derivatives in one graph."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import tfjac

pytestmark = pytest.mark.filterwarnings("ignore::tfjac.errors.LoopFallbackWarning")

X = np.random.default_rng(5).normal(size=[2, 3, 2])
# Of a reloaded function the graph does not tell how many examples come out.
STRATEGIES = ["while_loop", "vectorized", "forward", "cross_country", "auto"]
PER_EXAMPLE = [name for name in tfjac.strategies.names() if name != "structural"]


def _heads(layer):
    keras = tf.keras.layers
    x = tf.keras.Input([3, 2], dtype="float64")
    between = layer(2, dtype="float64")(x)
    heads = [keras.Dense(2, "tanh", dtype="float64"), keras.Dense(1, dtype="float64")]
    return tf.keras.Model(x, [head(between) for head in heads])


class _Scan(tf.Module):
    """Two targets of a loop that holds a branch, and writes to a list."""

    def __init__(self):
        super().__init__()
        self.weight = tf.Variable([[0.5, -0.3], [0.2, 0.8]], dtype=tf.float64)

    @tf.function(input_signature=[tf.TensorSpec([None, 3, 2], tf.float64)], autograph=False)
    def serve(self, x):
        states = tf.TensorArray(x.dtype, 3)

        def turn(i, state, states):
            fed = tf.tanh(state @ self.weight + x[:, i])
            state = tf.cond(i > 0, lambda: fed * state, lambda: fed)
            return i + 1, state, states.write(i, state)

        _, state, states = tf.while_loop(lambda i, *_: i < 3, turn, [0, x[:, 0], states])
        return state**2, tf.reduce_sum(states.stack(), 0)


@pytest.fixture(params=["GRU", "LSTM", "scan"], scope="module")
def case(request, tmp_path_factory):
    """Returns a function of two targets saved and loaded, itself, and its Jacobians at X."""
    folder = str(tmp_path_factory.mktemp(request.param))
    tf.keras.utils.set_random_seed(3)
    if request.param == "scan":
        model = _Scan()
        tf.saved_model.save(model, folder)
        return _with_jacobians(model.serve, folder)
    model = _heads(getattr(tf.keras.layers, request.param))
    model.export(folder, verbose=False)
    return _with_jacobians(tf.function(model, autograph=False), folder)


def _with_jacobians(fn, folder):
    return _loaded(folder), fn, [differences(head(fn, k)) for k in range(2)]


def _loaded(folder):
    # The function alone does not keep its variables.
    module = tf.saved_model.load(folder)
    return lambda x: module.serve(x)


def differences(fn, x=X, h=1e-3):
    """Returns the Jacobian of a function of one array, by central differences of fourth order."""

    def at(k, t):
        step = np.zeros(x.size)
        step[k] = t * h
        return np.asarray(fn(x + step.reshape(x.shape)))

    columns = [
        (8 * (at(k, 1) - at(k, -1)) - (at(k, 2) - at(k, -2))) / (12 * h) for k in range(x.size)
    ]
    return np.stack(columns, -1).reshape(*columns[0].shape, *x.shape)


def blocks(jacobian):
    """Returns the blocks of each example by itself."""
    examples = np.arange(len(X))
    return np.moveaxis(jacobian, 2, 1)[examples, examples]


def head(fn, k):
    return lambda x: fn(tf.constant(x))[k].numpy()


def traced(fn, spec=None):
    """Returns what a function of a graph tensor gives, at X."""
    spec = tf.TensorSpec([None, 3, 2] if spec is None else spec, tf.float64)
    found = tf.function(fn, autograph=False, input_signature=[spec])(tf.constant(X))
    return tf.nest.map_structure(lambda t: t.numpy(), found)


def check_close(found, wanted):
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-8)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_both_targets_of_a_reloaded_loop_have_a_jacobian(case, strategy):
    loaded, model, wanted = case
    both = traced(lambda x: tfjac.jacobian(list(loaded(x)), x, strategy), X.shape)
    for k, found in enumerate(both):
        check_close(found, wanted[k])


@pytest.mark.parametrize("strategy", PER_EXAMPLE)
def test_both_targets_of_a_reloaded_loop_have_a_batch_jacobian(case, strategy):
    loaded, model, wanted = case

    def both(x):
        ys = list(loaded(x))
        tfjac.jacobian(ys[1], x, "while_loop")
        return tfjac.batch_jacobian(ys, x, strategy)

    for k, found in enumerate(traced(both)):
        check_close(found, blocks(wanted[k]))


@pytest.mark.parametrize("strategy", ["while_loop", "vectorized", "cross_country"])
def test_a_reloaded_loop_has_a_jacobian_and_then_a_hessian(case, strategy):
    loaded, model, wanted = case

    def loss(fn, x):
        return sum(tf.reduce_sum(y**2) for y in fn(x))

    def derivatives(x):
        ys = loaded(x)
        value = sum(tf.reduce_sum(y**2) for y in ys)
        first = tfjac.jacobian(ys[0], x, "while_loop")
        return first, tfjac.hessian(value, x, strategy), tfjac.jacobian(ys[1], x, strategy)

    first, second, other = traced(derivatives, X.shape)
    check_close(first, wanted[0])
    check_close(other, wanted[1])
    gradient = lambda x: differences(lambda v: loss(model, tf.constant(v)).numpy(), x)  # noqa: E731
    np.testing.assert_allclose(second, differences(gradient, h=1e-2), atol=1e-6)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_reloaded_loop_has_jacobians_by_two_sources_one_after_the_other(case, strategy):
    loaded, model, wanted = case

    def two(x):
        inner = tf.sin(x)
        y = loaded(inner)[1]
        return tfjac.jacobian(y, x, strategy), tfjac.jacobian(y, inner, strategy)

    by_x, by_inner = traced(two, X.shape)
    check_close(by_inner, differences(head(model, 1), np.sin(X)))
    check_close(by_x, by_inner * np.cos(X))


def test_a_prepared_function_does_the_same(case):
    loaded, model, wanted = case
    prepared = tfjac.prepare(lambda x: list(loaded(x)))
    for found, right in zip(prepared(tf.constant(X)), wanted):
        check_close(found, right)


def test_a_session_differentiates_both_targets(tmp_path):
    model = _Scan()
    tf.saved_model.save(model, str(tmp_path))
    with tf.Graph().as_default():
        module = tf.saved_model.load(str(tmp_path))
        x = tf.compat.v1.placeholder(tf.float64, [2, 3, 2])
        found = tfjac.jacobian(list(module.serve(x)), x, "vectorized")
        with tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.global_variables_initializer())
            values = session.run(found, {x: X})
    for k, value in enumerate(values):
        check_close(value, differences(head(model.serve, k)))
