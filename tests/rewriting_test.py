"""Ops whose derivatives in TensorFlow are wrong, missing or right only once: ours are right."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfjac

pytestmark = pytest.mark.filterwarnings("ignore::tfjac.errors.LoopFallbackWarning")

_RNG = np.random.default_rng(11)


def drawn(*shape):
    return _RNG.normal(size=shape)


def constant(*shape):
    return tf.constant(drawn(*shape))


def _layer(make, shape):
    layer = make(dtype="float64")
    layer.build(shape)
    for weight in layer.trainable_weights:
        weight.assign(drawn(*weight.shape))
    return layer


def _affine(interpolation, fill_mode, by="images"):
    images = tf.constant(drawn(2, 4, 5, 2))
    matrix = np.array([[0.68, -0.08, 0.54, 0.25, 0.72, -0.34, 0.01, -0.02]])
    matrices = np.concatenate([matrix, [[1.36, 0.42, -1.57, -0.51, 1.11, 1.19, 0.0, 0.03]]])

    def transformed(images, transforms):
        return tf.raw_ops.ImageProjectiveTransformV3(
            images=images,
            transforms=tf.cast(transforms, tf.float32),
            output_shape=[3, 6],
            fill_value=0.5,
            interpolation=interpolation,
            fill_mode=fill_mode,
        )

    if by == "images":
        return lambda x: transformed(x, matrices), images.numpy()
    return lambda t: transformed(images, t), matrices


def _complex(fn, *shape):
    """Returns a function of real and imaginary parts that gives both of a complex function."""

    def of_parts(x):
        z = fn(tf.complex(x[0], x[1]))
        return tf.stack([tf.math.real(z), tf.math.imag(z)])

    x = drawn(2, *shape)
    return of_parts, x + 2 * np.eye(shape[-1]) if len(shape) > 1 else x


def _labels_and_logits():
    def loss(x):
        labels, logits = tf.split(x, 2, 1)
        return tf.nn.softmax_cross_entropy_with_logits(labels, logits)

    labels = np.abs(drawn(2, 3))
    return loss, np.concatenate([labels / labels.sum(1, keepdims=True), drawn(2, 3)], 1)


NORM = _layer(lambda **k: tf.keras.layers.LayerNormalization(epsilon=0.1, **k), (None, 4))
GROUPS = _layer(lambda **k: tf.keras.layers.GroupNormalization(2, epsilon=0.1, **k), (None, 4))
BATCH = _layer(lambda **k: tf.keras.layers.BatchNormalization(epsilon=0.1, **k), (None, 3))
WEIGHT, FILTERS, GROUPED = constant(3, 4), constant(2, 2, 2, 3), constant(2, 2, 1, 4)
ZEROS = np.array([[0.0, 1.5, 0.0, -2.0], [0.7, 0.0, 1.1, 2.0]])
TIES = np.array([[0.5, 0.5, 0.5, -1.0, 0.2]])
HALF = tf.constant([0.5, 1.5], tf.float64)
AROUND_ZERO = np.array([0.0, 0.3, -1.2])

# name -> function of one tensor, in float64; and where.
FUNCTIONS = {
    "layer normalization": (lambda x: NORM(tf.matmul(x, WEIGHT)), drawn(2, 3)),
    "group normalization": (lambda x: GROUPS(tf.matmul(x, WEIGHT)), drawn(2, 3)),
    "batch normalization in training": (lambda x: BATCH(x, training=True), drawn(4, 3)),
    "moments of images": (
        lambda x: tf.nn.batch_normalization(x, *tf.nn.moments(x, [1, 2], keepdims=True),
                                            None, None, 0.1),
        drawn(2, 2, 3, 1),
    ),
    "moments of keras": (
        lambda x: tf.stack(tf.keras.ops.moments(x, axes=1)), drawn(2, 3),
    ),
    "softsign": (lambda x: tf.nn.softsign(tf.matmul(x, WEIGHT)), drawn(2, 3)),
    "xlogy": (lambda x: tf.math.xlogy(x, 2.0 + x**2), np.array([0.0, 0.5, -1.0])),
    "xlog1py": (lambda x: tf.math.xlog1py(x, 1.0 + x**2), np.array([0.0, 0.5, -1.0])),
    "xdivy": (lambda x: tf.math.xdivy(x, 2.0 + x), np.array([0.0, 0.5, -1.0])),
    "cumprod": (lambda x: tf.math.cumprod(x, 1), ZEROS),
    "cumprod from behind, without itself": (
        lambda x: tf.math.cumprod(x, -1, exclusive=True, reverse=True), ZEROS
    ),
    "reduce_prod": (lambda x: tf.reduce_prod(x, 1), ZEROS),
    "reduce_prod of all": (lambda x: tf.reduce_prod(x, keepdims=True), 0.7 + 0 * ZEROS[:, :3]),
    "cumulative_logsumexp": (lambda x: tf.math.cumulative_logsumexp(x, 1), TIES),
    "cumulative_logsumexp from behind": (
        lambda x: tf.math.cumulative_logsumexp(x, 1, reverse=True), TIES
    ),
    "cross entropy by labels and logits": _labels_and_logits(),
    "response normalization": (
        lambda x: tf.raw_ops.LRN(
            input=x, depth_radius=1, bias=1.0, alpha=0.5, beta=0.75
        ),
        drawn(1, 1, 2, 4).astype(np.float32),
    ),
    "grouped convolution": (lambda x: tf.nn.conv2d(x, GROUPED, 1, "VALID"), drawn(2, 3, 4, 2)),
    "dilated convolution": (
        lambda x: tf.nn.conv2d(x, FILTERS, 1, "SAME", dilations=2), drawn(1, 4, 4, 2)
    ),
    "determinant of complex": _complex(tf.linalg.det, 2, 3, 3),
    "sign of a complex determinant": _complex(lambda z: tf.linalg.slogdet(z)[0], 2, 2, 2),
    "logarithm of a complex determinant": _complex(lambda z: tf.linalg.slogdet(z)[1], 2, 2, 2),
    "cumprod of complex": _complex(lambda z: tf.math.cumprod(z, 0), 3),
    "bessel_i0": (tf.math.bessel_i0, AROUND_ZERO),
    "bessel_i1": (tf.math.bessel_i1, AROUND_ZERO),
    "bessel_j0": (tf.math.special.bessel_j0, AROUND_ZERO),
    "bessel_j1": (tf.math.special.bessel_j1, AROUND_ZERO),
    "spence": (tf.math.special.spence, 1.0 + AROUND_ZERO[:2]),
    "igamma and igammac": (
        lambda x: tf.math.igamma(HALF, x * x) + tf.math.igammac(2.0 * HALF[:, None], x),
        np.array([1.4, 0.9]),
    ),
    "segment_prod": (
        lambda x: tf.ensure_shape(tf.math.segment_prod(x, [0, 0, 2]), [3]),
        ZEROS.reshape(-1)[:3],
    ),
    "unsorted_segment_prod": (
        lambda x: tf.math.unsorted_segment_prod(x, [[1, -1, 1, 1], [3, 1, 3, 0]], 4), ZEROS
    ),
    "dynamic_stitch with an index repeated": (
        lambda x: tf.dynamic_stitch([[0, 1], [2, 1]], [x**2, x**3]), drawn(2, 2)
    ),
    "gather_nd by one index": (lambda x: tf.gather_nd(x**2, [1]), drawn(3, 2)),
    "gather of a TensorArray with an index repeated": (
        lambda x: tf.TensorArray(tf.float64, 3).unstack(x**2).gather([2, 0, 2]), drawn(3, 2)
    ),
    "segment_mean with an empty segment": (
        lambda x: tf.ensure_shape(tf.math.segment_mean(x**2, [0, 2, 2]), [3, 2]), drawn(3, 2)
    ),
    "unsorted_segment_max with an empty segment": (
        lambda x: tf.math.unsorted_segment_max(x**2, [0, 2, 2], 3)[::2], drawn(3, 2)
    ),
    "sparse segments with none at the end": (
        lambda x: tf.sparse.segment_sqrt_n(x**2, [0, 2, 0], [0, 2, 2], 5), drawn(3, 2)
    ),
    "euclidean norm": (
        lambda x: tf.raw_ops.EuclideanNorm(input=x, axis=[1], keep_dims=True), drawn(2, 3)
    ),
    "power 0 and 1 at zero": (lambda x: x**0.0 + x**1.0 * x, AROUND_ZERO),
    "multiply_no_nan of complex": _complex(lambda z: tf.math.multiply_no_nan(z, z * z), 3),
    "squared difference of complex": _complex(
        lambda z: tf.math.squared_difference(z * z, 2.0 * z), 3
    ),
    "xlogy of complex": _complex(lambda z: tf.math.xlogy(z, 2.0 + z * z), 3),
}  # fmt: skip
for _interpolation in ("NEAREST", "BILINEAR"):
    for _fill_mode in ("CONSTANT", "REFLECT", "WRAP", "NEAREST"):
        FUNCTIONS[f"affine {_interpolation} {_fill_mode}"] = _affine(_interpolation, _fill_mode)
FUNCTIONS["affine by the transforms"] = _affine("BILINEAR", "CONSTANT", "transforms")

_SINGLE = ("response normalization", "affine by the transforms")
# Linear in what they are differentiated by.
_LINEAR = [n for n in FUNCTIONS if n.startswith("affine ") and "transforms" not in n]
STRATEGIES = [name for name in tfjac.strategies.names() if name != "structural"]


def tolerance(name, order):
    if name in _LINEAR:  # whose kernel multiplies in single precision
        return 1e-6
    return {1: 3e-3, 2: 3e-2}[order] if name in _SINGLE else {1: 1e-7, 2: 1e-5}[order]


def differences(fn, x, h):
    """Returns the Jacobian of a NumPy function by central differences of fourth order."""
    columns = []
    for k in range(x.size):
        step = np.zeros(x.size)
        step[k] = h
        step = step.reshape(x.shape)

        def at(t, step=step):
            return np.asarray(fn((x + t * step).astype(x.dtype)), np.float64)

        columns.append((8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * h))
    return np.stack(columns, -1).reshape(*columns[0].shape, *x.shape)


def jacobian_by_differences(name, x):
    fn = FUNCTIONS[name][0]
    step = 1.0 if name in _LINEAR else 2e-3 if name in _SINGLE else 1e-3
    return differences(lambda v: fn(tf.constant(v)).numpy(), x, step)


def check_close(found, wanted, tolerance):
    scale = max(1.0, np.abs(wanted).max(initial=0.0))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_first_derivative_is_that_by_differences(name, strategy):
    fn, x = FUNCTIONS[name]
    found = tf.function(lambda x: tfjac.jacobian(fn(x), x, strategy), autograph=False)
    check_close(found(tf.constant(x)).numpy(), jacobian_by_differences(name, x), tolerance(name, 1))


def weighted(name, x):
    """Returns a scalar that is not linear in what the function gives."""
    y = FUNCTIONS[name][0](x)
    weights = np.random.default_rng(3).normal(size=y.shape)
    return tf.reduce_sum(tf.cast(weights, y.dtype) * y * (1 + 0.5 * y))


def hessian_by_differences(name, x):
    def gradient(v):
        value = lambda u: weighted(name, tf.constant(u)).numpy()  # noqa: E731
        return differences(value, v, 1e-2)

    return differences(gradient, x, 1e-2)


# Where the first gradient is wrong, or a quotient by zero that is then passed over, what a tape of
# TensorFlow gives is not what can be differentiated.
_WRONG_ONCE = (
    *("xlogy", "xlog1py", "xdivy", "cumprod", "determinant", "sign of", "logarithm of"),
    *("bessel_i1", "bessel_j1", "spence", "segment_prod", "unsorted_segment_prod"),
    *("segment_mean", "gather of a TensorArray", "dynamic_stitch", "gather_nd", "power 0"),
    *("multiply_no_nan", "squared difference", "unsorted_segment_max"),
)
_TWICE = [n for n in FUNCTIONS if n not in _SINGLE and n not in _LINEAR]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", _TWICE)
def test_the_second_derivative_is_that_by_differences(name, strategy):
    x = FUNCTIONS[name][1]
    wanted = hessian_by_differences(name, x)

    @tf.function(autograph=False)
    def ours(x):
        return tfjac.hessian(weighted(name, x), x, strategy)

    @tf.function(autograph=False)
    def of_a_tape(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = weighted(name, x)
        return tfjac.jacobian(tape.gradient(y, x), x, strategy)

    check_close(ours(tf.constant(x)).numpy(), wanted, tolerance(name, 2))
    if not name.startswith(_WRONG_ONCE):
        check_close(of_a_tape(tf.constant(x)).numpy(), wanted, tolerance(name, 2))


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", _TWICE)
def test_a_tape_differentiates_a_penalty_on_the_jacobian(name, strategy):
    x = FUNCTIONS[name][1]

    @tf.function(autograph=False)
    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            penalty = tf.reduce_sum(tfjac.jacobian(FUNCTIONS[name][0](x), x, strategy) ** 2)
        return tape.gradient(penalty, x, unconnected_gradients="zero")

    wanted = differences(lambda v: np.sum(jacobian_by_differences(name, v) ** 2), x, 1e-2)
    check_close(gradient(tf.constant(x)).numpy(), wanted, 10 * tolerance(name, 2))


def fused(x, is_training):
    """Returns normalized images, mean and variance of rows of images, scale, offset and the two."""
    images, rest = tf.reshape(x[:12], [3, 1, 2, 2]), tf.reshape(x[12:], [4, 2])
    mean, variance = ([], []) if is_training else (rest[2], rest[3])
    return tf.concat([
        tf.reshape(t, [-1])
        for t in tf.raw_ops.FusedBatchNormV3(
            x=images, scale=rest[0], offset=rest[1], mean=mean, variance=variance,
            epsilon=0.1, is_training=is_training,
        )[:3 if is_training else 1]
    ], 0)  # fmt: skip


def normalized(x, is_training):
    """Returns the same in NumPy."""
    images, rest = x[:12].reshape(6, 2), x[12:].reshape(4, 2)
    mean, variance = (images.mean(0), images.var(0)) if is_training else rest[2:]
    y = (images - mean) / np.sqrt(variance + 0.1) * rest[0] + rest[1]
    return np.concatenate([y.ravel(), *((mean, variance * 6 / 5) if is_training else ())])


@pytest.mark.parametrize("is_training", [True, False])
def test_batch_normalization_has_the_derivatives_of_its_formula(is_training):
    x = np.abs(drawn(20)) + 0.3
    jacobian = differences(lambda v: normalized(v, is_training), x, 1e-3)
    single = tf.constant(x, tf.float32)
    found = tf.function(lambda x: tfjac.jacobian(fused(x, is_training), x), autograph=False)
    check_close(found(single).numpy(), jacobian, 3e-5)
    weights = np.random.default_rng(3).normal(size=jacobian.shape[0])

    @tf.function(autograph=False)
    def hessian(x):
        return tfjac.hessian(tf.reduce_sum(fused(x, is_training) ** 2 * weights), x)

    def gradient(v):
        return differences(lambda w: np.sum(normalized(w, is_training) ** 2 * weights), v, 1e-2)

    check_close(hessian(single).numpy(), differences(gradient, x, 1e-2), 1e-3)


def _bessel_series(x, sign, order):
    """Returns I or J of an order around zero by its series."""
    factorial = np.cumprod([1.0, *range(1, 20)])
    return sum(
        sign**k * (x / 2) ** (2 * k + order) / factorial[k] / factorial[k + order]
        for k in range(12)
    )


@pytest.mark.parametrize("sign", [1, -1])
def test_third_derivatives_of_bessel_functions_at_zero_are_those_of_their_series(sign):
    function = tf.math.bessel_i1 if sign == 1 else tf.math.special.bessel_j1

    @tf.function(autograph=False)
    def third(x):
        y = function(x)
        for _ in range(3):
            y = tfjac.vjp(y, x, tf.ones_like(y))
        return y

    h = 0.01
    f = lambda x: _bessel_series(x, sign, 1)  # noqa: E731
    wanted = (f(2 * h) - 2 * f(h) + 2 * f(-h) - f(-2 * h)) / (2 * h**3)
    np.testing.assert_allclose(third(tf.constant([0.0], tf.float64)), [wanted], rtol=1e-3)


@pytest.mark.parametrize("name", ["reduce_prod", "segment_prod", "power 0 and 1 at zero",
                                  "dynamic_stitch with an index repeated", "softsign"])  # fmt: skip
def test_what_a_function_calls_is_replaced_at_unknown_sizes_too(name):
    fn, x = FUNCTIONS[name]
    signature = [tf.TensorSpec([None, *x.shape[1:]], tf.float64)]
    if name == "segment_prod":
        signature = [tf.TensorSpec(x.shape, tf.float64)]

    @tf.function(autograph=False, input_signature=signature)
    def jacobian(x):
        return tfjac.jacobian(tf.function(fn, autograph=False)(x), x)

    check_close(jacobian(tf.constant(x)).numpy(), jacobian_by_differences(name, x), 1e-7)


# Op type -> function of float64 numbers that has one with a wrong derivative, and a word.
REFUSED = {
    "Zeta": (lambda x: tf.math.zeta(x, tf.constant(2.0, x.dtype)), "input 0 (`x`)"),
    "Betainc": (lambda x: tf.math.betainc(x, x, tf.constant(0.5, x.dtype)), "1 (`b`)"),
    "MatrixSquareRoot": (
        lambda x: tf.math.real(tf.linalg.sqrtm(tf.linalg.diag(tf.complex(x, x)))),
        "complex matrices",
    ),
    "Sign": (lambda x: tf.math.real(tf.raw_ops.Sign(x=tf.complex(x, x))), "complex numbers"),
    "OneHot": (lambda x: tf.one_hot([1], 3, x[0], x[1], dtype=x.dtype), "no derivative"),
    "LinSpace": (lambda x: tf.raw_ops.LinSpace(start=x[0], stop=x[1], num=4), "no derivative"),
    "Range": (lambda x: tf.range(x[0], 9 * x[1], x[1]), "no derivative"),
    "PyFunc": (lambda x: tf.ensure_shape(
        tf.numpy_function(np.sin, [x], x.dtype), x.shape), "no derivative"),
}  # fmt: skip


@pytest.mark.parametrize("op_type", REFUSED)
def test_an_op_without_a_right_derivative_is_named(op_type):
    fn, word = REFUSED[op_type]
    with pytest.raises(tfjac.errors.NotDifferentiableError) as raised:
        tf.function(lambda x: tfjac.jacobian(fn(x), x), autograph=False)(
            tf.constant([1.5, 2.5], tf.float64)
        )
    assert f"of type {op_type}," in str(raised.value) and word in str(raised.value)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_session_gives_the_same(name):
    # In a tf.Graph `==` compares tensors by identity, and layers made in eager code do not run.
    fn, x = FUNCTIONS[name]
    if "normalization" in name:
        pytest.skip("its layer was made in eager code, which a Session does not run")
    wanted = tf.function(lambda x: tfjac.jacobian(fn(x), x), autograph=False)(tf.constant(x))
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        fed = tf.compat.v1.placeholder(x.dtype, x.shape)
        try:
            y = fn(fed)
        except RuntimeError:
            pytest.skip("its constants were made in eager code, which a Session does not run")
        found = session.run(tfjac.jacobian(y, fed), {fed: x})
    check_close(found, wanted.numpy(), 1e-5 if x.dtype == np.float32 else 1e-10)


def _normalized_then_recurrent():
    keras.utils.set_random_seed(0)
    norm = keras.layers.LayerNormalization(dtype="float64")
    recurrent = keras.layers.LSTM(3, dtype="float64")
    norm.build((2, 4, 3))
    recurrent.build((2, 4, 3))
    return lambda x: recurrent(norm(x))


def _product_then_loop():
    w = tf.constant(np.random.default_rng(0).normal(size=(3, 3)))

    def fn(x):
        return tf.while_loop(
            lambda i, _: i < 3,
            lambda i, h: (i + 1, tf.tanh(h @ w)),
            (0, tf.math.cumprod(x, 1)),
            maximum_iterations=3,
        )[1]

    return fn


@pytest.mark.parametrize("make", [_normalized_then_recurrent, _product_then_loop])
def test_a_loop_after_a_replaced_op_is_differentiated_twice(make):
    fn, step = make(), 1e-6

    @tf.function
    def both(x):
        y = tf.reduce_sum(fn(x) ** 2)
        return tf.gradients(y, x)[0], tfjac.hessian(y, x)

    x = tf.constant(np.random.default_rng(1).normal(size=(2, 4, 3)))
    found = both(x)[1]
    for index in ((0, 0, 0), (1, 3, 2)):
        change = np.zeros(x.shape)
        change[index] = step
        expected = (both(x + change)[0] - both(x - change)[0]) / (2 * step)
        np.testing.assert_allclose(found[(..., *index)], expected, rtol=1e-5, atol=1e-7)
