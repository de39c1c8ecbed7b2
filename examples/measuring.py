"""What a strategy costs: construction, ops, first call and further calls of one Jacobian."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import tfjac


@dataclasses.dataclass(frozen=True)
class Job:
    """A Jacobian that each strategy is to build.

    Args:
      function: a Keras model or other function of one tensor.
      x: where to differentiate.
      batch: per-example Jacobians, or the whole one.
      options: what `tfjac.flags.options` gave; the strategy among them is not used.
    """

    function: Callable[[tf.Tensor], tf.Tensor]
    x: tf.Tensor
    batch: bool
    options: dict[str, Any]

    def jacobian(self, strategy: str) -> tfjac.JacobianFunction:
        """Returns the function that evaluates the Jacobian by `strategy`."""
        options = {**self.options, "strategy": strategy}
        return tfjac.prepare(self.function, batch=self.batch, **options)

    def forward_pass(self) -> Callable[[tf.Tensor], tf.Tensor]:
        """Returns the function alone, compiled and placed as the Jacobian is."""
        compiled = tf.function(
            lambda x: self.function(x), jit_compile=self.options["jit_compile"] or None
        )

        def placed(x):
            with tf.device(self.options["device"]):
                return compiled(x)

        return placed

    def trace(self, function: Callable) -> Any:
        """Returns `function` as the concrete function of one graph."""
        return tf.function(function, autograph=False).get_concrete_function(
            tf.TensorSpec(self.x.shape, self.x.dtype)
        )


@dataclasses.dataclass(frozen=True)
class Figures:
    """What was measured of one strategy, or why nothing was.

    Args:
      strategy: its name.
      seconds_to_build: to trace the function with the Jacobian.
      ops: in the graph traced and in the functions it calls.
      first_ms: the first call, in which TensorFlow optimizes or compiles the graph.
      median_ms: the calls after it.
      shape: of the Jacobian.
      difference: the largest from the Jacobian of the first strategy.
      remark: why the strategy was left out or refused.
    """

    strategy: str
    seconds_to_build: float | None = None
    ops: int | None = None
    first_ms: float | None = None
    median_ms: float | None = None
    shape: tuple[int, ...] | None = None
    difference: float | None = None
    remark: str = ""


class FirstSeen:
    """Keeps the first Jacobian it is shown, to compare later ones with."""

    def __init__(self):
        self._kept = None

    def difference(self, jacobian: tf.Tensor) -> float:
        """Returns the largest difference between an entry of `jacobian` and of the first one."""
        if self._kept is None:
            self._kept = jacobian
        # Example by example: the difference of two full Jacobians would be a third one in memory.
        return float(
            np.max(
                [
                    np.max(np.abs(ours - first))
                    for ours, first in zip(jacobian, self._kept, strict=True)
                ]
            )
        )


def measure(
    job: Job,
    strategy: str,
    first_seen: FirstSeen,
    runs: int,
    after_run: Callable[[], None] = lambda: None,
) -> Figures:
    """Returns the figures of `strategy`.

    Args:
      job: the Jacobian.
      strategy: how to build it.
      first_seen: what to compare the result with.
      runs: how many calls to time after the first; none for 0.
      after_run: called after each of them.
    """
    try:
        start = time.perf_counter()
        concrete = job.trace(job.jacobian(strategy))
        seconds_to_build = time.perf_counter() - start
    except tfjac.errors.UnsupportedError as error:
        return Figures(strategy, remark=f"refused: {error}")
    jacobian, first_ms = _timed(concrete, job.x)
    difference, shape = first_seen.difference(jacobian), tuple(jacobian.shape)
    del jacobian  # else two of them are held while the next is computed
    return Figures(
        strategy,
        seconds_to_build,
        count_ops(concrete),
        first_ms,
        median_ms(concrete, job.x, runs, after_run),
        shape,
        difference,
    )


def median_ms(
    function: Callable, x: tf.Tensor, runs: int, after_run: Callable[[], None] = lambda: None
) -> float | None:
    """Returns the median of `runs` calls in milliseconds; None for 0 of them."""
    times = []
    for _ in range(runs):
        times.append(_timed(function, x)[1])
        after_run()
    return statistics.median(times) if times else None


def count_ops(concrete: Any) -> int:
    """Returns the number of ops of a concrete function and of the functions that it calls."""
    graph = concrete.graph.as_graph_def()
    return len(graph.node) + sum(len(function.node_def) for function in graph.library.function)


def _timed(function: Callable, x: tf.Tensor) -> tuple[tf.Tensor, float]:
    start = time.perf_counter()
    result = function(x)
    tf.test.experimental.sync_devices()  # a GPU is still at work when the call returns
    return result, 1e3 * (time.perf_counter() - start)
