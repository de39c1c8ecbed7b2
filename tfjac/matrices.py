"""Determinants and singular values of matrices `[..., m, n]`, as tfjac takes them of Jacobians."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import tensorflow as tf

from tfjac import elimination

# Rows of a square matrix up to which the determinant is written out.
WRITTEN_OUT = 3

# What is computed in where a tensor has fewer bits than linear algebra takes, or than squares need.
_WIDER = {tf.float16: tf.float32, tf.bfloat16: tf.float32}


def wider(dtype: tf.DType) -> tf.DType:
    """Returns the dtype to compute in: float32 for half precision."""
    return _WIDER.get(dtype, dtype)


def widened(values: tf.Tensor) -> tf.Tensor:
    """Returns `values` in the dtype to compute in."""
    return tf.cast(values, wider(values.dtype))


def det(matrices: tf.Tensor, compiled: bool) -> tf.Tensor:
    """Returns the determinants, `[...]`; `compiled` says that XLA will compile it."""
    if compiled:
        sign, log = elimination.slogdet(matrices)
        return sign * tf.exp(log)
    return tf.linalg.det(matrices)


def slogdet(matrices: tf.Tensor, compiled: bool) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns sign and logarithm of the absolute determinant, 0 and -inf where singular."""
    return tuple((elimination if compiled else tf.linalg).slogdet(matrices))


def written_out_det(rows: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns determinants as a polynomial of the entries, for one to three rows `[..., n]`.

    Its gradient is the cofactors, finite also where the matrix is singular.
    """
    entries = [tf.unstack(row, axis=-1) for row in rows]
    if len(rows) == 1:
        return entries[0][0]
    if len(rows) == 2:
        return _det2(*entries)
    a, b, c = entries
    minors = [_det2((b[j], b[k]), (c[j], c[k])) for j, k in ((1, 2), (0, 2), (0, 1))]
    return a[0] * minors[0] - a[1] * minors[1] + a[2] * minors[2]


def _det2(a: Sequence[tf.Tensor], b: Sequence[tf.Tensor]) -> tf.Tensor:
    return a[0] * b[1] - a[1] * b[0]


def written_out_slogdet(rows: Sequence[tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns sign and logarithm of the same, 0 and -inf where singular."""
    # Scaled to entries of at most one, or the products could over- or underflow where the logarithm
    # does not: first the rows, then the columns.
    scales = [_scale(tf.reduce_max(tf.abs(row), -1)) for row in rows]
    rows = [row / scale[..., None] for row, scale in zip(rows, scales)]
    columns = _scale(functools.reduce(tf.maximum, (tf.abs(row) for row in rows)))
    found = written_out_det([row / columns for row in rows])
    logs = [tf.reduce_sum(tf.math.log(columns), -1), *(tf.math.log(scale) for scale in scales)]
    return tf.sign(found), tf.math.log(tf.abs(found)) + tf.add_n(logs)


def _scale(largest: tf.Tensor) -> tf.Tensor:
    """Returns what to divide by so that the largest is one, where it can be."""
    is_usable = tf.math.is_finite(largest) & (largest > 0)
    return tf.stop_gradient(tf.where(is_usable, largest, tf.ones_like(largest)))


def singular_values(matrices: tf.Tensor) -> tf.Tensor:
    """Returns the singular values, `[..., min(m, n)]`, the largest first."""
    if 1 in matrices.shape[-2:].as_list():
        return norm(matrices)[..., None]
    return tf.linalg.svd(matrices, compute_uv=False)


def norm(matrices: tf.Tensor) -> tf.Tensor:
    """Returns the Frobenius norms, `[...]`."""
    return root(tf.reduce_sum(tf.square(matrices), [-2, -1]))


def root(squares: tf.Tensor) -> tf.Tensor:
    """Returns the square root, finite at zero in its gradient too: a norm's is then zero."""
    safe = tf.where(squares > 0, squares, tf.ones_like(squares))
    return tf.where(squares > 0, tf.sqrt(safe), squares)
