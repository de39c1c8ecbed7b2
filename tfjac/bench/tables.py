"""The tables of a report, as plain cells: for the screen, and for Markdown."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from tfjac.bench.records import Outcome, Record, Report

_NOTHING = "–"
_MEMORY = {False: "memory as is", True: "freed memory kept"}
LEGEND = (
    "speed-up: of tfjac over the best peer, median and quartiles of rounds. baselines: a forward "
    "pass, or a step on the plain loss. floors: fewest known FLOPs and bytes of the answer at the "
    "machine's rates. predicted: by the plan, a call without XLA. MB: the peak of a call."
)


@dataclasses.dataclass(frozen=True)
class Table:
    """A table.

    Args:
      title: above it.
      header: of the columns.
      rows: cells.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def markdown(self) -> str:
        """Returns the table in Markdown."""
        lines = [self.header, tuple("---" for _ in self.header), *self.rows]
        return "\n".join([f"{self.title}\n", *("| " + " | ".join(line) + " |" for line in lines)])


def summary(report: Report) -> Table:
    """Returns tfjac beside the best peer, a row for each workload and setting of host memory."""
    rows = tuple(_summary_cells(report, outcome) for outcome in report.outcomes)
    header = ("workload", "memory", "tfjac, ms", "best peer, ms", "speed-up", "baselines", "floors")
    return Table("tfjac and the best peer, warm calls", header, rows)


def times(report: Report, kept: bool) -> Table:
    """Returns the medians of all contenders under one setting of host memory."""
    outcomes = [outcome for outcome in report.outcomes if outcome.kept == kept]
    names = _contenders(outcomes)
    rows = [(o.title, *(_milliseconds(o, name) for name in names)) for o in outcomes]
    return Table(f"Warm calls in ms, {_MEMORY[kept]}", ("workload", *names), tuple(rows))


def moments(report: Report, kept: bool) -> Table:
    """Returns what each contender takes until it is warm, under one setting of host memory."""
    rows = [
        (outcome.title, record.contender, *_moment_cells(record))
        for outcome in report.outcomes
        for record in outcome.records
        if outcome.kept == kept and record.is_timed and not record.is_baseline
    ]
    header = ("workload", "contender", "plan, ms", "build, s", "first, s")
    header += ("predicted, ms", "warm, ms", "MB", "ops")
    return Table(f"The moments of each contender, {_MEMORY[kept]}", header, tuple(rows))


def heading(report: Report) -> str:
    """Returns in a few lines what was run, on what, and how fast the machine is."""
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    limit = report.limit
    lines = [
        f"{report.date}; {report.machine}",
        versions,
        f"matrix product {limit.flops / 1e9:.0f} GFLOP/s, writing {limit.fresh_bytes / 1e9:.1f} "
        f"GB/s to fresh memory and {limit.warm_bytes / 1e9:.1f} GB/s to warm",
    ]
    lines += [
        f"left out: {peer}, for {needs} is not installed" for peer, needs in report.missing.items()
    ]
    return "\n".join(lines)


def troubles(report: Report) -> list[str]:
    """Returns a line for each contender that failed, or whose answer differs."""
    return [
        f"{r.workload}, {r.contender}, {_MEMORY[r.kept]}: {r.status}: {r.message}"
        for r in report.troubles()
    ]


def markdown(report: Report) -> str:
    """Returns the whole report in Markdown."""
    settings = sorted({outcome.kept for outcome in report.outcomes})
    every = [summary(report)] + [
        make(report, kept) for make in (times, moments) for kept in settings
    ]
    parts = [heading(report).replace("\n", "\n\n"), LEGEND, *(t.markdown() for t in every)]
    lines = [f"- {line}" for line in troubles(report)]
    return "\n\n".join([*parts, "\n".join(lines)]).strip() + "\n"


def _summary_cells(report: Report, outcome: Outcome) -> tuple[str, ...]:
    ours, best, speed_up = outcome.ours(), outcome.best_peer(), outcome.speed_up()
    return (
        outcome.title,
        "kept" if outcome.kept else "as is",
        _text(ours, lambda r: f"{1e3 * r.median:.2f}"),
        _text(best, lambda r: f"{r.contender} {1e3 * r.median:.2f}"),
        _text(speed_up, lambda ratio: ratio.text()),
        _text(ours and outcome.in_baselines(ours), lambda ratio: f"{ratio.median:.1f}"),
        _text(ours and outcome.over_floor(ours, report.limit), lambda x: f"{x:.1f}"),
    )


def _moment_cells(record: Record) -> tuple[str, ...]:
    return (
        _text(record.read_seconds, lambda x: f"{1e3 * x:.1f}"),
        _text(record.build_seconds, lambda x: f"{x:.2f}"),
        _text(record.first_seconds, lambda x: f"{x:.2f}"),
        _text(record.predicted_seconds, lambda x: f"{1e3 * x:.2f}"),
        f"{1e3 * record.median:.2f}",
        _text(record.peak_bytes, lambda x: f"{x / 1e6:.0f}"),
        _text(record.ops, str),
    )


def _contenders(outcomes: Sequence[Outcome]) -> list[str]:
    names = [r.contender for o in outcomes for r in o.records if not r.is_baseline]
    return list(dict.fromkeys(names))


def _milliseconds(outcome: Outcome, name: str) -> str:
    record = next((r for r in outcome.records if r.contender == name), None)
    if record is None or record.status == "left out":
        return _NOTHING
    return f"{1e3 * record.median:.2f}" if record.is_timed else record.status


def _text(figure: object, show: Callable[[object], str]) -> str:
    return _NOTHING if figure is None else show(figure)
