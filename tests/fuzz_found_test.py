"""What random programs have found wrong, each as small as it could be made."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from scenarios import array, central_differences

import tfjac
from tfjac import errors

STRATEGIES = tfjac.strategies.names()


def prepared(fn, shape, strategy="auto", **options):
    return tfjac.prepare(
        fn, strategy=strategy, input_signature=[tf.TensorSpec(shape, tf.float64)], **options
    )


def check_all_right(fn, x, shape=None, refusing=()):
    """Raises unless all strategies but those give what differences of the values give."""
    wanted = central_differences(fn, [x], 0)
    for name in STRATEGIES:
        jac = prepared(fn, x.shape if shape is None else shape, name)
        if name in refusing:
            with pytest.raises(errors.UnsupportedError):
                jac(x)
        else:
            np.testing.assert_allclose(jac(x), wanted, rtol=0, atol=1e-9, err_msg=name)


@pytest.mark.filterwarnings("ignore::tfjac.errors.LoopFallbackWarning")
def test_a_loop_that_tensorflow_cannot_vectorize_goes_once_per_row():
    def swapped(x):
        def body(a, b):
            return tf.concat([a[1:], a[:1]], 0) * b, a

        return tf.while_loop(lambda a, b: True, body, (x, x), maximum_iterations=2)[1]

    check_all_right(swapped, array(1, 2, 2), refusing=["structural"])


def test_a_loop_that_is_not_vectorized_is_told():
    def swapped(x):
        def body(a, b):
            return tf.concat([a[1:], a[:1]], 0), a

        return tf.while_loop(lambda a, b: True, body, (x, x), maximum_iterations=2)[1]

    with pytest.warns(errors.LoopFallbackWarning, match="tf.vectorized_map fails"):
        prepared(swapped, [3, 2], "vectorized")(array(3, 2))


def test_a_pattern_of_no_columns_along_an_axis_of_no_entries_can_be_read():
    @tf.function
    def read(x):
        y = x - tf.reduce_mean(x, 2, keepdims=True)
        assert tfjac.jacobian_sparsity(y, x).shape == (0, 0)
        assert tfjac.jacobian_sparsity(tf.reduce_sum(x, 2), x).shape == (6, 0)
        return y

    read.get_concrete_function(tf.TensorSpec([2, 3, 0], tf.float64))


@pytest.mark.parametrize("shape", [[3, 0, 2], [None, 0, 2], [None, None, 2]])
@pytest.mark.parametrize("strategy", ["auto", "unstack", "while_loop", "vectorized", "forward"])
def test_a_source_without_entries_gives_a_jacobian_without_entries(strategy, shape):
    def by_example(x):
        return tf.map_fn(lambda a: tf.reduce_sum(a, 0), x)

    assert prepared(by_example, shape, strategy)(np.ones((3, 0, 2))).shape == (3, 2, 3, 0, 2)


@pytest.mark.parametrize("strategy", ["auto", "unstack"])
def test_a_target_without_entries_of_an_unknown_number_of_examples_has_a_jacobian(strategy):
    jac = prepared(lambda x: tf.reduce_sum(x * x, 1), [None, 3, 0, 2], strategy)
    assert jac(np.ones((4, 3, 0, 2))).shape == (4, 0, 2, 4, 3, 0, 2)


def test_a_source_without_entries_leaves_the_jacobian_by_another_alone():
    def both(empty, x):
        return tf.reduce_sum(empty, 1) + tf.sin(x)

    none, one = tfjac.prepare(both, argnums=(0, 1))(np.zeros((3, 0)), np.zeros(3))
    assert none.shape == (3, 3, 0)
    np.testing.assert_array_equal(one, np.eye(3))


def test_a_second_gradient_that_tensorflow_cannot_take_is_unsupported():
    def scattered(x):
        return tf.tanh(tf.tanh(tf.scatter_nd([[0], [0], [1]], x, [3, 3])))

    check_all_right(scattered, array(3, 3), refusing=["forward", "structural"])


def test_what_tf_recompute_grad_says_of_forward_mode_is_an_unsupported_error():
    @tf.function
    def pushed(x):
        y = tf.recompute_grad(lambda a: tf.sin(a) * a)(x)
        return tfjac.jvp(y, x, tf.ones_like(x))

    with pytest.raises(errors.UnsupportedError, match="recompute_grad"):
        pushed(tf.constant(array(3)))


def test_auto_goes_on_to_the_next_strategy_where_the_best_cannot_build():
    class Failing:
        name, field = "failing", 0

        def supports(self, problem):
            return tfjac.strategies.Support(True)

        def cost(self, problem):
            return tfjac.strategies.Cost(1, 0.0, 1, 1)

        def build(self, problem):
            raise errors.UnsupportedError("not after all")

    from tfjac import planning

    found = pytest.MonkeyPatch()
    with found.context() as patch:
        patch.setattr(planning, "STRATEGIES", (Failing(), *planning.STRATEGIES))
        with pytest.warns(errors.StrategyFallbackWarning, match="failing could not .* did"):
            found_by_next = tfjac.prepare(lambda x: tf.sin(x))(
                np.zeros(2)
            )  # of its own: not built yet
        np.testing.assert_allclose(found_by_next, np.eye(2))
    with pytest.raises(errors.UnsupportedError, match="not after all"):
        tfjac.prepare(tf.sin, strategy=Failing())(np.zeros(2))


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_cross_country_maps_a_stretch_of_any_number_of_examples(rows):
    def tiled(x):
        return tf.tile(tf.concat([x, x], 2), [1, 1, 2, 1])

    jac = prepared(tiled, [None, 2, 3, 1], "cross_country", batch=True)
    wanted = prepared(tiled, [None, 2, 3, 1], "while_loop", batch=True)
    x = array(rows, 2, 3, 1)
    np.testing.assert_array_equal(jac(x), wanted(x))


def test_cross_country_multiplies_where_two_sizes_are_unknown():
    def gram(x):
        return tf.matmul(x, x, transpose_b=True)

    x = array(2, 3, 2)
    jac = prepared(gram, [None, None, 2], "cross_country")
    np.testing.assert_allclose(jac(x), central_differences(gram, [x], 0), atol=1e-9)


@pytest.mark.parametrize(
    "part", [tf.math.real, tf.math.imag, lambda z: tf.math.real(z * tf.constant(1 + 2j, z.dtype))]
)
def test_complex_tensors_between_real_ones_are_not_taken_for_real(part):
    def through(x):
        return part(tf.complex(3.0 * x, tf.sin(x)))

    check_all_right(through, array(4), refusing=["structural"])


@pytest.mark.parametrize("strategy", ["auto", "unstack", "forward", "cross_country"])
def test_a_scalar_has_derivatives_by_a_scalar_and_second_ones(strategy):
    def both(x):
        y = tf.nn.selu(tf.atan(x))
        return tfjac.jacobian(y, x, strategy), tfjac.hessian(y, x, strategy)

    first, second = tf.function(both, autograph=False)(tf.constant(0.5, tf.float64))
    scale = 1.0507009873554805
    np.testing.assert_allclose(first, scale / 1.25, atol=1e-12)
    np.testing.assert_allclose(second, -scale * 1.0 / 1.25**2, atol=1e-12)


def test_a_condition_without_entries_may_broadcast_one_example_to_none():
    none = tf.zeros([0, 1])

    @tf.function(input_signature=[tf.TensorSpec([None, 2])], autograph=False)
    def f(x):
        return tfjac.jacobian(tf.where(none > 0.0, x, x), x)

    for examples in (0, 1):
        assert f(tf.zeros([examples, 2])).shape == (0, 2, examples, 2)


def test_the_product_of_a_batch_of_none_with_a_tangent_is_zeros():
    # TensorFlow 2.21 ends the process in the second gradient of this mean, dividing by zero.
    @tf.function(autograph=False)
    def f(x):
        return tfjac.jvp(x * tf.math.rsqrt(tf.reduce_mean(x**2, 2, keepdims=True) + 0.2), x, x)

    assert f(tf.zeros([0, 2, 2, 2])).shape == (0, 2, 2, 2)


def test_a_source_without_entries_leaves_the_tangents_of_the_others():
    x, empty = tf.constant([[1.0, 2.0], [3.0, 4.0]]), tf.zeros([3, 0])

    @tf.function
    def f(x, empty):
        y = tf.gather_nd(x**2, [[0], [0]]) + tf.reduce_sum(empty)
        alone = tf.gather_nd(x**2, [[1]])
        return tfjac.jvp([y, alone], [x, empty], [tf.ones_like(x), empty])

    found, alone = f(x, empty)
    np.testing.assert_allclose(found, [[2.0, 4.0], [2.0, 4.0]])
    np.testing.assert_allclose(alone, [[6.0, 8.0]])
