"""Targets and sources on different sides of the edge of a function, loop or branch."""

import numpy as np
import pytest
import tensorflow as tf

import tfjac

# Those that take any model; structure_test.py is about the other.
STRATEGIES = [name for name in tfjac.strategies.names() if name != "structural"]

X = np.array([[0.3, -0.5, 0.8], [1.1, 0.2, -0.7]])
V = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])


def in_function(body):
    return tf.function(body)()


def in_branch(body):
    return tf.cond(tf.constant(True), body, body)


def in_loop(body):
    spec = tf.function(body).get_concrete_function().structured_outputs
    return tf.while_loop(
        lambda i, _: i < 1, lambda i, _: (i + 1, body()), (0, tf.zeros(spec.shape, spec.dtype))
    )[1]


def in_branch_of_function(body):
    return in_function(lambda: in_branch(body))


PLACES = [in_function, in_branch, in_loop, in_branch_of_function]


# What the body computes from x, made outside of it, and from what was computed of x outside; then
# the diagonal that the Jacobian has.


def inside(x, h):
    return x**3


def both_sides(x, h):
    return h * x


def outside(x, h):
    return h


def from_outside(x, h):
    return h**2


TARGETS = [
    (inside, 3 * X**2),
    (both_sides, np.sin(X) + X * np.cos(X)),
    (outside, np.cos(X)),
    (from_outside, 2 * np.sin(X) * np.cos(X)),
]


def wanted(diagonal):
    return np.einsum("bi,bc,ij->bicj", diagonal, np.eye(2), np.eye(3))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("target, diagonal", TARGETS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_jacobian_and_blocks_by_a_source_from_outside_are_right(strategy, target, diagonal, place):
    @tf.function
    def run(x):
        h = tf.sin(x)

        def body():
            y = target(x, h)
            full, blocks = tfjac.jacobian(y, x, strategy), tfjac.batch_jacobian(y, x, strategy)
            return tf.concat([tf.reshape(full, [-1]), tf.reshape(blocks, [-1])], 0)

        return place(body)

    found = run(tf.constant(X)).numpy()
    np.testing.assert_allclose(found[:36].reshape(2, 3, 2, 3), wanted(diagonal), atol=1e-14)
    blocks = np.einsum("bi,ij->bij", diagonal, np.eye(3))
    np.testing.assert_allclose(found[36:].reshape(2, 3, 3), blocks, atol=1e-14)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("target, diagonal", TARGETS)
def test_products_by_a_source_from_outside_are_right(target, diagonal, place):
    @tf.function
    def run(x):
        h = tf.sin(x)

        def body():
            y = target(x, h)
            pushed, pulled = tfjac.jvp(y, x, tf.constant(V)), tfjac.vjp(y, x, tf.constant(V))
            return tf.stack([pushed, pulled, tfjac.diag_jacobian(y, x)])

        return place(body)

    np.testing.assert_allclose(
        run(tf.constant(X)), [diagonal * V, diagonal * V, diagonal], atol=1e-14
    )


@pytest.mark.parametrize("place", PLACES)
def test_the_pattern_by_a_source_from_outside_is_seen(place):
    seen = []

    @tf.function
    def run(x):
        h = tf.sin(x)

        def body():
            y = both_sides(x, h)
            seen.append(tfjac.jacobian_sparsity(y, x))
            return y

        return place(body)

    run(tf.constant(X))
    assert all((np.asarray(p.to_dense()).reshape(6, 6) == np.eye(6)).all() for p in seen)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_two_sources_one_from_outside_and_one_from_inside_are_told_apart(strategy):
    @tf.function
    def run(x):
        def body():
            z = tf.cos(x)
            by_x, by_z = tfjac.jacobian(z * x, [x, z], strategy)
            return tf.stack([by_x, by_z])

        return in_branch(body)

    by_x, by_z = run(tf.constant(X))
    np.testing.assert_allclose(by_z, wanted(X), atol=1e-14)
    # By x it is the total derivative, what comes by way of z included.
    np.testing.assert_allclose(by_x, wanted(np.cos(X) - X * np.sin(X)), atol=1e-14)
