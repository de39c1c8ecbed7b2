"""Gradients of each example against one tape an example."""

import gc
import weakref

import numpy as np
import pytest
import tensorflow as tf
from scenarios import array

import tfjac
from tfjac.errors import InvalidTypeError, InvalidValueError

layers = tf.keras.layers


class Attention(layers.Layer):
    """One head of attention over the tokens."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (layers.Dense(3, use_bias=False) for _ in range(3))

    def build(self, shape):
        for layer in (self.q, self.k, self.v):
            layer.build(shape)

    def call(self, x):
        weights = tf.nn.softmax(tf.matmul(self.q(x), self.k(x), transpose_b=True))
        return x[..., :1] + weights @ self.v(x)


class Shared(layers.Layer):
    """One weight that is used twice, and transposed."""

    def build(self, shape):
        self.w = self.add_weight(shape=(shape[-1], shape[-1]), initializer="glorot_uniform")

    def call(self, x):
        return tf.tanh(tf.tanh(x @ self.w) @ self.w) @ tf.transpose(self.w)


# name -> layers, shape of one example.
MODELS = {
    "dense": ([layers.Dense(5, "tanh"), layers.Dense(2)], (4,)),
    "dense of tokens": ([layers.Dense(5, "tanh"), layers.Dense(2)], (3, 4)),
    "convolution over time": ([layers.Conv1D(3, 3, padding="same"), layers.Conv1D(2, 2)], (6, 2)),
    "convolution": ([layers.Conv2D(3, 3, 2, activation="tanh"), layers.Flatten()], (7, 7, 2)),
    "dilated convolution": ([layers.Conv2D(2, 2, dilation_rate=2)], (5, 5, 1)),
    "transposed convolution": ([layers.Conv2DTranspose(2, 3, 2)], (3, 3, 2)),
    "depthwise": ([layers.DepthwiseConv2D(3, activation="tanh")], (4, 4, 2)),
    "separable": ([layers.SeparableConv2D(3, 2)], (4, 4, 2)),
    "layer norm": ([layers.Dense(4), layers.LayerNormalization(), layers.Dense(2)], (3,)),
    "group norm": ([layers.GroupNormalization(2)], (3, 4)),
    "batch norm": ([layers.Dense(4), layers.BatchNormalization(), layers.Dense(2)], (3,)),
    "lstm": ([layers.LSTM(3)], (2, 2)),
    "attention": ([Attention()], (3, 3)),
    "shared": ([Shared(), layers.Dense(2)], (3,)),
    "prelu": ([layers.PReLU(alpha_initializer="ones"), layers.Dense(1)], (4,)),
    "dropout": ([layers.Dense(3), layers.Dropout(0.5), layers.Dense(1)], (4,)),
}


def made(name):
    tf.keras.utils.set_random_seed(1)
    members, shape = MODELS[name]
    configs = [
        m if isinstance(m, (Attention, Shared)) else m.__class__.from_config(m.get_config())
        for m in members
    ]
    return tf.keras.Sequential([tf.keras.Input(shape), *configs]), shape


def losses_of(model, x):
    y = tf.tanh(model(x, training=False)) + 0.5
    return tf.reduce_sum(tf.reshape(y, [tf.shape(x)[0], -1]) ** 2, 1)


def by_tapes(losses, xs, x):
    """Returns the gradients of each example, from one tape for each."""
    found = []
    for b in range(len(x)):
        with tf.GradientTape() as tape:
            loss = losses(tf.constant(x[b : b + 1]))[0]
        gradients = tape.gradient(loss, xs, unconnected_gradients="zero")
        found.append([tf.convert_to_tensor(g).numpy() for g in gradients])
    return [np.stack(parts) for parts in zip(*found)]


def check_alike(found, wanted, tolerance=1e-5):
    for a, b in zip(found, wanted):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * max(1, np.abs(b).max()))


def norms_of(gradients):
    return np.sqrt(sum((g.reshape(len(g), -1) ** 2).sum(1) for g in gradients))


# TensorFlow cannot vectorize gradients of some convolutions; the loop in their place is right.
@pytest.mark.filterwarnings("ignore::tfjac.errors.LoopFallbackWarning")
@pytest.mark.parametrize(
    ("name", "examples"),
    [
        *[(name, 3) for name in MODELS],
        *[(name, None) for name in ("dense of tokens", "convolution", "depthwise", "attention")],
    ],
)
def test_gradients_of_examples_are_those_of_a_loop(name, examples):
    model, shape = made(name)
    weights = model.trainable_weights
    x = array(3, *shape).astype(np.float32)

    def body(x):
        losses = losses_of(model, x)
        return (
            tfjac.per_example_gradients(losses, weights),
            tfjac.per_example_gradient_norms(losses, weights),
        )

    spec = tf.TensorSpec([examples, *shape], tf.float32)
    gradients, norms = tf.function(body, autograph=False, input_signature=[spec])(x)
    variables = [w.value for w in weights]
    wanted = by_tapes(lambda x: losses_of(model, x), variables, x)
    check_alike(gradients, wanted)
    np.testing.assert_allclose(norms, norms_of(wanted), rtol=1e-4)


def run(body, *args, **options):
    return tf.function(body, autograph=False, **options)(*args)


def test_rows_of_an_embedding_are_scattered_also_where_one_is_looked_up_twice():
    table, w = tf.Variable(array(6, 3)), tf.Variable(array(3, 2, seed=1))
    ids = np.array([[0, 2, 2], [5, 0, 1], [4, 4, 4]])

    def losses(ids):
        return tf.reduce_sum(tf.tanh(tf.nn.embedding_lookup(table, ids) @ w) ** 2, [1, 2])

    def body(ids):
        found = losses(ids)
        return (
            tfjac.per_example_gradients(found, [table, w]),
            tfjac.per_example_gradient_norms(found, [table, w]),
            tfjac.per_example_gradient_norms(found, table),
        )

    gradients, norms, alone = run(body, ids)
    wanted = by_tapes(losses, [table, w], ids)
    check_alike(gradients, wanted, 1e-12)
    np.testing.assert_allclose(norms, norms_of(wanted), rtol=1e-12)
    np.testing.assert_allclose(alone, norms_of(wanted[:1]), rtol=1e-12)


@pytest.mark.parametrize("examples", [0, 1])
def test_no_example_or_one(examples):
    model, shape = made("dense")
    spec = tf.TensorSpec([None, *shape], tf.float32)

    def body(x):
        losses = losses_of(model, x)
        weights = model.trainable_weights
        return (
            tfjac.per_example_gradients(losses, weights),
            tfjac.per_example_gradient_norms(losses, weights),
        )

    x = array(examples, *shape).astype(np.float32)
    for options in ({}, {"input_signature": [spec]}):
        gradients, norms = run(body, x, **options)
        assert norms.shape == [examples]
        for g, w in zip(gradients, model.trainable_weights):
            assert g.shape == [examples, *w.shape]


def test_structures_unconnected_weights_and_tensors_are_sources():
    w, unused = tf.Variable(array(3, 2)), tf.Variable(array(4))

    def body(x, t):
        losses = tf.reduce_sum(x @ w * t, 1)
        xs = {"w": w, "other": [unused, t]}
        return (
            tfjac.per_example_gradients(losses, xs),
            tfjac.per_example_gradient_norms(losses, xs),
            tfjac.per_example_gradient_norms(losses, unused),
        )

    x, t = array(5, 3, seed=1), array(2, seed=2)
    found, norms, zero = run(body, x, t)
    np.testing.assert_allclose(found["w"], np.einsum("bi,j->bij", x, t))
    np.testing.assert_array_equal(found["other"][0], np.zeros((5, 4)))
    np.testing.assert_allclose(found["other"][1], x @ w.numpy())
    wanted = np.sqrt((found["w"].numpy() ** 2).sum((1, 2)) + ((x @ w.numpy()) ** 2).sum(1))
    np.testing.assert_allclose(norms, wanted)
    np.testing.assert_array_equal(zero, np.zeros(5))


def test_losses_that_see_other_examples_have_the_gradient_of_each_loss():
    w = tf.Variable(array(3, 2))

    def losses(x):
        h = x @ w
        return tf.reduce_sum(tf.tanh(h - tf.reduce_mean(h**2, 0)), 1)

    x = array(4, 3, seed=1)
    found = run(lambda x: tfjac.per_example_gradients(losses(x), w), x)
    with tf.GradientTape() as tape:
        value = losses(tf.constant(x))
    np.testing.assert_allclose(found, tape.jacobian(value, w), atol=1e-12)


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float64])
def test_the_dtype_is_that_of_the_losses(dtype):
    w = tf.Variable(tf.cast(array(3, 2), dtype))

    def body(x):
        losses = tf.reduce_sum(tf.tanh(x @ w), 1)
        return tfjac.per_example_gradients(losses, w), tfjac.per_example_gradient_norms(losses, w)

    x = tf.cast(array(4, 3, seed=1), dtype)
    gradients, norms = run(body, x)
    assert gradients.dtype == norms.dtype == dtype
    wanted = norms_of([tf.cast(gradients, tf.float64).numpy()])
    np.testing.assert_allclose(tf.cast(norms, tf.float64), wanted, rtol=5e-2)


def test_norms_of_half_floats_do_not_overflow_before_the_root():
    w = tf.Variable(tf.zeros([3, 2], tf.float16))

    def body(x):
        return tfjac.per_example_gradient_norms(tf.reduce_sum(x @ w, 1), w)

    found = run(body, tf.fill([2, 3], tf.constant(300.0, tf.float16)))
    np.testing.assert_allclose(tf.cast(found, tf.float32), 300 * np.sqrt(6), rtol=1e-3)


def test_a_bad_example_leaves_the_others_as_they_are():
    model, shape = made("dense")
    x = array(3, *shape).astype(np.float32)
    bad = x.copy()
    bad[1, 0] = np.nan

    def body(x):
        losses = losses_of(model, x)
        weights = model.trainable_weights
        found = tfjac.per_example_gradients(losses, weights)
        return [*found, tfjac.per_example_gradient_norms(losses, weights)]

    for a, b in zip(run(body, x), run(body, bad)):
        np.testing.assert_allclose(b.numpy()[[0, 2]], a.numpy()[[0, 2]], rtol=1e-5)


def test_the_norm_is_differentiable_where_it_is_zero_too():
    w = tf.Variable(array(3, 2))

    def body(x):
        norms = tfjac.per_example_gradient_norms(tf.reduce_sum((x @ w) ** 2, 1), w)
        return norms, tf.gradients(tf.reduce_sum(norms), w)[0]

    x = array(2, 3, seed=1)
    x[0] = 0
    for jit_compile in (False, True):
        norms, gradient = run(body, x, jit_compile=jit_compile)
        assert norms[0] == 0 and np.all(np.isfinite(gradient))
        h = x[1] @ w.numpy()
        wanted = 2 * np.linalg.norm(x[1]) * np.outer(x[1], h) / np.linalg.norm(h)
        np.testing.assert_allclose(gradient, wanted, rtol=1e-10)


def test_it_works_in_a_session():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.compat.v1.placeholder(tf.float64, [None, 3])
        w = tf.compat.v1.get_variable("w", initializer=array(3, 2), use_resource=True)
        found = tfjac.per_example_gradients(tf.reduce_sum(x @ w, 1), w)
        session.run(tf.compat.v1.global_variables_initializer())
        value = session.run(found, {x: array(4, 3, seed=1)})
    np.testing.assert_allclose(value, np.repeat(array(4, 3, seed=1)[:, :, None], 2, 2))


def test_misuse_is_refused():
    w = tf.Variable(array(3, 2))
    x = array(4, 3)
    for call in (tfjac.per_example_gradients, tfjac.per_example_gradient_norms):
        for bad in (lambda x: tf.reduce_sum(x @ w), lambda x: x @ w):
            with pytest.raises(InvalidValueError, match="losses"):
                run(lambda x, c=call, b=bad: c(b(x), w), x)
        with pytest.raises(InvalidTypeError, match="prepare|graph"):
            call(tf.constant(x[:, 0]), w)
        with pytest.raises((InvalidTypeError, InvalidValueError)):
            run(lambda x, c=call: c(tf.reduce_sum(x @ w, 1), tf.constant([1, 2])), x)


def test_asking_twice_adds_no_op_and_nothing_keeps_a_dead_graph_alive():
    def build():
        with tf.Graph().as_default() as graph:
            x = tf.compat.v1.placeholder(tf.float64, [None, 3])
            w = tf.compat.v1.placeholder(tf.float64, [3, 2])
            losses = tf.reduce_sum(tf.tanh(x @ w), 1)

            def ask():
                gradients = tfjac.per_example_gradients(losses, [w])
                return [*gradients, tfjac.per_example_gradient_norms(losses, [w])]

            first = ask()
            ops = len(graph.get_operations())
            assert all(a is b for a, b in zip(first, ask()))
            assert len(graph.get_operations()) == ops
        return weakref.ref(graph)

    alive = build()
    gc.collect()
    assert alive() is None
