"""One word for what a derivative of TensorFlow is worth.

right      as differences have it
wrong      other numbers
nan        NaN where the derivative exists
zero       zeros where the derivative is not zero
none       None, which TensorFlow takes for zero, where the derivative is not zero
missing    LookupError: TensorFlow has no gradient of some op
no kernel  TensorFlow raises when it runs
raises     TensorFlow raises while it builds the gradient, other than for a missing one
undefined  the derivative does not exist, or differences do not tell
"""

from __future__ import annotations

import dataclasses
import re

import numpy as np

from tfjac.audit.differences import Estimate

RIGHT, WRONG, NAN, ZERO, NONE = "right", "wrong", "nan", "zero", "none"
MISSING, NO_KERNEL, RAISES, UNDEFINED = "missing", "no kernel", "raises", "undefined"
# Those that are no fault of TensorFlow.
GOOD = frozenset({RIGHT, UNDEFINED})

# Relative error allowed, by bytes of a real number.
TOLERANCE = {8: 1e-6, 4: 2e-3, 2: 3e-2}


@dataclasses.dataclass(frozen=True)
class Finding:
    """A verdict, the greatest relative error behind it, and what TensorFlow says."""

    verdict: str
    error: float = 0.0
    remark: str = ""


def compared(found: np.ndarray, expected: Estimate, tolerance: float) -> Finding:
    """Returns what a derivative is worth beside what differences tell."""
    found = np.reshape(found, expected.low.shape)
    known = expected.known
    if found.size and not np.any(known):
        return Finding(UNDEFINED)
    if np.any(np.isnan(found[known])):
        return Finding(NAN, np.inf)
    far = np.maximum(expected.low - found, found - expected.high)[known]
    scale = _scale(expected)
    far = np.maximum(far - 10 * expected.doubt[known], 0)
    error = float(np.max(far / scale, initial=0.0))
    if error <= tolerance:
        return Finding(RIGHT, error)
    return Finding(WRONG if np.any(found) else ZERO, error)


def without(problem: Exception | None, expected: Estimate) -> Finding:
    """Returns what it is worth that there is no derivative."""
    if isinstance(problem, LookupError):
        op_type = re.search(r"op type: (\w+)", str(problem))
        return Finding(MISSING, remark=op_type[1] if op_type else "")
    if problem is not None:
        return Finding(RAISES, remark=said(problem))
    if not np.any(expected.known):
        return Finding(RIGHT if not expected.low.size else UNDEFINED)
    nearest = np.maximum(np.maximum(expected.low, -expected.high), 0)[expected.known]
    doubt = expected.doubt[expected.known]
    is_zero = np.all(nearest <= 1e-6 * _scale(expected) + 10 * doubt)
    return Finding(RIGHT) if is_zero else Finding(NONE, 1.0)


def failed(error: Exception) -> Finding:
    """Returns what a derivative is worth that raises when it runs."""
    return Finding(NO_KERNEL, remark=said(error))


def times(estimate: Estimate, v: np.ndarray) -> Estimate:
    """Returns what a Jacobian times a vector is estimated to be."""
    low, high = estimate.low * v, estimate.high * v
    return Estimate(
        np.minimum(low, high).sum(1), np.maximum(low, high).sum(1), (estimate.doubt * abs(v)).sum(1)
    )


def said(error: Exception) -> str:
    """Returns the beginning of what an error says, without names of nodes."""
    text = getattr(error, "message", None) or str(error)
    text = re.split(r"\nNode: .*\n", text)[-1]
    first = re.sub(r"\{\{.*?\}\}|\[\[.*?\]\]", "", text).strip().split("\n")[0]
    return re.sub(r"\s+", " ", first)[:90].strip()


def _scale(expected: Estimate) -> float:
    """Returns the greatest derivative; 1 if all are zero as far as differences tell."""
    known = expected.known
    size = np.maximum(np.abs(expected.low[known]), np.abs(expected.high[known]))
    return float(np.max(size[size > 10 * expected.doubt[known]], initial=0.0)) or 1.0
