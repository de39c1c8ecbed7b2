"""What was measured, and the ratios that are made of it."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from typing import Any

import numpy as np

from tfjac.bench.limit import Limit

OURS = "tfjac"


@dataclasses.dataclass
class Record:
    """One contender on one workload under one setting of host memory.

    Args:
      workload: its name.
      contender: its name.
      peer: in whose process it ran.
      kept: whether freed memory was kept.
      is_baseline: a forward pass, or a plain training step.
      status: "ok", "left out", "failed" or "differs".
      message: why, where it is not ok.
      details: the traceback, or the end of the process's log.
      read_seconds: reading the graph and planning.
      predicted_seconds: of a warm call, by the plan.
      build_seconds: construction, with reading.
      first_seconds: the first call after it.
      ops: in the graph.
      peak_bytes: that a call took.
      answer_bytes: the size of the answer.
      difference: from the answer that most agree with, over its largest entry.
      seconds: of a warm call, one for each round.
    """

    workload: str
    contender: str
    peer: str
    kept: bool
    is_baseline: bool = False
    status: str = "ok"
    message: str = ""
    details: str = ""
    read_seconds: float | None = None
    predicted_seconds: float | None = None
    build_seconds: float | None = None
    first_seconds: float | None = None
    ops: int | None = None
    peak_bytes: int | None = None
    answer_bytes: int | None = None
    difference: float | None = None
    seconds: list[float] = dataclasses.field(default_factory=list)

    @property
    def is_timed(self) -> bool:
        """Whether there are times of it, which there are only of answers that agree."""
        return self.status == "ok" and bool(self.seconds)

    @property
    def median(self) -> float:
        """The median of its warm calls in seconds."""
        return float(np.median(self.seconds))


@dataclasses.dataclass(frozen=True)
class Ratio:
    """A ratio of times, round by round.

    Args:
      median: of the rounds.
      low: the first quartile.
      high: the third quartile.
    """

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, above: Record, below: Record) -> Ratio:
        """Returns the ratio of two records of the same rounds.

        One that was so slow that it was timed in a single round is compared with every round of the
        other: in the first round, which it had, memory is touched for the first time.
        """
        one, other = np.array(above.seconds), np.array(below.seconds)
        if min(len(one), len(other)) > 1:
            count = min(len(one), len(other))
            one, other = one[:count], other[:count]
        ratios = one / other
        low, median, high = np.percentile(ratios, [25, 50, 75])
        return cls(float(median), float(low), float(high))

    def text(self) -> str:
        """Returns the ratio with its quartiles."""
        return f"{self.median:.2f} ({self.low:.2f} to {self.high:.2f})"


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One workload under one setting of host memory.

    Args:
      title: of the workload.
      kept: whether freed memory was kept.
      records: of all contenders, the baselines among them.
      flops: the fewest known for it, if known.
    """

    title: str
    kept: bool
    records: tuple[Record, ...]
    flops: float | None

    @property
    def workload(self) -> str:
        """The name of the workload."""
        return self.records[0].workload

    def ours(self) -> Record | None:
        """Returns tfjac's record, as a user gets it by default, where it was timed."""
        return next((r for r in self.records if r.contender == OURS and r.is_timed), None)

    def best_peer(self) -> Record | None:
        """Returns the record of the fastest contender that is not tfjac's."""
        others = [r for r in self.records if r.is_timed and r.peer != OURS and not r.is_baseline]
        return min(others, key=lambda r: r.median, default=None)

    def speed_up(self) -> Ratio | None:
        """Returns the time of the best peer over ours."""
        ours, best = self.ours(), self.best_peer()
        return Ratio.of(best, ours) if ours and best else None

    def in_baselines(self, record: Record) -> Ratio | None:
        """Returns a record's time over the baseline's of the same process."""
        base = next(
            (r for r in self.records if r.is_baseline and r.peer == record.peer and r.is_timed),
            None,
        )
        return Ratio.of(record, base) if base and record.is_timed else None

    def over_floor(self, record: Record, limit: Limit) -> float | None:
        """Returns a record's time over what the machine's rates allow."""
        if self.flops is None or not record.is_timed or record.is_baseline:
            return None
        return record.median / limit.floor_seconds(self.flops, record.answer_bytes)


@dataclasses.dataclass(frozen=True)
class Report:
    """A whole run.

    Args:
      date: when it began.
      machine: what it ran on.
      versions: of all that was measured.
      limit: the machine's rates.
      missing: the peers left out because they are not installed, with what they need.
      outcomes: one for each workload and setting of host memory.
    """

    date: str
    machine: str
    versions: dict[str, str]
    limit: Limit
    missing: dict[str, str]
    outcomes: tuple[Outcome, ...]

    def troubles(self) -> list[Record]:
        """Returns the records of what failed, or gave an answer that differs."""
        return [r for outcome in self.outcomes for r in outcome.records if r.status not in _FINE]

    def is_ours_right(self) -> bool:
        """Whether tfjac answered everywhere, and nothing of tfjac is in trouble."""
        return all(outcome.ours() for outcome in self.outcomes) and not any(
            r.peer == OURS for r in self.troubles()
        )

    def write_json(self, path: pathlib.Path) -> None:
        """Writes the report, with the ratios that tables are made of, to a file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self._as_json(), indent=1) + "\n")

    def _as_json(self) -> dict[str, Any]:
        whole = dataclasses.asdict(self)
        for outcome, written in zip(self.outcomes, whole["outcomes"], strict=True):
            speed_up, best = outcome.speed_up(), outcome.best_peer()
            written["best_peer"] = best and best.contender
            written["speed_up"] = speed_up and dataclasses.asdict(speed_up)
            for record, row in zip(outcome.records, written["records"], strict=True):
                row["over_floor"] = outcome.over_floor(record, self.limit)
        return whole


_FINE = ("ok", "left out")
