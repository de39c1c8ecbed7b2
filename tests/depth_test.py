"""However deep a net is: Python calls itself no deeper; twice the depth takes twice the work."""

import sys

import numpy as np
import pytest
import tensorflow as tf

import tfjac
from tfjac.accumulation import contraction

WIDTH = 4
DEEP = 200
# Twice the depth may take so many times as much.
DOUBLE = 2.2
STRATEGIES = ["auto", "cross_country", "forward", "unstack", "vectorized", "while_loop"]


def weights(n, dtype=np.float64):
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, WIDTH, WIDTH)).astype(dtype) * 0.3


def points(dtype=np.float64):
    return np.random.default_rng(1).normal(size=(3, WIDTH)).astype(dtype)


def residual(x, ws):
    for w in ws:
        x = x + tf.tanh(x @ w)
    return x


def dense(x, ws):
    for w in ws:
        x = tf.nn.relu(x @ w)
    return x


def activations(x, ws):
    """Returns what each block gives, and the slope of each tanh."""
    found, slopes = [x], []
    for w in ws:
        t = np.tanh(found[-1] @ w)
        found.append(found[-1] + t)
        slopes.append(1 - t**2)
    return found, slopes


def jacobians(x, ws):
    """The product of I + diag(tanh') W^T over the blocks, for each example."""
    found = np.tile(np.eye(WIDTH), (len(x), 1, 1))
    for w, slope in zip(ws, activations(x, ws)[1]):
        found = found + slope[:, :, np.newaxis] * (w.T @ found)
    return found


def losses_by_weights(x, ws):
    """The gradients of the sum of each example's outputs by the weights of each block."""
    found, slopes = activations(x, ws)
    back, gradients = np.ones_like(x), []
    for k in reversed(range(len(ws))):
        through = back * slopes[k]
        gradients.append(found[k][:, :, np.newaxis] * through[:, np.newaxis, :])
        back = back + through @ ws[k].T
    return gradients[::-1]


def traced(fn, batch, dtype=tf.float64):
    spec = tf.TensorSpec([batch, WIDTH], dtype)
    return tf.function(fn, input_signature=[spec], autograph=False)


def placed(net, n, batch=3):
    x = tf.compat.v1.placeholder(tf.float32, [batch, WIDTH])
    return net(x, [tf.constant(w) for w in weights(n, np.float32)]), x


class Watch:
    """How many functions were called while it was on, and how deep they called each other."""

    def __enter__(self):
        self.calls = self.depth = self.deepest = 0
        sys.setprofile(self._seen)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)

    def _seen(self, frame, event, _):
        if event == "call":
            self.calls += 1
            self.depth += 1
            self.deepest = max(self.deepest, self.depth)
        elif event == "return":
            self.depth -= 1


def watched(run, net, n, batch):
    with tf.Graph().as_default():
        y, x = placed(net, n, batch)
        with Watch() as watch:
            run(y, x)
    return watch


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_many_residual_blocks_by_each_strategy(strategy):
    ws, x = weights(DEEP), points()
    expected = jacobians(x, ws)
    jac = traced(lambda z: tfjac.batch_jacobian(residual(z, ws), z, strategy), 3)
    np.testing.assert_allclose(jac(x), expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())


def test_many_residual_blocks_where_the_batch_is_unknown():
    ws, x = weights(300), points()
    expected = jacobians(x, ws)
    for strategy in ("auto", "cross_country"):
        jac = traced(lambda z: tfjac.batch_jacobian(residual(z, ws), z, strategy), None)  # noqa: B023
        np.testing.assert_allclose(jac(x), expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())


def test_a_chain_of_a_thousand_layers():
    ws, x = weights(1000) + np.eye(WIDTH), np.abs(points())
    ws /= np.linalg.norm(ws, 2, axis=(1, 2), keepdims=True)
    found, expected = x, np.tile(np.eye(WIDTH), (3, 1, 1))
    for w in ws:
        found = found @ w
        expected = (found > 0)[:, :, np.newaxis] * (w.T @ expected)
        found = np.maximum(found, 0)
    jac = traced(lambda z: tfjac.batch_jacobian(dense(z, ws), z, "cross_country"), None)
    np.testing.assert_allclose(jac(x), expected, rtol=1e-9, atol=1e-12)


# What else is made of a Jacobian: from y and x, and from the Jacobians of the examples.
MADE = {
    "diag_jacobian": (
        tfjac.diag_jacobian,
        lambda j: np.diagonal(j, axis1=1, axis2=2),
    ),
    "gramian": (
        lambda y, x: tfjac.gramian(y, x, batch=True),
        lambda j: j @ np.swapaxes(j, 1, 2),
    ),
    "jvp": (lambda y, x: tfjac.jvp(y, x, tf.ones_like(x)), lambda j: j.sum(2)),
    "slogdet": (
        lambda y, x: tfjac.slogdet(y, x, batch=True)[1],
        lambda j: np.linalg.slogdet(j)[1],
    ),
    "vjp": (lambda y, x: tfjac.vjp(y, x, tf.ones_like(y)), lambda j: j.sum(1)),
}


