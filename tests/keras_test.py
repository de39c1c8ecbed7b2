"""The penalty for Keras models: in every way that Keras trains, saved and loaded."""

import numpy as np
import pytest
import tensorflow as tf
from maps import blocks_of
from scenarios import array

import tfjac.keras
from tfjac.errors import ExamplesMixError, InvalidValueError

layers = tf.keras.layers
KINDS = {
    "contractive": {},
    "spectral": {},
    "determinant": {},
    "contractive with probes": {"probes": 2},
    "spectral with iterations": {"iterations": 3},
}


def inner_net():
    tf.keras.utils.set_random_seed(1)
    members = [layers.Dense(5, "tanh"), layers.Dense(3)]
    return tf.keras.Sequential([tf.keras.Input([3]), *members])


def penalized(kind="contractive", weight=1.0, inner=None):
    return tfjac.keras.JacobianPenalty(
        inner or inner_net(), kind.split(" ")[0], weight, **KINDS[kind]
    )


X = array(8, 3).astype(np.float32)


def penalty_of(matrices, kind):
    if kind == "contractive":
        return (matrices**2).sum((1, 2)).mean()
    if kind == "spectral":
        return (np.linalg.norm(matrices, 2, (1, 2)) ** 2).mean()
    return ((np.abs(np.linalg.det(matrices)) - 1) ** 2).mean()


@pytest.mark.parametrize("kind", ["contractive", "spectral", "determinant"])
def test_the_loss_added_is_the_weighted_mean_of_the_penalty(kind):
    inner = inner_net()
    layer = penalized(kind, 0.5, inner)
    y = layer(X, training=True)
    np.testing.assert_allclose(y, inner(X), atol=1e-6)
    weights = [w.numpy().astype(np.float64) for w in inner.weights]

    def exact(x):
        return np.tanh(np.asarray(x) @ weights[0] + weights[1]) @ weights[2] + weights[3]

    wanted = 0.5 * penalty_of(blocks_of(exact, X.astype(np.float64)), kind)
    assert len(layer.losses) == 1
    np.testing.assert_allclose(layer.losses[0], wanted, rtol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_added_while_it_infers(kind):
    inner = inner_net()
    layer = penalized(kind, inner=inner)
    for y in (layer(X), layer(X, training=False)):
        np.testing.assert_allclose(y, inner(X), atol=1e-6)
        assert not layer.losses
    assert not tf.function(lambda x: [layer(x, training=False), layer.losses])(X)[1]


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        *[(kind, {}) for kind in KINDS],
        *[("determinant", how) for how in ({"jit_compile": True}, {"run_eagerly": True})],
        *[("contractive with probes", {"jit_compile": True})],
        *[("spectral with iterations", {"run_eagerly": True})],
    ],
)
def test_fitting_with_the_penalty_lowers_it(kind, how):
    layer = penalized(kind)
    model = tf.keras.Sequential([tf.keras.Input([3]), layer])
    # The target is what the model gives anyway, so that only the penalty moves the weights.
    model.compile(tf.keras.optimizers.SGD(0.05), lambda y, p: 0.0 * tf.reduce_sum(p), **how)
    before = [w.numpy() for w in model.trainable_weights]
    history = model.fit(X, X, epochs=6, verbose=0, batch_size=8, shuffle=False)
    losses = history.history["loss"]
    assert np.all(np.isfinite(losses))
    assert losses[-1] < losses[0] or losses[-1] < 1e-3
    assert any(np.any(a != b.numpy()) for a, b in zip(before, model.trainable_weights))


def test_a_last_batch_that_is_smaller_is_fitted_and_evaluation_has_no_penalty():
    model = tf.keras.Sequential([tf.keras.Input([3]), penalized(weight=100.0)])
    model.compile("sgd", "mse")
    model.fit(X, X, batch_size=3, verbose=0)
    plain = np.mean((model.predict(X, verbose=0) - X) ** 2)
    np.testing.assert_allclose(model.evaluate(X, X, verbose=0), plain, rtol=1e-5)


