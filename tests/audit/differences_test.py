"""Differences are right where a closed form tells, and say where they are not."""

import numpy as np
import pytest

from tfjac.audit import differences

X = np.array([0.3, -0.7, 1.9])


def test_a_jacobian_is_that_of_the_closed_form_to_nine_digits():
    found = differences.jacobian(lambda x: np.array([np.sin(x).sum(), x[0] * x[1] ** 2]), X)
    exact = np.array([np.cos(X), [X[1] ** 2, 2 * X[0] * X[1], 0.0]])
    np.testing.assert_allclose(found.low, exact, atol=1e-9)
    np.testing.assert_array_equal(found.low, found.high)
    assert np.max(found.doubt) < 1e-8


def test_a_second_derivative_along_two_directions_is_that_of_the_closed_form():
    first, second = np.array([1.0, 2.0, -0.5]), np.array([-0.3, 1.0, 0.7])
    found = differences.mixed(
        lambda x: np.array([np.exp(x[0]) * x[1] + x[2] ** 3]), X, first, second
    )
    hessian = np.array([[np.exp(0.3) * -0.7, np.exp(0.3), 0], [np.exp(0.3), 0, 0], [0, 0, 6 * 1.9]])
    np.testing.assert_allclose(found.low, first @ hessian @ second, rtol=1e-7)


def test_at_a_kink_all_between_both_sides_is_right():
    found = differences.jacobian(np.abs, np.zeros(1))
    np.testing.assert_allclose([found.low[0, 0], found.high[0, 0]], [-1, 1], atol=1e-9)


def test_a_kink_near_by_does_not_disturb():
    found = differences.jacobian(np.abs, np.array([1e-3]))
    np.testing.assert_allclose([found.low[0, 0], found.high[0, 0]], [1, 1], atol=1e-7)


def test_at_the_edge_of_a_domain_the_side_within_counts():
    found = differences.jacobian(lambda x: x * np.sqrt(x), np.zeros(1))
    assert found.known.all() and abs(found.low[0, 0]) < 0.02


@pytest.mark.parametrize("function", [np.sqrt, np.sign, np.log, lambda x: np.sin(1 / x)])
@np.errstate(all="ignore")
def test_what_does_not_exist_is_not_known(function):
    assert not differences.jacobian(function, np.zeros(1)).known.any()


def test_a_second_derivative_that_does_not_exist_is_not_known():
    one = np.ones(1)
    found = differences.mixed(lambda x: np.array([np.abs(x).sum()]), np.zeros(1), one, one)
    assert not found.known.any()


def test_numbers_of_float32_are_met_to_three_digits():
    def function(x):
        return np.sin(x.astype(np.float32)).astype(np.float64)

    found = differences.jacobian(function, X, width=4)
    np.testing.assert_allclose(found.low, np.diag(np.cos(X)), atol=2e-3)
