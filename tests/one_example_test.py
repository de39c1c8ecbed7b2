"""Of one example there is nothing that could mix: no Jacobian of it is refused for that."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfjac

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(1, 4))
STRATEGIES = ("auto", "unstack", "while_loop", "vectorized", "forward", "cross_country")


def centered(x):
    return tf.sin(x) - tf.reduce_mean(x, 0) * tf.reduce_sum(x)


def turned(x):
    return tf.transpose(tf.reshape(tf.sin(x), [2, 2]))[None]


def differences(fn, x, step=1e-6):
    """Returns the Jacobian of one example by central differences."""
    columns = []
    for k in range(x.size):
        moved = [x.copy(), x.copy()]
        for sign, at in zip((1, -1), moved):
            at.flat[k] += sign * step
        right, left = (fn(tf.constant(at)).numpy() for at in moved)
        columns.append((right - left) / (2 * step))
    return np.stack(columns, -1).reshape(*columns[0].shape, *x.shape[1:])


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("fn", [centered, turned])
def test_a_batch_known_to_be_of_one_is_never_refused(fn, strategy):
    found = tfjac.prepare(fn, batch=True, strategy=strategy)(X)
    np.testing.assert_allclose(found, differences(fn, X), atol=1e-8)


def test_quantities_of_one_example_are_not_refused():
    @tf.function
    def det(x):
        return tfjac.det(centered(x), x, batch=True)

    wanted = np.linalg.det(differences(centered, X)[0])
    np.testing.assert_allclose(det(tf.constant(X)), [wanted], rtol=1e-6)


def test_one_example_is_found_when_it_runs_and_two_are_refused():
    traces = []

    def fn(x):
        traces.append(1)
        return centered(x)

    jac = tfjac.prepare(fn, batch=True, input_signature=[tf.TensorSpec([None, 4], tf.float64)])
    np.testing.assert_allclose(jac(X), differences(centered, X), atol=1e-8)
    count = len(traces)
    other = RANDOM.normal(size=(1, 4))
    np.testing.assert_allclose(jac(other), differences(centered, other), atol=1e-8)
    assert len(traces) == count, "the second call builds nothing"
    with pytest.raises(tfjac.errors.ExamplesMixError, match="one example at a time"):
        jac(np.concatenate([X, other]))
    np.testing.assert_allclose(jac(X), differences(centered, X), atol=1e-8)


def test_two_examples_first_are_refused_and_one_then_is_not():
    signature = [tf.TensorSpec([None, 4], tf.float64)]
    jac = tfjac.prepare(centered, batch=True, input_signature=signature)
    with pytest.raises(tfjac.errors.ExamplesMixError):
        jac(np.concatenate([X, X]))
    np.testing.assert_allclose(jac(X), differences(centered, X), atol=1e-8)


@pytest.mark.parametrize("shape", [(6, 3), (8, 8, 2)])
def test_layers_of_keras_that_squeeze_a_batch_of_one(shape):
    layers = keras.layers
    given = keras.Input(shape)
    if len(shape) == 2:
        made = layers.LSTM(3)(given)
    else:
        made = layers.Conv2D(2, 3, padding="same")(given)
        made = layers.Flatten()(layers.Add()([made, given]))
    model = keras.Model(given, made)
    x = RANDOM.normal(size=(1, *shape)).astype(np.float32)
    found = tfjac.prepare(model, batch=True)(x)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(at := tf.constant(x))
        y = model(at)
    wanted = tape.jacobian(y, at, experimental_use_pfor=False)
    np.testing.assert_allclose(found[0], wanted[0, :, 0], atol=1e-5)
