"""Trace, norms and singular values of a Jacobian, exact or estimated from products with it."""

from __future__ import annotations

import functools

import tensorflow as tf

from tfjac import errors, estimates, matrices, quantities, shapes
from tfjac.accumulation import reductions
from tfjac.accumulation.factors import Factor
from tfjac.accumulation.terms import Stack
from tfjac.quantities import Quantity

# Entries of a block up to which its singular values are computed; see BUILD_NOTES.md.
_MOST_ENTRIES = 1 << 22


@tf.autograph.experimental.do_not_convert
def trace(
    y: tf.Tensor,
    x: tf.Tensor,
    batch: bool = False,
    *,
    probes: int | None = None,
    seed: int | tf.Tensor = 0,
    independence: str = "prove",
    name: str | None = None,
) -> tf.Tensor:
    """Returns the trace of dy/dx, the divergence of y, or that of each example.

    With `probes` it is Hutchinson's estimate: the mean of v^T J v over vectors v of independent
    signs. It is unbiased, with variance 2 (|S|^2 - sum_i S_ii^2) / probes for the symmetric part S
    of J (M. F. Hutchinson, 1990): exact where S is a diagonal.

    Args:
      y: a real graph tensor; with `batch` `[B, ...]`.
      x: a graph tensor of as many entries; with `batch` `[B, ...]`.
      batch: whether to take it of each example, as `batch_jacobian` does.
      probes: number of random vectors; None for the exact trace.
      seed: an int, or a tensor of two. The same seed draws the same vectors at each call; to draw
        others each time, pass a tensor that changes.
      independence: with `batch`, as in `batch_jacobian`.
      name: name scope of the ops added.

    Returns:
      A scalar of the dtype of y; with `batch` `[B]`.

    Raises:
      InvalidValueError: the Jacobian is not square, or `probes` is not a positive int. Where sizes
        are unknown, `tf.errors.InvalidArgumentError` at run time.
      As `jacobian`, or `batch_jacobian`, otherwise.

    Cost:
      One pass where the Jacobian is a diagonal. Where the local Jacobians on the way are known, the
      trace of their product in the order that is cheapest for it, J not formed. Else J. With
      `probes`, as many vector-Jacobian products.

    Example:
      >>> @tf.function
      ... def f(x):
      ...   return tfjac.trace(tf.reverse(x ** 2, [0]) + 3. * x, x)
      >>> float(f(tf.constant([1., 2., 4.])))
      13.0
    """
    if probes is not None:
        estimates.check_count("probes", probes)
        build = functools.partial(estimates.trace, probes=probes, seed=seed)
    else:
        build = _trace
    kind = ("trace", probes, estimates.seed_key(seed))
    (found,) = quantities.made(kind, y, x, batch, independence, name or "trace", build)
    return found


def _trace(quantity: Quantity) -> list[tf.Tensor]:
    return quantities.checked(quantity.square_checks(), [_trace_of(quantity)])


def _trace_of(quantity: Quantity) -> tf.Tensor:
    if quantity.is_diagonal:
        return quantity.over_blocks(tf.reduce_sum, quantity.diagonal())
    kept, dtype = quantity.kept, quantity.y.dtype

    def finish(stack: Stack) -> tuple[Factor, ...]:
        return reductions.trace(stack, kept, dtype)

    same_shape = quantity.y.shape[kept:] == quantity.problem.sources[0].shape[kept:]
    factors = quantity.accumulated("trace", finish) if same_shape else None
    if factors is None:
        return quantity.over_blocks(tf.reduce_sum, tf.linalg.trace(quantity.matrices()))
    if not factors:
        return tf.zeros(quantity.y_shape()[:kept], dtype)
    return quantity.finished(reductions.total_of(factors))


