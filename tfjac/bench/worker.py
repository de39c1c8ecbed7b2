"""What a worker process does when asked: build, time and describe the contenders of its peer."""

from __future__ import annotations

import ctypes
import dataclasses
import gc
import importlib
import pathlib
import platform
import statistics
import time
import traceback
from multiprocessing.connection import Connection
from typing import Any

from tfjac.bench import agreement, limit
from tfjac.bench.jobs import Contender, LeftOut, Task

# A turn goes on for so long, or a single call where that takes longer.
_TURN_SECONDS = 0.02


@dataclasses.dataclass(frozen=True)
class Hello:
    """A worker's first word.

    Args:
      versions: of what the peer is made of.
      kept: whether freed memory is kept.
    """

    versions: dict[str, str]
    kept: bool


@dataclasses.dataclass(frozen=True)
class Construction:
    """What it took to build a contender and to call it once.

    Args:
      read_seconds: reading and planning, where told apart; part of `build_seconds`.
      predicted_seconds: of a warm call, by the plan.
      build_seconds: to construct it.
      first_seconds: the first call, in which graphs are optimized and compiled.
      ops: in the graph, where there is one.
      peak_bytes: that a further call took beyond what the process held; None where not known.
      answer_bytes: the size of the answer.
      digest: to compare the answer by.
    """

    read_seconds: float | None
    predicted_seconds: float | None
    build_seconds: float
    first_seconds: float
    ops: int | None
    peak_bytes: int | None
    answer_bytes: int
    digest: agreement.Digest


@dataclasses.dataclass(frozen=True)
class Failure:
    """Why there is no result.

    Args:
      message: in a line.
      details: the traceback, or the end of the process's log.
      left_out: whether it was not run on purpose.
    """

    message: str
    details: str = ""
    left_out: bool = False


class Worker:
    """Answers the requests that `team.Worker` sends, one method each."""

    def __init__(self, module: str):
        self._peer = importlib.import_module(module)
        self._contenders: dict[str, Contender] = {}
        self._calls: dict[str, Any] = {}

    def versions(self) -> dict[str, str]:
        """Returns the versions of what the peer is made of."""
        return self._peer.versions()

    def matmul_flops(self) -> float:
        """Returns the rate of the peer's matrix product."""
        return limit.matmul_flops(self._peer.matmul)

    def begin(self, task: Task, options: dict[str, Any]) -> list[tuple[str, bool]]:
        """Takes up a task; returns the contenders' names, and whether each is the baseline."""
        found = self._peer.contenders(task, **options)
        self._contenders = {contender.name: contender for contender in found}
        return [(contender.name, contender.is_baseline) for contender in found]

    def build(self, name: str) -> Construction:
        """Builds a contender and calls it: for the first time, and again for its peak memory."""
        start = time.perf_counter()
        built = self._contenders[name].build()
        ready = time.perf_counter()
        answer = built.call()
        build_seconds, first_seconds = ready - start, time.perf_counter() - ready
        shifted = built.built_in_first_call()
        self._calls[name] = built.call
        array = self._peer.as_numpy(answer)
        digest, size = agreement.digest(array), array.nbytes
        del answer, array
        return Construction(
            built.read_seconds(),
            built.predicted_seconds(),
            build_seconds + shifted,
            first_seconds - shifted,
            built.ops(),
            _peak_bytes(built.call),
            size,
            digest,
        )

    def turn(self, name: str) -> float:
        """Returns the median seconds of the calls of one turn."""
        call, seconds = self._calls[name], []
        until = time.perf_counter() + _TURN_SECONDS
        while not seconds or time.perf_counter() < until:
            start = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - start)
        return statistics.median(seconds)

    def end(self) -> None:
        """Drops the task and what memory it took."""
        self._contenders.clear()
        self._calls.clear()
        self._peer.release()
        gc.collect()
        if platform.libc_ver()[0] == "glibc":
            ctypes.CDLL(None).malloc_trim(0)  # what was kept for one task is not needed for another


def serve(connection: Connection, module: str, kept: bool) -> None:
    """Answers requests `(method, arguments)` with `(True, result)` or `(False, Failure)`."""
    try:
        worker = Worker(module)
        connection.send((True, Hello(worker.versions(), kept)))
    except Exception as error:  # told to the other side, which reports it
        connection.send((False, _failure(error)))
        return
    while True:
        try:
            method, arguments = connection.recv()
        except EOFError:
            return
        try:
            reply = (True, getattr(worker, method)(*arguments))
        except LeftOut as reason:
            reply = (False, Failure(str(reason), left_out=True))
        except Exception as error:
            reply = (False, _failure(error))
        connection.send(reply)


def _failure(error: Exception) -> Failure:
    first_line = str(error).strip().splitlines()[:1] or [""]
    return Failure(f"{type(error).__name__}: {first_line[0]:.200}", traceback.format_exc())


def _peak_bytes(call: Any) -> int | None:
    """Returns by how much a call raised the peak of the process; None where Linux does not tell."""
    process = pathlib.Path("/proc/self")
    if not (process / "clear_refs").exists():
        return None
    before = _status("VmRSS")
    (process / "clear_refs").write_text("5")  # resets the peak to what is resident now
    call()
    return max(0, _status("VmHWM") - before)


def _status(key: str) -> int:
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))
