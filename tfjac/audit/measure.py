"""Measures what TensorFlow's derivatives of a sample are worth."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfjac.audit import differences, samples, verdicts
from tfjac.audit.samples import Sample

# What TensorFlow raises while it builds a derivative, beside LookupError, and while it runs one.
_BUILDING = (ValueError, TypeError, NotImplementedError, RuntimeError, AttributeError)
# TensorArrays assert that none of version 1 meets one of version 2.
_BUILDING += (AssertionError,)
_RUNNING = tf.errors.OpError
_FAILED = (LookupError, *_BUILDING, _RUNNING)

FIRST_REVERSE, FIRST_FORWARD, SECOND = "first reverse", "first forward", "second"


@dataclasses.dataclass(frozen=True)
class Row:
    """One derivative of one sample.

    Args:
      op_type: of the sample.
      sample: its name.
      dtype: of its inputs.
      output: number of the output that is differentiated.
      input: number of the input, for a second derivative of both, as in "0, 1".
      derivative: "first reverse", "first forward" or "second".
      verdict: see `tfjac.audit.verdicts`.
      error: greatest error, relative to the greatest derivative.
      remark: what TensorFlow says.
    """

    op_type: str
    sample: str
    dtype: str
    output: int
    input: str
    derivative: str
    verdict: str
    error: float = 0.0
    remark: str = ""


class NotTaken(Exception):
    """The op does not take the dtype: there is nothing to differentiate."""


@np.errstate(all="ignore")
def measure(sample: Sample, dtype: str) -> list[Row]:
    """Returns a row for each derivative of a sample, right or not.

    Args:
      sample: what to differentiate.
      dtype: of its floating inputs.

    Returns:
      The rows; none if TensorFlow does not take the dtype.
    """
    try:
        probe = Probe(sample.fn, samples.cast(sample, dtype), sample)
        truth = truth_of(sample, probe)
    except NotTaken:
        return []
    with contextlib.closing(probe), contextlib.closing(truth):
        pairs = list(itertools.product(probe.floating, sample.by()))
        derived = {pair: probe.derive(*pair) for pair in pairs}
        return [
            Row(
                *(sample.op_type, sample.name, dtype, o, input_, derivative),
                *dataclasses.astuple(finding),
            )
            for o, i in pairs
            for derivative, input_, finding in _findings(probe, truth, derived[o, i], o, i)
        ]


@dataclasses.dataclass(frozen=True)
class _Built:
    """A tensor that TensorFlow built, or None, and what it raised."""

    tensor: tf.Tensor | None
    problem: Exception | None = None


@dataclasses.dataclass(frozen=True)
class _Derivatives:
    """Those of one output by one input: by reverse, forward, and by each other input again."""

    reverse: _Built
    forward: _Built
    second: dict[int, _Built]


class Probe:
    """A graph of a sample, with the real view of its arguments and values.

    In the real view a complex tensor is a vector of its real parts, then the imaginary ones.
    """

    def __init__(self, fn: Callable[..., Any], inputs: Sequence[np.ndarray], sample: Sample):
        self.inputs, self.by = list(inputs), sample.by()
        self.graph = tf.Graph()
        with self.graph.as_default():
            self.fed = {k: _placeholder(inputs[k]) for k in self.by}
            self.xs = [
                _passed_on(self.fed[k]) if k in self.by else tf.constant(x)
                for k, x in enumerate(inputs)
            ]
            self.ys = _built(fn, self.xs)
        self._session, self._callables = None, {}
        self.values = self._first_values()
        kinds = [np.asarray(value).dtype for value in self.values]
        self.floating = [o for o, kind in enumerate(kinds) if kind.kind in "fc"]
        with self.graph.as_default():
            self.fed_u = {o: _placeholder(self.values[o]) for o in self.floating}
            self.fed_v = {i: _placeholder(self.inputs[i]) for i in self.by}
            self.us = {o: _passed_on(u) for o, u in self.fed_u.items()}
            self.vs = {i: _passed_on(v) for i, v in self.fed_v.items()}

    def _first_values(self) -> list[np.ndarray]:
        try:
            feed = {self.fed[i]: self.inputs[i] for i in self.by}
            return self._open().run(self.ys, feed)
        except _RUNNING as error:
            raise NotTaken(str(error)) from error

    def _open(self) -> tf.compat.v1.Session:
        if self._session is None:
            self._session = tf.compat.v1.Session(graph=self.graph, config=_config())
        return self._session

    def close(self) -> None:
        """Forgets the session: it does not see that a gradient gives a loop more outputs."""
        if self._session is not None:
            self._session.close()
        self._session, self._callables = None, {}

    def derive(self, o: int, i: int) -> _Derivatives:
        """Builds the derivatives of output o by input i."""
        self.close()
        with self.graph.as_default():
            reverse = _gradient(self.ys[o], self.xs[i], self.us[o])
            again = [self.us[o], *(self.xs[j] for j in self.by)]
            forward, *second = (
                reverse if reverse.tensor is None else _gradient(reverse.tensor, x, self.vs[i])
                for x in again
            )
        return _Derivatives(reverse, forward, dict(zip(self.by, second)))

    def run(self, fetch: tf.Tensor, feeds: Sequence[tf.Tensor], values: Sequence[np.ndarray]):
        """Returns a tensor where the inputs and some more tensors have given values."""
        key = (fetch.name, *(t.name for t in feeds))
        if key not in self._callables:
            self._callables[key] = self._open().make_callable(fetch, list(feeds))
        return self._callables[key](*values)

    def value(self, o: int, inputs: Sequence[np.ndarray]) -> np.ndarray:
        """Returns output o in the real view; NaN if refused or of another size."""
        try:
            found = real(self.run(self.ys[o], list(self.fed.values()), inputs))
        except _RUNNING:
            found = np.zeros(0)
        unknown = np.full_like(real(self.values[o]), np.nan)
        return found if found.shape == unknown.shape else unknown

    @property
    def wide(self) -> int:
        """Bytes of the numbers that the op computes with: 8 of float64, 4 of float32."""
        tensors = [self.xs[i] for i in self.by] + [self.ys[o] for o in self.floating]
        return 8 if all(t.dtype.real_dtype == tf.float64 for t in tensors) else 4


def _built(fn: Callable[..., Any], xs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    try:
        found = tf.nest.flatten(fn(*xs), expand_composites=True)
    except _FAILED as error:
        raise NotTaken(str(error)) from error
    return [y for y in found if isinstance(y, tf.Tensor)]


def _config() -> tf.compat.v1.ConfigProto:
    config = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=1, inter_op_parallelism_threads=1
    )
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    return config


def _placeholder(array: np.ndarray) -> tf.Tensor:
    return tf.compat.v1.placeholder(array.dtype, array.shape)


def _passed_on(x: tf.Tensor) -> tf.Tensor:
    """Returns a tensor of the same numbers that kernels may write over; what is fed is held."""
    return tf.multiply(x, tf.ones([], x.dtype))


def _gradient(y: tf.Tensor, x: tf.Tensor, v: tf.Tensor) -> _Built:
    try:
        (found,) = tf.gradients(y, x, grad_ys=v)
    except (LookupError, *_BUILDING) as error:
        return _Built(None, error)
    return _Built(None if found is None else tf.convert_to_tensor(found))


def truth_of(sample: Sample, probe: Probe) -> Probe:
    """Returns a probe of the same at the same place, in float64 if that can be had."""
    wide = [
        x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)
        if x.dtype.kind in "fc"
        else x
        for x in probe.inputs
    ]
    try:
        return Probe(sample.reference or sample.fn, wide, sample)
    except NotTaken:
        own = samples.cast(sample, samples.own_dtype(sample))
        return (
            probe
            if probe.wide == 4 and own[probe.by[0]].dtype.itemsize >= 4
            else (Probe(sample.fn, [a.astype(b.dtype) for a, b in zip(probe.inputs, own)], sample))
        )


def _findings(
    probe: Probe, truth: Probe, derived: _Derivatives, o: int, i: int
) -> Iterator[tuple[str, str, verdicts.Finding]]:
    rng = np.random.default_rng(zlib.crc32(f"{o} {i}".encode()))
    u, v = like(rng, probe.values[o]), like(rng, probe.inputs[i])
    tolerance = verdicts.TOLERANCE[coarsest(probe, o, i)]
    expected = differences.jacobian(of_input(truth, o, i), real(truth.inputs[i]), truth.wide)

    def judged(built, evaluate, estimate, tolerance=tolerance):
        return _judged(built, lambda: evaluate(built.tensor), estimate, tolerance)

    def at_vectors(tensor):
        return _run_real(probe, tensor, o, i, u, v)

    yield (
        FIRST_REVERSE,
        str(i),
        judged(derived.reverse, lambda tensor: _reverse(probe, tensor, o, i), expected),
    )
    along = verdicts.times(expected, real(v))
    forward = judged(derived.forward, at_vectors, along)
    if forward.verdict == verdicts.RIGHT:  # whatever the cotangent, which most set to zero
        none = np.zeros_like(u)
        forward = judged(derived.forward, lambda t: _run_real(probe, t, o, i, none, v), along)
    yield FIRST_FORWARD, str(i), forward
    for j, built in derived.second.items():
        w = real(like(np.random.default_rng(100 + j), probe.inputs[j]))
        where = truth, o, (i, real(v)), (j, w), real(u)
        finding = judged(built, lambda t, w=w: w @ at_vectors(t), mixed(*where), 10 * tolerance)
        if finding.verdict in _COULD_BE_A_JUMP and truth.wide == 8:
            finding = judged(
                built, lambda t, w=w: w @ at_vectors(t), mixed_around(*where), 10 * tolerance
            )
        yield SECOND, f"{i}, {j}", finding


_COULD_BE_A_JUMP = (verdicts.WRONG, verdicts.ZERO, verdicts.NONE)


def _judged(built: _Built, evaluate, expected, tolerance: float) -> verdicts.Finding:
    if built.tensor is None:
        return verdicts.without(built.problem, expected)
    try:
        value = evaluate()
    except _RUNNING as error:
        return verdicts.failed(error)
    return verdicts.compared(value, expected, tolerance)


def _reverse(probe: Probe, gradient: tf.Tensor, o: int, i: int) -> np.ndarray:
    """Returns the Jacobian of output o by input i in the real view, row by row."""
    feeds = [*probe.fed.values(), probe.fed_u[o]]
    inputs = [probe.inputs[k] for k in probe.by]
    rows = []
    for unit in np.eye(real(probe.values[o]).size):
        value = probe.run(gradient, feeds, [*inputs, unreal(unit, probe.values[o])])
        rows.append(real(value))
    return np.reshape(rows, [len(rows), real(probe.inputs[i]).size])


def _run_real(probe: Probe, tensor: tf.Tensor, o: int, i: int, u, v) -> np.ndarray:
    feeds = [*probe.fed.values(), probe.fed_u[o], probe.fed_v[i]]
    values = [*(probe.inputs[k] for k in probe.by), u, v]
    return real(probe.run(tensor, feeds, values))


def of_input(truth: Probe, o: int, i: int) -> differences.Function:
    """Returns output o as a function of input i, both in the real view."""

    def function(x: np.ndarray) -> np.ndarray:
        inputs = [unreal(x, truth.inputs[k]) if k == i else truth.inputs[k] for k in truth.by]
        return truth.value(o, inputs)

    return function


def mixed_around(truth: Probe, o: int, first, second, u: np.ndarray) -> differences.Estimate:
    """Returns the same from three places close together: where it jumps, all between is right."""
    steps = dataclasses.replace(differences.SECOND[8], starts=(4e-4,))
    found = [mixed(truth, o, first, second, u, shift, steps) for shift in (0.0, 2e-3, -2e-3)]
    low, high = np.min([f.low for f in found], 0), np.max([f.high for f in found], 0)
    doubt = np.max([f.doubt for f in found], 0) + 1e-3 * (high - low)
    return differences.Estimate(low, high, doubt)


def mixed(truth, o, first, second, u, shift=0.0, steps=None) -> differences.Estimate:
    """Returns the derivative along `second` of that along `first` of u times output o.

    Args:
      truth: the probe to evaluate.
      o: number of the output.
      first: number of an input, and the real view of a tangent of it.
      second: another.
      u: real view of a cotangent.
      shift: how far to go away from the inputs before.
      steps: of the differences, if not the usual ones.
    """
    sizes = {k: real(truth.inputs[k]).size for k in sorted({first[0], second[0]})}
    ends = np.cumsum([0, *sizes.values()])
    where = {k: slice(a, b) for k, a, b in zip(sizes, ends, ends[1:])}

    def function(z: np.ndarray) -> np.ndarray:
        inputs = [
            unreal(z[where[k]], truth.inputs[k]) if k in where else truth.inputs[k]
            for k in truth.by
        ]
        return np.array([u @ truth.value(o, inputs)])

    x = np.concatenate([real(truth.inputs[k]) for k in sizes])
    directions = np.zeros([2, x.size])
    for direction, (k, tangent) in zip(directions, (first, second)):
        direction[where[k]] = tangent
    x = x + shift * np.cos(np.arange(x.size) + 1)
    return differences.mixed(function, x, *directions, truth.wide, steps)


def real(x: np.ndarray) -> np.ndarray:
    """Returns the real view of an array, shape `[n]` or `[2n]`, as float64."""
    flat = np.ravel(x)
    if flat.dtype.kind == "c":
        return np.concatenate([flat.real, flat.imag]).astype(np.float64)
    return flat.astype(np.float64)


def unreal(x: np.ndarray, like: np.ndarray) -> np.ndarray:
    """Returns the array of the shape and dtype of another that has a real view."""
    if like.dtype.kind == "c":
        x = x[: like.size] + 1j * x[like.size :]
    return x.reshape(like.shape).astype(like.dtype)


def like(rng: np.random.Generator, array: np.ndarray) -> np.ndarray:
    """Returns numbers away from zero, of the shape and dtype of an array."""
    size = real(array).size
    return unreal(rng.uniform(0.4, 1.6, size) * rng.choice([-1.0, 1.0], size), array)


def coarsest(probe: Probe, o: int, i: int) -> int:
    """Returns the bytes of a real number of the coarsest dtype among output and input."""
    return min(real_bytes(probe.values[o].dtype), real_bytes(probe.inputs[i].dtype))


def real_bytes(dtype: np.dtype) -> int:
    """Returns the bytes of a real number of a dtype."""
    return dtype.itemsize // (2 if dtype.kind == "c" else 1)
