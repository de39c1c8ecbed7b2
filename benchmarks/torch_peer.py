"""The contenders in PyTorch: reverse and forward mode of one example, mapped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tfjac.bench.jobs import Built, Contender, Job, Task


def contenders(task: Task) -> list[Contender]:
    """Returns the contenders for a task."""
    job = task.job("torch")
    return [
        Contender("baseline", lambda: _baseline(job), is_baseline=True),
        Contender("torch rev", lambda: _of(job, torch.func.jacrev)),
        Contender("torch fwd", lambda: _of(job, torch.func.jacfwd)),
    ]


def versions() -> dict[str, str]:
    """Returns the versions of what the contenders are made of."""
    return {"torch": torch.__version__}


def as_numpy(answer: torch.Tensor) -> np.ndarray:
    """Returns the answer as an array."""
    return answer.detach().numpy()


def matmul(size: int) -> Callable[[], Any]:
    """Returns a function that multiplies two matrices of that size."""
    a = torch.rand(size, size)
    return lambda: a @ a


def release() -> None:
    """PyTorch keeps nothing of finished jobs."""


def _gradient(loss: Callable[[Any], torch.Tensor], weights: Any) -> torch.Tensor:
    """Returns the gradient by all weights, in the order of their names, as one vector."""
    gradients = torch.func.grad(loss)(weights)
    return torch.cat([gradients[name].ravel() for name in sorted(weights)])


def _baseline(job: Job) -> Built:
    return Built(lambda: job.baseline(_gradient, job.weights, job.x))


def _of(job: Job, mode: Callable) -> Built:
    def way(function):
        return torch.func.vmap(mode(function)) if job.batch else mode(function)

    return Built(lambda: job.answer(way, _gradient, job.weights, job.x))
