"""Whether answers agree, told from projections of them, which are small enough to send."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

_DIRECTIONS = 3
# Of the largest entry; float32 through a few layers in another order of summation gives 1e-6.
TOLERANCE = 1e-4


@dataclasses.dataclass(frozen=True)
class Digest:
    """What is compared of an answer.

    Args:
      shape: of the answer.
      projections: the answer times random directions along its last axis, so that no wrong entry
        and no two entries changed about can hide.
    """

    shape: tuple[int, ...]
    projections: np.ndarray


def digest(answer: np.ndarray) -> Digest:
    """Returns the digest of an answer."""
    columns = answer.shape[-1] if answer.ndim else 1
    directions = np.random.default_rng(0).normal(size=(columns, _DIRECTIONS))
    with np.errstate(invalid="ignore"):  # NaN and infinity are compared as well
        projections = answer.reshape(-1, columns) @ directions.astype(answer.dtype)
    return Digest(answer.shape, projections)


def difference(one: Digest, other: Digest) -> float:
    """Returns the largest difference over the largest entry of either.

    Infinite where the shapes differ, or where one is finite and the other is not.
    """
    if one.shape != other.shape:
        return np.inf
    finite, also = np.isfinite(one.projections), np.isfinite(other.projections)
    if np.any(finite != also):
        return np.inf
    ours, theirs = one.projections[finite], other.projections[finite]
    scale = max(_largest(ours), _largest(theirs))
    return _largest(ours - theirs) / scale if scale else 0.0


def differences(digests: Mapping[str, Digest]) -> dict[str, float]:
    """Returns the difference of each answer from the one that most others agree with."""
    apart = {
        (one, other): difference(digests[one], digests[other])
        for one in digests
        for other in digests
    }

    def followers(name: str) -> int:
        return sum(apart[name, other] <= TOLERANCE for other in digests)

    reference = max(digests, key=followers, default=None)
    return {name: apart[reference, name] for name in digests}


def _largest(array: np.ndarray) -> float:
    return float(np.max(np.abs(array), initial=0.0))
