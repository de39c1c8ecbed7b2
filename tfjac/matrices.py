"""Determinants and singular values of matrices `[..., m, n]`, as tfjac takes them of Jacobians."""

from __future__ import annotations

import tensorflow as tf

# Rows of a square matrix up to which the determinant is written out.
WRITTEN_OUT = 3


def det(matrices: tf.Tensor) -> tf.Tensor:
    """Returns the determinants, `[...]`; a polynomial of the entries up to three rows.

    Its gradient is the cofactors there, finite also where the matrix is singular.
    """
    n = matrices.shape[-1]
    if n is None or n > WRITTEN_OUT:
        return tf.linalg.det(matrices)
    rows = [tf.unstack(row, axis=-1) for row in tf.unstack(matrices, axis=-2)]
    if n == 0:
        return tf.ones(tf.shape(matrices)[:-2], matrices.dtype)
    if n == 1:
        return rows[0][0]
    if n == 2:
        return _det2(rows[0], rows[1])
    a, b, c = rows
    minors = [_det2((b[j], b[k]), (c[j], c[k])) for j, k in ((1, 2), (0, 2), (0, 1))]
    return a[0] * minors[0] - a[1] * minors[1] + a[2] * minors[2]


def _det2(a, b) -> tf.Tensor:
    return a[0] * b[1] - a[1] * b[0]


def slogdet(matrices: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns sign and logarithm of the absolute determinant, 0 and -inf where singular."""
    n = matrices.shape[-1]
    if n is None or n > WRITTEN_OUT:
        return tuple(tf.linalg.slogdet(matrices))
    if n == 0:
        one = det(matrices)
        return one, tf.zeros_like(one)
    # Scaled to entries of at most one, or the products could overflow where the logarithm does not.
    largest = tf.stop_gradient(tf.reduce_max(tf.abs(matrices), [-2, -1], keepdims=True))
    scale = tf.where(tf.math.is_finite(largest) & (largest > 0), largest, tf.ones_like(largest))
    found = det(matrices / scale)
    return tf.sign(found), tf.math.log(tf.abs(found)) + n * tf.math.log(scale[..., 0, 0])


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
