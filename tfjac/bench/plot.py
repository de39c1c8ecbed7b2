"""The plot of a report: speed-up over the best peer."""

from __future__ import annotations

import pathlib

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FormatStrFormatter

from tfjac.bench.records import Outcome, Report

_COLORS = {False: "#7aa6c2", True: "#1f4e79"}
_LABELS = {False: "as the process comes", True: "freed memory kept"}


def write(report: Report, stem: pathlib.Path) -> list[pathlib.Path]:
    """Writes the plot as PNG and SVG; returns the paths, none where there is nothing to show.

    Args:
      report: the report.
      stem: the path without a suffix.
    """
    outcomes = [outcome for outcome in report.outcomes if outcome.speed_up()]
    if not outcomes:
        return []
    titles = list(dict.fromkeys(outcome.title for outcome in outcomes))
    figure = Figure(figsize=(9, 1.2 + 0.42 * len(titles)), layout="constrained")
    axes = figure.subplots()
    for outcome in outcomes:
        _draw(axes, outcome, len(titles) - 1 - titles.index(outcome.title))
    axes.set_yticks(range(len(titles)), reversed(titles))
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FormatStrFormatter("%g"))
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xlabel(
        "times faster than the best peer (its name beside the bar); quartiles of rounds"
    )
    axes.margins(x=0.25, y=0.02)
    handles = {
        outcome.kept: axes.plot([], [], color=_COLORS[outcome.kept], linewidth=6)[0]
        for outcome in outcomes
    }
    axes.legend(handles.values(), [_LABELS[kept] for kept in handles], loc="best")
    figure.suptitle(
        f"tfjac {report.versions.get('tfjac', '')}, {report.date[:10]}, {report.machine}",
        fontsize=9,
    )
    paths = [stem.with_suffix(suffix) for suffix in (".png", ".svg")]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=120)
    return paths


def _draw(axes, outcome: Outcome, row: int) -> None:
    ratio, best = outcome.speed_up(), outcome.best_peer()
    height = row + (-0.19 if outcome.kept else 0.19)
    axes.barh(
        height,
        ratio.median - 1,
        left=1,
        height=0.36,
        color=_COLORS[outcome.kept],
        xerr=np.array([[ratio.median - ratio.low], [ratio.high - ratio.median]]),
        error_kw={"linewidth": 0.8},
    )
    aside = -4 if ratio.median < 1 else 4
    axes.annotate(
        f"{best.contender}  {ratio.median:.2f}",
        (ratio.low if ratio.median < 1 else ratio.high, height),
        (aside, 0),
        textcoords="offset points",
        ha="right" if ratio.median < 1 else "left",
        va="center",
        fontsize=7,
    )
