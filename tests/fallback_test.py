"""A prepared function whose strategy fails when it runs goes on to the next best, and says so."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import tfjac
from tfjac import tf_internals

X = np.array([[0.3, -0.4], [0.5, 0.6]])


def net(x):
    return tf.tanh(x @ tf.constant([[1.0, 0.5], [-0.3, 0.8]], tf.float64))


@pytest.fixture
def kernels_missing(monkeypatch):
    """Lets the first calls of what was built fail, as many as asked for."""
    real, left = tf_internals.call_concrete, []

    def call(function, tensors):
        # The value of the function alone has the shape of x.
        if left and function.structured_outputs.shape.rank == 4:
            left.pop()
            raise tf.errors.UnimplementedError(None, None, "no kernel for float64")
        return real(function, tensors)

    monkeypatch.setattr(tf_internals, "call_concrete", call)
    return left


def closed_form(x):
    w = np.array([[1.0, 0.5], [-0.3, 0.8]])
    slope = 1 - np.tanh(x @ w) ** 2
    return np.einsum("bj,ij,bc->bjci", slope, w, np.eye(2))


def test_the_next_best_strategy_serves_and_is_kept(kernels_missing):
    jac = tfjac.prepare(net)
    kernels_missing += [None, None]
    with pytest.warns(tfjac.errors.StrategyFallbackWarning, match="no kernel for float64") as told:
        found = jac(X)
    assert len([w for w in told if w.category is tfjac.errors.StrategyFallbackWarning]) == 2
    np.testing.assert_allclose(found, closed_form(X), atol=1e-12)
    misses = jac.cache_info().misses
    np.testing.assert_allclose(jac(X), closed_form(X), atol=1e-12)
    assert jac.cache_info().misses == misses


def test_a_strategy_that_was_named_raises(kernels_missing):
    kernels_missing += [None]
    with pytest.raises(tfjac.errors.UnsupportedError, match="unstack fails when it runs"):
        tfjac.prepare(net, strategy="unstack")(X)


def test_where_all_fail_the_error_says_so(kernels_missing):
    kernels_missing += [None] * 20
    with (
        pytest.warns(tfjac.errors.StrategyFallbackWarning),
        pytest.raises(tfjac.errors.UnsupportedError, match="fails when it runs"),
    ):
        tfjac.prepare(net)(X)


def test_what_the_function_itself_raises_comes_as_it_is():
    def asserts(x):
        tf.debugging.assert_positive(x, message="a negative price")
        return tf.sin(x)

    with pytest.raises(tf.errors.InvalidArgumentError, match="a negative price"):
        tfjac.prepare(asserts)(-np.ones([2]))
