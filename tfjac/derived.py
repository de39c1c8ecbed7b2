"""Determinants and Gram matrices of a Jacobian."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from tfjac import blocks, errors, matrices, quantities, shapes
from tfjac.accumulation import determinants, reductions
from tfjac.accumulation.factors import Factor
from tfjac.accumulation.terms import Stack
from tfjac.quantities import Quantity


class SignAndLog(NamedTuple):
    """Sign and logarithm of the absolute value of a determinant.

    Args:
      sign: -1, 0 or 1.
      log_abs_determinant: -inf where the sign is 0.
    """

    sign: tf.Tensor
    log_abs_determinant: tf.Tensor


@tf.autograph.experimental.do_not_convert
def det(
    y: tf.Tensor,
    x: tf.Tensor,
    batch: bool = False,
    *,
    independence: str = "prove",
    name: str | None = None,
) -> tf.Tensor:
    """Returns the determinant of dy/dx, or that of each example.

    Args:
      y: a real graph tensor; with `batch` `[B, ...]`.
      x: a graph tensor of as many entries; with `batch` `[B, ...]`, as many in each example.
      batch: whether to take it of each example, as `batch_jacobian` does.
      independence: with `batch`, as in `batch_jacobian`.
      name: name scope of the ops added.

    Returns:
      A scalar of the dtype of y; with `batch` `[B]`.

    Raises:
      InvalidValueError: the Jacobian is not square, or a size is unknown.
      As `jacobian`, or `batch_jacobian`, otherwise.

    Cost:
      A product where the Jacobian is a diagonal; up to three rows one vector-Jacobian product each,
      and a polynomial of their entries; else as `slogdet`. Where examples stay apart, that of each.
      The gradient is finite at singular Jacobians up to three rows only.
      Under XLA, which has no op for it, by Gaussian elimination.

    Example:
      >>> @tf.function
      ... def f(x):
      ...   return tfjac.det(tf.stack([x[0] * x[1], x[1]]), x)
      >>> float(f(tf.constant([2., 3.])))
      3.0
    """
    (found,) = quantities.made("det", y, x, batch, independence, name or "det", _det)
    return found


def _det(quantity: Quantity) -> list[tf.Tensor]:
    size = quantity.check_square()
    if quantity.is_diagonal:
        return [quantity.over_blocks(tf.reduce_prod, quantity.diagonal())]
    if size == 0:
        return [tf.ones(quantity.y_shape()[: quantity.kept], quantity.y.dtype)]
    if size <= matrices.WRITTEN_OUT:
        found = matrices.written_out_det(quantity.each_row())
        return [quantity.over_blocks(tf.reduce_prod, found)]
    chained = _chained(quantity)
    if chained is not None:
        return [quantity.finished(chained[0] * tf.exp(chained[1]))]
    compiled = quantity.problem.compiled
    return [quantity.over_blocks(tf.reduce_prod, matrices.det(quantity.matrices(), compiled))]


@tf.autograph.experimental.do_not_convert
def slogdet(
    y: tf.Tensor,
    x: tf.Tensor,
    batch: bool = False,
    *,
    independence: str = "prove",
    name: str | None = None,
) -> SignAndLog:
    """Returns sign and logarithm of the absolute determinant of dy/dx, as `tf.linalg.slogdet`.

    Args:
      y: as in `det`.
      x: as in `det`.
      batch: as in `det`.
      independence: as in `det`.
      name: name scope of the ops added.

    Returns:
      `(sign, log_abs_determinant)`, each of the shape and dtype of `det`: 0 and -inf where the
      Jacobian is singular.

    Raises:
      As `det`.

    Cost:
      Up to three rows as `det`. Else, where the chain from x to y has tensors of as many entries,
      as flows and square nets have: a sum of logarithms for activations, one determinant for all
      examples for a dense layer, and for what is left the Jacobian of it and one factorization an
      example.

    Example:
      >>> @tf.function
      ... def f(x):
      ...   return tfjac.slogdet(-tf.exp(x), x)
      >>> sign, log = f(tf.constant([1., 2., 3.]))
      >>> float(sign), float(log)
      (-1.0, 6.0)
    """
    return SignAndLog(
        *quantities.made("slogdet", y, x, batch, independence, name or "slogdet", _slogdet)
    )


def _slogdet(quantity: Quantity) -> list[tf.Tensor]:
    size = quantity.check_square()
    if size == 0:
        one = tf.ones(quantity.y_shape()[: quantity.kept], quantity.y.dtype)
        return [one, tf.zeros_like(one)]
    if quantity.is_diagonal:
        d = quantity.diagonal()
        sign, log = tf.sign(d), tf.math.log(tf.abs(d))
    elif size <= matrices.WRITTEN_OUT:
        sign, log = matrices.written_out_slogdet(quantity.each_row())
    else:
        chained = _chained(quantity)
        if chained is not None:
            return [quantity.finished(part) for part in chained]
        sign, log = quantity.slogdet(quantity.matrices())
    return [quantity.over_blocks(tf.reduce_prod, sign), quantity.over_blocks(tf.reduce_sum, log)]


def _chained(quantity: Quantity) -> list[tf.Tensor] | None:
    """Returns sign and logarithm from the stretches of the chain; None where none is saved.

    In float32 where y has half precision, in which a sum of logarithms, and what det makes of it,
    would be rounded too much.
    """
    kept = min(quantity.problem.apart, 1)
    found = determinants.slogdet(quantity.problem, kept, quantity.slogdet)
    if found is None:
        return None
    lead = quantity.y_shape()[:kept]
    sign, log = (tf.broadcast_to(part, lead) for part in found)
    return [quantity.reduced(tf.reduce_prod, sign), quantity.reduced(tf.reduce_sum, log)]


@tf.autograph.experimental.do_not_convert
def logdet(
    y: tf.Tensor,
    x: tf.Tensor,
    batch: bool = False,
    *,
    independence: str = "prove",
    name: str | None = None,
) -> tf.Tensor:
    """Returns the logarithm of the absolute determinant of dy/dx, as flows need it.

    Args:
      y: as in `det`.
      x: as in `det`.
      batch: as in `det`.
      independence: as in `det`.
      name: name scope of the ops added.

    Returns:
      A tensor of the shape and dtype of `det`; -inf where the Jacobian is singular. Of a negative
      determinant too: `slogdet` tells the sign.

    Raises:
      As `det`.

    Cost:
      As `slogdet`.

    Example:
      >>> @tf.function
      ... def f(x):
      ...   return tfjac.logdet(tf.exp(x), x)
      >>> float(f(tf.constant([1., 2., 3.])))
      6.0
    """
    return slogdet(y, x, batch, independence=independence, name=name or "logdet")[1]


@tf.autograph.experimental.do_not_convert
def gramian(
    y: tf.Tensor,
    x: tf.Tensor,
    batch: bool = False,
    *,
    of: str = "rows",
    independence: str = "prove",
    name: str | None = None,
) -> tf.Tensor:
    """Returns J J^T, the inner products of the rows of J = dy/dx, or J^T J, those of its columns.

    J^T J is the metric that y pulls back to x; J J^T by the weights of a net is its empirical
    neural tangent kernel (Jacot et al., arXiv:1806.07572).

    Args:
      y: a real graph tensor; with `batch` `[B, ...]`.
      x: a graph tensor, or a variable; with `batch` `[B, ...]`.
      batch: whether to take it of each example, as `batch_jacobian` does.
      of: "rows" or "columns".
      independence: with `batch`, as in `batch_jacobian`.
      name: name scope of the ops added.

    Returns:
      `y.shape + y.shape` for rows, `x.shape + x.shape` for columns, of the dtype of y; with `batch`
      `[B] + y.shape[1:] + y.shape[1:]`, or likewise of x.

    Raises:
      InvalidValueError: `of` is unknown.
      As `jacobian`, or `batch_jacobian`, otherwise.

    Cost:
      The product in its cheapest order where the local Jacobians on the way are known: by the
      weight of a dense layer J itself is not formed. Else J, and the product of its blocks.

    Example:
      >>> @tf.function
      ... def f(x):
      ...   return tfjac.gramian(tf.stack([x[0], x[0] + x[1]]), x)
      >>> f(tf.constant([2., 3.])).numpy()
      array([[1., 1.],
             [1., 2.]], dtype=float32)
    """
    if of not in ("rows", "columns"):
        raise errors.InvalidValueError(
            errors.message("of", '"rows" or "columns"', repr(of), "Choose J J^T or J^T J.")
        )
    (found,) = quantities.made(
        ("gramian", of), y, x, batch, independence, name or "gramian", _GRAMIANS[of]
    )
    return found


def _gramian(quantity: Quantity, of_rows: bool) -> list[tf.Tensor]:
    kept, dtype = quantity.kept, quantity.y.dtype

    def finish(stack: Stack) -> tuple[Factor, ...]:
        return (reductions.gramian(stack, of_rows, kept, dtype),)

    own = quantity.y_shape() if of_rows else quantity.x_shape()
    factors = quantity.accumulated(("gramian", of_rows), finish)
    if factors is None:
        j = quantity.jacobian()
        products = tf.matmul(
            j.matrices(), j.matrices(), transpose_a=not of_rows, transpose_b=of_rows
        )
        products = tf.reshape(products, shapes.join(own, own[j.apart :]))
        return [blocks.spread(products, own, own, j.apart, kept)]
    shape = shapes.join(own, own[kept:])
    return [tf.reshape(factors[0].tensor, shape) if factors else tf.zeros(shape, dtype)]


_GRAMIANS = {
    "rows": lambda quantity: _gramian(quantity, of_rows=True),
    "columns": lambda quantity: _gramian(quantity, of_rows=False),
}
