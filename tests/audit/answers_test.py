"""No derivative that TensorFlow has wrong is answered wrong without a word."""

import collections
import logging

import answers
import numpy as np
import pytest
import tensorflow as tf

from tfjac.audit import families, samples, table

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(
        tf.__version__ != table.committed().version, reason="the table is of another TensorFlow"
    ),
]

# (op type, a word of the sample) -> why it is answered as TensorFlow has it. No graph tells these.
BY_VALUE = {
    ("CTCLoss", ""): "right to five digits, as its kernel computes in single precision",
    ("EuclideanNorm", "all zeros"): "no derivative at zero",
    ("LogMatrixDeterminant", "singular"): "raises `Input is not invertible` when it runs",
    ("LogMatrixDeterminant", "zeros"): "raises `Input is not invertible` when it runs",
    ("MatrixDeterminant", "singular"): "raises `Input is not invertible` when it runs",
    ("MatrixDeterminant", "zeros"): "raises `Input is not invertible` when it runs",
    ("Pow", "at 0, "): "an exponent that is computed may be 0 or 1",
    ("SelfAdjointEigV2", "equal"): "equal eigenvalues",
    ("SoftmaxCrossEntropyWithLogits", ""): "its second output is read as the gradient by logits",
    ("Svd", "put together"): "equal singular values, and second derivatives of complex matrices",
    ("tf.math.reduce_std", "alike"): "no derivative at equal entries",
    ("tf.norm", "zeros"): "no derivative at zero",
    ("tf.where", "a branch not taken"): "0 times infinity",
    ("ImageProjectiveTransformV3", "NEAREST, WRAP"): "by the transforms it jumps",
}
# Differences of numbers with three digits do not tell.
NOT_TOLD = {("ImageProjectiveTransformV2", "half"), ("ImageProjectiveTransformV3", "half")}
STRATEGIES = ("unstack", "forward", "cross_country")


def not_right():
    """Returns, by sample and dtype, the asks for each (output, input) that is not right."""
    found = collections.defaultdict(lambda: collections.defaultdict(set))
    for row in table.committed().rows:
        pair = found[row.op_type, row.sample, row.dtype][row.output, int(row.input.split(",")[0])]
        is_double = row.dtype in ("float64", "complex128")
        if row.derivative == "first reverse":
            pair |= {"auto", *(STRATEGIES if is_double else ())}
        elif row.derivative == "first forward":
            pair |= {answers.TWICE[0], *(STRATEGIES[1:] if is_double else ())}
        else:
            pair |= set(answers.TWICE[1:])
    return found


def jobs():
    """Returns what to ask of each sample and dtype: float64 and complex128, or the first there is.

    Of op types with many samples of the same fault, as the loops of a cell, the first ones.
    """
    asked, seen = [], collections.Counter()
    found = not_right()
    for sample, dtype in samples.in_dtypes(families.SAMPLES):
        pairs = found.get((sample.op_type, sample.name, dtype))
        is_single = dtype in ("float32", "half")
        if pairs and not (is_single and seen[sample.op_type]):
            seen[sample.op_type] += 1
            asked.append((sample, dtype, dict(list(pairs.items())[:4])))
    return asked


def reason(op_type, name):
    return next((r for (t, word), r in BY_VALUE.items() if t == op_type and word in name), None)


def check(sample, dtype, pairs):
    """Returns what is answered wrong, or by an error that is not of tfjac."""
    asked = answers.Asked(sample, dtype)
    wrong = [
        (sample.op_type, sample.name, dtype, o, input_, ask, verdict, remark)
        for (o, i), asks in pairs.items()
        for ask in sorted(asks)
        for input_, verdict, remark in asked.verdicts(o, i, ask)
        if verdict not in ("right", "undefined", answers.REFUSED)
    ]
    asked.close()
    return wrong


@pytest.fixture(autouse=True)
def _quiet():
    logger = tf.get_logger()
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    with np.errstate(all="ignore"):
        yield
    logger.setLevel(level)


@pytest.mark.parametrize("share", range(8))
def test_what_tensorflow_has_wrong_is_right_or_refused(share):
    wrong = []
    for sample, dtype, pairs in jobs()[share::8]:
        if not reason(sample.op_type, sample.name) and (sample.op_type, dtype) not in NOT_TOLD:
            wrong += check(sample, dtype, pairs)
    assert wrong == []


@pytest.mark.parametrize("share", range(4))
def test_what_tensorflow_has_right_stays_right(share):
    bad = {row.op_type for row in table.committed().rows}
    known = {table.key(row)[:5] for row in table.committed().rows}
    good = [s for s in families.SAMPLES if s.op_type in bad and samples.own_dtype(s) == "float64"]
    first = list({s.op_type: s for s in reversed(good)}.values())
    wrong = []
    for sample in first[share::4]:
        asked = answers.Asked(sample, "float64")
        i = sample.by()[0]
        of_first = (sample.op_type, sample.name, "float64", 0, str(i))
        if of_first not in known and 0 in asked.probe.floating:
            asks = {"auto", "cross_country"}
            wrong += check(sample, "float64", {(0, i): asks})
        asked.close()
    assert [w for w in wrong if not reason(*w[:2])] == []
