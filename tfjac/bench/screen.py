"""A run on the screen: a progress bar while it goes on, and tables when it is done."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table as RichTable

from tfjac.bench import tables
from tfjac.bench.records import Report

_WIDTH_OF_A_FILE = 120


@contextlib.contextmanager
def progress(workloads: int) -> Iterator[tuple[Callable[[str], None], Callable[[], None]]]:
    """Shows a progress bar; yields what tells it the stage, and what moves it by a workload."""
    columns = (
        BarColumn(20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=workloads)
        yield lambda text: bar.update(task, description=text), lambda: bar.advance(task)


def show(report: Report) -> None:
    """Prints the summary of a report, the moments if there is but one workload, and troubles."""
    console = Console()
    console = console if console.is_terminal else Console(width=_WIDTH_OF_A_FILE)
    console.print(tables.heading(report), highlight=False)
    shown = [tables.summary(report)]
    if len({outcome.workload for outcome in report.outcomes}) == 1:
        shown += [tables.moments(report, outcome.kept) for outcome in report.outcomes]
    for table in shown:
        console.print(_rich(table))
    console.print(tables.LEGEND, highlight=False)
    for line in tables.troubles(report):
        console.print(line, style="red", highlight=False)


def _rich(table: tables.Table) -> RichTable:
    rich = RichTable(title=table.title, title_justify="left")
    for i, name in enumerate(table.header):
        rich.add_column(name, justify="left" if i == 0 else "right")
    for row in table.rows:
        rich.add_row(*row)
    return rich
