"""Second derivatives of random programs, against differences of values in float64."""

from __future__ import annotations

import itertools

import fuzz_laws
import numpy as np
import tensorflow as tf
from fuzz import Program

import tfjac
from tfjac import errors

STRATEGIES = ("auto", "unstack", "forward", "cross_country")
REFUSED = (errors.UnsupportedError, errors.NotDifferentiableError)
LARGEST = 12


class Truth:
    """Values and derivatives of a program at its sources, by differences.

    Args:
      program: without custom gradients.
    """

    def __init__(self, program: Program) -> None:
        self.values = program.values()
        self.sizes = [v.size for v in self.values]
        if not 0 < sum(self.sizes) <= LARGEST or any(map(np.iscomplexobj, self.values)):
            raise fuzz_laws.Unfit("too many entries, or not real")
        self._at = fuzz_laws.evaluated(program, self.values)
        self._base = np.concatenate([v.reshape(-1) for v in self.values]).astype(np.float64)
        # In the shape of the target.
        self.weights = _weights(self._at(self.values).shape)
        self.y = self._moved({})
        if np.iscomplexobj(self.y) or not np.isfinite(self.y).all():
            raise fuzz_laws.Unfit("not real")
        self.first = self._columns()
        self.second = self._pairs()

    def _moved(self, steps: dict[int, float]) -> np.ndarray:
        flat = self._base.copy()
        for k, step in steps.items():
            flat[k] += step
        parts = np.split(flat, np.cumsum(self.sizes)[:-1])
        return self._at([p.reshape(v.shape) for p, v in zip(parts, self.values)]).reshape(-1)

    def _columns(self, h: float = 1e-3) -> np.ndarray:
        def column(k: int) -> np.ndarray:
            near = self._moved({k: h}) - self._moved({k: -h})
            return (8 * near - self._moved({k: 2 * h}) + self._moved({k: -2 * h})) / (12 * h)

        return np.stack([column(k) for k in range(len(self._base))], -1)

    def _mixed(self, i: int, j: int, h: float) -> np.ndarray:
        if i == j:
            return (self._moved({i: h}) - 2 * self.y.reshape(-1) + self._moved({i: -h})) / h**2
        signs = itertools.product((1, -1), repeat=2)
        return sum(a * b * self._moved({i: a * h, j: b * h}) for a, b in signs) / (4 * h**2)

    def _pairs(self, h: float = 2e-3) -> np.ndarray:
        n = len(self._base)
        found = np.zeros((self.y.size, n, n))
        for i in range(n):
            for j in range(i + 1):
                fine, coarse = self._mixed(i, j, h), self._mixed(i, j, 2 * h)
                if not np.allclose(fine, coarse, rtol=1e-3, atol=1e-3):
                    raise fuzz_laws.Unfit("a kink is near")
                found[:, i, j] = found[:, j, i] = (4 * fine - coarse) / 3
        return found


def _weights(shape) -> np.ndarray:
    return np.random.default_rng(8).uniform(0.5, 1.5, shape)


def _weighted(y: tf.Tensor, weights: np.ndarray) -> tf.Tensor:
    return tf.reduce_sum(y * tf.constant(weights, y.dtype))


def of_gradient(fn, xs, strategy, weights):
    """Returns the Jacobians of a tape's gradient by each source, as rows of a matrix."""
    with tf.GradientTape() as tape:
        tape.watch(xs)
        y = _weighted(fn(*xs), weights)
    gs = tape.gradient(y, list(xs), unconnected_gradients="zero")
    return _matrix(gs, tfjac.jacobian(gs, list(xs), strategy), xs)


def of_hessian(fn, xs, strategy, weights):
    """Returns the Hessian as a matrix."""
    return _matrix(xs, tfjac.hessian(_weighted(fn(*xs), weights), list(xs), strategy), xs)


