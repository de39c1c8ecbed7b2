"""Times what is made of Jacobians beside other ways to it: `python -m benchmarks.derived`.

Determinant steps over mean-squared-error steps, gradients of each example, Laplacians and
log-determinants. All contenders of a workload run in one process, in turn, on the same numbers;
their answers are compared before a time is reported. JAX takes part where it is installed.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import itertools
import json
import pathlib
import time
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf
from absl import app, flags

import tfjac

ROUNDS = flags.DEFINE_integer("rounds", 30, "Rounds to time.", lower_bound=3)
OUTPUT = flags.DEFINE_string("output", None, "Folder for derived.json and derived.md.")
ONLY = flags.DEFINE_string("only", "", "Workloads whose name has this in it.")

Run = Callable[[], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Workload:
    """Ways to one answer.

    Args:
      name: of it.
      ways: by name; each evaluates the answer. The first is what the others are divided by.
      compared: those of which the answers must agree.
    """

    name: str
    ways: dict[str, Run]
    compared: tuple[str, ...]


def _weights(*sizes: int, scale: float = 1.0) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [
        (scale * rng.normal(size=pair) / np.sqrt(pair[0])).astype(np.float32)
        for pair in itertools.pairwise(sizes)
    ]


def _numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=shape).astype(np.float32)


def _tanh_net(x, weights):
    for w in weights[:-1]:
        x = tf.tanh(x @ w)
    return x @ weights[-1]


def _called(function, *given, jit: bool = False) -> Run:
    compiled = tf.function(function, autograph=False, jit_compile=jit or None)
    tensors = [tf.constant(array) for array in given]
    return lambda: tf.nest.map_structure(np.asarray, compiled(*tensors))


def determinant_step(examples: int, jit: bool) -> Workload:
    """The 2-5-5-2 tanh net: a step on (det J - 1)^2, and one on the squared error."""
    variables = [tf.Variable(w) for w in _weights(2, 5, 5, 2)]

    def step(loss):
        def run(x):
            with tf.GradientTape() as tape:
                value = loss(x)
            for variable, gradient in zip(variables, tape.gradient(value, variables)):
                variable.assign_sub(0.0 * gradient)  # so that all see the same weights
            return value

        return _called(run, _numbers(examples, 2), jit=jit)

    def error(x):
        return tf.reduce_mean((_tanh_net(x, variables) - x) ** 2)

    def forward(x):
        return tf.reduce_mean(_tanh_net(x, variables))

    def determinant(x):
        return tf.reduce_mean((tfjac.det(_tanh_net(x, variables), x, batch=True) - 1) ** 2)

    def by_tape(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = _tanh_net(x, variables)
        j = tape.batch_jacobian(y, x)
        return tf.reduce_mean((j[:, 0, 0] * j[:, 1, 1] - j[:, 0, 1] * j[:, 1, 0] - 1) ** 2)

    def by_hand(x):
        j = tf.tile(variables[0][None], [examples, 1, 1])
        x = x @ variables[0]
        for w in variables[1:]:
            x = tf.tanh(x)
            j = (j * (1 - x**2)[:, None]) @ w
            x = x @ w
        return tf.reduce_mean((j[:, 0, 0] * j[:, 1, 1] - j[:, 0, 1] * j[:, 1, 0] - 1) ** 2)

    ways = {
        "squared error step": step(error),
        "tfjac": step(determinant),
        "by hand, forward": step(by_hand),
        "tape.batch_jacobian": step(by_tape),
        "forward pass": _called(forward, _numbers(examples, 2), jit=jit),
        "batch_jacobian": _called(
            lambda x: tfjac.batch_jacobian(_tanh_net(x, variables), x),
            _numbers(examples, 2),
            jit=jit,
        ),
    }
    kind = "XLA" if jit else "plain"
    return Workload(
        f"determinant step, {examples} examples, {kind}",
        ways,
        ("tfjac", "by hand, forward", "tape.batch_jacobian"),
    )


def laplacian() -> Workload:
    """A 20-128-128-128-1 tanh net, 256 points."""
    weights, points = _weights(20, 128, 128, 128, 1), _numbers(256, 20)

    def ours(x):
        return tfjac.laplacian(_tanh_net(x, weights)[:, 0], x, batch=True)

    def by_hessian(x):
        return tf.linalg.trace(tfjac.batch_hessian(_tanh_net(x, weights)[:, 0], x))

    ways = {
        "tfjac": _called(ours, points),
        "tfjac, XLA": _called(ours, points, jit=True),
        "trace of batch_hessian": _called(by_hessian, points),
        **_jax_laplacian(weights, points),
    }
    return Workload("Laplacian, 20 dimensions, 256 points", ways, tuple(ways))


def _jax_laplacian(weights, points) -> dict[str, Run]:
    if importlib.util.find_spec("jax") is None:
        return {}
    import jax
    from jax import numpy as jnp

    def net(x):
        for w in weights[:-1]:
            x = jnp.tanh(x @ w)
        return (x @ weights[-1])[0]

    def forward_over_reverse(x):
        push = lambda v: jax.jvp(jax.grad(net), (x,), (v,))[1]  # noqa: E731
        return jnp.trace(jax.vmap(push)(jnp.eye(x.size)))

    run, given = jax.jit(jax.vmap(forward_over_reverse)), jnp.asarray(points)
    return {"JAX, forward over reverse": lambda: np.asarray(run(given))}


def log_determinant(kind: str) -> Workload:
    """A flow of eight blocks in 64 dimensions, 128 examples."""
    first, last = _weights(*[64] * 9, scale=0.3), _weights(*[64] * 9, scale=0.3)

    def residual(x):
        for a, b in zip(first, last):
            x = x + tf.tanh(x @ a) @ b
        return x

    def square(x):
        for a in first:
            x = tf.nn.leaky_relu(x @ (a + np.eye(64, dtype=np.float32)))
        return x

    flow = {"residual": residual, "dense and activation": square}[kind]

    def by_tape(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = flow(x)
        return tf.linalg.slogdet(tape.batch_jacobian(y, x))[1]

    points = _numbers(128, 64)
    ways = {
        "tfjac": _called(lambda x: tfjac.slogdet(flow(x), x, batch=True)[1], points),
        "slogdet of tfjac.batch_jacobian": _called(
            lambda x: tf.linalg.slogdet(tfjac.batch_jacobian(flow(x), x))[1], points
        ),
        "slogdet of tape.batch_jacobian": _called(by_tape, points),
    }
    return Workload(f"log-determinant, eight {kind} blocks of 64", ways, tuple(ways))


def example_gradients() -> Workload:
    """A 784-256-128-10 relu net, 64 examples, by all weights."""
    variables = [tf.Variable(w) for w in _weights(784, 256, 128, 10)]
    x, labels = _numbers(64, 784), np.arange(64, dtype=np.int32) % 10

    def net(x):
        for w in variables[:-1]:
            x = tf.nn.relu(x @ w)
        return x @ variables[-1]

    def losses(x, labels):
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, net(x))

    def ours(x, labels):
        return tfjac.per_example_gradients(losses(x, labels), variables)

    def mapped(x, labels):
        def one(pair):
            with tf.GradientTape() as tape:
                loss = losses(pair[0][None], pair[1][None])
            return tape.gradient(loss, variables)

        return tf.vectorized_map(one, (x, labels))

    def by_hand(x, labels):
        # The outer products that Opacus and BackPACK form, from what each layer was given.
        given = [x]
        for w in variables[:-1]:
            given.append(tf.nn.relu(given[-1] @ w))
        g = tf.nn.softmax(given[-1] @ variables[-1]) - tf.one_hot(labels, 10)
        found = []
        for k in reversed(range(len(variables))):
            found.insert(0, given[k][:, :, None] * g[:, None, :])
            g = (g @ tf.transpose(variables[k])) * tf.cast(given[k] > 0, g.dtype)
        return found

    ways = {
        "tfjac": _called(ours, x, labels),
        "outer products by hand": _called(by_hand, x, labels),
        "tf.vectorized_map": _called(mapped, x, labels),
        **_jax_gradients([v.numpy() for v in variables], x, labels),
    }
    return Workload("gradients of each example, 784-256-128-10, 64", ways, tuple(ways))


def _jax_gradients(weights, x, labels) -> dict[str, Run]:
    if importlib.util.find_spec("jax") is None:
        return {}
    import jax
    from jax import numpy as jnp

    def loss(weights, x, label):
        for w in weights[:-1]:
            x = jax.nn.relu(x @ w)
        return -jax.nn.log_softmax(x @ weights[-1])[label]

    run = jax.jit(jax.vmap(jax.grad(loss), (None, 0, 0)))
    given = [jnp.asarray(w) for w in weights], jnp.asarray(x), jnp.asarray(labels)
    return {"JAX, vmap of grad": lambda: [np.asarray(g) for g in run(*given)]}


def norms() -> Workload:
    """The norms of the same gradients."""
    gradients = example_gradients()
    variables = [tf.Variable(w) for w in _weights(784, 256, 128, 10)]
    x, labels = _numbers(64, 784), np.arange(64, dtype=np.int32) % 10

    def losses(x, labels):
        y = x
        for w in variables[:-1]:
            y = tf.nn.relu(y @ w)
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, y @ variables[-1])

    def ours(x, labels):
        return tfjac.per_example_gradient_norms(losses(x, labels), variables)

    def formed(run: Run) -> Run:
        return lambda: np.sqrt(sum((g.reshape(len(g), -1) ** 2).sum(1) for g in run()))

    ways = {"tfjac": _called(ours, x, labels)}
    ways |= {f"{name}, then norms": formed(run) for name, run in gradients.ways.items()}
    return Workload("norms of gradients of each example", ways, tuple(ways))


def workloads() -> Iterator[Callable[[], Workload]]:
    """Yields what makes each workload."""
    for examples, jit in itertools.product((100, 10_000), (False, True)):
        yield lambda examples=examples, jit=jit: determinant_step(examples, jit)
    yield laplacian
    yield lambda: log_determinant("residual")
    yield lambda: log_determinant("dense and activation")
    yield example_gradients
    yield norms


def check_agreement(workload: Workload) -> None:
    """Raises unless the answers agree to a thousandth of their size."""
    names = workload.compared
    answers = [np.concatenate([np.ravel(a) for a in tf.nest.flatten(workload.ways[n]())])
               for n in names]  # fmt: skip
    for name, answer in zip(names[1:], answers[1:]):
        scale = np.abs(answers[0]).max()
        if not np.abs(answer - answers[0]).max() <= 1e-3 * scale:
            raise ValueError(f"{workload.name}: {name} and {names[0]} disagree")


def measure(workload: Workload, rounds: int) -> dict[str, list[float]]:
    """Returns the milliseconds of each way in each round; a round runs all of them in turn."""
    found: dict[str, list[float]] = {name: [] for name in workload.ways}
    for round_ in range(rounds + 2):
        for name, run in workload.ways.items():
            start = time.perf_counter()
            run()
            if round_ >= 2:
                found[name].append(1e3 * (time.perf_counter() - start))
    return found


def table(name: str, times: dict[str, list[float]]) -> list[str]:
    """Returns the rows of a workload: median, and its ratio to the first way with quartiles."""
    base = np.array(next(iter(times.values())))
    rows = []
    for way, each in times.items():
        low, middle, high = np.percentile(np.array(each) / base, [25, 50, 75])
        rows.append(
            f"| {name} | {way} | {np.median(each):.2f} | {middle:.2f} ({low:.2f} to {high:.2f}) |"
        )
    return rows


def main(argv) -> None:
    """Runs all workloads and prints the table."""
    del argv
    tfjac.keep_freed_memory()
    head = ["| workload | way | ms | over the first |", "| --- | --- | --- | --- |"]
    rows, raw = [], {}
    print("\n".join(head))
    for make in workloads():
        workload = make()
        if ONLY.value not in workload.name:
            continue
        check_agreement(workload)
        raw[workload.name] = measure(workload, ROUNDS.value)
        rows += table(workload.name, raw[workload.name])
        print("\n".join(table(workload.name, raw[workload.name])), flush=True)
    if OUTPUT.value:
        folder = pathlib.Path(OUTPUT.value)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "derived.json").write_text(json.dumps(raw, indent=1))
        (folder / "derived.md").write_text("\n".join([*head, *rows, ""]))


if __name__ == "__main__":
    app.run(main)
