"""What tfjac answers for a sample of the audit, and what the answer is worth."""

from __future__ import annotations

import zlib

import numpy as np
import tensorflow as tf

import tfjac
from tfjac import errors
from tfjac.audit import differences, measure, samples, verdicts

REFUSED = "refused"
TWICE = ("gradient by its cotangent", "gradient again", "hessian")


class Asked:
    """A sample in a dtype, of which derivatives are asked for.

    Complex inputs and outputs are split in parts, so that also what is not holomorphic has a
    Jacobian.
    """

    def __init__(self, sample, dtype):
        self.sample, self.by = sample, sample.by()
        self.probe = measure.Probe(sample.fn, samples.cast(sample, dtype), sample)
        self.truth = measure.truth_of(sample, self.probe)
        self.inputs = self.probe.inputs

    def close(self):
        self.probe.close()
        self.truth.close()

    def verdicts(self, o, i, ask):
        """Yields (input, verdict, remark) of what is asked about output o by input i.

        Args:
          o: number of an output.
          i: number of an input.
          ask: the name of a strategy, or one of `TWICE`.
        """
        tolerance = verdicts.TOLERANCE[measure.coarsest(self.probe, o, i)]
        rng = np.random.default_rng(zlib.crc32(f"{o} {i}".encode()))
        u, v = measure.like(rng, self.probe.values[o]), measure.like(rng, self.inputs[i])
        if ask not in TWICE[1:]:
            function = measure.of_input(self.truth, o, i)
            known = measure.real(self.truth.inputs[i])
            expected = differences.jacobian(function, known, self.truth.wide)
            yield str(i), *self._of_first(o, i, ask, u, expected, tolerance)
            return
        for j in self.by if ask == "gradient again" else [i]:
            w = measure.real(measure.like(np.random.default_rng(100 + j), self.inputs[j]))
            yield f"{i}, {j}", *self._of_second(o, (i, v), (j, w), ask, u, 10 * tolerance)

    def _of_first(self, o, i, ask, u, expected, tolerance):
        if ask != TWICE[0]:
            return judged(lambda: self.run(o, i, ask), expected, tolerance)
        found = "right", ""
        for cotangent in (u, np.zeros_like(u)):
            if found[0] == "right":
                found = judged(lambda c=cotangent: self.run(o, i, ask, c).T, expected, tolerance)
        return found

    def _of_second(self, o, first, second, ask, u, tolerance):
        (i, v), (j, w) = first, second
        place = self.truth, o, (i, measure.real(v)), (j, w), measure.real(u)
        found = lambda: measure.real(v) @ self.run(o, i, ask, u, j) @ w  # noqa: E731
        verdict = judged(found, measure.mixed(*place), tolerance)
        if verdict[0] in ("wrong", "zero") and self.truth.wide == 8:
            verdict = judged(found, measure.mixed_around(*place), tolerance)
        return verdict

    def run(self, o, i, ask, u=None, j=None):
        """Returns a matrix of what is asked, in the real view."""

        @tf.function(autograph=False)
        def derivative(cotangent, *fed):
            given = dict(zip(self.by, fed))
            xs = [
                unsplit(given[k], x) if k in given else tf.constant(x)
                for k, x in enumerate(self.inputs)
            ]
            y = split(tensors(self.sample.fn(*xs))[o])
            x = given[i]
            if ask == TWICE[0]:
                return tfjac.jacobian(tfjac.vjp(y, x, cotangent), cotangent)
            if ask == TWICE[1]:
                return tfjac.jacobian(tfjac.vjp(y, x, cotangent), given[j])
            if ask == TWICE[2]:
                return tfjac.hessian(tf.reduce_sum(cotangent * y), x)
            return tfjac.jacobian(y, x, ask)

        cotangent = self.probe.values[o] if u is None else u
        found = derivative(parts(cotangent), *(parts(self.inputs[k]) for k in self.by)).numpy()
        sizes = [measure.real(x).size for x in (self.inputs[i], self.probe.values[o])]
        columns = {
            TWICE[0]: sizes[1],
            TWICE[1]: 0 if j is None else measure.real(self.inputs[j]).size,
        }
        return found.astype(np.float64).reshape(
            sizes[0] if ask in TWICE else sizes[1], columns.get(ask, sizes[0])
        )


def judged(evaluate, expected, tolerance):
    """Returns (verdict, remark)."""
    try:
        found = evaluate()
    except errors.TfjacError as error:
        return REFUSED, str(error)
    except Exception as error:  # noqa: BLE001 - what it raises is what is measured
        return f"raw {type(error).__name__}", str(error)[:300]
    finding = verdicts.compared(found, expected, tolerance)
    return finding.verdict, f"{finding.error:.1e}"


def tensors(found):
    """Returns the tensors of what a sample gives."""
    return [y for y in tf.nest.flatten(found, expand_composites=True) if isinstance(y, tf.Tensor)]


def parts(x):
    """Returns a real tensor of an array, of both parts of complex numbers."""
    x = np.asarray(x)
    return tf.constant(np.stack([x.real, x.imag]) if x.dtype.kind == "c" else x)


def split(y):
    """Returns a real tensor of both parts of complex numbers."""
    return tf.stack([tf.math.real(y), tf.math.imag(y)]) if y.dtype.is_complex else y


def unsplit(x, like):
    """Returns the tensor whose parts were split."""
    x.set_shape((2, *like.shape) if like.dtype.kind == "c" else like.shape)
    return tf.complex(x[0], x[1]) if like.dtype.kind == "c" else x
