"""What may be a target or a source: variables, intermediates, nests, other graphs."""

import numpy as np
import pytest
import tensorflow as tf
from scenarios import array

import tfjac

# Those that take any model; structure_test.py is about the other.
STRATEGIES = [name for name in tfjac.strategies.names() if name != "structural"]


def run(body, *args):
    return tf.function(body, autograph=False)(*args)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_variable_is_a_source_also_where_it_is_gathered_or_read_in_a_loop(strategy):
    w = tf.Variable(array(3, 2))

    def body(x):
        dense = x @ w
        rows = tf.gather(w, [2, 0, 2]) * 2.0
        looped = tf.while_loop(
            lambda i, h: i < 2,
            lambda i, h: (i + 1, h @ w[:2] * 1.0),
            (0, dense),
            maximum_iterations=2,
        )[1]
        return [tfjac.jacobian(y, w, strategy) for y in (dense, rows, looped)]

    x = array(1, 3, seed=4)
    dense, rows, looped = run(body, tf.constant(x))
    np.testing.assert_allclose(dense[0], np.einsum("jk,i->kij", np.eye(2), x[0]))
    wanted = np.zeros((3, 2, 3, 2))
    for r, i in enumerate([2, 0, 2]):
        wanted[r, :, i] = 2 * np.eye(2)
    np.testing.assert_allclose(rows, wanted)

    def numeric(flat):
        m = flat.reshape(3, 2)
        return (x @ m @ m[:2] @ m[:2]).reshape(-1)

    flat, h = w.numpy().reshape(-1), 1e-5
    columns = [(numeric(flat + h * e) - numeric(flat - h * e)) / (2 * h) for e in np.eye(6)]
    np.testing.assert_allclose(looped.numpy().reshape(2, 6), np.stack(columns, 1), atol=1e-8)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_variable_read_outside_and_inside_a_body_counts_both(strategy):
    w = tf.Variable(2.0, dtype=tf.float64)

    def body(x):
        outer = x * w

        def branch():
            y = outer * w
            return tfjac.jacobian(y, w, strategy)

        return tf.cond(tf.reduce_sum(x) > -100.0, branch, lambda: tf.zeros_like(x))

    np.testing.assert_allclose(run(body, tf.constant([1.0, 3.0], tf.float64)), [4.0, 12.0])


def test_keras_variables_are_sources():
    layer = tf.keras.layers.Dense(2, use_bias=False)
    layer.build((None, 3))
    x = array(1, 3, dtype=np.float32)
    j = run(lambda x: tfjac.jacobian(layer(x), layer.trainable_variables)[0], tf.constant(x))
    np.testing.assert_allclose(j[0], np.einsum("jk,i->kij", np.eye(2), x[0]), rtol=1e-6)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_intermediate_tensor_is_a_source_beside_what_it_is_made_of(strategy):
    def body(x):
        h = tf.sin(x)
        y = h * h * x
        return tfjac.jacobian(y, [h, x], strategy)

    x = array(3)
    by_h, by_x = run(body, tf.constant(x))
    np.testing.assert_allclose(by_h, np.diag(2 * np.sin(x) * x))
    np.testing.assert_allclose(by_x, np.diag(np.sin(x) ** 2 + 2 * np.sin(x) * np.cos(x) * x))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_structures_nest_targets_outside_and_sources_inside(strategy):
    def body(a, b):
        ys = {"p": a * b, "q": (tf.reduce_sum(a), b**2)}
        return tfjac.jacobian(ys, {"a": a, "bs": [b, b]}, strategy)

    a, b = array(2), array(2, seed=3)
    j = run(body, tf.constant(a), tf.constant(b))
    np.testing.assert_allclose(j["p"]["a"], np.diag(b))
    np.testing.assert_allclose(j["p"]["bs"][1], np.diag(a))
    np.testing.assert_allclose(j["q"][0]["a"], np.ones(2))
    np.testing.assert_allclose(j["q"][0]["bs"][0], np.zeros(2))
    np.testing.assert_allclose(j["q"][1]["bs"][0], np.diag(2 * b))
    np.testing.assert_allclose(j["q"][1]["a"], np.zeros((2, 2)))


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("operator", [tfjac.jacobian, tfjac.batch_jacobian])
def test_unconnected_pairs_are_none_on_request(strategy, operator):
    def body(a, b):
        found = operator(tf.sin(a), [a, b], strategy, unconnected_gradients="none")
        assert found[1] is None
        return found[0]

    assert run(body, tf.ones([2, 1]), tf.ones([2, 3])).shape[0] == 2