def of_penalty(fn, xs, strategy, weights):
    """Returns the gradient of the sum of squares of the Jacobian, as one vector."""
    with tf.GradientTape() as tape:
        tape.watch(xs)
        js = tfjac.jacobian(fn(*xs), list(xs), strategy)
        penalty = tf.add_n([tf.cast(tf.reduce_sum(j**2), tf.float64) for j in js])
    gs = tape.gradient(penalty, list(xs), unconnected_gradients="zero")
    return tf.concat([tf.reshape(g, [-1]) for g in gs], 0)


def _matrix(ys, js, xs) -> tf.Tensor:
    rows = [
        tf.concat([tf.reshape(j, [tf.size(g), tf.size(x)]) for j, x in zip(row, xs)], 1)
        for g, row in zip(ys, js)
    ]
    return tf.concat(rows, 0)


def _traced(law, program: Program, strategy: str, weights: np.ndarray):
    """Returns a concrete function; None where the law is refused."""
    fn = program.function()
    try:
        body = tf.function(lambda *xs: law(fn, xs, strategy, weights), autograph=False)
        specs = [tf.TensorSpec(s.shape, s.tensorflow_dtype()) for s in program.sources]
        return body.get_concrete_function(*specs)
    except REFUSED:
        return None
    except LookupError:
        # What a tape of the user cannot take of TensorFlow's second derivative, the tape says.
        if law is not of_penalty:
            raise
        return None


def _wanted(law, truth: Truth) -> np.ndarray:
    if law is of_penalty:
        return 2 * np.einsum("yi,yij->j", truth.first, truth.second)
    return np.einsum("y,yij->ij", truth.weights.reshape(-1), truth.second)


def _is_gradient_right(program: Program, truth: Truth, tolerance: float) -> bool:
    """Returns whether TensorFlow's tape gives the first derivative that values have."""
    if any(s.edge for s in program.sources):
        return False  # where it is wrong in what the gradient of a square does not show
    fn = program.function()

    def taped(*xs):
        with tf.GradientTape() as tape:
            tape.watch(xs)
            y = _weighted(fn(*xs), truth.weights)
        return tape.gradient(y, list(xs), unconnected_gradients="zero")

    try:
        found = tf.function(taped, autograph=False)(*map(tf.constant, truth.values))
    except (LookupError, tf.errors.OpError):
        return False
    flat = np.concatenate([g.numpy().reshape(-1) for g in found])
    return np.allclose(flat, truth.weights.reshape(-1) @ truth.first, rtol=0, atol=tolerance)


LAWS = (of_hessian, of_penalty, of_gradient)


def check_second(program: Program, laws=LAWS) -> bool:
    """Raises unless a law that is drawn holds, of the values; says whether it could be told."""
    if "surrogate" in program.definition():
        raise fuzz_laws.Unfit("its derivative is not that of its values")
    fuzz_laws.check_runs(program, program.values())
    truth = Truth(program)
    single = fuzz_laws.is_single(program)
    scale = max(1.0, np.abs(truth.second).max(initial=0), np.abs(truth.first).max(initial=0))
    tolerance = (5e-3 if single else 2e-6) * scale * max(1, truth.y.size)
    (law,) = fuzz_laws.some_of(laws, program, 1)
    if law is of_gradient and not _is_gradient_right(program, truth, tolerance):
        return False
    return _check_law(law, program, truth, tolerance)


def _check_law(law, program: Program, truth: Truth, tolerance: float) -> bool:
    names = ("auto", *fuzz_laws.some_of(STRATEGIES[1:], program, 1))
    found = {name: _traced(law, program, name, truth.weights) for name in names}
    taken = [name for name, concrete in found.items() if concrete is not None]
    if not taken:
        return False
    assert "auto" in taken, f"{law.__name__}: auto refuses what {taken} take"
    wanted = _wanted(law, truth)
    scale = np.abs(wanted).max(initial=1.0)
    for name in taken:
        ours = found[name](*map(tf.constant, truth.values)).numpy()
        fuzz_laws.check_close(ours, wanted, tolerance * scale, f"{law.__name__} by {name}")
    return True
