"""Second derivatives: the Jacobian of the gradient."""

from __future__ import annotations

import tensorflow as tf

from tfjac import errors, jacobians, problems
from tfjac import independence as independence_lib
from tfjac.problems import Nested
from tfjac.strategies import Strategy


@tf.autograph.experimental.do_not_convert
def hessian(
    y: tf.Tensor,
    xs: Nested,
    strategy: str | Strategy = "auto",
    *,
    batch: bool = False,
    independence: str = "prove",
    chunk_size: int | str | None = "auto",
    name: str | None = None,
) -> Nested:
    """Returns the second derivatives d2y / dx dx' of a scalar, or of one for each example.

    It is the Jacobian of the gradient, which the strategy carries forward, back or both ways, as is
    cheapest: forward over reverse where x has few entries.

    Args:
      y: a scalar; with `batch` a vector `[B]`, one number for each example.
      xs: source, or a nested structure of sources, as in `jacobian`; with `batch` tensors
        `[B, ...]`.
      strategy: as in `jacobian`.
      batch: whether to return one Hessian for each example.
      independence: with `batch`, "prove" or "assume" that examples stay apart, as in
        `batch_jacobian`; of y and of its gradient.
      chunk_size: as in `jacobian`.
      name: name scope of the ops added.

    Returns:
      The structure of xs, in it the structure of xs, in it tensors of shape
      `x.shape + x'.shape`; with `batch` `[B] + x.shape[1:] + x'.shape[1:]`. Zeros where y does not
      depend on one of them.

    Raises:
      As `jacobian`, or `batch_jacobian`; also InvalidValueError where y is not of that shape.

    Cost:
      One reverse pass, and the Jacobian of it.

    Example:
      >>> @tf.function
      ... def f(x):
      ...   return tfjac.hessian(tf.reduce_sum(x ** 3), x)
      >>> f(tf.constant([1., 2.])).numpy()
      array([[ 6.,  0.],
             [ 0., 12.]], dtype=float32)
    """
    independence_lib.check_option(independence)
    flat_xs = tf.nest.flatten(xs)
    with problems.building([y], "y", name or "hessian") as (target,):
        _check_target(target, batch)
        gradients = _gradients(target, flat_xs, batch, independence)
        if batch:
            rows = jacobians.batch_jacobian(
                gradients, flat_xs, strategy, independence=independence, chunk_size=chunk_size
            )
        else:
            rows = jacobians.jacobian(gradients, flat_xs, strategy, chunk_size=chunk_size)
    return tf.nest.pack_sequence_as(xs, [tf.nest.pack_sequence_as(xs, row) for row in rows])


def _check_target(y: tf.Tensor, batch: bool) -> None:
    wanted = 1 if batch else 0
    if y.shape.rank != wanted:
        raise errors.InvalidValueError(
            errors.message(
                "y",
                "one number for each example, of shape [B]" if batch else "a scalar",
                f"{y.name!r} of shape {y.shape}",
                "Use jacobian of a gradient for others, or batch=True for one of each example.",
            )
        )


def _gradients(y: tf.Tensor, xs, batch: bool, proof: str) -> list[tf.Tensor]:
    """Returns the gradient by each source, zeros where y does not depend on it."""
    problem = problems.problem(y, xs, batch)
    if batch and proof == independence_lib.PROVE:
        for source in problem.sources:
            independence_lib.check(y, source)
    found = tf.gradients(y, list(xs), unconnected_gradients="zero")
    return [tf.convert_to_tensor(gradient) for gradient in found]
