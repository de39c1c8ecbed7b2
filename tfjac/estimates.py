"""Estimates of trace and norms from products with random vectors."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tfjac import construction, errors, matrices, products, quantities, shapes
from tfjac.quantities import Quantity


def trace(quantity: Quantity, probes: int, seed) -> list[tf.Tensor]:
    """Returns Hutchinson's estimate of the trace."""
    checks = quantity.square_checks()
    signs = _signs(quantity, probes, seed)
    (pulled,) = quantities.checked(checks, [_pulled(quantity, signs)])
    each = tf.reshape(signs, tf.shape(pulled)) * pulled
    return [quantity.finished(tf.reduce_sum(each, [-2, -1]) / probes)]


def norm(quantity: Quantity, probes: int, seed) -> list[tf.Tensor]:
    """Returns an estimate of the Frobenius norm from projections."""
    pulled = _pulled(quantity, _signs(quantity, probes, seed))
    squares = tf.reduce_sum(tf.square(matrices.widened(pulled)), [-2, -1]) / probes
    return [quantity.finished(matrices.root(squares))]


def spectral_norm(quantity: Quantity, iterations: int, seed) -> list[tf.Tensor]:
    """Returns the norm of J v for v from power iteration."""
    y, x = quantity.y, quantity.x
    v = tf.random.stateless_normal(quantity.x_shape(), _seed_of(seed), dtype=y.dtype)
    v = tf.cast(_unit(v, quantity.kept), quantity.problem.sources[0].dtype)
    for _ in range(iterations):
        u = _unit(products.jvp(y, x, v), quantity.kept)  # or J^T u would have the squared scale
        v = tf.stop_gradient(_unit(products.vjp(y, x, u), quantity.kept))
    pushed = products.jvp(y, x, v)
    u = tf.stop_gradient(_unit(pushed, quantity.kept))
    return [quantity.finished(_sums(matrices.widened(u * pushed), quantity.kept))]


def _unit(vectors: tf.Tensor, kept: int) -> tf.Tensor:
    """Returns vectors of length one, zero where they are zero."""
    wide = matrices.widened(vectors)  # whose squares do not overflow
    norms = matrices.root(_sums(tf.square(wide), kept))
    safe = tf.where(norms > 0, norms, tf.ones_like(norms))
    ones = [1] * (vectors.shape.rank - kept)
    units = wide / tf.reshape(safe, shapes.join(shapes.shape_of(safe), ones))
    return tf.cast(units, vectors.dtype)


def _sums(values: tf.Tensor, kept: int) -> tf.Tensor:
    return tf.reduce_sum(values, list(range(kept, values.shape.rank)))


def _signs(quantity: Quantity, probes: int, seed) -> tf.Tensor:
    """Returns random signs, `[*lead, probes, *y_rest]`."""
    y_shape, kept = quantity.y_shape(), quantity.kept
    shape = shapes.join(y_shape[:kept], [probes], y_shape[kept:])
    bits = tf.random.stateless_uniform(shape, _seed_of(seed), 0, 2, tf.int32)
    return tf.cast(2 * bits - 1, quantity.y.dtype)


def _pulled(quantity: Quantity, signs: tf.Tensor) -> tf.Tensor:
    """Returns v^T J for each vector, `[*lead, probes, entries of x]`."""
    y, kept = quantity.y, quantity.kept
    along = tf.reduce_sum(tf.expand_dims(y, kept) * signs, list(range(kept + 1, y.shape.rank + 1)))
    rows = construction.operate(
        along, quantity.x, bool(kept), construction.options_of(), "projections"
    )
    return tf.reshape(rows, shapes.join(shapes.shape_of(along), [-1]))


def check_count(argument: str, count: int) -> None:
    """Raises unless `count` is a positive int.

    Args:
      argument: its name.
      count: what was given.
    """
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise errors.InvalidValueError(
            errors.message(argument, "a positive int, or None", repr(count), "Leave it out.")
        )


def _seed_of(seed) -> tf.Tensor:
    seed = tf.convert_to_tensor(seed)
    is_shaped = seed.shape.rank == 0 or seed.shape.is_compatible_with([2])
    if not (seed.dtype.is_integer and is_shaped):
        raise errors.InvalidValueError(
            errors.message(
                "seed",
                "an int, or a tensor of two",
                f"dtype {seed.dtype.name} and shape {seed.shape}",
                "Give what tf.random.stateless_uniform takes.",
            )
        )
    return tf.stack([seed, tf.zeros_like(seed)]) if seed.shape.rank == 0 else seed


def seed_key(seed):
    """Returns what tells a seed from others."""
    return seed.ref() if tf.is_tensor(seed) else tuple(np.ravel(seed).tolist())
