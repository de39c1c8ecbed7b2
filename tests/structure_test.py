"""Patterns, diagonals, blocks, and Jacobians made of structure alone."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from scenarios import central_differences

import tfjac

RANDOM = np.random.default_rng(3)
A, W = RANDOM.normal(size=(5, 4)), RANDOM.normal(size=(4, 3))


def x_of(*shape):
    return RANDOM.uniform(0.2, 1.0, size=shape)


def stencil(x):
    wide = tf.pad(x, [[1, 1]])
    return x * (1 - x) + wide[:-2] - 2 * x + wide[2:]


def fan_out(x):
    y = tf.sin(x) + x
    y = y + y * x
    return y + y * tf.square(x)


STRUCTURAL = {
    "scalar": (lambda x: x * x, ()),
    "elementwise": (lambda x: tf.sin(x) * x, (4,)),
    "elementwise, two axes": (lambda x: tf.exp(x) / (1 + x), (3, 2)),
    "linear": (lambda x: tf.linalg.matvec(A, x), (4,)),
    "linear, transposed": (lambda x: tf.linalg.matvec(A, x, transpose_a=True), (5,)),
    "function of linear": (lambda x: tf.tanh(tf.linalg.matvec(A, x)) * 2, (4,)),
    "a part of a linear": (lambda x: tf.linalg.matvec(A, x)[1:3], (4,)),
    "padded linear": (lambda x: tf.pad(tf.linalg.matvec(A, x), [[1, 2]]), (4,)),
    "linear of permuted": (lambda x: tf.linalg.matvec(A, tf.reverse(x, [0])), (4,)),
    "rows times a matrix": (lambda x: tf.tanh(x @ W), (6, 4)),
    "stencil": (stencil, (9,)),
    "fan out": (fan_out, (3,)),
    "broadcast": (lambda x: x / tf.constant([1.0, 2.0, 4.0], tf.float64), ()),
    "outer product": (lambda x: x[:, None] * x[None, :], (3,)),
    "concat": (lambda x: tf.concat([x, tf.reverse(x, [1]) * x], 1), (3, 2)),
    "split": (lambda x: tf.split(x, 2, 1)[0] * tf.split(x, 2, 1)[1], (3, 4)),
    "gather": (lambda x: tf.gather(x, [2, 0, 2]) * 3, (4,)),
    "transpose": (lambda x: tf.transpose(x) * 2, (3, 2)),
    "bias": (lambda x: tf.nn.bias_add(x, tf.constant([1.0, 2.0], tf.float64)), (3, 2)),
    "bias by itself": (lambda x: tf.nn.bias_add(tf.ones([3, 2], tf.float64), x), (2,)),
    "where": (lambda x: tf.where(x > 0.5, x * x, -x), (4,)),
    "maximum with itself": (lambda x: tf.maximum(x, 1 - x), (4,)),
}


@pytest.mark.parametrize("name", STRUCTURAL)
def test_the_structural_strategy_gives_the_jacobian(name):
    fn, shape = STRUCTURAL[name]
    x = x_of(*shape)
    found = tfjac.prepare(fn, strategy="structural")(x).numpy()
    expected = central_differences(fn, [x], 0)
    np.testing.assert_allclose(found, expected, atol=1e-9)


@pytest.mark.parametrize("name", ["rows times a matrix", "concat", "split", "bias"])
def test_the_structural_strategy_gives_the_jacobian_of_each_example(name):
    fn, shape = STRUCTURAL[name]
    x = x_of(*shape)
    found = tfjac.prepare(fn, strategy="structural", batch=True)(x).numpy()
    whole = central_differences(fn, [x], 0)
    expected = np.stack([whole[b, :, b] for b in range(len(x))])
    np.testing.assert_allclose(found, expected, atol=1e-9)


@pytest.mark.parametrize(
    ("fn", "shape", "why"),
    [
        (tf.nn.softmax, (3, 4), "Softmax"),
        (lambda x: tf.tanh(x @ W) @ np.ones((3, 2)), (6, 4), "comes before a product"),
        (lambda x: tf.linalg.matvec(A, x) + x[0], (4,), None),
        (lambda x: tf.cumsum(x), (4,), "Cumsum"),
        (lambda x: tf.map_fn(tf.sin, x), (4,), "TensorListFromTensor"),
    ],
)
def test_what_has_no_such_structure_is_refused_by_name(fn, shape, why):
    jac, x = tfjac.prepare(fn, strategy="structural"), x_of(*shape)
    if why is None:
        np.testing.assert_allclose(jac(x), central_differences(fn, [x], 0), atol=1e-9)
    else:
        with pytest.raises(tfjac.errors.UnsupportedError, match=why):
            jac(x)


def test_an_infinite_derivative_stays_in_its_own_entry():
    divisors = tf.constant([0.0, 2.0, 3.0])

    @tf.function
    def jacobian(a):
        return tfjac.jacobian(a / divisors, a)

    found = jacobian(tf.constant(1.0)).numpy()
    np.testing.assert_array_equal(found, np.array([np.inf, 1 / 2, 1 / 3], np.float32))


def test_a_jacobian_of_structure_alone_is_differentiable():
    @tf.function
    def gradient(x):
        jacobian = tfjac.jacobian(x**3 + tf.reverse(x, [0]) * x, x, "structural")
        return tf.gradients(tf.reduce_sum(jacobian**2), x)[0]

    def penalty(x):
        diagonal, off = 3 * x**2 + x[::-1], x
        return np.sum(diagonal**2 + off**2)

    x, h = x_of(4), 1e-6
    steps = h * np.eye(4)
    expected = [(penalty(x + e) - penalty(x - e)) / (2 * h) for e in steps]
    np.testing.assert_allclose(gradient(tf.constant(x)), expected, rtol=1e-6)


def test_a_linear_map_takes_no_pass_and_few_ops():
    matrix = tf.constant(RANDOM.normal(size=(40, 30)))

    @tf.function
    def jacobian(x):
        return tfjac.jacobian(tf.linalg.matvec(matrix, x), x)

    concrete = jacobian.get_concrete_function(tf.TensorSpec([30], tf.float64))
    products = [op for op in concrete.graph.get_operations() if "MatMul" in op.type]
    assert len(products) == 1  # that of the function itself
    assert len(concrete.graph.get_operations()) < 40
    np.testing.assert_array_equal(jacobian(tf.ones([30], tf.float64)), matrix)


# Patterns


def pattern_of(fn, *shape):
    found = []

    def traced(x):
        found.append(tfjac.jacobian_sparsity(fn(x), x))
        return x

    tf.function(traced, autograph=False).get_concrete_function(tf.TensorSpec(shape, tf.float64))
    return found[-1].to_dense()


@pytest.mark.parametrize(
    ("fn", "shape", "expected"),
    [
        (tf.sin, (3,), np.eye(3)),
        (lambda x: x[1:] - x[:-1], (3,), [[1, 1, 0], [0, 1, 1]]),
        (tf.cumsum, (2,), np.ones((2, 2))),
        (lambda x: tf.gather(x, [1, 1]), (3,), [[0, 1, 0]] * 2),
        (lambda x: tf.reverse(x, [0]), (3,), np.eye(3)[::-1]),
        (lambda x: tf.stop_gradient(x), (2,), np.zeros((2, 2))),
        (lambda x: tf.reduce_sum(x, 1), (2, 2), [[1, 1, 0, 0], [0, 0, 1, 1]]),
        (lambda x: tf.reduce_sum(x, 0), (2, 2), [[1, 0, 1, 0], [0, 1, 0, 1]]),
        (lambda x: tf.transpose(x) @ np.ones((2, 1)), (2, 2), [[1, 0, 1, 0], [0, 1, 0, 1]]),
        (lambda x: tf.concat([x, 0 * x], 0), (1,), [[1], [1]]),
    ],
)
def test_the_pattern_is_as_expected(fn, shape, expected):
    np.testing.assert_array_equal(pattern_of(fn, *shape), np.array(expected, bool))


@pytest.mark.parametrize("name", STRUCTURAL)
def test_the_pattern_covers_the_nonzeros(name):
    fn, shape = STRUCTURAL[name]
    x = x_of(*shape)
    jacobian = tfjac.prepare(fn, strategy="while_loop")(x).numpy()
    pattern = pattern_of(fn, *shape)
    assert not np.any((jacobian.reshape(pattern.shape) != 0) & ~pattern)


def test_the_pattern_of_a_loop_goes_on_until_nothing_is_added():
    def shifts(x):
        return tf.while_loop(
            lambda i, _: i < 2, lambda i, y: (i + 1, y + tf.roll(y, 1, 0)), (0, x)
        )[1]

    pattern = pattern_of(shifts, 6)
    # Two turns reach two places back; a pattern that holds for any number of turns reaches all.
    assert pattern.all()


def test_a_pattern_of_unknown_sizes_is_refused():
    def traced(x):
        return tfjac.jacobian_sparsity(tf.sin(x), x)

    with pytest.raises(tfjac.errors.InvalidValueError, match="tensor of known sizes"):
        tf.function(traced).get_concrete_function(tf.TensorSpec([None]))


# Diagonals and blocks


@pytest.mark.parametrize(
    ("fn", "shape"),
    [
        (lambda x: tf.sin(x) * x, (3, 2)),
        (lambda x: x * x, ()),
        (tf.nn.softmax, (3, 4)),
        (lambda x: tf.cumsum(x), (4,)),
    ],
)
def test_the_diagonal_is_that_of_the_jacobian(fn, shape):
    x = x_of(*shape)

    @tf.function
    def diagonal(x):
        return tfjac.diag_jacobian(fn(x), x)

    size = int(np.prod(shape))
    whole = central_differences(fn, [x], 0).reshape(size, size)
    found = diagonal(tf.constant(x)).numpy()
    assert found.shape == shape
    np.testing.assert_allclose(found.reshape(-1), np.diag(whole), atol=1e-9)


def test_a_diagonal_of_a_diagonal_jacobian_never_has_the_square():
    @tf.function
    def diagonal(x):
        return tfjac.diag_jacobian(tf.sin(x) * x, x)

    graph = diagonal.get_concrete_function(tf.TensorSpec([1000])).graph
    assert max(t.shape.num_elements() for op in graph.get_operations() for t in op.outputs) == 1000


def test_a_diagonal_wants_equal_shapes():
    with (
        tf.Graph().as_default(),
        pytest.raises(tfjac.errors.InvalidValueError, match="of the shape of the target"),
    ):
        x = tf.compat.v1.placeholder(tf.float32, [3])
        tfjac.diag_jacobian(x[:2], x)


@pytest.mark.parametrize(
    ("fn", "shape", "apart"),
    [
        (lambda x: tf.tanh(x @ W), (6, 4), 1),
        (lambda x: tf.sin(x), (3, 2), 2),
        (lambda x: tf.cumsum(x), (4,), 0),
        (lambda x: tf.tanh(x @ W), (2, 3, 4), 2),
    ],
)
def test_blocks_are_the_jacobian_without_its_zeros(fn, shape, apart):
    x = x_of(*shape)
    found = tfjac.prepare(fn, structured=True)(x)
    whole = central_differences(fn, [x], 0)
    y_rank = whole.ndim - x.ndim
    assert (found.apart, found.y_rank) == (apart, y_rank)
    np.testing.assert_allclose(found.to_dense(), whole, atol=1e-9)
    v, u = RANDOM.normal(size=x.shape), RANDOM.normal(size=whole.shape[:y_rank])
    np.testing.assert_allclose(found.matvec(v), np.tensordot(whole, v, x.ndim), atol=1e-8)
    np.testing.assert_allclose(found.rmatvec(u), np.tensordot(u, whole, y_rank), atol=1e-8)
    positions = int(np.prod(shape[:apart]))
    assert found.matrices().shape[0] == positions
    assert tf.size(found.blocks) * max(positions, 1) == whole.size
