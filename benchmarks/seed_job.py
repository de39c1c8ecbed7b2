"""The first job: per-example and full Jacobians of a 784-256-256-1 sigmoid net, 500 examples.

    python benchmarks/seed_job.py [--full] [--rounds=15] [--strategies=unstack,while_loop]

Interleaved rounds in one process; the answers are compared before a time is printed. Prints each
time as a ratio to one forward pass of the same batch (median, and quartiles of the ratio by round).
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf
from absl import app, flags

import tfjac

FULL = flags.DEFINE_bool("full", False, "The full (500, 1, 500, 784) Jacobian.")
ROUNDS = flags.DEFINE_integer("rounds", 15, "Rounds, each of every contender.", lower_bound=1)
EXAMPLES = flags.DEFINE_integer("examples", 500, "Examples.", lower_bound=1)
NET = flags.DEFINE_list("net", ["784", "256", "256", "1"], "Sizes of the layers.")
STRATEGIES = flags.DEFINE_list(
    "strategies", ["unstack", "while_loop", "vectorized"], "Strategies to time."
)


def make_net(sizes: list[int]) -> Callable[[tf.Tensor], tf.Tensor]:
    """Returns a net of sigmoid layers with a linear last one, its weights variables."""
    random = np.random.default_rng(0)
    weights = [
        tf.Variable(random.normal(size=s).astype(np.float32) / s[0] ** 0.5)
        for s in zip(sizes[:-1], sizes[1:])
    ]

    def net(x):
        for weight in weights[:-1]:
            x = tf.sigmoid(x @ weight)
        return x @ weights[-1]

    return net


def by_hand(net, full: bool):
    """Returns the way an expert writes it: one tf.gradients per row, stacked."""

    def rows(x):
        y = net(x)
        if full:
            seeds = tf.reshape(tf.eye(y.shape.num_elements()), [-1, *y.shape])
            return tf.stack([tf.gradients(y, x, grad_ys=seed)[0] for seed in tf.unstack(seeds)])
        return tf.stack([tf.gradients(y[:, i], x)[0] for i in range(y.shape[1])], axis=1)

    return tf.function(rows, autograph=False)


def main(argv: list[str]) -> None:
    """Builds, compares, times and prints."""
    del argv
    sizes = [int(size) for size in NET.value]
    net = make_net(sizes)
    x = tf.constant(np.random.default_rng(1).random((EXAMPLES.value, sizes[0])), tf.float32)
    contenders = {"forward pass": tf.function(net), "by hand": by_hand(net, FULL.value)}
    for name in STRATEGIES.value:
        contenders[name] = tfjac.prepare(net, batch=not FULL.value, strategy=name)
    reference = None
    for name, call in contenders.items():
        start = time.perf_counter()
        answer = call(x).numpy()
        print(f"{name:<13} first call {time.perf_counter() - start:8.3f} s")
        if name == "by hand":
            reference = answer
        elif reference is not None:
            error = np.abs(answer.reshape(reference.shape) - reference).max()
            assert error <= 1e-5 * np.abs(reference).max(), (name, error)
    times = {name: [] for name in contenders}
    for _ in range(ROUNDS.value):
        for name, call in contenders.items():
            start = time.perf_counter()
            call(x)
            times[name].append(time.perf_counter() - start)
    base = np.array(times["forward pass"])
    for name, taken in times.items():
        low, middle, high = np.percentile(np.array(taken) / base, [25, 50, 75])
        print(
            f"{name:<13} {1e3 * np.median(taken):9.2f} ms   {middle:8.2f} forward passes "
            f"({low:.2f} to {high:.2f})"
        )


if __name__ == "__main__":
    app.run(main)
