"""Near relatives of the reported faults, under every strategy that takes them."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import relatives
import relatives_of_layouts
import tensorflow as tf
from scenarios import block_diagonal

import tfjac

# Which ops fall back to a loop is the business of laws_test.py.
pytestmark = pytest.mark.filterwarnings("ignore::tfjac.errors.LoopFallbackWarning")

RELATIVES = {r.name: r for r in [*relatives.ALL, *relatives_of_layouts.ALL]}
STRATEGIES = tfjac.strategies.names()

# Where TensorFlow's own gradient of an op is at fault: name -> strategies that give its answer.
_EVERY = frozenset(STRATEGIES) - {"structural"}
_BY_ROWS = frozenset({"unstack", "while_loop", "vectorized"})
_AUTO = frozenset({"auto"})
UPSTREAM: dict[str, frozenset[str]] = {
    # Zero, for a branch that was not taken, times infinity.
    "where: division": _BY_ROWS,
    "where: nested": _BY_ROWS,
    "where: broadcast condition": _BY_ROWS,
    "where: rows": _BY_ROWS,
    # There the weight, a number, has been multiplied into what was chosen.
    "where: after a product": _BY_ROWS,
    # Differences of equal singular values.
    "spectrum: put together, equal": _EVERY,
    # The inverse of a singular matrix: all refuse it when they run.
    "spectrum: determinant of a singular matrix": _AUTO,
    # The gradient of a transform of fewer entries than there are has their number: all refuse it.
    "fourier: rfft truncated": _AUTO,
    "fourier: rfft truncated, odd": _AUTO,
    "fourier: irfft truncated": _AUTO,
    "fourier: rfft2d truncated": _AUTO,
}


@functools.cache
def _oracle(name):
    return np.asarray(RELATIVES[name].oracle())


def _specs(relative):
    if relative.signature is False:
        return None
    shape = None if relative.signature == "unknown" else relative.signature
    return [tf.TensorSpec(shape, relative.x.dtype)]


def check_jacobian(name, strategy, batch):
    """Raises unless the Jacobian is right, or the strategy refuses it."""
    relative, wanted = RELATIVES[name], _oracle(name)
    jac = tfjac.prepare(
        relative.fn, batch=batch, strategy=strategy, input_signature=_specs(relative)
    )
    try:
        found = np.asarray(jac(relative.x)).astype(np.float64)
    except tfjac.errors.UnsupportedError:
        assert strategy != "auto"
        return
    if batch:
        wanted = block_diagonal(wanted, wanted.ndim - relative.x.ndim)
    assert found.shape == wanted.shape
    scale = max(1.0, np.abs(np.nan_to_num(wanted)).max(initial=0.0))
    right = np.isclose(found, wanted, rtol=0, atol=relative.tolerance * scale)
    assert (right | np.isnan(wanted)).all(), f"found\n{found}\nwanted\n{wanted}"


@pytest.mark.parametrize(
    "name, strategy", [(r.name, s) for r in RELATIVES.values() for s in r.strategies or STRATEGIES]
)
def test_the_jacobian_is_right_or_refused(name, strategy, request):
    if strategy in UPSTREAM.get(name, ()):
        reason = "TensorFlow's own gradient of an op is at fault"
        request.applymarker(pytest.mark.xfail(strict=True, reason=reason))
    check_jacobian(name, strategy, batch=False)
    if RELATIVES[name].batch:
        check_jacobian(name, strategy, batch=True)


def test_the_names_are_those_of_relatives():
    assert set(UPSTREAM) <= set(RELATIVES)
    assert len(RELATIVES) == len(relatives.ALL) + len(relatives_of_layouts.ALL)


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_the_local_jacobian_of_cumprod_can_be_differentiated_at_zeros(exclusive, reverse):
    x = np.array([2.0, 0.0, 0.0, 5.0])

    @tf.function
    def second(z):
        y = tf.math.cumprod(z, exclusive=exclusive, reverse=reverse)
        first = tfjac.jacobian(y, z, "cross_country")
        return tf.stack([tf.gradients(row, z)[0] for row in tf.unstack(tf.reshape(first, [-1]))])

    wanted = np.zeros((4, 4, 4))
    for i in range(4):
        factors = np.arange(4)[i + exclusive :] if reverse else np.arange(4)[: i + 1 - exclusive]
        for j in factors:
            for k in factors[factors != j]:
                wanted[i, j, k] = np.prod(x[factors[(factors != j) & (factors != k)]])
    np.testing.assert_allclose(second(tf.constant(x)), wanted.reshape(16, 4), atol=1e-12)


@pytest.mark.parametrize("unknown_rows", [False, True])
def test_running_products_too_long_for_a_matrix_are_still_served(unknown_rows):
    x = 1.0 + 0.01 * np.linspace(-1.0, 1.0, 300)[np.newaxis]
    shape = [None if unknown_rows else 1, 300]
    jac = tfjac.prepare(
        lambda z: tf.math.cumprod(z, 1)[:, ::150],
        batch=True,
        strategy="cross_country",
        input_signature=[tf.TensorSpec(shape, tf.float64)],
    )
    wanted = [[np.prod(x[0, : i + 1]) / x[0] * (np.arange(300) <= i) for i in (0, 150)]]
    np.testing.assert_allclose(jac(x), wanted, rtol=1e-9)