@pytest.mark.parametrize("batch", [3, None])
@pytest.mark.parametrize("name", MADE)
def test_what_is_made_of_the_jacobian_of_many_blocks(name, batch):
    make, of_jacobian = MADE[name]
    ws, x = weights(DEEP) * 0.2, points()
    expected = of_jacobian(jacobians(x, ws))
    found = traced(lambda z: make(residual(z, ws), z), batch)(x)
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8 * np.abs(expected).max())


def test_the_weights_of_many_blocks_by_example():
    ws, x = weights(DEEP) * 0.2, points()
    variables = [tf.Variable(w) for w in ws]
    asked = [0, DEEP // 2, DEEP - 1]

    def fn(z):
        losses = tf.reduce_sum(residual(z, variables), 1)
        return tfjac.per_example_gradients(losses, [variables[k] for k in asked])

    expected = losses_by_weights(x, ws)
    for found, k in zip(traced(fn, 3)(x), asked):
        np.testing.assert_allclose(found, expected[k], rtol=1e-9, atol=1e-12)


def test_second_derivatives_of_many_blocks():
    ws, x = weights(DEEP) * 0.2, points()

    def gradient(z):
        return jacobians(z, ws).sum(1)

    h = 1e-5
    steps = [gradient(x + h * e) - gradient(x - h * e) for e in np.eye(WIDTH)]
    expected = np.stack(steps, 2) / (2 * h)
    fn = traced(lambda z: tfjac.batch_hessian(tf.reduce_sum(residual(z, ws), 1), z), 3)
    np.testing.assert_allclose(fn(x), expected, rtol=1e-5, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("batch", [3, None])
@pytest.mark.parametrize("net, n, ops", [(dense, 5000, 10000), (residual, 2000, 6000)])
def test_thousands_of_layers_are_read_and_planned(net, n, ops, batch):
    with tf.Graph().as_default():
        (plan,) = tfjac.plan(*placed(net, n, batch), batch=True)
    willing = {a.strategy.name for a in plan.answers if a.support.ok}
    assert {"cross_country", "while_loop"} <= willing
    assert len(plan.problem.ops) == ops
    assert f"{ops} ops between" in plan.explain()


def planned(y, x):
    tfjac.plan(y, x, batch=True)


def built(y, x):
    tfjac.batch_jacobian(y, x, "cross_country")


@pytest.mark.parametrize("batch", [3, None])
@pytest.mark.parametrize("net", [dense, residual])
@pytest.mark.parametrize("run", [planned, built])
def test_twice_the_depth_takes_twice_the_calls_and_none_go_as_deep(run, net, batch):
    watched(run, net, 10, batch)  # what is done once
    one, two = (watched(run, net, n, batch) for n in (DEEP // 2, DEEP))
    assert two.calls < DOUBLE * one.calls
    assert two.deepest < DEEP


def test_blocks_that_repeat_do_not_add_terms():
    with tf.Graph().as_default():
        steps = []
        for n in (20, 40):
            (plan,) = tfjac.plan(*placed(residual, n), batch=True)
            cost = next(a.cost for a in plan.answers if a.strategy.name == "cross_country")
            steps.append(cost.graph_ops)
    assert steps[1] < DOUBLE * steps[0]


def test_orders_of_products_are_looked_for_once_for_blocks_that_repeat(monkeypatch):
    looked = []
    monkeypatch.setattr(contraction, "_cheapest", counted(contraction._cheapest, looked))
    numbers = []
    for n in (20, 40):
        looked.clear()
        with tf.Graph().as_default():
            tfjac.plan(*placed(dense, n), batch=True)
        numbers.append(len(looked))
    assert numbers[0] == numbers[1] > 0


def counted(function, calls):
    def call(*args):
        calls.append(args)
        return function(*args)

    return call


def test_long_arithmetic_with_sizes_is_followed():
    with tf.Graph().as_default():
        x = tf.compat.v1.placeholder(tf.float32, [None, 4])
        count, number = tf.shape(x)[0], tf.shape(x)[1]
        for _ in range(600):
            count, number = tf.maximum(count, 1) * 1, number + 1 - 1
        y = tf.reshape(tf.sin(x), tf.stack([count, 2, number // 2]))
        found = tfjac.explain_dependence(y, x)
        assert found.independent
        assert tfjac.batch_jacobian(y, x).shape.as_list() == [None, 2, 2, 4]
