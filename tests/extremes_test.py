"""Determinants and norms near the ends of the range of their dtype."""

import numpy as np
import pytest
import tensorflow as tf
from scenarios import array

import tfjac


def run(body, *args):
    return tf.function(body, autograph=False)(*args)


@pytest.mark.parametrize("factor", [1e-30, 1e30])
def test_slogdet_has_the_logarithm_where_det_over_or_underflows(factor):
    def body(x):
        ys = [x * factor, tf.reverse(x, [1]) * factor, (x @ tf.eye(7)) * factor]
        return [(tfjac.det(y, x, True), *tfjac.slogdet(y, x, True)) for y in ys]

    for k, (det, sign, log) in enumerate(run(body, array(2, 7, dtype=np.float32))):
        np.testing.assert_array_equal(sign, -1.0 if k == 1 else 1.0)
        np.testing.assert_allclose(log, 7 * np.log(factor), rtol=1e-5)
        over = (-np.inf if k == 1 else np.inf) if factor > 1 else 0.0
        np.testing.assert_array_equal(det, over)


@pytest.mark.parametrize("n", [2, 3])
def test_small_matrices_of_extreme_entries_keep_their_logarithm(n):
    w = (np.eye(n) + 0.1 * array(n, n)).astype(np.float32)
    for factor in (np.float32(1e-25), np.float32(1e25)):
        found = run(
            lambda x, f=factor: tfjac.slogdet(tf.sin(x) @ tf.constant(w) * f, x, True),
            np.zeros((2, n), np.float32),
        )
        sign, log = np.linalg.slogdet(w.astype(np.float64))
        np.testing.assert_array_equal(found[0], sign)
        np.testing.assert_allclose(found[1], log + n * np.log(float(factor)), rtol=1e-4)


@pytest.mark.parametrize("n", [2, 3])
def test_small_matrices_of_rows_of_unlike_scale_keep_their_logarithm(n):
    scales = np.array([1e-25, 1e20, 1.0][:n], np.float32)
    w = tf.constant((np.eye(n) + np.triu(np.ones((n, n)), 1)).astype(np.float32))

    def body(x):
        rows, columns = (x * scales) @ w, (x @ w) * scales
        return [tfjac.slogdet(tf.reverse(y, [1]), x, True) for y in (rows, columns)]

    for sign, log in run(body, np.ones((2, n), np.float32)):
        np.testing.assert_array_equal(sign, -1)
        np.testing.assert_allclose(log, np.log(scales.astype(np.float64)).sum(), rtol=1e-5)


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16])
def test_norms_of_half_floats_do_not_overflow_before_the_root(dtype):
    def body(x):
        w = tf.fill([4, 4], tf.constant(300.0, dtype))
        found = [tfjac.frobenius_norm(y, x, b) for y in (x @ w, 600 * x) for b in (True, False)]
        found += [tfjac.frobenius_norm(600 * x, x, True, probes=2)]
        return [*found, tfjac.spectral_norm(x @ w, x, True, iterations=3)]

    found = run(body, tf.zeros([1, 4], dtype))
    for each in found:
        np.testing.assert_allclose(tf.cast(each, tf.float32), 1200, rtol=1e-2)


def test_power_iteration_of_many_half_floats_starts_from_a_vector_of_length_one():
    x = tf.zeros([70_000], tf.float16)
    found = run(lambda x: tfjac.spectral_norm(3 * x, x, iterations=1), x)
    np.testing.assert_allclose(found, 3, rtol=1e-2)


def test_the_condition_number_of_a_singular_matrix_is_infinite():
    found = run(lambda x: tfjac.condition_number(x * [0.0, 1.0, 2.0], x, True), array(2, 3))
    np.testing.assert_array_equal(found, np.inf)
