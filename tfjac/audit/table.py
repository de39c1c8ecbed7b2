"""The table of what was found: every derivative that is not right, and how many are."""

from __future__ import annotations

import collections
import csv
import dataclasses
import io
import pathlib
from collections.abc import Iterable

import tensorflow as tf

from tfjac.audit import measure, verdicts
from tfjac.audit.measure import Row
from tfjac.audit.samples import Sample

PATH = pathlib.Path(__file__).parent / "table.csv"
_COLUMNS = [field.name for field in dataclasses.fields(Row)]
_COUNTED = (verdicts.RIGHT, verdicts.UNDEFINED)

# Says which derivative a row is of.
Key = tuple[str, str, str, int, str, str]


@dataclasses.dataclass(frozen=True)
class Table:
    """What was found.

    Args:
      version: of TensorFlow.
      rows: the derivatives that are not right, in order.
      counts: how many are right, and how many do not exist, by op type.
    """

    version: str
    rows: tuple[Row, ...]
    counts: dict[str, dict[str, int]]

    def by_key(self) -> dict[Key, Row]:
        """Returns the rows by what they are of."""
        return {key(row): row for row in self.rows}


def key(row: Row) -> Key:
    """Returns what a row is of."""
    return row.op_type, row.sample, row.dtype, row.output, row.input, row.derivative


def audited(pairs: Iterable[tuple[Sample, str]]) -> Table:
    """Returns the table of some samples, each in a dtype, which runs them all."""
    return of_rows(row for sample, dtype in pairs for row in measure.measure(sample, dtype))


def of_rows(rows: Iterable[Row]) -> Table:
    """Returns the table of what was measured with this TensorFlow."""
    counts: dict[str, dict[str, int]] = {}
    kept = []
    for row in rows:
        count = counts.setdefault(row.op_type, dict.fromkeys(_COUNTED, 0))
        if row.verdict in _COUNTED:
            count[row.verdict] += 1
        else:
            kept.append(row)
    return Table(tf.__version__, tuple(sorted(kept, key=key)), dict(sorted(counts.items())))


def text(table: Table) -> str:
    """Returns a table as it is committed."""
    out = io.StringIO()
    out.write(f"# TensorFlow {table.version}\n")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for op_type, count in table.counts.items():
        writer.writerows(
            [op_type, "", "", "", "", "", verdict, number, ""]
            for verdict, number in count.items()
            if number
        )
    for row in table.rows:
        error = f"{row.error:.0e}" if row.verdict == verdicts.WRONG else ""
        values = dataclasses.asdict(row) | {"error": error}
        writer.writerow(values[name] for name in _COLUMNS)
    return out.getvalue()


def read(content: str) -> Table:
    """Returns the table that a text is of."""
    first, _, rest = content.partition("\n")
    counts: dict[str, dict[str, int]] = collections.defaultdict(dict)
    rows = []
    for line in csv.DictReader(io.StringIO(rest)):
        if line["verdict"] in _COUNTED:
            counts[line["op_type"]][line["verdict"]] = int(line["error"])
        else:
            error = float(line["error"] or "nan")
            given = {**line, "output": int(line["output"]), "error": error}
            rows.append(Row(**given))
    return Table(first.removeprefix("# TensorFlow "), tuple(rows), dict(counts))


def committed() -> Table:
    """Returns the table that comes with the package."""
    return read(PATH.read_text())


def changes(before: Table, after: Table) -> list[str]:
    """Returns a line for each derivative whose verdict is another."""
    old, new = before.by_key(), after.by_key()
    lines = []
    for name in sorted(old.keys() | new.keys()):
        verdicts_ = [rows[name].verdict if name in rows else "right" for rows in (old, new)]
        if verdicts_[0] != verdicts_[1]:
            op_type, sample, dtype, output, input_, derivative = name
            where = f"{op_type} ({sample}; {dtype}), output {output} by input {input_}"
            lines.append(f"{where}, {derivative}: {verdicts_[0]} -> {verdicts_[1]}")
    return lines


def summary(table: Table) -> list[str]:
    """Returns a line for each op type, derivative and verdict, with how often it is so."""
    found: collections.Counter = collections.Counter(
        (row.op_type, row.derivative, row.verdict) for row in table.rows
    )
    lines = [
        f"{op_type}, {derivative}: {verdict} ({number} of them)"
        for (op_type, derivative, verdict), number in sorted(found.items())
    ]
    right = sum(count.get(verdicts.RIGHT, 0) for count in table.counts.values())
    return [*lines, f"right: {right}; not right: {len(table.rows)}; op types: {len(table.counts)}"]