def test_mixed_precision_is_trained():
    policy = tf.keras.mixed_precision.global_policy()
    tf.keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        model = tf.keras.Sequential([tf.keras.Input([3]), penalized()])
        model.compile("sgd", "mse")
        history = model.fit(X, X, epochs=3, verbose=0)
    finally:
        tf.keras.mixed_precision.set_global_policy(policy)
    losses = history.history["loss"]
    assert np.all(np.isfinite(losses)) and losses[-1] < losses[0]


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_saved_and_loaded(kind, tmp_path):
    model = tf.keras.Sequential([tf.keras.Input([3]), penalized(kind, 0.25)])
    model.compile("sgd", "mse")
    model.fit(X, X, verbose=0)
    path = tmp_path / "model.keras"
    model.save(path)
    loaded = tf.keras.models.load_model(path)
    np.testing.assert_allclose(loaded(X), model(X), atol=1e-6)
    before, after = model.layers[-1], loaded.layers[-1]
    configs = [{**layer.get_config(), "inner": None} for layer in (before, after)]
    assert configs[0] == configs[1]
    before(X, training=True), after(X, training=True)
    if kind in ("contractive", "spectral", "determinant"):
        np.testing.assert_allclose(before.losses[0], after.losses[0], rtol=1e-4)
    loaded.fit(X, X, verbose=0)


def test_batch_normalization_within_is_refused_while_training_only():
    inner = tf.keras.Sequential([tf.keras.Input([3]), layers.Dense(3), layers.BatchNormalization()])
    layer = tfjac.keras.JacobianPenalty(inner)
    layer(X, training=False)
    with pytest.raises(ExamplesMixError):
        layer(X, training=True)
    with pytest.raises(ExamplesMixError):
        tf.function(lambda x: layer(x, training=True))(X)


def test_it_wraps_one_layer_and_sits_within_a_functional_model():
    x = tf.keras.Input([4, 2])
    h = tfjac.keras.JacobianPenalty(layers.Dense(2, "tanh"), weight=0.1, name="smooth")(x)
    model = tf.keras.Model(x, layers.Flatten()(h))
    model.compile("sgd", "mse")
    history = model.fit(np.ones([6, 4, 2]), np.ones([6, 8]), verbose=0)
    assert np.isfinite(history.history["loss"][0])
    assert len(model.trainable_weights) == 2
    assert model.get_layer("smooth").name == "smooth"


def test_dropout_within_is_drawn_once_for_the_value_and_the_penalty():
    tf.keras.utils.set_random_seed(1)
    inner = tf.keras.Sequential([tf.keras.Input([50]), layers.Dropout(0.5)])
    layer = tfjac.keras.JacobianPenalty(inner)
    y = layer(tf.ones([1, 50]), training=True)
    np.testing.assert_allclose(layer.losses[0], np.sum(y.numpy() ** 2), rtol=1e-5)


def test_probes_are_drawn_anew_at_each_step():
    layer = penalized("contractive with probes")
    call = tf.function(lambda x: (layer(x, training=True), layer.losses[0]))
    assert len({float(call(X)[1]) for _ in range(4)}) > 1


def test_misuse_is_refused():
    for options in ({"penalty": "sparse"}, {"penalty": "spectral", "probes": 2}):
        with pytest.raises(InvalidValueError):
            tfjac.keras.JacobianPenalty(inner_net(), **options)
    for options in ({"iterations": 2}, {"penalty": "determinant", "probes": 1}, {"probes": 0}):
        with pytest.raises(InvalidValueError):
            tfjac.keras.JacobianPenalty(inner_net(), **options)
    narrow = tfjac.keras.JacobianPenalty(layers.Dense(2), "determinant")
    with pytest.raises(InvalidValueError, match="square"):
        narrow(X, training=True)
