"""What a sample of an op type is, and shorthands that make samples."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

# The dtypes that the first sample of an op type is tried in.
DTYPES = ("float64", "float32", "half", "complex128")


@dataclasses.dataclass(frozen=True)
class Sample:
    """A function that has one op of a type, and where it is differentiated.

    Args:
      op_type: as TensorFlow registers it.
      name: says what is special about it; no two of an op type have the same.
      fn: takes tensors, returns what `tf.nest.flatten` makes tensors of.
      inputs: arrays; those of floating or complex dtype are differentiated by.
      dtypes: in which its floating inputs are tried; only its own if empty.
      reference: gives the same as `fn` from float64 or complex128 tensors, where `fn` takes none.
      without: numbers of inputs not to differentiate by.
    """

    op_type: str
    name: str
    fn: Callable[..., Any]
    inputs: tuple[np.ndarray, ...]
    dtypes: tuple[str, ...] = ()
    reference: Callable[..., Any] | None = None
    without: tuple[int, ...] = ()

    def by(self) -> list[int]:
        """Returns the numbers of the inputs to differentiate by."""
        floating = [k for k, x in enumerate(self.inputs) if x.dtype.kind in "fc"]
        return [k for k in floating if k not in self.without]


def spread(*shape, low=-2.0, high=2.1, seed=0, dtype=np.float64) -> np.ndarray:
    """Returns numbers far enough apart that differences meet neither a kink nor a tie."""
    values = np.linspace(low, high, math.prod(shape))
    return np.random.default_rng(seed).permutation(values).reshape(shape).astype(dtype)


def single(*shape, **bounds) -> np.ndarray:
    """Returns the same as float32."""
    return spread(*shape, dtype=np.float32, **bounds)


def complexes(*shape, seed=0, low=-2.0, high=2.1, dtype=np.complex128) -> np.ndarray:
    """Returns complex numbers far apart."""
    real, imaginary = (spread(*shape, seed=seed + k, low=low, high=high) for k in (0, 1))
    return (real + 1j * imaginary).astype(dtype)


def definite(*shape, seed=0) -> np.ndarray:
    """Returns symmetric positive definite matrices whose eigenvalues are far apart."""
    x = spread(*shape, low=-0.3, high=0.4, seed=seed)
    return x + np.swapaxes(x, -1, -2) + np.diag(np.arange(2.0, 2.0 + 2 * shape[-1], 2))


def invertible(*shape, seed=0) -> np.ndarray:
    """Returns matrices far from singular ones."""
    return spread(*shape, seed=seed) + np.diag(np.arange(3.0, 3.0 + shape[-1]))


def ints(*values) -> np.ndarray:
    """Returns an array of int32."""
    return np.array(values, np.int32)


_OPTIONS = ("name", "dtypes", "reference", "without")


def raw(op_type: str, *inputs, listed: str | None = None, **given) -> Sample:
    """Returns a sample that calls `tf.raw_ops`.

    Args:
      op_type: as `tf.raw_ops` has it.
      *inputs: arrays, for the parameters that are not given, in their order.
      listed: the parameter that takes all the inputs as a list.
      **given: other parameters, and fields of `Sample`.
    """
    options = {k: given.pop(k) for k in _OPTIONS if k in given}
    function = getattr(tf.raw_ops, op_type)

    def fn(*args):
        if listed:
            return function(**{listed: list(args)}, **given)
        names = [name for name in inspect.signature(function).parameters if name not in given]
        return function(**dict(zip(names, args)), **given)

    options.setdefault("name", _described(inputs, given))
    return Sample(op_type, fn=fn, inputs=tuple(map(np.asarray, inputs)), **options)


def public(op_type: str, name: str, fn: Callable[..., Any], *inputs, **options) -> Sample:
    """Returns a sample of any function."""
    return Sample(op_type, name, fn, tuple(map(np.asarray, inputs)), **options)


def _described(inputs: Sequence[np.ndarray], given: dict[str, Any]) -> str:
    shapes = ", ".join("x".join(map(str, np.shape(x))) or "scalar" for x in inputs)
    return "; ".join([shapes, *(f"{k}={_short(v)}" for k, v in given.items())])


def _short(value: Any) -> str:
    named = value.name if isinstance(value, tf.DType) else value
    plain = named.tolist() if isinstance(named, (np.ndarray, np.generic)) else named
    return str(plain).replace("'", "").replace(" ", "")


def unary(types: str, *, low=-2.0, high=2.1, edges: Sequence[float] = (), **options):
    """Returns samples of ops of one input: inside the domain, at its edges, scalar and empty."""
    samples = []
    for name in types.split():
        samples.append(raw(name, spread(2, 3, low=low, high=high), name="inside", **options))
        samples.append(raw(name, np.array(low * 0.4 + high * 0.6), name="scalar", **options))
        samples.append(raw(name, np.zeros([0, 2]), name="empty", **options))
        samples += [raw(name, np.array([at]), name=f"at {at:g}", **options) for at in edges]
    return samples


def binary(
    types: str,
    first=(-2.0, 2.1),
    second=(-1.7, 2.6),
    edges: Sequence[tuple[float, float]] = (),
    shapes=(((3, 2), (3, 2)), ((2, 1, 3), (4, 1)), ((0, 2), (1, 2))),
    **options,
) -> list[Sample]:
    """Returns samples of ops of two inputs: alike, broadcast, empty, and at pairs of numbers."""
    named = list(zip(("alike", "broadcast", "empty"), shapes))
    samples = []
    for name in types.split():
        for kind, (a, b) in named:
            x = spread(*a, low=first[0], high=first[1])
            y = spread(*b, low=second[0], high=second[1], seed=1)
            samples.append(raw(name, x, y, name=kind, **options))
        samples += [
            raw(name, np.array([a]), np.array([b]), name=f"at {a:g}, {b:g}", **options)
            for a, b in edges
        ]
    return samples


def in_dtypes(samples: Sequence[Sample]) -> Iterator[tuple[Sample, str]]:
    """Yields each sample with each dtype name that it is tried in.

    The first of an op type, if it is of float64, is tried in all of them.
    """
    for _, group in itertools.groupby(sorted(samples, key=_op_type), key=_op_type):
        for position, sample in enumerate(group):
            own = own_dtype(sample)
            every = DTYPES if position == 0 and own == "float64" else (own,)
            for dtype in sample.dtypes or every:
                yield sample, dtype


def _op_type(sample: Sample) -> str:
    return sample.op_type


def own_dtype(sample: Sample) -> str:
    """Returns the name of the dtype of its first floating input."""
    floating = [x.dtype.name for x in sample.inputs if x.dtype.kind in "fc"]
    return next(iter(floating), "float64").replace("float16", "half")


def cast(sample: Sample, dtype: str) -> list[np.ndarray]:
    """Returns the inputs of a sample in a dtype.

    Real numbers become complex ones with an imaginary part in the reverse order. Inputs that are
    not of the dtype of the first floating one keep theirs, a real one beside complex ones too.
    """
    own = own_dtype(sample).replace("half", "float16")
    return [_cast(x, dtype) if x.dtype.name == own else x for x in sample.inputs]


def _cast(x: np.ndarray, dtype: str) -> np.ndarray:
    target = np.dtype({"half": "float16"}.get(dtype, dtype))
    if target.kind == "c" and x.dtype.kind == "f":
        return x + 0.25j * x.reshape(-1)[::-1].reshape(x.shape)
    return x.astype(target)
