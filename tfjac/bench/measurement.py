"""Runs workloads: builds every contender, compares answers, then times in interleaved rounds."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import importlib.util
import os
import pathlib
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tfjac.bench import agreement, limit, team
from tfjac.bench.jobs import Peer, Task
from tfjac.bench.records import Outcome, Record, Report

_START_SECONDS = 120.0
# What takes longer than this, and than so many times the fastest, is timed in one round only.
_HOPELESS_SECONDS, _HOPELESS_RATIO = 0.3, 10.0


@dataclasses.dataclass(frozen=True)
class Workload:
    """What is run.

    Args:
      task: where the workers find it.
      title: in words.
      flops: the fewest known for it; None where nobody has counted.
      heavy: whether its answers are so large that the settings of host memory have their turns one
        after the other, each in processes of its own, after all other workloads.
    """

    task: Task
    title: str
    flops: float | None = None
    heavy: bool = False


@dataclasses.dataclass(frozen=True)
class Settings:
    """How it is run.

    Args:
      rounds: at most.
      seconds: for the rounds of one workload; at least `fewest_rounds` are run all the same.
      fewest_rounds: see above.
      timeout: seconds after which a contender that does not answer is given up.
      keeping: the settings of host memory, each with workers of its own.
    """

    rounds: int = 11
    seconds: float = 20.0
    fewest_rounds: int = 3
    timeout: float = 120.0
    keeping: tuple[bool, ...] = (False, True)


def run(
    workloads: Sequence[Workload],
    peers: Sequence[Peer],
    settings: Settings,
    say: Callable[[str], None] = lambda text: None,
    done: Callable[[], None] = lambda: None,
) -> Report:
    """Returns the report of a run.

    Args:
      workloads: what to run.
      peers: whom to compare; those that are not installed are left out.
      settings: how.
      say: told what is going on.
      done: called after each workload.
    """
    date = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    missing = {p.name: p.needs for p in peers if importlib.util.find_spec(p.needs) is None}
    present = [p for p in peers if p.name not in missing]
    say("write rates of the machine")
    fresh, warm = limit.write_rates()
    outcomes: list[Outcome] = []
    with _team(present, settings, say) as workers:
        versions: dict[str, str] = {"python": platform.python_version()}
        for worker in workers:
            versions |= worker.hello(_START_SECONDS).versions
        say("matrix products")
        first = workers[: len(present)]
        flops = max(w.ask("matmul_flops", timeout=_START_SECONDS) for w in first)
        for workload in workloads:
            if not workload.heavy:
                outcomes += _Race(workload, workers, settings, say).outcomes()
                done()
    for workload in workloads:
        if workload.heavy:
            # All processes at once, each with several of its answers, might not fit in memory.
            for kept in settings.keeping:
                alone = dataclasses.replace(settings, keeping=(kept,))
                with _team(present, alone, say) as workers:
                    outcomes += _Race(workload, workers, alone, say).outcomes()
            done()
    return Report(
        date,
        _machine(),
        versions,
        limit.Limit(flops, fresh, warm),
        missing,
        tuple(outcomes),
    )


@contextlib.contextmanager
def _team(
    peers: Sequence[Peer], settings: Settings, say: Callable[[str], None]
) -> Iterator[list[team.Worker]]:
    say("loading frameworks")
    environment = team.environment()
    workers: list[team.Worker] = []
    try:
        for kept in settings.keeping:
            workers += [team.Worker(peer, kept, environment) for peer in peers]
        yield workers
    finally:
        for worker in workers:
            worker.close()


class _Race:
    """One workload, and all who run it."""

    def __init__(
        self,
        workload: Workload,
        workers: Sequence[team.Worker],
        settings: Settings,
        say: Callable[[str], None],
    ):
        self._workload = workload
        self._workers = workers
        self._settings = settings
        self._say = say
        self._records: list[tuple[team.Worker, Record]] = []
        self._digests: dict[int, agreement.Digest] = {}

    def outcomes(self) -> list[Outcome]:
        """Returns one outcome for each setting of host memory."""
        for worker in self._workers:
            self._build_all(worker)
        for kept in self._settings.keeping:
            self._compare(kept)
        self._time()
        for worker in self._workers:
            with contextlib.suppress(team.Failed):  # a dead process holds nothing to be dropped
                self._ask(worker, "end")
        return [
            Outcome(
                self._workload.title,
                kept,
                tuple(record for worker, record in self._records if worker.kept == kept),
                self._workload.flops,
            )
            for kept in self._settings.keeping
        ]

    def _build_all(self, worker: team.Worker) -> None:
        peer, name = worker.peer, self._workload.task.name
        try:
            found = self._begin(worker)
        except team.Failed as error:
            self._records.append(
                (worker, _failed(Record(name, peer.name, peer.name, worker.kept), error))
            )
            return
        for contender, is_baseline in found:
            record = Record(name, contender, peer.name, worker.kept, is_baseline)
            self._build(worker, record)
            self._records.append((worker, record))

    def _begin(self, worker: team.Worker) -> list[tuple[str, bool]]:
        found = self._ask(worker, "begin", self._workload.task, dict(worker.peer.options))
        worker.has_forgotten = False
        return found

    def _build(self, worker: team.Worker, record: Record) -> None:
        self._say(f"{record.workload}: {record.contender}{', memory kept' * record.kept}")
        try:
            self._remind(worker)
            built = self._ask(worker, "build", record.contender)
        except team.Failed as error:
            _failed(record, error)
            return
        self._digests[id(record)] = built.digest
        for field in dataclasses.fields(built):
            if field.name != "digest":
                setattr(record, field.name, getattr(built, field.name))

    def _remind(self, worker: team.Worker) -> None:
        """Has a process that was replaced build again what its predecessor had built."""
        if worker.has_forgotten:
            self._begin(worker)
            for record in self._of(worker):
                if record.status == "ok":
                    self._ask(worker, "build", record.contender)

    def _of(self, worker: team.Worker) -> list[Record]:
        return [record for other, record in self._records if other is worker]

    def _ask(self, worker: team.Worker, method: str, *arguments: Any) -> Any:
        return worker.ask(method, *arguments, timeout=self._settings.timeout)

    def _compare(self, kept: bool) -> None:
        records = {
            f"{r.peer} {r.contender}": r
            for _, r in self._records
            if r.kept == kept and r.status == "ok" and not r.is_baseline
        }
        digests = {name: self._digests[id(r)] for name, r in records.items()}
        for name, difference in agreement.differences(digests).items():
            records[name].difference = difference
            if difference > agreement.TOLERANCE:
                records[name].status = "differs"
                records[
                    name
                ].message = f"differs from the others by {difference:.1e} of the largest entry"

    def _time(self) -> None:
        start = time.perf_counter()
        for number in range(self._settings.rounds):
            spent = time.perf_counter() - start
            if number >= self._settings.fewest_rounds and spent > self._settings.seconds:
                break
            self._say(f"{self._workload.task.name}: round {number + 1}")
            for worker, record in self._records:
                if record.status == "ok" and not self._is_hopeless(record):
                    self._turn(worker, record)

    def _is_hopeless(self, record: Record) -> bool:
        """Whether it was so slow in the first round that further ones would tell nothing."""
        fastest = min(
            (r.median for _, r in self._records if r.is_timed and not r.is_baseline), default=0.0
        )
        return record.is_timed and record.median > max(_HOPELESS_SECONDS, _HOPELESS_RATIO * fastest)

    def _turn(self, worker: team.Worker, record: Record) -> None:
        try:
            self._remind(worker)
            record.seconds.append(self._ask(worker, "turn", record.contender))
        except team.Failed as error:
            _failed(record, error)


def _failed(record: Record, error: team.Failed) -> Record:
    record.status = "left out" if error.failure.left_out else "failed"
    record.message, record.details = error.failure.message, error.failure.details
    return record


def _machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores, {memory:.0f} GiB, {_processor()}, {platform.system()}"


def _processor() -> str:
    information = pathlib.Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
