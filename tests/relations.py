"""Relations between runs: what must not change the Jacobian of a function.

Each takes a `Task` and gives pairs of arrays that must be the same, of two ways of asking for one
Jacobian, or raises `Untold` where TensorFlow itself does not run one of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

import tfjac
from tfjac import errors

Pairs = Iterator[tuple[Sequence[np.ndarray], Sequence[np.ndarray]]]


class Untold(Exception):
    """One of the two ways does not run without tfjac either, or is refused."""


@dataclasses.dataclass(frozen=True)
class Task:
    """A function of tensors and where to differentiate it.

    Args:
      fn: from the sources to one target.
      specs: signature, some sizes of which may be unknown.
      values: of the sources.
      options: of `jacobian`.
    """

    fn: Callable[..., tf.Tensor]
    specs: Sequence[tf.TensorSpec]
    values: Sequence[np.ndarray]
    options: dict[str, Any] = dataclasses.field(default_factory=dict)

    def jacobians(self, xs: Sequence[Any], fn=None, **options) -> list[tf.Tensor]:
        """Returns the Jacobian by each source, in the current graph."""
        y = (self.fn if fn is None else fn)(*xs)
        return tfjac.jacobian(y, list(xs), **{**self.options, **options})

    def run(self, body, specs=None, values=None, **options) -> list[np.ndarray]:
        """Returns what a function of the sources gives in a tf.function."""
        specs = self.specs if specs is None else specs
        built = tf.function(body, input_signature=specs, autograph=False, **options)
        try:
            concrete = built.get_concrete_function()
        except errors.UnsupportedError as error:
            raise Untold("refused") from error
        found = concrete(*map(tf.constant, self.values if values is None else values))
        return [t.numpy() for t in tf.nest.flatten(found)]

    def plain(self, **options) -> list[np.ndarray]:
        """Returns the Jacobians as they are asked for most often."""
        return self.run(lambda *xs: self.jacobians(xs, **options))

    def value(self, *xs: Any) -> np.ndarray:
        """Returns the target at other values, or raises `Untold`."""
        return _tried(lambda: tf.function(self.fn, autograph=False)(*xs).numpy())


# What TensorFlow raises where a function does not run in some way of calling.
FAILURES = (
    tf.errors.OpError,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    RuntimeError,  # an eager tensor of a layer in a graph of TensorFlow 1
)


def _tried(call):
    try:
        return call()
    except FAILURES as error:
        raise Untold(str(error)) from error


def variables(task: Task) -> Pairs:
    """A variable that is read again at each use is a source as a tensor is."""
    held = [tf.Variable(x) for x in task.values]
    task.value(*held)
    found = task.run(lambda: task.jacobians(held), [], [])
    yield task.run(lambda *xs: task.jacobians(xs), _known(task)), found


def variables_read(task: Task) -> Pairs:
    """A variable of which a value is read within the function is a source as a tensor is."""
    held = [tf.Variable(x) for x in task.values]

    def read(*xs):
        return task.fn(*[x.read_value() for x in xs])

    found = task.run(lambda: task.jacobians(held, read), [], [])
    yield task.run(lambda *xs: task.jacobians(xs), _known(task)), found


def variables_captured(task: Task) -> Pairs:
    """A variable read outside and inside a called function counts both."""
    held = [tf.Variable(x) for x in task.values]

    @tf.function(autograph=False)
    def inner():
        return task.fn(*[tf.convert_to_tensor(x) for x in held])

    def both(*_):
        read = [tf.convert_to_tensor(x) for x in held]
        return inner() - tf.stop_gradient(task.fn(*read)) + task.fn(*read)

    found = task.run(lambda: task.jacobians(held, both), [], [])
    wanted = task.run(lambda *xs: task.jacobians(xs), _known(task))
    yield [2 * j for j in wanted], found


def called(task: Task) -> Pairs:
    """A called function is what it would be inlined."""
    inner = tf.function(task.fn, autograph=False)
    outer = tf.function(lambda *xs: inner(*xs), autograph=False)
    yield task.plain(), task.run(lambda *xs: task.jacobians(xs, outer))


def _known(task: Task) -> list[tf.TensorSpec]:
    return [tf.TensorSpec(x.shape, s.dtype) for x, s in zip(task.values, task.specs)]


def _unknown(task: Task) -> list[tf.TensorSpec]:
    if not all(x.ndim for x in task.values):
        raise Untold("a scalar")
    shapes = [(None, *x.shape[1:]) for x in task.values]
    return [tf.TensorSpec(n, s.dtype) for n, s in zip(shapes, task.specs)]


def sizes(task: Task) -> Pairs:
    """Whether the number of examples is known changes nothing."""
    unknown = _unknown(task)
    _tried(lambda: tf.function(task.fn, input_signature=unknown).get_concrete_function())
    known = task.run(lambda *xs: task.jacobians(xs), _known(task))
    yield known, task.run(lambda *xs: task.jacobians(xs), unknown)


def examples(task: Task) -> Pairs:
    """Of examples that stay apart, one by itself gives what it gives among others."""
    rows = {len(x) if x.ndim else None for x in task.values}
    if len(rows) != 1 or None in rows or rows == {0}:
        raise Untold("not a batch")
    unknown = _unknown(task)
    y = task.value(*task.values)
    ones = [[x[b : b + 1] for x in task.values] for b in range(rows.pop())]
    alone = [task.value(*one) for one in ones]
    if y.ndim == 0 or any(len(a) != 1 for a in alone) or len(y) != len(alone):
        raise Untold("not an example for each")

    def blocks(*xs):
        return tfjac.batch_jacobian(task.fn(*xs), list(xs), **task.options)

    together = task.run(blocks, unknown)
    # What mixes examples was refused.
    np.testing.assert_allclose(np.concatenate(alone), y, rtol=1e-3, atol=1e-3)
    each = [task.run(blocks, unknown, one) for one in ones]
    yield together, [np.concatenate(parts) for parts in zip(*each)]


def session(task: Task) -> Pairs:
    """A Session gives what a tf.function does."""
    wanted = task.plain()
    # A graph that was run is not added to: TensorFlow's loops do not bear it.
    _tried(lambda: _in_session(task, lambda y, xs: y))
    yield wanted, _in_session(task, lambda y, xs: tfjac.jacobian(y, xs, **task.options))


def _in_session(task: Task, wanted):
    with tf.Graph().as_default(), tf.compat.v1.Session() as running:
        xs = [tf.compat.v1.placeholder(s.dtype, s.shape) for s in task.specs]
        return running.run(wanted(task.fn(*xs), xs), dict(zip(xs, task.values)))


def compiled(task: Task) -> Pairs:
    """XLA gives what TensorFlow does."""
    wanted = task.plain()

    def taped(*xs):
        y = task.fn(*xs)
        return [y, *[g for g in tf.gradients(y, list(xs)) if g is not None]]

    # What XLA does not take of TensorFlow's own gradient, it need not take of ours.
    _tried(lambda: task.run(taped, jit_compile=True))
    yield wanted, task.run(lambda *xs: task.jacobians(xs), jit_compile=True)


def prepared(task: Task) -> Pairs:
    """A prepared Jacobian is that of a tf.function."""
    numbers = tuple(range(len(task.values)))
    jac = tfjac.prepare(task.fn, argnums=numbers, **task.options)
    wanted = task.run(lambda *xs: task.jacobians(xs), _known(task))
    yield wanted, [j.numpy() for j in jac(*map(tf.constant, task.values))]


def constants(task: Task) -> Pairs:
    """A constant is a source as an argument is."""

    def body():
        return task.jacobians([tf.constant(x) for x in task.values])

    found = task.run(body, [], [])
    yield task.run(lambda *xs: task.jacobians(xs), _known(task)), found


def repeated(task: Task) -> Pairs:
    """A source that is given twice has its Jacobian twice, and leaves the others alone."""

    def body(*xs):
        return tfjac.jacobian(task.fn(*xs), [xs[0], *xs, xs[-1]], **task.options)

    wanted = task.plain()
    yield [wanted[0], *wanted, wanted[-1]], task.run(body)


def targets(task: Task) -> Pairs:
    """Several targets together have the Jacobians that they have apart."""

    def two(*xs):
        y = task.fn(*xs)
        return {"a": y, "b": tf.concat([tf.reshape(y * y, [-1]), tf.reshape(y, [-1])[::-1]], 0)}

    def together(*xs):
        return tfjac.jacobian(two(*xs), list(xs), **task.options)

    def second(*xs):
        return tfjac.jacobian(two(*xs)["b"], list(xs), **task.options)

    yield [*task.plain(), *task.run(second)], task.run(together)


def chunks(task: Task) -> Pairs:
    """Rows and columns carried a few at a time are those carried at once."""
    wanted = task.plain()
    for strategy, size in (("vectorized", 2), ("forward", 3), ("auto", 1)):
        try:
            yield wanted, task.plain(strategy=strategy, chunk_size=size)
        except Untold:
            continue


RELATIONS = {
    relation.__name__: relation
    for relation in (
        variables, variables_read, variables_captured, called, sizes, examples, session, compiled,
        prepared, constants, repeated, targets, chunks,
    )
}  # fmt: skip


def check_relation(name: str, task: Task, tolerance: float) -> None:
    """Raises unless a relation holds, or `Untold`."""
    for wanted, found in RELATIONS[name](task):
        assert len(wanted) == len(found), name
        for one, other in zip(wanted, found):
            assert one.shape == other.shape, f"{name}: shape {other.shape}, not {one.shape}"
            assert one.dtype == other.dtype, f"{name}: dtype {other.dtype}, not {one.dtype}"
            wide = np.complex128 if np.iscomplexobj(one) else np.float64
            one, other = one.astype(wide), other.astype(wide)
            scale = max(1.0, np.abs(one).max(initial=0.0))
            np.testing.assert_allclose(
                other, one, rtol=0, atol=tolerance * scale, err_msg=f"{name}"
            )
