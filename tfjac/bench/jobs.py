"""What is to be computed, and who computes it: the words that worker processes are spoken to in."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from typing import Any

# From a function of x to the function of x that gives its Jacobian.
Way = Callable[[Callable[[Any], Any]], Callable[[Any], Any]]


@dataclasses.dataclass(frozen=True)
class Job:
    """One Jacobian, or a training step on one, in the terms of one framework.

    Args:
      function: from the weights and x to y; where `batch`, examples first in both.
      weights: of whatever nesting `function` takes; None where it has its own.
      x: where to differentiate, a tensor of the framework.
      batch: per-example Jacobians, or the whole one.
      loss: from the Jacobian to a number. Where given, what is asked for is the gradient of that
        number by the weights, and not the Jacobian itself.
      baseline_loss: from y and x to a number: the loss of the step that a training step on the
        Jacobian is compared with.
    """

    function: Callable[[Any, Any], Any]
    weights: Any
    x: Any
    batch: bool
    loss: Callable[[Any], Any] | None = None
    baseline_loss: Callable[[Any, Any], Any] | None = None

    def answer(self, way: Way, gradient: Callable, weights: Any, x: Any) -> Any:
        """Returns what is asked for, the Jacobian taken by `way`.

        Args:
          way: how the framework takes Jacobians.
          gradient: from a function of the weights, and the weights, to its gradient.
          weights: the weights.
          x: where to differentiate.
        """

        def jacobian(weights):
            return way(lambda x: self.function(weights, x))(x)

        if self.loss is None:
            return jacobian(weights)
        return gradient(lambda weights: self.loss(jacobian(weights)), weights)

    def baseline(self, gradient: Callable, weights: Any, x: Any) -> Any:
        """Returns what the cost of the answer is measured in: a forward pass, or a plain step."""
        if self.baseline_loss is None:
            return self.function(weights, x)
        return gradient(lambda w: self.baseline_loss(self.function(w, x), x), weights)


@dataclasses.dataclass(frozen=True)
class Task:
    """Where a worker process finds a job: `module.job(name, framework, **options)`.

    Args:
      module: the module's full name.
      name: of the workload.
      options: what else the module's function takes.
    """

    module: str
    name: str
    options: tuple[tuple[str, Any], ...] = ()

    def job(self, framework: str) -> Job:
        """Returns the job in the terms of `framework`."""
        return importlib.import_module(self.module).job(self.name, framework, **dict(self.options))


class LeftOut(Exception):  # noqa: N818 (a contender that declines is no error)
    """Says why a contender was not run: it would take too long, or has no such form."""


@dataclasses.dataclass(frozen=True)
class Built:
    """A contender, ready to be called.

    Args:
      call: computes the answer and returns it when it is there.
      built_in_first_call: seconds of the first call that were construction, asked for after it.
      ops: how many the graph has, where there is one, asked for once the times are taken.
      read_seconds: what reading the graph and planning take, where that can be told apart.
      predicted_seconds: what the plan says that a warm call takes, where there is one.
    """

    call: Callable[[], Any]
    built_in_first_call: Callable[[], float] = lambda: 0.0
    ops: Callable[[], int | None] = lambda: None
    read_seconds: Callable[[], float | None] = lambda: None
    predicted_seconds: Callable[[], float | None] = lambda: None


@dataclasses.dataclass(frozen=True)
class Contender:
    """One way of one peer to do a job.

    Args:
      name: as it stands in tables.
      build: constructs it; raises LeftOut where it is not to be run.
      is_baseline: whether it is what costs are measured in rather than a contender.
    """

    name: str
    build: Callable[[], Built]
    is_baseline: bool = False


@dataclasses.dataclass(frozen=True)
class Peer:
    """A worker process: one framework, or one school within it.

    Args:
      name: as it stands in tables.
      module: has `contenders(task, options)`, `versions()`, `as_numpy(answer)`,
        `matmul(size)`, which returns a function that multiplies two square matrices, and
        `release()`, which drops what the framework keeps of finished jobs.
      options: given to `contenders`.
      needs: the package without which it is left out.
      loads_tensorflow: or is of another framework, whose process is kept free of it.
    """

    name: str
    module: str
    options: tuple[tuple[str, Any], ...] = ()
    needs: str = "tensorflow"
    loads_tensorflow: bool = True