@tf.autograph.experimental.do_not_convert
def frobenius_norm(
    y: tf.Tensor,
    x: tf.Tensor,
    batch: bool = False,
    *,
    probes: int | None = None,
    seed: int | tf.Tensor = 0,
    independence: str = "prove",
    name: str | None = None,
) -> tf.Tensor:
    """Returns the Frobenius norm of dy/dx, the root of the sum of its squared entries.

    With `probes` its square is estimated without bias, as the mean of |J^T v|^2 over vectors v of
    independent signs, with variance 2 (|G|^2 - sum_i G_ii^2) / probes for G = J J^T (J. Hoffman et
    al., arXiv:1908.02729, with vectors on the sphere instead).

    Args:
      y: a real graph tensor; with `batch` `[B, ...]`.
      x: a graph tensor or variable; with `batch` `[B, ...]`.
      batch: whether to take it of each example, as `batch_jacobian` does.
      probes: number of random vectors; None for the exact norm.
      seed: as in `trace`.
      independence: with `batch`, as in `batch_jacobian`.
      name: name scope of the ops added.

    Returns:
      A scalar of the dtype of y; with `batch` `[B]`. Its gradient is zero where the norm is.

    Raises:
      InvalidValueError: `probes` is not a positive int.
      As `jacobian`, or `batch_jacobian`, otherwise.

    Cost:
      The sum of squares in the cheapest order where the local Jacobians on the way are known: of an
      outer product, or of the layer of an activation, that of its factors. Else J. With `probes`,
      as many vector-Jacobian products.

    Example:
      >>> @tf.function
      ... def f(x):
      ...   return tfjac.frobenius_norm(tf.stack([3. * x[0], 4. * x[1]]), x)
      >>> float(f(tf.constant([1., 1.])))
      5.0
    """
    if probes is not None:
        estimates.check_count("probes", probes)
        build = functools.partial(estimates.norm, probes=probes, seed=seed)
    else:
        build = _frobenius_norm
    kind = ("frobenius_norm", probes, estimates.seed_key(seed))
    (found,) = quantities.made(kind, y, x, batch, independence, name or "frobenius_norm", build)
    return found


def _frobenius_norm(quantity: Quantity) -> list[tf.Tensor]:
    kept, dtype = quantity.kept, quantity.y.dtype

    def finish(stack: Stack) -> tuple[Factor, ...]:
        return (reductions.squares(stack, kept, dtype),)

    factors = quantity.accumulated("squares", finish)
    if factors is None:
        squares = tf.reduce_sum(tf.square(quantity.matrices()), [-2, -1])
        return [quantity.over_blocks(_root_of_sum, squares)]
    if not factors:
        return [tf.zeros(quantity.y_shape()[:kept], dtype)]
    return [quantity.finished(matrices.root(factors[0].tensor))]


def _root_of_sum(squares: tf.Tensor, axis: int) -> tf.Tensor:
    return matrices.root(tf.reduce_sum(squares, axis))


@tf.autograph.experimental.do_not_convert
def singular_values(
    y: tf.Tensor,
    x: tf.Tensor,
    batch: bool = False,
    *,
    independence: str = "prove",
    name: str | None = None,
) -> tf.Tensor:
    """Returns the singular values of dy/dx, or those of each example, the largest first.

    Args:
      y: a real graph tensor of known sizes; with `batch` `[B, ...]`.
      x: a graph tensor or variable of known sizes; with `batch` `[B, ...]`.
      batch: whether to take them of each example, as `batch_jacobian` does.
      independence: with `batch`, as in `batch_jacobian`.
      name: name scope of the ops added.

    Returns:
      `[min(m, n)]` of the dtype of y for a Jacobian of m rows and n columns; with `batch`
      `[B, min(m, n)]`.

    Raises:
      InvalidValueError: unknown sizes, but of a diagonal; or a matrix of more than 4 194 304
        entries: `spectral_norm` with `iterations` finds the largest of those.
      As `jacobian`, or `batch_jacobian`, otherwise.

    Cost:
      J, and one decomposition of each block; a sort where it is a diagonal.

    Example:
      >>> @tf.function
      ... def f(x):
      ...   return tfjac.singular_values(tf.stack([3. * x[1], 4. * x[0]]), x)
      >>> f(tf.constant([1., 1.])).numpy()
      array([4., 3.], dtype=float32)
    """
    (found,) = quantities.made(
        "singular_values", y, x, batch, independence, name or "singular_values", _singular_values
    )
    return found


def _singular_values(quantity: Quantity) -> list[tf.Tensor]:
    values = _values_of_blocks(quantity)
    y_shape, kept = quantity.y_shape(), quantity.kept
    lead = y_shape[:kept]
    # Not [-1]: how many each example has cannot be told from no example.
    own = shapes.size_of(shapes.join(y_shape[kept : quantity.problem.apart], [values.shape[-1]]))
    found = tf.reshape(values, shapes.join(lead, [own]))
    if quantity.problem.apart > quantity.kept:
        found = tf.sort(found, direction="DESCENDING")
    return [tf.cast(found, quantity.y.dtype)]


