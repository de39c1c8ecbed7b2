"""Near relatives of the faults in tests/cases: three or more for each kind that matters most.

The oracle is a closed form, else fourth-order central differences in float64, which are fair where
the function is smooth in all of a neighborhood, also where its gradient as written is not.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from scenarios import array, central_differences


@dataclasses.dataclass(frozen=True)
class Relative:
    """One problem.

    Args:
      name: its name in test ids; what comes before the colon is the kind.
      fn: from the source to the target.
      x: the source.
      expected: the full Jacobian; None for central differences.
      tolerance: relative to the largest entry, or to one.
      batch: whether examples are independent, so that the blocks are asked for too.
      signature: shape that `prepare` is told, False for that of x.
      strategies: under which it is run; None for all.
    """

    name: str
    fn: Callable[..., Any]
    x: np.ndarray
    expected: np.ndarray | None = None
    tolerance: float = 1e-9
    batch: bool = False
    signature: Any = False
    strategies: tuple[str, ...] | None = None

    def oracle(self) -> np.ndarray:
        """Returns the full Jacobian, `y.shape + x.shape`."""
        if self.expected is not None:
            return self.expected
        return central_differences(self.fn, [self.x], 0)


def gradient_of(fn):
    """Returns the gradient of a scalar as a function, to be differentiated again."""
    return lambda z: tf.gradients(fn(z), z)[0]


ZERO_ROW = np.array([[2.0, 0.0, 3.0], [1.5, -1.0, 2.0]])
TWO_ZEROS = np.array([[0.0, 0.0, 3.0], [0.0, -1.0, 2.0]])


def products_hessian(x):
    """Returns the second derivatives of prod(x): the product of all others."""
    n = len(x)
    found = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            if i != j:
                found[i, j] = np.prod(np.delete(x, [i, j]))
    return found


PRODUCTS = [
    Relative("prod: last axis", lambda z: tf.reduce_prod(z, 1), ZERO_ROW, batch=True),
    Relative("prod: first axis", lambda z: tf.reduce_prod(z, 0), TWO_ZEROS),
    Relative("prod: two zeros", lambda z: tf.reduce_prod(z, 1), TWO_ZEROS, batch=True),
    Relative("prod: all, keepdims", lambda z: tf.reduce_prod(z, keepdims=True), ZERO_ROW),
    Relative(
        "prod: unknown sizes", lambda z: tf.reduce_prod(z, -1), ZERO_ROW, signature=[None, None]
    ),  # fmt: skip
    Relative("prod: of a product", lambda z: tf.reduce_prod(z * z + z, 1), ZERO_ROW, batch=True),
    *(
        Relative(f"prod: hessian, {k} zeros", gradient_of(tf.reduce_prod), x, products_hessian(x))
        for k, x in enumerate([[2.0, 3.0, 4.0], [0.0, 2.0, 3.0], [0.0, 2.0, 0.0, 5.0]])
        for x in [np.array(x)]
    ),
]

CUMPRODS = [
    Relative(
        f"cumprod: {'exclusive' if e else 'inclusive'}, {'reverse' if r else 'forward'}, {name}",
        functools.partial(tf.math.cumprod, axis=axis, exclusive=e, reverse=r),
        x,
    )
    for e in (False, True)
    for r in (False, True)
    for name, axis, x in [
        ("one zero", 0, np.array([2.0, 0.0, 3.0, 4.0])),
        ("two zeros", 1, np.array([[1.5, 0.0, 2.0, 0.0, 3.0], [1.0, 2.0, 3.0, 4.0, 5.0]])),
        ("first axis", 0, TWO_ZEROS),
    ]
]


def chosen_in_loop(z):
    def body(i, h):
        return i + 1, tf.where(h > 0.0, tf.sqrt(tf.abs(h)), 2.0 * z)

    return tf.while_loop(lambda i, _: i < 2, body, (0, z), maximum_iterations=2)[1]


def nested_choice(z):
    inner = tf.where(z > 0.0, tf.math.log(z), -z)
    return tf.where(z > -2.0, inner, z**2)


def broadcast_choice(z):
    return tf.where(tf.constant([[True], [False]]), z, 1.0 / z)


def choice_by_row(z):
    return tf.where(tf.reduce_sum(tf.abs(z), 1, keepdims=True) > 0.0, tf.math.log(z), 0.0)


WHERES = [
    Relative(
        "where: division",
        lambda z: tf.where(tf.abs(z) > 1.0, 1.0 / z, z * 5.0),
        np.array([0.0, 2.0, -4.0]),
        np.diag([5.0, -0.25, -0.0625]),
    ),  # fmt: skip
    Relative(
        "where: sqrt",
        lambda z: tf.where(z > 0.0, tf.sqrt(z), 0.0),
        np.array([0.0, 4.0, -1.0]),
        np.diag([0.0, 0.25, 0.0]),
    ),  # fmt: skip
    Relative(
        "where: nested",
        nested_choice,
        np.array([-1.0, 2.0, -3.0, 0.0]),
        np.diag([-1.0, 0.5, -6.0, -1.0]),
    ),  # fmt: skip
    Relative(
        "where: broadcast condition",
        broadcast_choice,
        np.array([[0.0, 2.0], [2.0, -4.0]]),
        np.diag([1.0, 1.0, -0.25, -0.0625]).reshape(2, 2, 2, 2),
    ),  # fmt: skip
    Relative(
        "where: rows",
        choice_by_row,
        np.array([[0.0, 0.0], [2.0, 4.0]]),
        np.diag([0.0, 0.0, 0.5, 0.25]).reshape(2, 2, 2, 2),
    ),  # fmt: skip
    Relative(
        "where: after a product",
        lambda z: tf.where(z > 0.0, tf.math.log(z), 0.0) @ [[2.0]],
        np.array([[0.0], [2.0]]),
        np.diag([0.0, 1.0]).reshape(2, 1, 2, 1),
        batch=True,
    ),  # fmt: skip
    Relative(
        "where: before a product",
        lambda z: tf.where(z @ tf.eye(2, dtype=z.dtype) > 0.0, tf.sqrt(z), z),
        np.array([[0.0, 4.0]]),
        np.diag([1.0, 0.25]).reshape(1, 2, 1, 2),
    ),  # fmt: skip
    Relative("where: in a loop", chosen_in_loop, np.array([0.0, 16.0]), np.diag([2.0, 1 / 32])),
    Relative(
        "where: made safe first",
        lambda z: tf.where(z > 0.0, tf.sqrt(tf.where(z > 0.0, z, 1.0)), 0.0),
        np.array([0.0, 4.0]),
        np.diag([0.0, 0.25]),
    ),  # fmt: skip
    Relative(
        "where: divide_no_nan",
        lambda z: tf.math.divide_no_nan(z[0], z[1]),
        np.array([[3.0, 1.0], [0.0, 2.0]]),
        np.array([[[0, 0], [0, 0]], [[0, 0.5], [0, -0.25]]]),
    ),  # fmt: skip
    Relative(
        "where: xlogy at zero",
        lambda z: tf.math.xlogy(z, 3.0),
        np.array([0.0, 2.0]),
        np.log(3.0) * np.eye(2),
    ),  # fmt: skip
]

# Not defined at zero: only the other rows are compared there (NaN stands for any value).
ANY = np.full(2, np.nan)
NORMS = [
    Relative(
        "norm: two",
        lambda z: tf.norm(z, axis=1),
        np.array([[0.0, 0.0], [3.0, 4.0]]),
        np.array([[ANY, [0, 0]], [[0, 0], [0.6, 0.8]]]),
    ),  # fmt: skip
    Relative(
        "norm: one",
        lambda z: tf.norm(z, ord=1, axis=1),
        np.array([[0.0, -2.0], [3.0, 4.0]]),
        np.array([[[np.nan, -1], [0, 0]], [[0, 0], [1, 1]]]),
    ),  # fmt: skip
    Relative(
        "norm: largest",
        lambda z: tf.norm(z, ord=np.inf, axis=1),
        np.array([[1.0, -2.0], [3.0, 2.0]]),
        np.array([[[0, -1], [0, 0]], [[0, 0], [1, 0]]]),
    ),  # fmt: skip
    Relative(
        "norm: normalized",
        lambda z: tf.math.l2_normalize(z, 1),
        np.array([[0.0, 0.0], [3.0, 4.0]]),
        np.array(
            [
                [[[1e6, 0], [0, 0]], [[0, 1e6], [0, 0]]],
                [[[0, 0], [0.128, -0.096]], [[0, 0], [-0.096, 0.072]]],
            ]
        ),
    ),  # fmt: skip
    Relative(
        "norm: squared",
        lambda z: tf.reduce_sum(z**2, 1) ** 0.5,
        np.array([[0.0, 0.0], [3.0, 4.0]]),
        np.array([[ANY, [0, 0]], [[0, 0], [0.6, 0.8]]]),
    ),  # fmt: skip
    Relative(
        "divide: by the row's sum",
        lambda z: z / tf.reduce_sum(z, 1, keepdims=True),
        np.array([[1.0, -1.0], [1.0, 3.0]]),
        np.array(
            [
                [[ANY, [0, 0]], [ANY, [0, 0]]],
                [[[0, 0], [3 / 16, -1 / 16]], [[0, 0], [-3 / 16, 1 / 16]]],
            ]
        ),
    ),  # fmt: skip
    Relative(
        "divide: by itself",
        lambda z: 1.0 / z,
        np.array([0.0, 2.0]),
        np.array([[np.nan, 0], [0, -0.25]]),
    ),  # fmt: skip
    Relative(
        "divide: square root",
        lambda z: tf.sqrt(z),
        np.array([0.0, 4.0]),
        np.array([[np.nan, 0], [0, 0.25]]),
    ),  # fmt: skip
]


def symmetric(z):
    return 0.5 * (z + tf.linalg.matrix_transpose(z))


def by_svd(z):
    s, u, v = tf.linalg.svd(z)
    return tf.matmul(u * s, v, adjoint_b=True)


SPECTRA = [
    Relative(
        "spectrum: sum of equal eigenvalues",
        lambda z: tf.reduce_sum(tf.linalg.eigvalsh(symmetric(z))),
        np.diag([1.0, 1.0, 4.0]),
        np.eye(3),
    ),  # fmt: skip
    Relative(
        "spectrum: sum of equal singular values",
        lambda z: tf.reduce_sum(tf.linalg.svd(z, compute_uv=False)),
        np.diag([2.0, 2.0, 1.0]),
        np.eye(3),
    ),  # fmt: skip
    Relative(
        "spectrum: nuclear norm of a flat matrix",
        lambda z: tf.reduce_sum(tf.linalg.svd(z, compute_uv=False)),
        np.array([[2.0, 0.0, 0.0], [0.0, 2.0, 0.0]]),
        np.eye(2, 3),
    ),  # fmt: skip
    Relative(
        "spectrum: put together, distinct",
        by_svd,
        np.diag([3.0, 2.0]) + 0.1,
        np.eye(4).reshape(2, 2, 2, 2),
    ),  # fmt: skip
    Relative(
        "spectrum: put together, equal", by_svd, 2.0 * np.eye(2), np.eye(4).reshape(2, 2, 2, 2)
    ),  # fmt: skip
    Relative(
        "spectrum: determinant of a singular matrix",
        tf.linalg.det,
        np.array([[1.0, 2.0], [2.0, 4.0]]),
        np.array([[4.0, -2.0], [-2.0, 1.0]]),
    ),  # fmt: skip
    Relative(
        "spectrum: logdet",
        lambda z: tf.linalg.logdet(symmetric(z)),
        np.diag([2.0, 2.0]),
        0.5 * np.eye(2),
    ),  # fmt: skip
]


def parts_of(transformed):
    return tf.stack([tf.math.real(transformed), tf.math.imag(transformed)])


def spectrum_of(z):
    """Returns complex numbers of a real tensor `[2, ...]`."""
    return tf.complex(z[0], z[1])


FOURIER = [
    Relative("fourier: rfft", lambda z: parts_of(tf.signal.rfft(z)), array(2, 5)),
    Relative("fourier: rfft padded", lambda z: parts_of(tf.signal.rfft(z, [8])), array(2, 5)),
    Relative("fourier: rfft truncated", lambda z: parts_of(tf.signal.rfft(z, [4])), array(2, 6)),
    Relative("fourier: rfft truncated, odd", lambda z: parts_of(tf.signal.rfft(z, [3])), array(5)),
    Relative("fourier: irfft", lambda z: tf.signal.irfft(spectrum_of(z)), array(2, 4)),
    Relative("fourier: irfft odd", lambda z: tf.signal.irfft(spectrum_of(z), [5]), array(2, 3)),
    Relative("fourier: irfft padded", lambda z: tf.signal.irfft(spectrum_of(z), [8]), array(2, 3)),
    Relative(
        "fourier: irfft truncated", lambda z: tf.signal.irfft(spectrum_of(z), [4]), array(2, 5)
    ),  # fmt: skip
    Relative("fourier: rfft2d", lambda z: parts_of(tf.signal.rfft2d(z)), array(3, 4)),
    Relative(
        "fourier: rfft2d truncated", lambda z: parts_of(tf.signal.rfft2d(z, [2, 2])), array(3, 4)
    ),  # fmt: skip
    Relative(
        "fourier: rfft2d padded", lambda z: parts_of(tf.signal.rfft2d(z, [4, 6])), array(3, 4)
    ),  # fmt: skip
    Relative(
        "fourier: fft of a complex", lambda z: parts_of(tf.signal.fft(spectrum_of(z))), array(2, 3)
    ),  # fmt: skip
]

TIED = np.array([[1.0, 1.0, 0.0], [2.0, 3.0, 3.0]])


def ties(*rows):
    found = np.zeros((len(rows), *TIED.shape))
    for b, row in enumerate(rows):
        found[b, b] = row
    return found


TIES = [
    Relative(
        "ties: min",
        lambda z: -tf.reduce_min(-z, 1),
        TIED,
        ties([0.5, 0.5, 0], [0, 0.5, 0.5]),
        batch=True,
    ),  # fmt: skip
    Relative(
        "ties: top_k",
        lambda z: tf.math.top_k(z, 2).values[:, 0] + 0.0,
        TIED,
        ties([1, 0, 0], [0, 1, 0]),
        batch=True,
    ),  # fmt: skip
    Relative(
        "ties: segment_max",
        lambda z: tf.math.unsorted_segment_max(tf.reshape(z, [-1]), [0, 0, 0, 1, 1, 1], 2),
        TIED,
        ties([0.5, 0.5, 0], [0, 0.5, 0.5]),
    ),  # fmt: skip
    Relative(
        "ties: logsumexp of infinities",
        lambda z: tf.reduce_logsumexp(tf.concat([z, tf.fill([2, 1], z.dtype.min)], 1), 1),
        TIED,
        batch=True,
    ),  # fmt: skip
    Relative(
        "ties: maximum of two",
        lambda z: tf.nn.relu(z) + tf.nn.relu(-z),
        np.array([2.0, -3.0]),
        np.diag([1.0, -1.0]),
    ),  # fmt: skip
]

ALL = [*PRODUCTS, *CUMPRODS, *WHERES, *NORMS, *SPECTRA, *FOURIER, *TIES]
