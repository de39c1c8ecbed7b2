"""Functions that are called: each op of theirs is seen as if it were written in their place."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfjac
from tfjac import planning
from tfjac.strategies import base

SIZES = (12, 3, 12)


def _weights():
    rng = np.random.default_rng(0)
    return [tf.constant(rng.normal(size=s) / 3.0) for s in zip(SIZES, SIZES[1:])]


def _net(x):
    for w in _weights():
        x = tf.tanh(x @ w)
    return x


def _oracle(x):
    """The Jacobian of the net in NumPy, example by example."""
    values, jacobian = np.asarray(x), None
    for w in _weights():
        values = np.tanh(values @ w)
        local = (1 - values**2)[:, :, None] * w.numpy().T
        jacobian = local if jacobian is None else local @ jacobian
    return jacobian


class _Layer(tf.Module):
    def __init__(self, jit_compile):
        self.w = tf.Variable(_weights()[0])
        self.b = tf.Variable(_weights()[1])
        self._jit_compile = jit_compile
        self.call = tf.function(self._called, jit_compile=jit_compile or None)

    def _called(self, x):
        return tf.tanh(tf.tanh(x @ self.w) @ self.b)

    def __call__(self, x):
        return self.call(x)


def _nested(x):
    inner = tf.function(lambda x: tf.tanh(x @ _weights()[0]), jit_compile=True)
    return tf.function(lambda x: tf.tanh(inner(x) @ _weights()[1]))(x)


FORMS = {
    "function": tf.function(_net),
    "compiled": tf.function(_net, jit_compile=True),
    "layer": _Layer(False),
    "compiled layer": _Layer(True),
    "nested": _nested,
    "several outputs": lambda x: tf.function(lambda x: (x, _net(x)))(x)[1],
}
X = np.random.default_rng(1).normal(size=(4, SIZES[0]))


def _plan(fn, batch=4):
    plans = []

    def traced(x):
        plans.extend(tfjac.plan(fn(x), x, batch=True))

    spec = tf.TensorSpec([batch, SIZES[0]], tf.float64)
    tf.function(traced, autograph=False).get_concrete_function(spec)
    return plans[0]


def _types(plan):
    """What is between, without what passes on what a function returns."""
    return [op.type for op in plan.problem.ops if op.type not in ("Identity", "ReadVariableOp")]


@pytest.mark.parametrize("batch", [4, None])
@pytest.mark.parametrize("form", FORMS)
def test_a_call_is_planned_as_what_it_calls(form, batch):
    plan, inline = _plan(FORMS[form], batch), _plan(_net, batch)
    assert plan.strategy.name == "cross_country" == inline.strategy.name
    assert _types(plan) == _types(inline)


@pytest.mark.parametrize("strategy", ["auto", *tfjac.strategies.names()])
@pytest.mark.parametrize("form", FORMS)
def test_the_jacobian_of_a_call_is_that_of_what_it_calls(form, strategy):
    if strategy == "structural":
        pytest.skip("takes no product of matrices")
    jac = tfjac.prepare(FORMS[form], batch=True, strategy=strategy)
    np.testing.assert_allclose(jac(tf.constant(X)), _oracle(X), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_variable_that_a_called_function_reads_is_a_source(jit_compile):
    layer = _Layer(jit_compile)
    with tf.Graph().as_default():
        graph_layer = _Layer(jit_compile)
        x = tf.constant(X)
        found = tfjac.jacobian(graph_layer(x), graph_layer.w)
        with tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.global_variables_initializer())
            jacobian = session.run(found)
    step = 1e-6
    for entry in ((0, 0), (7, 2)):
        change = np.zeros(layer.w.shape)
        change[entry] = step
        ends = []
        for sign in (1, -1):
            layer.w.assign(_weights()[0] + sign * change)
            ends.append(layer(tf.constant(X)).numpy())
        expected = (ends[0] - ends[1]) / (2 * step)
        np.testing.assert_allclose(jacobian[(..., *entry)], expected, rtol=1e-6, atol=1e-8)


def test_what_was_assigned_since_is_not_read_again():
    w = tf.Variable(_weights()[0])
    called = tf.function(lambda x: tf.tanh(x @ w))

    @tf.function
    def step(x):
        y = called(x)
        before = tfjac.batch_jacobian(y, x)  # now it is known that the call may be copied
        w.assign(10.0 * w)
        return before, tfjac.jacobian(2.0 * y, w)  # of another target, copied anew if at all

    value = np.tanh(X @ _weights()[0].numpy())
    before, by_weights = step(tf.constant(X))
    local = (1 - value**2)[:, :, None] * _weights()[0].numpy().T
    np.testing.assert_allclose(before, local, rtol=1e-9)
    expected = np.einsum("bi,bj,ik->bijk", 2 * (1 - value**2), X, np.eye(3))
    np.testing.assert_allclose(by_weights, expected, rtol=1e-9, atol=1e-12)


def test_a_loaded_model_is_seen_through(tmp_path):
    layer = _Layer(False)
    spec = tf.TensorSpec([None, SIZES[0]], tf.float64)
    tf.saved_model.save(layer, str(tmp_path), layer.call.get_concrete_function(spec))
    loaded = tf.saved_model.load(str(tmp_path))
    served = loaded.signatures["serving_default"]
    for fn in (loaded.call, lambda x: next(iter(served(x=x).values()))):
        jac = tfjac.prepare(fn, batch=True, input_signature=[spec])
        np.testing.assert_allclose(jac(tf.constant(X)), _oracle(X), rtol=1e-9, atol=1e-12)
        assert "strategy: cross_country" in str(jac.explain(tf.constant(X)))


def test_a_gradient_written_by_hand_within_a_call_counts():
    @tf.custom_gradient
    def doubled(x):
        return x, lambda g: 2.0 * g

    @tf.custom_gradient
    def squared(x):
        return x**2, lambda g: 3.0 * x * g

    called = tf.function(lambda x: squared(doubled(x) * 3.0))
    for strategy in ("auto", "unstack", "cross_country"):
        jac = tfjac.prepare(called, strategy=strategy)
        np.testing.assert_allclose(jac(tf.constant([1.0, 2.0])), np.diag([54.0, 108.0]))


@tf.custom_gradient
def _odd(x, k):
    extra = tf.sin(x) * k  # for the gradient alone

    def gradient(g):
        return 3.0 * extra * g, tf.reduce_sum(g * x)

    return x * k, gradient


def _by_hand(x):
    h = tf.nn.silu(x @ _weights()[0])
    return tf.nn.silu(_odd(h @ _weights()[1], tf.constant(2.0, tf.float64)))


@pytest.mark.parametrize("strategy", ["auto", "unstack", "vectorized", "cross_country"])
@pytest.mark.parametrize("jit_compile", [None, True])
def test_gradients_by_hand_that_read_the_called_function(strategy, jit_compile):
    called = tf.function(_by_hand, jit_compile=jit_compile)
    jac = tfjac.prepare(called, batch=True, strategy=strategy)
    # By the rules that were written: of silu the true one, of the other as above.
    first, second = _weights()
    a = X @ first.numpy()

    def silu(z):
        return z / (1 + np.exp(-z))

    def slope(z):
        s = 1 / (1 + np.exp(-z))
        return s * (1 + z * (1 - s))

    b = silu(a) @ second.numpy()
    diagonal = slope(2 * b) * 3.0 * 2.0 * np.sin(b)
    expected = np.einsum("bi,ji,bj,kj->bik", diagonal, second.numpy(), slope(a), first.numpy())
    np.testing.assert_allclose(jac(tf.constant(X)), expected, rtol=1e-9, atol=1e-12)


def test_gradients_by_hand_of_gradients_by_hand():
    x = tf.constant(X)
    for fn in (
        lambda net, x: tfjac.hessian(tf.reduce_sum(net(x)), x),
        lambda net, x: tf.gradients(tf.reduce_sum(tfjac.batch_jacobian(net(x), x) ** 2), x)[0],
    ):
        found, expected = (
            tf.function(lambda x, net=net, fn=fn: fn(net, x))(x)
            for net in (tf.function(_by_hand), _by_hand)
        )
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_an_argument_that_is_returned_as_it_is():
    called = tf.function(lambda x, w: (w, x), jit_compile=True)
    jac = tfjac.prepare(lambda x: called(x, tf.ones([3]))[1] * 2.0)
    np.testing.assert_allclose(jac(tf.constant([1.0, 2.0, 3.0])), 2.0 * np.eye(3))


@pytest.mark.parametrize("strategy", ["auto", "while_loop", "vectorized", "cross_country"])
def test_a_loop_within_a_called_function(strategy):
    w = _weights()[0] @ _weights()[1]

    @tf.function
    def called(x):
        return tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, tf.tanh(x @ w)), (0, x))[1]

    inline = x = tf.constant(X)
    expected = None
    for _ in range(3):
        inline = tf.tanh(inline @ w)
        local = (1 - inline.numpy() ** 2)[:, :, None] * w.numpy().T
        expected = local if expected is None else local @ expected
    jac = tfjac.prepare(lambda x: called(2.0 * (0.5 * x)), batch=True, strategy=strategy)
    np.testing.assert_allclose(jac(x), expected, rtol=1e-9, atol=1e-12)
    second = tfjac.prepare(lambda x: tfjac.jacobian(tf.reduce_sum(called(x)), x))
    tape = tf.function(
        lambda x: tf.gradients(tf.gradients(tf.reduce_sum(called(x)), x)[0][0, 0], x)
    )
    np.testing.assert_allclose(second(x)[0, 0], tape(x)[0], rtol=1e-9, atol=1e-12)


def test_what_draws_is_called_and_not_copied():
    @tf.function
    def dropped(x):
        return tf.nn.dropout(tf.tanh(x), 0.5)

    @tf.function
    def both(x):
        y = dropped(x)
        return y, tfjac.batch_jacobian(y, x)

    x = tf.random.stateless_uniform([4, 5], [1, 2], 0.5, 1.0)
    y, jacobian = both(x)
    kept = np.asarray(y) != 0
    np.testing.assert_array_equal(np.asarray(tf.linalg.diag_part(jacobian)) != 0, kept)
    assert 0 < kept.sum() < kept.size


def test_what_only_xla_can_run_stays_compiled():
    w = tf.random.stateless_normal([2, 2, 3, 4], [1, 2])
    called = tf.function(
        lambda x: tf.nn.conv2d(x, w, 1, "VALID", data_format="NCHW"), jit_compile=True
    )

    def by_last_channel(x):
        y = tf.nn.conv2d(tf.transpose(x, [0, 2, 3, 1]), w, 1, "VALID")
        return tf.transpose(y, [0, 3, 1, 2])

    x = tf.random.stateless_normal([2, 3, 4, 4], [3, 4])
    found, expected = (tfjac.prepare(f, batch=True)(x) for f in (called, by_last_channel))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_grouped_convolutions_of_keras_are_seen_through():
    layer = keras.layers.Conv2D(6, 3, groups=3, padding="same")
    layer.build([None, 5, 5, 6])
    jac = tfjac.prepare(
        layer, batch=True, input_signature=[tf.TensorSpec([None, 5, 5, 6], tf.float32)]
    )
    x = tf.random.stateless_normal([2, 5, 5, 6], [1, 2])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = layer(x)
    expected = tape.batch_jacobian(y, x, experimental_use_pfor=False)
    np.testing.assert_allclose(jac(x), expected, rtol=1e-5, atol=1e-6)
    assert "PartitionedCall" not in str(jac.explain(x))


def test_a_tape_sees_the_jacobian_of_a_call():
    w = tf.Variable(_weights()[0])
    called = tf.function(lambda x: tf.tanh(x @ w) ** 2)

    @tf.function
    def penalty(x):
        with tf.GradientTape() as tape:
            found = tf.reduce_sum(tfjac.batch_jacobian(called(x), x) ** 2)
        return tape.gradient(found, w)

    @tf.function
    def by_hand(x):
        with tf.GradientTape() as tape:
            z = tf.tanh(x @ w)
            found = tf.reduce_sum(((2 * z * (1 - z**2))[:, :, None] * tf.transpose(w)) ** 2)
        return tape.gradient(found, w)

    x = tf.constant(X)
    np.testing.assert_allclose(penalty(x), by_hand(x), rtol=1e-9)


@pytest.mark.parametrize("chunk_size", [1, 2, 3, 5])
def test_a_call_that_is_carried_in_chunks(monkeypatch, chunk_size):
    monkeypatch.setattr(base, "chunk_size_at_run_time", lambda *_: chunk_size)
    drawn = tf.function(lambda x: tf.tanh(x + 0 * tf.random.uniform([], dtype=x.dtype)))

    def fn(x):
        first, second = _weights()
        return tf.tanh(drawn(x @ first) @ second)

    jac = tfjac.prepare(fn, batch=True, strategy="cross_country")
    np.testing.assert_allclose(jac(tf.constant(X)), _oracle(X), rtol=1e-9, atol=1e-12)


def test_the_next_best_is_the_next_of_the_ranking():
    plan = _plan(lambda x: tf.tanh(x + 0 * tf.random.uniform([], dtype=x.dtype)) * 2.0)
    assert planning.best([plan], 1) == [plan.strategy.name]