def _values_of_blocks(quantity: Quantity) -> tf.Tensor:
    """Returns the singular values of the blocks, `[positions, number of each]`."""
    if quantity.is_diagonal:
        return tf.abs(quantity.diagonal())[:, None]
    if quantity.rows is None or quantity.columns is None:
        raise errors.InvalidValueError(
            errors.message(
                "y",
                "of known sizes, as x",
                f"shape {quantity.y.shape} by shape {quantity.problem.sources[0].shape}",
                "Trace the function with a full shape.",
            )
        )
    if (
        quantity.rows * quantity.columns > _MOST_ENTRIES
        and min(quantity.rows, quantity.columns) > 1
    ):
        raise errors.InvalidValueError(
            errors.message(
                "y",
                f"such that a matrix has at most {_MOST_ENTRIES} entries",
                f"matrices of {quantity.rows} x {quantity.columns}",
                "Use spectral_norm with iterations, which forms no matrix, or frobenius_norm with "
                "probes.",
            )
        )
    return matrices.singular_values(quantity.matrices())


@tf.autograph.experimental.do_not_convert
def spectral_norm(
    y: tf.Tensor,
    x: tf.Tensor,
    batch: bool = False,
    *,
    iterations: int | None = None,
    seed: int | tf.Tensor = 0,
    independence: str = "prove",
    name: str | None = None,
) -> tf.Tensor:
    """Returns the largest singular value of dy/dx, or that of each example.

    With `iterations` it is a lower bound, |J v| for v from that many steps of power iteration with
    J^T J, which forms no matrix. From a random start, with k steps for n columns, the relative
    error is at most log(n) / (2 k - 1) on average (J. Kuczynski and H. Wozniakowski, 1992, for
    J^T J), and falls as (s2 / s1)^(4 k) where the first two singular values differ.

    Args:
      y: a real graph tensor; with `batch` `[B, ...]`.
      x: a graph tensor; with `batch` `[B, ...]`.
      batch: whether to take it of each example, as `batch_jacobian` does.
      iterations: steps of power iteration; None for the exact norm.
      seed: of the start, as in `trace`.
      independence: with `batch`, as in `batch_jacobian`.
      name: name scope of the ops added.

    Returns:
      A scalar of the dtype of y; with `batch` `[B]`. The gradient of the estimate is that of
      u^T J v for the vectors found, u and v constant: the exact one where they have converged.

    Raises:
      InvalidValueError: as `singular_values`, or `iterations` is not a positive int.
      As `jacobian`, or `batch_jacobian`, otherwise.

    Cost:
      As `singular_values`. With `iterations` a Jacobian-vector and a vector-Jacobian product for
      each and one more, and a graph that grows with them.

    Example:
      >>> @tf.function
      ... def f(x):
      ...   return tfjac.spectral_norm(tf.stack([3. * x[1], 4. * x[0]]), x)
      >>> float(f(tf.constant([1., 1.])))
      4.0
    """
    if iterations is not None:
        estimates.check_count("iterations", iterations)
        build = functools.partial(estimates.spectral_norm, iterations=iterations, seed=seed)
    else:
        build = _spectral_norm
    kind = ("spectral_norm", iterations, estimates.seed_key(seed))
    (found,) = quantities.made(kind, y, x, batch, independence, name or "spectral_norm", build)
    return found


def _spectral_norm(quantity: Quantity) -> list[tf.Tensor]:
    return [quantity.over_blocks(_largest, _values_of_blocks(quantity))]


def _largest(values: tf.Tensor, axis: int) -> tf.Tensor:
    return tf.maximum(tf.reduce_max(values, axis), 0)  # of no values too


@tf.autograph.experimental.do_not_convert
def condition_number(
    y: tf.Tensor,
    x: tf.Tensor,
    batch: bool = False,
    *,
    independence: str = "prove",
    name: str | None = None,
) -> tf.Tensor:
    """Returns the largest singular value of dy/dx over the smallest, or that of each example.

    Args:
      y: as in `singular_values`.
      x: as in `singular_values`.
      batch: as in `singular_values`.
      independence: as in `singular_values`.
      name: name scope of the ops added.

    Returns:
      A scalar of the dtype of y; with `batch` `[B]`. Infinite where the smallest is zero.

    Raises:
      As `singular_values`.

    Cost:
      As `singular_values`.

    Example:
      >>> @tf.function
      ... def f(x):
      ...   return tfjac.condition_number(tf.stack([x[0], 4. * x[1]]), x)
      >>> float(f(tf.constant([1., 1.])))
      4.0
    """
    (found,) = quantities.made(
        "condition_number", y, x, batch, independence, name or "condition_number", _condition_number
    )
    return found


def _condition_number(quantity: Quantity) -> list[tf.Tensor]:
    (values,) = _singular_values(quantity)
    smallest = values[..., -1]
    is_zero = tf.equal(smallest, 0)
    ratio = values[..., 0] / tf.where(is_zero, tf.ones_like(smallest), smallest)
    return [quantity.finished(tf.where(is_zero, float("inf") * tf.ones_like(ratio), ratio))]