def test_none_on_request_in_products_too():
    def body(a, b):
        y = tf.sin(a)
        assert tfjac.vjp(y, [a, b], tf.ones_like(y), unconnected_gradients="none")[1] is None
        assert tfjac.jvp(y, b, tf.ones_like(b), unconnected_gradients="none") is None
        return tfjac.vjp(y, b, tf.ones_like(y)), tfjac.jvp(y, b, tf.ones_like(b))

    by_b, along_b = run(body, tf.ones([2]), tf.ones([3]))
    assert by_b.shape == [3] and not np.any(by_b) and along_b.shape == [2] and not np.any(along_b)


def test_products_sum_over_targets_and_over_sources():
    def body(a, b):
        ys, xs = [a * b, a**2], {"a": a, "b": b}
        return (
            tfjac.vjp(ys, xs, [tf.ones_like(a), 2.0 * tf.ones_like(a)]),
            tfjac.jvp(ys, xs, {"a": tf.ones_like(a), "b": 3.0 * tf.ones_like(b)}),
        )

    a, b = array(2), array(2, seed=3)
    pulled, pushed = run(body, tf.constant(a), tf.constant(b))
    np.testing.assert_allclose(pulled["a"], b + 4 * a)
    np.testing.assert_allclose(pulled["b"], a)
    np.testing.assert_allclose(pushed[0], b + 3 * a)
    np.testing.assert_allclose(pushed[1], 2 * a)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_body_may_differentiate_what_the_graph_around_it_computed(strategy):
    def body(x):
        y = tf.sin(x)
        return tf.while_loop(
            lambda i, total: i < 2,
            lambda i, total: (i + 1, total + tfjac.jacobian(y, x, strategy)),
            (0, tf.zeros([2, 2], x.dtype)),
        )[1]

    x = array(2)
    np.testing.assert_allclose(run(body, tf.constant(x)), np.diag(2 * np.cos(x)))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_finished_graph_can_be_added_to_from_outside(strategy):
    graph = tf.Graph()
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.float64, [2])
        y = tf.sin(x)
    j = tfjac.jacobian(y, x, strategy)
    with tf.compat.v1.Session(graph=graph) as session:
        np.testing.assert_allclose(session.run(j, {x: [0.1, 0.2]}), np.diag(np.cos([0.1, 0.2])))


def test_reference_variables_of_tensorflow_1_are_sources():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        w = tf.compat.v1.Variable([1.0, 2.0], use_resource=False)
        j = tfjac.jacobian(w**2, w)
        session.run(tf.compat.v1.global_variables_initializer())
        np.testing.assert_allclose(session.run(j), np.diag([2.0, 4.0]))


def test_the_value_comes_back_as_it_was_given():
    def body(x):
        y = [tf.sin(x)]
        value, j = tfjac.value_and_jacobian(y, x)
        assert value is y
        value, blocks = tfjac.value_and_batch_jacobian(y, x)
        assert value is y
        return j[0], blocks[0]

    j, blocks = run(body, tf.constant([0.3, 0.4]))
    np.testing.assert_allclose(j, np.diag(np.cos([0.3, 0.4])), rtol=1e-6)
    np.testing.assert_allclose(blocks, np.cos([0.3, 0.4]), rtol=1e-6)


def test_slices_of_an_embedding_gradient_are_a_target():
    def body(table):
        g = tf.gradients(tf.gather(table, [0, 0, 1]) ** 3, table)[0]
        assert isinstance(g, tf.IndexedSlices)
        return tfjac.jacobian(g, table)

    table = array(2, 1)
    j = run(body, tf.constant(table)).numpy().reshape(2, 2)
    np.testing.assert_allclose(j, np.diag([12 * table[0, 0], 6 * table[1, 0]]))


def test_a_mirrored_variable_can_be_read():
    strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
    with strategy.scope():
        v = tf.Variable([2.0, 3.0])
    j = tfjac.prepare(lambda x: x**2 * v)(np.array([1.0, -1.0], np.float32))
    np.testing.assert_allclose(j, np.diag([4.0, -6.0]))
