"""Special functions: what the audit calls wrong or right is so to thirty digits."""

import numpy as np
import pytest
import tensorflow as tf

from tfjac.audit import measure
from tfjac.audit.samples import raw

mpmath = pytest.importorskip("mpmath")


def igamma(a, x):
    return mpmath.gammainc(a, 0, x, regularized=True)


def betainc(a, b, x):
    return mpmath.betainc(a, b, 0, x, regularized=True)


# Op type, the function, where, and by which argument TensorFlow's derivative is what.
CASES = [
    ("BesselI1", lambda x: mpmath.besseli(1, x), (0.0,), {0: "wrong"}),
    ("BesselI0", lambda x: mpmath.besseli(0, x), (0.7,), {0: "right"}),
    ("BesselK1", lambda x: mpmath.besselk(1, x), (0.7,), {0: "right"}),
    ("Zeta", mpmath.zeta, (2.3, 0.8), {0: "none", 1: "right"}),
    ("Betainc", betainc, (1.3, 0.9, 0.4), {0: "none", 1: "none", 2: "right"}),
    ("Igamma", igamma, (1.3, 0.9), {0: "right", 1: "right"}),
    ("Igammac", lambda a, x: 1 - igamma(a, x), (1.3, 0.9), {0: "right", 1: "right"}),
    ("Lgamma", mpmath.loggamma, (1.7,), {0: "right"}),
    ("Digamma", mpmath.digamma, (1.7,), {0: "right"}),
    ("Ndtri", lambda x: mpmath.sqrt(2) * mpmath.erfinv(2 * x - 1), (0.3,), {0: "right"}),
    ("Expint", mpmath.ei, (1.2,), {0: "right"}),
    ("Dawsn", lambda x: mpmath.sqrt(mpmath.pi) / 2 * mpmath.exp(-x * x) * mpmath.erfi(x), (0.8,),
     {0: "right"}),
    ("Spence", lambda x: mpmath.polylog(2, 1 - x), (0.6,), {0: "right"}),
    ("FresnelSin", mpmath.fresnels, (0.6,), {0: "right"}),
]  # fmt: skip


@pytest.mark.parametrize("op_type, function, at, expected", CASES, ids=[c[0] for c in CASES])
def test_a_first_derivative_is_as_the_audit_says(op_type, function, at, expected):
    sample = raw(op_type, *map(np.array, at))
    rows = {r.input: r for r in measure.measure(sample, "float64") if "reverse" in r.derivative}
    arguments = [tf.constant(value, tf.float64) for value in at]
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(arguments)
        value = sample.fn(*arguments)
    with mpmath.workdps(30):
        for i, verdict in expected.items():
            order = tuple(int(i == k) for k in range(len(at)))
            exact = float(mpmath.diff(function, tuple(map(mpmath.mpf, at)), order))
            found = tape.gradient(value, arguments[i])
            is_right = found is not None and abs(found - exact) < 1e-7 * (1 + abs(exact))
            assert rows[str(i)].verdict == verdict and is_right == (verdict == "right")
