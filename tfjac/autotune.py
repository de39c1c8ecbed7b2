"""Which of several ways is the fastest here, timed once and remembered.

At the first call where `prepare` is asked for it; by itself, as it is by default, only between two
strategies that the plan can hardly tell apart, and once calls have taken as long as building did.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import tensorflow as tf

from tfjac import planning, rates, tf_internals
from tfjac.graph import bodies
from tfjac.options import Options

# A prediction is expected to be right within this factor: beyond it the second best has no chance.
ERROR = 2.0
# Predicted seconds, in calls that do nothing, below which strategies cannot differ by much.
_LEAST_CALLS = 5.0

# How many of the best by plan are timed, and how often each after it is warm.
CANDIDATES = 3
_CALLS = 3


def fastest(ways: Mapping[str, Callable[[], object]]) -> str:
    """Returns the name of the way that takes the least time once it is warm.

    Args:
      ways: what to call, by name; each is called four times, in turns.
    """
    for call in ways.values():
        call()
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(_CALLS):
        for name, call in ways.items():
            start = time.perf_counter()
            call()
            tf.test.experimental.sync_devices()
            best[name] = min(best[name], time.perf_counter() - start)
    return min(best, key=best.__getitem__)


class Trial:
    """A comparison that is due once it repays: when calls have taken as long as building did.

    So what it takes is never much more than what was spent before, however many calls will follow.

    Args:
      names: of two strategies, the one in use first.
      seconds: what building took.
    """

    def __init__(self, names: Sequence[str], seconds: float):
        self.names = tuple(names)
        self._left = seconds
        self._is_first = True

    def is_due(self, seconds: float) -> bool:
        """Returns whether it is due after a call of so many seconds; the first call builds too."""
        if self._is_first:
            self._is_first = False
            return False
        self._left -= seconds
        return self._left <= 0


def trial(plans: Sequence[planning.Plan], graph: tf.Graph, seconds: float) -> Trial | None:
    """Returns the comparison of the two best strategies, or None where there is nothing to gain.

    None too where a call draws or writes something, which timing would do again, and where
    TensorFlow was asked to be deterministic.

    Args:
      plans: of what was built.
      graph: of the function that was built.
      seconds: what building it took.
    """
    names = planning.best(plans, 2)
    if len(names) < 2 or any(plan.strategy.name != names[0] for plan in plans):
        return None
    if tf_internals.is_deterministic():
        return None
    first, second = (sum(plan.seconds_of(name) for plan in plans) for name in names)
    if second > ERROR * first or first < _LEAST_CALLS * rates.current().call:
        return None
    if any(bodies.runs_once(op) for op in graph.get_operations() if op.type != "Placeholder"):
        return None
    return Trial(names, seconds)


def fingerprint(ops: Iterable[tf.Operation], wanted: str) -> str:
    """Returns what identifies a stretch of graph, what is wanted of it, and this machine.

    Args:
      ops: in order.
      wanted: in words.
    """
    devices = [device.name for device in tf.config.list_logical_devices()]
    parts = [tf.__version__, str(os.cpu_count()), *devices, wanted]
    parts += [f"{op.type} {[str(t.shape) for t in op.outputs]}" for op in ops]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


class Memory:
    """Choices by fingerprint, in a JSON file.

    Args:
      path: of the file, which need not exist; None keeps nothing.
    """

    def __init__(self, path: str | os.PathLike[str] | None):
        self._path = None if path is None else pathlib.Path(path)

    def get(self, key: str) -> str | None:
        """Returns the choice; None where there is none, or no file."""
        return self._read().get(key)

    def put(self, key: str, choice: str) -> None:
        """Writes a choice; the file is replaced as a whole, so that a reader never sees half."""
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({**self._read(), key: choice}, indent=1, sort_keys=True)
        with tempfile.NamedTemporaryFile("w", dir=self._path.parent, delete=False) as file:
            file.write(text + "\n")
        os.replace(file.name, self._path)

    def _read(self) -> dict[str, str]:
        if self._path is None or not self._path.exists():
            return {}
        return json.loads(self._path.read_text())


def chosen(
    plans: Sequence[planning.Plan],
    options: Options,
    call_of: Callable[[Options], Callable[[], object] | None],
) -> Options:
    """Returns the options of the fastest of the best ways, from memory if they are there.

    Args:
      plans: of what is asked for.
      options: as it is asked for.
      call_of: from other options makes a call; None where they do not serve.
    """
    path = options.autotune
    memory = Memory(path if isinstance(path, str) else None)
    ways = _ways(options, planning.best(plans, CANDIDATES))
    if len(ways) < 2:
        return options
    ops = [op for plan in plans for op in plan.problem.ops]
    key = fingerprint(ops, f"{[plan.explain() for plan in plans]} {options.jit_compile}")
    choice = memory.get(key)
    if choice not in ways:
        calls = {name: call_of(way) for name, way in ways.items()}
        choice = fastest({name: call for name, call in calls.items() if call is not None})
        memory.put(key, choice)
    return ways[choice]


def _ways(options: Options, names: Sequence[str]) -> dict[str, Options]:
    """Returns the strategies, and each compiled by XLA."""
    ways = {name: dataclasses.replace(options, strategy=name) for name in names}
    if not options.jit_compile:
        ways |= {
            f"{name}, XLA": dataclasses.replace(way, jit_compile=True)
            for name, way in list(ways.items())
        }
    return ways
