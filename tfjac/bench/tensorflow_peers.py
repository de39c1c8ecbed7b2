"""The contenders in TensorFlow: tfjac, TensorFlow's own, and two ways written by hand."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

import tfjac
from tfjac.bench.jobs import Built, Contender, Job, LeftOut, Task, Way

# A way written by hand is left out where one call, or its construction, would take longer.
_LONGEST_SECONDS = 10.0


def contenders(
    task: Task, school: str, strategies: tuple[str, ...] = (), only_plain: bool = False
) -> list[Contender]:
    """Returns the contenders of one school for a task.

    Args:
      task: where to find the job.
      school: "tfjac", "tensorflow" or "by hand".
      strategies: of tfjac, to be timed besides "auto".
      only_plain: leave out what XLA compiles.
    """
    job = task.job("tensorflow")
    compiled = [] if only_plain else [True]
    found = [Contender("baseline", lambda: _baseline(job), is_baseline=True)]
    if school == "tfjac":
        found += [
            Contender(f"tfjac{' xla' * xla}", lambda xla=xla: _ours(job, "auto", xla))
            for xla in [False, *compiled]
        ]
        found += [
            Contender(f"tfjac {name}", lambda name=name: _ours(job, name, False))
            for name in strategies
        ]
    elif school == "tensorflow":
        found += [
            Contender(f"tf{' xla' * xla}", lambda xla=xla: _traced(job, taped(job.batch), xla))
            for xla in [False, *compiled]
        ]
    else:
        found += [
            Contender("tf loop", lambda: _by_hand(job, looped(job.batch), _estimate_calls)),
            Contender("tf stack", lambda: _by_hand(job, stacked(job.batch), _estimate_graph)),
        ]
    return found


def versions() -> dict[str, str]:
    """Returns the versions of what the contenders are made of."""
    return {"tfjac": tfjac.__version__, "tensorflow": tf.__version__}


def as_numpy(answer: tf.Tensor) -> np.ndarray:
    """Returns the answer as an array."""
    return answer.numpy()


def matmul(size: int) -> Callable[[], Any]:
    """Returns a function that multiplies two matrices of that size."""
    a = tf.random.stateless_uniform([size, size], [1, 2])
    return lambda: tf.matmul(a, a).numpy()


def release() -> None:
    """Drops what TensorFlow keeps of finished jobs."""
    tf.keras.backend.clear_session()


def count_ops(concrete: Any) -> int:
    """Returns the number of ops of a concrete function and of the functions that it calls."""
    graph = concrete.graph.as_graph_def()
    return len(graph.node) + sum(len(function.node_def) for function in graph.library.function)


def taped(batch: bool) -> Way:
    """Returns TensorFlow's own way: a tape's `batch_jacobian`, or its `jacobian`."""

    def way(function):
        def jacobian(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = function(x)
            return (tape.batch_jacobian if batch else tape.jacobian)(y, x)

        return jacobian

    return way


def looped(batch: bool) -> Way:
    """Returns the loop by hand: a `tf.while_loop` over every entry of y, into a TensorArray."""

    def way(function):
        def jacobian(x):
            y = function(x)
            flat = tf.reshape(y, [-1])
            rows_per_example = y.shape[1:].num_elements()

            def row(i, rows):
                gradient = tf.gradients(flat[i], x)[0]
                return i + 1, rows.write(i, gradient[i // rows_per_example] if batch else gradient)

            count = y.shape.num_elements()
            rows = tf.TensorArray(x.dtype, count)
            _, rows = tf.while_loop(
                lambda i, _: i < count, row, (0, rows), maximum_iterations=count
            )
            return tf.reshape(rows.stack(), [*y.shape, *(x.shape[1:] if batch else x.shape)])

        return jacobian

    return way


def stacked(batch: bool) -> Way:
    """Returns the stack by hand: y taken apart, one `tf.gradients` per row, stacked."""

    def way(function):
        def jacobian(x):
            y = function(x)
            # Indexed, because the gradient of tf.unstack makes zeros for all rows but one: for
            # 500 rows its construction did not end in ten minutes.
            if batch:
                flat = tf.reshape(y, [y.shape[0], -1])
                rows = [tf.gradients(flat[:, i], x)[0] for i in range(flat.shape[1])]
                return tf.reshape(tf.stack(rows, axis=1), [*y.shape, *x.shape[1:]])
            flat = tf.reshape(y, [-1])
            rows = [tf.gradients(flat[i], x)[0] for i in range(flat.shape[0])]
            return tf.reshape(tf.stack(rows), [*y.shape, *x.shape])

        return jacobian

    return way


def _gradient(loss: Callable[[Any], tf.Tensor], weights: Any) -> tf.Tensor:
    """Returns the gradient by all weights, in the order of their names, as one vector."""
    # The Jacobian does not depend on the last bias.
    gradients = tf.gradients(loss(weights), tf.nest.flatten(weights), unconnected_gradients="zero")
    return tf.concat([tf.reshape(g, [-1]) for g in gradients], axis=0)


def _baseline(job: Job) -> Built:
    return _compile(job, lambda x: job.baseline(_gradient, job.weights, x), xla=False)


def _traced(job: Job, way: Way, xla: bool) -> Built:
    return _compile(job, lambda x: job.answer(way, _gradient, job.weights, x), xla)


def _compile(job: Job, function: Callable, xla: bool) -> Built:
    compiled = tf.function(function, autograph=False, jit_compile=xla or None)
    concrete = _concrete(job, compiled)
    return Built(lambda: _when_there(compiled(job.x)), ops=lambda: count_ops(concrete))


def _concrete(job: Job, function: Callable) -> Any:
    return function.get_concrete_function(tf.TensorSpec(job.x.shape, job.x.dtype))


def _ours(job: Job, strategy: str, xla: bool) -> Built:
    if job.loss is not None:
        # Inside a step tfjac is called as the others are: in the graph.
        def way(function):
            operator = tfjac.batch_jacobian if job.batch else tfjac.jacobian
            return lambda x: operator(function(x), x, strategy)

        return dataclasses.replace(
            _traced(job, way, xla), read_seconds=lambda: _planned(job, strategy).seconds
        )
    jac = tfjac.prepare(
        lambda x: job.function(job.weights, x),
        batch=job.batch,
        strategy=strategy,
        jit_compile=xla,
    )
    planned = functools.cache(lambda: _planned(job, strategy))
    return Built(
        lambda: _when_there(jac(job.x)),
        built_in_first_call=lambda: jac.cache_info().build_seconds,
        ops=lambda: count_ops(_concrete(job, tf.function(jac, autograph=False))),
        read_seconds=lambda: planned().seconds,
        predicted_seconds=lambda: None if xla else planned().predicted,
    )


class _Planned(NamedTuple):
    """What reading the graph and planning take, and what the plan predicts, in seconds."""

    seconds: float
    predicted: float


def _planned(job: Job, strategy: str) -> _Planned:
    found = []

    def traced(x):
        y = job.function(job.weights, x)
        start = time.perf_counter()
        plans = tfjac.plan(y, x, strategy=strategy, batch=job.batch)
        seconds = time.perf_counter() - start
        found.append(_Planned(seconds, sum(plan.seconds for plan in plans)))
        return y

    _concrete(job, tf.function(traced, autograph=False))
    return found[0]


def _by_hand(job: Job, way: Way, estimate: Callable[[Job, int], float]) -> Built:
    y = job.function(job.weights, job.x)
    rows = y.shape[1:].num_elements() if job.batch else y.shape.num_elements()
    seconds = estimate(job, rows)
    if seconds > _LONGEST_SECONDS:
        raise LeftOut(f"would take about {seconds:.0f} s")
    return _traced(job, way, xla=False)


def _one_row(job: Job) -> Callable[[tf.Tensor], tf.Tensor]:
    def row(x):
        return tf.gradients(tf.reshape(job.function(job.weights, x), [-1])[0], x)[0]

    return tf.function(row, autograph=False)


def _estimate_calls(job: Job, rows: int) -> float:
    row = _one_row(job)
    row(job.x)  # traced
    start = time.perf_counter()
    row(job.x)
    return (time.perf_counter() - start) * rows * (job.x.shape[0] if job.batch else 1)


def _estimate_graph(job: Job, rows: int) -> float:
    start = time.perf_counter()
    _concrete(job, _one_row(job))
    return (time.perf_counter() - start) * rows


def _when_there(answer: tf.Tensor) -> tf.Tensor:
    tf.test.experimental.sync_devices()  # a GPU is still at work when the call returns
    return answer
