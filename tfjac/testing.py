"""Checks of Jacobians, for users too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfjac import errors, products
from tfjac.prepared import prepare
from tfjac.rule_checks import RuleError, check_rule
from tfjac.strategies import Strategy

__all__ = ["JacobianMismatchError", "RuleError", "check_jacobian", "check_rule"]


class JacobianMismatchError(errors.TfjacError, AssertionError):
    """A Jacobian does not agree with the function it is said to be of."""


def check_jacobian(
    fn: Callable[..., tf.Tensor],
    *args: Any,
    jacobian: Callable[..., Any] | None = None,
    argnums: int = 0,
    batch: bool = False,
    strategy: str | Strategy = "auto",
    projections: int = 3,
    step: float | None = None,
    tolerance: float | None = None,
    seed: int = 0,
) -> None:
    """Checks a Jacobian along random directions; returns nothing, raises where it is wrong.

    For random u and v it compares u'Jv with the central difference
    (u'f(x + hv) - u'f(x - hv)) / 2h, summed in float64, and with v'J'u, where J'u is the `vjp`
    (the adjoint identity). Give float64 arguments for a sharp check.

    Args:
      fn: function of real tensors that returns one real tensor; shape `[B, ...]` where batch.
      *args: its arguments; the source floating, of any shape, `[B, ...]` where batch.
      jacobian: called as `fn` is, returns what to check; None for `prepare(fn, ...)`.
      argnums: which argument is the source.
      batch: whether the Jacobian is per example.
      strategy: how to build it, where `jacobian` is None.
      projections: number of pairs of directions.
      step: h; None for the cube root of the rounding error of the dtype.
      tolerance: error allowed, relative to the size of the terms; None for one fit to the dtype.
      seed: of the directions.

    Raises:
      JacobianMismatchError: two numbers that should agree do not; the message has both, and the
        direction.
      InvalidTypeError: complex tensors, or several targets.

    Cost:
      The Jacobian, and two evaluations of `fn` and one vjp for each pair of directions.

    Example:
      >>> tfjac.testing.check_jacobian(tf.sin, np.array([0.1, 0.2]))
      >>> tfjac.testing.check_jacobian(
      ...     tf.sin, np.array([0.1, 0.2]), jacobian=lambda x: tf.linalg.diag(tf.sin(x)))
      Traceback (most recent call last):
      ...
      tfjac.testing.JacobianMismatchError: central difference ...
    """
    args = [tf.convert_to_tensor(a) if i == argnums else a for i, a in enumerate(args)]
    x = args[argnums]

    def of_source(v):
        return fn(*args[:argnums], v, *args[argnums + 1 :])

    evaluate = tf.function(of_source).get_concrete_function(tf.TensorSpec(x.shape, x.dtype))
    pull = tf.function(lambda v, u: products.vjp(of_source(v), v, u))
    y = evaluate(x)
    eps = max(_rounding("args", x), _rounding("fn", y))
    if jacobian is None:
        jacobian = prepare(
            fn, batch=batch, argnums=argnums, strategy=strategy, independence="assume"
        )
    matrix = _matrix(jacobian(*args), x, y, batch)
    step = eps ** (1 / 3) if step is None else step
    tolerance = 30 * eps ** (2 / 3) if tolerance is None else tolerance
    random = np.random.default_rng(seed)
    for number in range(projections):
        u, v = (random.standard_normal(t.shape.as_list()) for t in (y, x))
        jv = _times(matrix, v, batch).reshape(u.shape)
        ahead, behind = (
            _float64(evaluate(tf.cast(_float64(x) + h * v, x.dtype))) for h in (step, -step)
        )
        scale = np.sum(np.abs(u * jv)) + np.sum(np.abs(u * _float64(y)))
        pulled = _float64(pull(x, tf.cast(u, y.dtype)))
        for name, other in (
            ("central difference", np.sum(u * (ahead - behind)) / (2 * step)),
            ("vjp", np.sum(pulled * v)),
        ):
            if not abs(np.sum(u * jv) - other) <= tolerance * scale:
                raise JacobianMismatchError(
                    f"{name} {other!r} and u'Jv {np.sum(u * jv)!r} differ by more than "
                    f"{tolerance * scale:.3g}, along direction {number} of seed {seed}: "
                    f"u = {_short(u)}, v = {_short(v)}."
                )


_EPS = {tf.bfloat16: 2.0**-7, tf.float16: 2.0**-10, tf.float32: 2.0**-23, tf.float64: 2.0**-52}


def _rounding(argument: str, tensor: Any) -> float:
    dtype = getattr(tensor, "dtype", None)
    if dtype not in _EPS:
        raise errors.InvalidTypeError(
            errors.message(
                argument,
                "one real floating tensor, source and target each",
                f"{tensor!r:.60}",
                "Check real and imaginary parts, or one target, at a time.",
            )
        )
    return _EPS[dtype]


def _matrix(jacobian: Any, x: tf.Tensor, y: tf.Tensor, batch: bool) -> np.ndarray:
    """Returns `[rows, columns]`, or `[B, rows, columns]` where batch, in float64."""
    wanted = y.shape + (x.shape[1:] if batch else x.shape)
    if jacobian.shape != wanted:
        raise JacobianMismatchError(f"the Jacobian has shape {jacobian.shape}, not {wanted}.")
    size = (lambda t: t.shape[1:].num_elements()) if batch else (lambda t: t.shape.num_elements())
    head = [y.shape[0]] if batch else []
    return _float64(jacobian).reshape(head + [size(y), size(x)])


def _times(matrix: np.ndarray, v: np.ndarray, batch: bool) -> np.ndarray:
    if batch:
        return np.einsum("bij,bj->bi", matrix, v.reshape(matrix.shape[0], matrix.shape[2]))
    return matrix @ v.reshape(-1)


def _float64(tensor: Any) -> np.ndarray:
    return np.asarray(tensor).astype(np.float64)


def _short(array: np.ndarray) -> str:
    return np.array2string(array.reshape(-1), precision=4, threshold=8)
