"""Gradients of each example by the weights that all of them share, and their norms."""

from __future__ import annotations

import math
from collections.abc import Sequence

import tensorflow as tf

from tfjac import (
    errors,
    graph_memo,
    jacobians,
    matrices,
    nests,
    planning,
    problems,
    quantities,
    shapes,
)
from tfjac.accumulation import order, reductions
from tfjac.accumulation.factors import Factor
from tfjac.accumulation.terms import Stack
from tfjac.problems import Nested
from tfjac.quantities import Quantity


@tf.autograph.experimental.do_not_convert
def per_example_gradients(losses: tf.Tensor, xs: Nested, *, name: str | None = None) -> Nested:
    """Returns the gradient of each example's loss by the weights.

    Args:
      losses: `[B]`, one number for each example.
      xs: weights, a variable or tensor or a nested structure of them, as `model.trainable_weights`.
      name: name scope of the ops added.

    Returns:
      The structure of xs, in it tensors `[B] + x.shape`; zeros where a loss does not depend on it.

    Raises:
      InvalidValueError: `losses` is not of shape [B].
      As `jacobian` otherwise.

    Cost:
      One reverse pass for all examples together, and writing the result: the weight of a dense
      layer has an outer product for each. Where an op on the way has no local Jacobian of known
      structure, a vectorized map over the examples.

    Example:
      >>> w = tf.Variable([[1.], [2.]])
      >>> @tf.function
      ... def f(x):
      ...   return tfjac.per_example_gradients(tf.reduce_sum(x @ w, 1) ** 2, w)
      >>> f(tf.constant([[1., 0.], [0., 1.]])).numpy().squeeze()
      array([[2., 0.],
             [0., 4.]], dtype=float32)
    """
    with problems.building([losses], "losses", name or "per_example_gradients") as (target,):
        _check_losses(target)
        weights = nests.Nest(xs, "xs")
        flat = weights.leaves
        found: dict[int, tf.Tensor] = {}
        for part in _parts(target, flat):
            found |= zip(part, jacobians.jacobian(target, [flat[k] for k in part]))
        return weights.pack([found[k] for k in range(len(flat))])


def _parts(losses: tf.Tensor, xs: Sequence[tf.Tensor | tf.Variable]) -> list[list[int]]:
    """Returns which weights to go by together: those that cost less by themselves go alone."""
    if len(xs) < 2:
        return [list(range(len(xs)))]
    share = _seconds(jacobians.plan(losses, list(xs))) / len(xs)
    alone = [k for k, x in enumerate(xs) if _seconds_alone(losses, x) <= share]
    rest = [k for k in range(len(xs)) if k not in alone]
    return [[k] for k in alone] + ([rest] if rest else [])


def _seconds_alone(losses: tf.Tensor, x: tf.Tensor | tf.Variable) -> float:
    """Returns the seconds of the one strategy that may take less by one weight than its share.

    The others take as many passes for one weight as for all.
    """
    try:
        return _seconds(jacobians.plan(losses, x, strategy="cross_country"))
    except errors.UnsupportedError:
        return math.inf


def _seconds(plans: Sequence[planning.Plan]) -> float:
    return sum(min(a.seconds for a in plan.answers if a.support.ok) for plan in plans)


@tf.autograph.experimental.do_not_convert
def per_example_gradient_norms(
    losses: tf.Tensor, xs: Nested, *, name: str | None = None
) -> tf.Tensor:
    """Returns the Euclidean norm of the gradient of each example's loss by all weights together.

    Args:
      losses: `[B]`, one number for each example.
      xs: weights, as in `per_example_gradients`.
      name: name scope of the ops added.

    Returns:
      `[B]`, of the dtype of the losses: the norm over all xs, as clipping by global norm needs it.

    Raises:
      As `per_example_gradients`.

    Cost:
      As `per_example_gradients`, but for what is not formed: of an outer product the norm is the
      product of norms (I. Goodfellow, arXiv:1510.01799).

    Example:
      >>> w = tf.Variable([[1.], [2.]])
      >>> @tf.function
      ... def f(x):
      ...   return tfjac.per_example_gradient_norms(tf.reduce_sum(x @ w, 1) ** 2, w)
      >>> f(tf.constant([[1., 0.], [0., 1.]])).numpy()
      array([2., 4.], dtype=float32)
    """
    with problems.building([losses], "losses", name or "per_example_gradient_norms") as (target,):
        _check_losses(target)
        squares = _squares(target, nests.Nest(xs, "xs").leaves)
        return graph_memo.memoized_unless_recording(
            ("norms", *(part.ref() for part in squares)),
            lambda: tf.cast(matrices.root(tf.add_n(squares)), target.dtype),
        )


def _squares(losses: tf.Tensor, xs: Sequence[tf.Tensor | tf.Variable]) -> list[tf.Tensor]:
    """Returns sums of squares, `[B]`, whose sum is that over all weights.

    Weights to which the rows are carried in a vectorized map, as those within a loop, share it.
    """
    mapped, found = [], []
    for x in xs:
        part = problems.problem(losses, [x], False)
        problems.check_real(part)
        if order.is_mapped(part, part.sources[0]):
            mapped.append(x)
        else:
            found += quantities.made(
                "row_squares", losses, x, False, "prove", "squares", _row_squares
            )
    if mapped:
        rows = jacobians.jacobian(losses, mapped)
        key = ("squares of rows", *(part.ref() for part in rows))
        found += graph_memo.memoized_unless_recording(key, lambda: [_of_rows(r) for r in rows])
    return found


def _of_rows(rows: tf.Tensor) -> tf.Tensor:
    flat = tf.reshape(rows, shapes.join(shapes.shape_of(rows)[:1], [-1]))
    return tf.reduce_sum(tf.square(matrices.widened(flat)), -1)


def _row_squares(quantity: Quantity) -> Sequence[tf.Tensor]:
    """Returns the sums of squares of the rows, `[B]`, in float32 of half precision."""
    y = quantity.y

    def finish(stack: Stack) -> tuple[Factor, ...]:
        return (reductions.squares(stack, 0, y.dtype, examples=1),)

    factors = quantity.accumulated("row_squares", finish)
    shape = quantity.y_shape()
    if factors is None:
        return [_of_rows(jacobians.jacobian(y, quantity.x))]
    wide = matrices.wider(y.dtype)
    return [tf.reshape(factors[0].tensor, shape) if factors else tf.zeros(shape, wide)]


def _check_losses(losses: tf.Tensor) -> None:
    if losses.shape.rank != 1:
        raise errors.InvalidValueError(
            errors.message(
                "losses",
                "one number for each example, of shape [B]",
                f"{losses.name!r} of shape {losses.shape}",
                "Reduce over the other axes, not over the examples.",
            )
        )
