"""tfjac called within loops, branches, maps and custom gradients, in graphs and under replicas."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from scenarios import array

import tfjac

# Those that take any model; structure_test.py is about the other.
STRATEGIES = [name for name in tfjac.strategies.names() if name != "structural"]
pytestmark = pytest.mark.filterwarnings("ignore::tfjac.errors.LoopFallbackWarning")

X = np.array([[0.3, -0.5, 0.8], [1.1, 0.2, -0.7]])


# What is called: from one row [3] to a tensor, with its value in NumPy.


def cubed(z):
    return z**3


def of_jacobian(z):
    return tfjac.jacobian(cubed(z), z)


def of_batch_jacobian(z):
    rows = z[:, tf.newaxis]
    return tfjac.batch_jacobian(rows**3, rows)[:, 0, 0]


def of_jvp(z):
    return tfjac.jvp(cubed(z), z, tf.constant([1.0, 2.0, 3.0], z.dtype))


def of_vjp(z):
    return tfjac.vjp(cubed(z), z, tf.constant([1.0, 2.0, 3.0], z.dtype))


def of_hessian(z):
    return tfjac.hessian(tf.reduce_sum(cubed(z)), z)


of_prepared = tfjac.prepare(cubed)

CALLED = {
    "jacobian": (of_jacobian, lambda x: np.diag(3 * x**2)),
    "batch_jacobian": (of_batch_jacobian, lambda x: 3 * x**2),
    "jvp": (of_jvp, lambda x: 3 * x**2 * [1.0, 2.0, 3.0]),
    "vjp": (of_vjp, lambda x: 3 * x**2 * [1.0, 2.0, 3.0]),
    "hessian": (of_hessian, lambda x: np.diag(6 * x)),
    "prepared": (of_prepared, lambda x: np.diag(3 * x**2)),
}


# Where: from a function of a row to one of X [2, 3] that gives a value for each row.


def in_map_fn(fn, x):
    return tf.map_fn(fn, x, fn_output_signature=x.dtype)


def in_vectorized_map(fn, x):
    return tf.vectorized_map(fn, x)


def in_while_loop(fn, x):
    def body(i, found):
        return i + 1, found.write(i, fn(x[i]))

    found = tf.TensorArray(x.dtype, 2)
    return tf.while_loop(lambda i, _: i < 2, body, (0, found))[1].stack()


def in_cond(fn, x):
    rows = tf.unstack(x)
    return tf.stack(
        [
            tf.cond(row[0] > 0.5, lambda r=row: fn(r), lambda r=row: fn(tf.identity(r)))
            for row in rows
        ]
    )


def in_switch_case(fn, x):
    branches = [lambda r=row: fn(r) for row in tf.unstack(x)]
    return tf.stack([tf.switch_case(tf.constant(i), branches) for i in range(2)])


def in_called_function(fn, x):
    inner = tf.function(fn)
    return tf.stack([inner(row) for row in tf.unstack(x)])


def in_recompute_grad(fn, x):
    inner = tf.recompute_grad(fn)
    return tf.stack([inner(row) for row in tf.unstack(x)])


def in_python_loop(fn, x):
    found = tf.TensorArray(x.dtype, 2)
    for i in tf.range(2):
        found = found.write(i, fn(x[i]))
    return found.stack()


PLACES = [in_map_fn, in_vectorized_map, in_while_loop, in_cond, in_switch_case]
PLACES += [in_called_function, in_recompute_grad, in_python_loop]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("called", CALLED)
def test_it_works_within_bodies(called, place):
    fn, wanted = CALLED[called]
    found = tf.function(lambda x: place(fn, x))(tf.constant(X))
    np.testing.assert_allclose(found, [wanted(row) for row in X], atol=1e-14)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_works_within_bodies(strategy, place):
    w = array(3, 2)

    def fn(z):
        return tfjac.jacobian(tf.linalg.matvec(tf.transpose(tf.constant(w)), z) ** 2, z, strategy)

    found = tf.function(lambda x: place(fn, x))(tf.constant(X))
    np.testing.assert_allclose(found, [2 * (row @ w)[:, None] * w.T for row in X], atol=1e-14)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("called", CALLED)
def test_what_is_called_within_bodies_can_be_differentiated_from_outside(called, place):
    fn, wanted = CALLED[called]

    @tf.function
    def gradient(x):
        return tf.gradients(tf.reduce_sum(place(fn, x)), x)[0]

    h = 1e-6
    rows = [
        [(wanted(row + h * e).sum() - wanted(row - h * e).sum()) / (2 * h) for e in np.eye(3)]
        for row in X
    ]
    np.testing.assert_allclose(gradient(tf.constant(X)), rows, rtol=1e-7)


@pytest.mark.parametrize("called", CALLED)
def test_it_works_within_a_custom_gradient(called):
    fn, wanted = CALLED[called]

    @tf.custom_gradient
    def outer(z):
        value = fn(z)
        return value, lambda upstream: tf.reduce_sum(upstream) * tf.reduce_sum(fn(z)) * z

    @tf.function
    def both(z):
        y = outer(z)
        return y, tf.gradients(y, z)[0], tfjac.jvp(y, z, tf.ones_like(z))

    x, size = X[0], wanted(X[0]).size
    value, gradient, tangent = both(tf.constant(x))
    np.testing.assert_allclose(value, wanted(x), atol=1e-14)
    np.testing.assert_allclose(gradient, size * wanted(x).sum() * x, rtol=1e-12)
    np.testing.assert_allclose(tangent, np.full(wanted(x).shape, wanted(x).sum() * x.sum()))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_jacobian_of_a_jacobian_is_right(strategy):
    @tf.function
    def second(z):
        first = tfjac.jacobian(tf.sin(z) * z, z, strategy)
        return tfjac.jacobian(first, z, strategy)

    x = X[0]
    wanted = np.zeros((3, 3, 3))
    wanted[range(3), range(3), range(3)] = 2 * np.cos(x) - x * np.sin(x)
    np.testing.assert_allclose(second(tf.constant(x)), wanted, atol=1e-14)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_prepared_function_may_call_a_prepared_function(strategy):
    inner = tfjac.prepare(cubed, strategy=strategy)
    outer = tfjac.prepare(lambda z: tf.linalg.diag_part(inner(z)), strategy=strategy)
    np.testing.assert_allclose(outer(X[0]), np.diag(6 * X[0]), atol=1e-14)


# Graphs.


def test_two_graphs_are_kept_apart_and_a_reset_default_graph_starts_anew():
    fn = tf.tanh
    graphs = [tf.Graph(), tf.Graph()]
    found = []
    for graph in graphs:
        with graph.as_default():
            x = tf.compat.v1.placeholder(tf.float64, [3])
            found.append((x, tfjac.jacobian(fn(x), x)))
    for graph, (x, j) in zip(graphs, found):
        assert j.graph is graph
        with tf.compat.v1.Session(graph=graph) as session:
            got = session.run(j, {x: X[0]})
        np.testing.assert_allclose(got, np.diag(1 - np.tanh(X[0]) ** 2))
    with (
        graphs[0].as_default(),
        pytest.raises(tfjac.errors.InvalidValueError, match="graph"),
    ):
        tfjac.jacobian(found[0][0] * 2.0, found[1][0])


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_default_graph_may_be_reset_between_jacobians(strategy):
    with tf.Graph().as_default():
        pass
    jac = tfjac.prepare(cubed, strategy=strategy)
    for k in (1.0, 2.0):
        tf.compat.v1.reset_default_graph()
        np.testing.assert_allclose(jac(k * X[0]), np.diag(3 * (k * X[0]) ** 2))
        graph = tf.compat.v1.get_default_graph()
        with graph.as_default(), tf.compat.v1.Session(graph=graph) as session:
            x = tf.compat.v1.placeholder(tf.float64, [3])
            j = tfjac.jacobian(k * cubed(x), x, strategy)
            np.testing.assert_allclose(session.run(j, {x: X[0]}), np.diag(3 * k * X[0] ** 2))


# Functions run eagerly.


@pytest.fixture
def run_eagerly():
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("batch", [False, True])
def test_prepared_jacobians_are_right_where_functions_run_eagerly(strategy, batch, run_eagerly):
    jac = tfjac.prepare(lambda x: tf.function(tf.tanh)(x) * x, batch=batch, strategy=strategy)
    t = np.tanh(X)
    wanted = np.einsum("bi,ij->bij", t + X * (1 - t**2), np.eye(3))
    j = jac(X).numpy()
    np.testing.assert_allclose(j if batch else np.stack([j[b, :, b] for b in (0, 1)]), wanted)


def test_graph_functions_name_prepare_where_functions_run_eagerly(run_eagerly):
    @tf.function
    def f(x):
        return tfjac.jacobian(x**2, x)

    with pytest.raises(tfjac.errors.TfjacError, match="prepare"):
        f(tf.constant(X[0]))


# Replicas.


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_replicas_compute_jacobians_of_their_own_examples(strategy):
    mirrored = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    with mirrored.scope():
        v = tf.Variable(np.array([2.0, 3.0, 4.0]))
    data = mirrored.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices(X).batch(2))

    @tf.function
    def step(rows):
        def replica(x):
            return tfjac.batch_jacobian(x**2 * v, x, strategy)

        return mirrored.run(replica, args=(rows,))

    (rows,) = iter(data)
    parts = [j.numpy() for j in mirrored.experimental_local_results(step(rows))]
    wanted = np.einsum("bi,ij->bij", 2 * X * [2.0, 3.0, 4.0], np.eye(3))
    np.testing.assert_allclose(np.concatenate(parts), wanted)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_prepared_jacobian_runs_within_replicas_and_sees_their_variables(strategy):
    mirrored = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    with mirrored.scope():
        v = tf.Variable(2.0, dtype=tf.float64, aggregation=tf.VariableAggregation.MEAN)
        layers = [tf.keras.layers.Dense(4), tf.keras.layers.Dense(2)]
        model = tf.keras.Sequential([tf.keras.Input((3,)), *layers])
    jac = tfjac.prepare(lambda x: x**2 * v, strategy=strategy)
    of_model = tfjac.prepare(model, batch=True, strategy=strategy)
    for k in (2.0, 5.0):
        v.assign(k)
        parts = mirrored.run(lambda: jac(tf.constant(X[0])))
        for j in mirrored.experimental_local_results(parts):
            np.testing.assert_allclose(j, np.diag(2 * k * X[0]))
    x = X.astype(np.float32)
    w, v = (layer.kernel.numpy() for layer in model.layers)
    np.testing.assert_allclose(of_model(x), np.broadcast_to((w @ v).T, [2, 2, 3]), atol=1e-6)
