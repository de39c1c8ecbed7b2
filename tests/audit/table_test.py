"""The committed table is what this TensorFlow does, and holds the faults that are known."""

import itertools

import pytest
import tensorflow as tf

from tfjac import cli
from tfjac.audit import command, families, samples, table

COMMITTED = table.committed()
BAD = {(row.op_type, row.sample, row.dtype) for row in COMMITTED.rows}
of_this_version = pytest.mark.skipif(
    tf.__version__ != COMMITTED.version,
    reason="the table is of another TensorFlow: `python -m tfjac rules --audit` tells what differs",
)


def part():
    """Returns one sample of each op type, and those with a fault in float64 or complex128."""
    pairs = list(samples.in_dtypes(families.SAMPLES))
    first = [next(group) for _, group in itertools.groupby(pairs, lambda p: p[0].op_type)]
    bad = [
        (sample, dtype)
        for sample, dtype in pairs
        if (sample.op_type, sample.name, dtype) in BAD and dtype in ("float64", "complex128")
    ]
    return [*bad, *(pair for pair in first if pair not in bad)]


@of_this_version
@pytest.mark.parametrize("share", range(4))
def test_a_part_of_the_audit_gives_what_the_table_has(share):
    pairs = part()[share::4]
    names = {(sample.op_type, sample.name, dtype) for sample, dtype in pairs}
    rows = tuple(row for row in COMMITTED.rows if (row.op_type, row.sample, row.dtype) in names)
    expected = table.Table(COMMITTED.version, rows, {})
    assert table.changes(expected, table.audited(pairs)) == []


# Op type, derivative, verdict, and a word of the sample, the dtype or the inputs.
KNOWN = """
tf.nn.moments                 | second        | wrong     | variance
SoftmaxCrossEntropyWithLogits | second        | zero      | 0, 1
ImageProjectiveTransformV3    | first reverse | wrong     | BILINEAR, NEAREST
ImageProjectiveTransformV3    | first reverse | wrong     | BILINEAR, REFLECT
ImageProjectiveTransformV3    | first reverse | none      | 1
MatrixDeterminant             | first reverse | wrong     | complex128
MatrixDeterminant             | first reverse | no kernel | singular
LogMatrixDeterminant          | first reverse | zero      | complex128
Cumprod                       | first reverse | wrong     | complex128
Cumprod                       | first reverse | wrong     | one zero
Xlogy                         | first reverse | wrong     | complex128
Xlogy                         | first reverse | zero      | at 0, 0.5
Prod                          | second        | wrong     | one zero
Betainc                       | first reverse | none      | 0
Betainc                       | first reverse | none      | 1
Zeta                          | first reverse | none      | 0
CumulativeLogsumexp           | first forward | nan       | float64
EuclideanNorm                 | first forward | nan       | float64
Softsign                      | second        | missing   | inside
Igamma                        | second        | missing   | 0, 0
Igammac                       | second        | missing   | 0, 0
Conv2D                        | first reverse | no kernel | grouped
Conv2D                        | first reverse | no kernel | dilated
CTCLoss                       | second        | missing   | two examples
LRN                           | second        | missing   | plain
ResizeBicubic                 | second        | missing   | size
ResizeBilinear                | first forward | none      | size
ResizeNearestNeighbor         | first forward | missing   | size
CropAndResize                 | second        | missing   | bilinear
Dilation2D                    | second        | missing   | VALID
FractionalAvgPool             | first forward | missing   | deterministic
FractionalMaxPool             | first forward | missing   | deterministic
MaxPool                       | first forward | zero      | as large as its input
RFFT                          | first reverse | raises    | (5,)
Svd                           | first reverse | wrong     | equal
FusedBatchNormV3              | second        | none      | inference
BesselI1                      | first reverse | wrong     | at 0
BlockLSTMV2                   | first reverse | wrong     | peephole
TensorListGather              | first reverse | wrong     | repeated
SparseSparseMaximum           | first reverse | raises    | two
"""


@pytest.mark.parametrize("line", KNOWN.strip().splitlines())
def test_a_known_fault_is_in_the_table(line):
    op_type, derivative, verdict, word = (field.strip() for field in line.split(" | "))
    assert any(
        (row.op_type, row.derivative, row.verdict) == (op_type, derivative, verdict)
        and (word in (row.dtype, row.input) or word in row.sample)
        for row in COMMITTED.rows
    )


def test_every_op_type_that_is_sampled_is_in_the_table():
    sampled = {sample.op_type for sample in families.SAMPLES}
    assert set(COMMITTED.counts) | {row.op_type for row in COMMITTED.rows} == sampled


def test_a_table_that_is_written_is_read_as_it_was():
    assert table.text(COMMITTED) == table.PATH.read_text()


def test_what_is_otherwise_is_told_in_both_directions():
    first, *rest = COMMITTED.rows
    less = table.Table(COMMITTED.version, tuple(rest), {})
    (line,) = table.changes(COMMITTED, less)
    assert line.endswith(f"{first.derivative}: {first.verdict} -> right")
    (line,) = table.changes(less, COMMITTED)
    assert line.endswith(f"right -> {first.verdict}")
    assert table.changes(COMMITTED, COMMITTED) == []


@of_this_version
def test_the_command_tells_what_changed_by_its_exit_status(monkeypatch, tmp_path, capsys):
    few = [sample for sample in families.OPS if sample.op_type == "Softsign"]
    monkeypatch.setattr(families, "SAMPLES", few)
    monkeypatch.setattr(table, "PATH", tmp_path / "table.csv")
    (tmp_path / "table.csv").write_text(table.text(table.Table(tf.__version__, (), {})))
    for arguments, status in ((["--audit"], 1), (["--audit", "--write"], 1), (["--audit"], 0)):
        monkeypatch.setattr("sys.argv", ["tfjac", "rules", *arguments])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        assert stopped.value.code == status
    assert "Softsign, second: missing" in capsys.readouterr().out
    assert command.main(write=False) == 0
