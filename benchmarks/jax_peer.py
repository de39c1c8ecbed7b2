"""The contenders in JAX: reverse and forward mode of one example, mapped and compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from tfjac.bench.jobs import Built, Contender, Job, Task


def contenders(task: Task) -> list[Contender]:
    """Returns the contenders for a task."""
    job = task.job("jax")
    return [
        Contender("baseline", lambda: _baseline(job), is_baseline=True),
        Contender("jax rev", lambda: _compile(job, jax.jacrev)),
        Contender("jax fwd", lambda: _compile(job, jax.jacfwd)),
    ]


def versions() -> dict[str, str]:
    """Returns the versions of what the contenders are made of."""
    return {"jax": jax.__version__}


def as_numpy(answer: jax.Array) -> np.ndarray:
    """Returns the answer as an array."""
    return np.asarray(answer)


def matmul(size: int) -> Callable[[], Any]:
    """Returns a function that multiplies two matrices of that size."""
    a = jax.random.uniform(jax.random.key(0), (size, size))
    multiply = jax.jit(lambda a: a @ a)
    return lambda: multiply(a).block_until_ready()


def release() -> None:
    """Drops what JAX keeps of finished jobs."""
    jax.clear_caches()


def _gradient(loss: Callable[[Any], jax.Array], weights: Any) -> jax.Array:
    """Returns the gradient by all weights, in the order of their names, as one vector."""
    gradients = jax.grad(loss)(weights)
    return jax.numpy.concatenate([gradients[name].ravel() for name in sorted(weights)])


def _baseline(job: Job) -> Built:
    return _built(job, lambda weights, x: job.baseline(_gradient, weights, x))


def _compile(job: Job, mode: Callable) -> Built:
    def way(function):
        return jax.vmap(mode(function)) if job.batch else mode(function)

    return _built(job, lambda weights, x: job.answer(way, _gradient, weights, x))


def _built(job: Job, function: Callable) -> Built:
    # The weights are arguments, as in training; as constants they would be folded.
    compiled = jax.jit(function)
    lowered = compiled.lower(job.weights, job.x)
    return Built(
        lambda: compiled(job.weights, job.x).block_until_ready(),
        ops=lambda: sum(" = " in line for line in lowered.as_text().splitlines()),
    )
