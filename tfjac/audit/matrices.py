"""Samples of linear algebra and Fourier transforms."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tfjac.audit.samples import complexes, definite, invertible, public, raw, single, spread


def _hermitian(x):
    """Half of the matrix alone is read: of a symmetric one, both gradients are the same."""
    return (x + tf.linalg.adjoint(x)) / 2


def _put_together(x, full_matrices=False):
    s, u, v = tf.linalg.svd(x, full_matrices=full_matrices)
    rank = s.shape[-1]
    return tf.matmul(
        u[..., :rank] * tf.cast(s, x.dtype)[..., tf.newaxis, :], v[..., :rank], adjoint_b=True
    )


def _eigen(x, compute_v=True):
    return tf.raw_ops.SelfAdjointEigV2(input=_hermitian(x), compute_v=compute_v)


def _square_root(x):
    """Gives a function of the matrix from its eigenvectors, whose sign is left open."""
    e, v = _eigen(x)
    return tf.matmul(v * tf.cast(tf.sqrt(e), x.dtype)[..., tf.newaxis, :], v, adjoint_b=True)


def _eig_projected(x):
    """Makes the first entry of each eigenvector 1: length and phase are left open."""
    e, v = tf.raw_ops.Eig(input=x, compute_v=True, Tout=_complex_of(x))
    return e, v / v[..., :1, :]


def _complex_of(x):
    return tf.complex128 if x.dtype.real_dtype == tf.float64 else tf.complex64


_TWICE = np.diag([2.0, 2.0, 1.0])
_SINGULAR = np.array([[1.0, 2.0], [2.0, 4.0]])
_COMPLEX = invertible(2, 2) + 1j * spread(2, 2, seed=7)

# fmt: off
PRODUCTS = [
    *[raw("MatMul", spread(*((2, 3)[::-1] if a else (2, 3))),
          spread(*((3, 2)[::-1] if b else (3, 2)), seed=1), transpose_a=a, transpose_b=b)
      for a in (False, True) for b in (False, True)],
    raw("MatMul", complexes(3, 2), complexes(3, 1, seed=5), transpose_a=True, name="complex"),
    raw("MatMul", spread(2, 0), spread(0, 3), name="empty"),
    raw("SparseMatMul", single(2, 3), single(3, 2, seed=1), a_is_sparse=True, name="a_is_sparse"),
    raw("SparseMatMul", single(3, 2), single(2, 3, seed=1), transpose_a=True, transpose_b=True,
        name="transposed"),
    *[raw(name, spread(2, *((2, 3)[::-1] if a else (2, 3))),
          spread(2, *((3, 1)[::-1] if b else (3, 1)), seed=1), adj_x=a, adj_y=b)
      for name in ("BatchMatMul", "BatchMatMulV2") for a in (False, True) for b in (False, True)],
    raw("BatchMatMulV2", spread(2, 1, 1, 3), spread(2, 3, 2), name="broadcast"),
    raw("BatchMatMulV2", complexes(2, 3, 2), complexes(1, 3, seed=5), adj_x=True, adj_y=True,
        name="complex"),
    raw("BatchMatMulV3", spread(2, 1, 3), spread(3, 2), Tout=tf.float64),
    *[raw(name, *[spread(*shape, seed=n) for n, shape in enumerate(shapes)], listed="inputs",
          equation=equation)
      for name in ("Einsum",) for equation, shapes in (
          ("ij,jk->ik", [(2, 3), (3, 2)]), ("ij->ji", [(2, 3)]), ("ij->", [(2, 3)]),
          ("ii->i", [(3, 3)]), ("i->ii", [(3,)]), ("ii->", [(2, 2)]), ("i,j->ij", [(2,), (3,)]),
          ("...ij,...jk->...ik", [(2, 1, 2), (2, 2)]), ("ij,jk->ij", [(2, 3), (3, 2)]),
          ("...,...->...", [(2, 2), (1, 2)]))],
    raw("Einsum", complexes(2, 3), complexes(3, seed=5), listed="inputs", equation="ij,j->i",
        name="complex"),
    raw("TridiagonalMatMul", spread(1, 3), spread(1, 3, seed=1), spread(1, 3, seed=2),
        spread(3, 2, seed=3), name="plain"),
]

DECOMPOSITIONS = [
    *[public("Cholesky", name, lambda x: tf.linalg.cholesky(_hermitian(x)), x) for name, x in (
        ("two", definite(2, 2, 2)), ("three rows", definite(3, 3)), ("one row", definite(1, 1)),
        ("equal eigenvalues", 2 * np.eye(2)), ("empty", np.zeros([0, 2, 2])),
        ("complex", definite(2, 2) + 1j * np.array([[0, 0.2], [-0.2, 0]])))],
    *[public("SelfAdjointEigV2", f"{what}, {name}", fn, x)
      for what, fn in (("values", lambda x: _eigen(x, False)[0]), ("square root", _square_root))
      for name, x in (
          ("two", definite(2, 2, 2)), ("equal", 2 * np.eye(2)), ("one row", definite(1, 1)),
          ("complex", definite(2, 2) + 1j * np.array([[0, 0.2], [-0.2, 0]])))],
    public("Eig", "values", lambda x: tf.raw_ops.Eig(
        input=x, compute_v=False, Tout=_complex_of(x))[0], definite(2, 2)),
    public("Eig", "vectors", _eig_projected, definite(2, 2) + np.array([[0, 0.3], [0, 0]])),
    public("Eig", "values, complex", lambda x: tf.raw_ops.Eig(
        input=x, compute_v=False, Tout=_complex_of(x))[0], _COMPLEX),
    public("Eig", "vectors, complex", _eig_projected, _COMPLEX),
    *[public("Svd", f"values, {name}", lambda x: tf.linalg.svd(x, compute_uv=False), x)
      for name, x in (("square", invertible(2, 2)), ("tall", spread(3, 2)), ("wide", spread(2, 3)),
                      ("equal", 2 * np.eye(2)), ("of rank 1", _SINGULAR), ("complex", _COMPLEX),
                      ("complex tall", complexes(3, 2)))],
    *[public("Svd", f"put together, {name}", _put_together, x)
      for name, x in (("square", invertible(2, 2)), ("tall", spread(3, 2)), ("wide", spread(2, 3)),
                      ("equal", 2 * np.eye(2)), ("two equal", _TWICE), ("of rank 1", _SINGULAR),
                      ("much taller", spread(4, 2)), ("complex", _COMPLEX))],
    public("Svd", "put together, full matrices, tall", lambda x: _put_together(x, True),
           spread(3, 2)),
    *[raw("Qr", x, full_matrices=full, name=name) for name, x, full in (
        ("square", invertible(2, 2), False), ("tall", spread(3, 2), False),
        ("wide", spread(2, 3), False), ("tall, full", spread(3, 2), True),
        ("square, full", invertible(2, 2), True), ("complex", _COMPLEX, False))],
    *[raw("MatrixSquareRoot", x, name=name) for name, x in (
        ("definite", definite(2, 2)), ("equal eigenvalues", 2 * np.eye(2)))],
]

SOLUTIONS = [
    *[raw("MatrixInverse", invertible(2, 3, 3), adjoint=adjoint) for adjoint in (False, True)],
    raw("MatrixInverse", _COMPLEX, name="complex"),
    raw("MatrixInverse", _COMPLEX, adjoint=True, name="complex adjoint"),
    *[raw(name, x, name=label) for name in ("MatrixDeterminant", "LogMatrixDeterminant")
      for label, x in (
          ("three rows", invertible(3, 3)), ("two", invertible(2, 2, 2)), ("one row", np.eye(1)),
          ("negative", np.array([[0.0, 1.0], [2.0, 0.5]])), ("singular", _SINGULAR),
          ("zeros", np.zeros([2, 2])), ("complex", _COMPLEX), ("empty", np.zeros([0, 2, 2])))],
    public("LogMatrixDeterminant", "real part of complex", lambda x: tf.math.real(
        tf.linalg.slogdet(x)[1]), _COMPLEX),
    *[raw("MatrixSolve", invertible(2, 2), spread(2, 3, seed=1), adjoint=adjoint)
      for adjoint in (False, True)],
    raw("MatrixSolve", _COMPLEX, complexes(2, 1), adjoint=True, name="complex adjoint"),
    *[raw("MatrixTriangularSolve", invertible(*matrix), spread(*right, seed=1), lower=lower,
          adjoint=adjoint)
      for matrix, right, lower, adjoint in (
          ((3, 3), (3, 2), True, False), ((2, 2), (2, 3), False, True),
          ((2, 1, 2, 2), (3, 2, 1), True, True))],
    raw("MatrixTriangularSolve", _COMPLEX, complexes(2, 1), adjoint=True, name="complex adjoint"),
    *[raw("MatrixSolveLs", spread(*a), spread(a[0], 2, seed=1), np.array(0.3), fast=True, name=name,
          dtypes=("float64",))
      for name, a in (("tall", (3, 2)), ("wide", (2, 3)), ("square", (2, 2)))],
    raw("MatrixSolveLs", spread(3, 2), spread(3, 1, seed=1), np.array(0.0), fast=False, name="slow",
        dtypes=("float64",)),
    *[raw("BandedTriangularSolve", spread(2, 3, low=0.5), spread(3, 2), lower=lower,
          adjoint=adjoint)
      for lower in (True, False) for adjoint in (True, False)],
    *[raw("TridiagonalSolve", np.stack([spread(3), 4 + spread(3), spread(3)]), spread(3, 2, seed=1),
          partial_pivoting=pivoting) for pivoting in (True, False)],
]

FOURIER = [
    *[raw(name, complexes(*shape)) for name, shape in (
        ("FFT", (3,)), ("FFT", (2, 4)), ("IFFT", (1, 3)), ("IFFT", (4,)), ("FFT2D", (2, 3)),
        ("IFFT2D", (2, 3)), ("FFT3D", (2, 2, 1)), ("IFFT3D", (2, 1, 2)))],
    raw("FFT", complexes(3, dtype=np.complex64), name="complex64"),
    *[public(name, f"{shape}; fft_length={length}",
             lambda x, name=name, length=length: getattr(tf.raw_ops, name)(
                 input=x, fft_length=length, Tcomplex=_complex_of(x)), spread(*shape))
      for name, shape, length in (
          ("RFFT", (4,), [4]), ("RFFT", (2, 3), [3]), ("RFFT", (5,), [3]),
          ("RFFT", (1,), [1]), ("RFFT2D", (2, 4), [2, 4]), ("RFFT2D", (3, 3), [3, 3]),
          ("RFFT2D", (3, 4), [2, 4]))],
    *[public(name, f"{shape}; fft_length={length}",
             lambda x, name=name, length=length: getattr(tf.raw_ops, name)(
                 input=x, fft_length=length, Treal=x.dtype.real_dtype), complexes(*shape))
      for name, shape, length in (
          ("IRFFT", (3,), [4]), ("IRFFT", (3,), [5]), ("IRFFT", (4,), [4]),
          ("IRFFT2D", (2, 3), [2, 4]), ("IRFFT2D", (2, 3), [2, 5]), ("IRFFT2D", (3, 3), [2, 4]))],
]
# fmt: on

SAMPLES = [*PRODUCTS, *DECOMPOSITIONS, *SOLUTIONS, *FOURIER]
