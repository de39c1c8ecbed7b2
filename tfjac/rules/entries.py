"""Which entries of a local Jacobian may be nonzero, from its kind and links alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tfjac.rules.kinds import Kind, Local


def allowed_entries(found: Local, out_shape: Sequence[int], in_shape: Sequence[int]) -> np.ndarray:
    """Returns a boolean array `out_shape + in_shape`: which entries may be nonzero.

    Args:
      found: what the rule says.
      out_shape: of the output.
      in_shape: of the input.
    """
    out_rank = len(out_shape)
    if found.kind is Kind.ZERO:
        return np.zeros((*out_shape, *in_shape), bool)
    links = dict((a, b) for b, a in found.links)
    allowed = np.ones((1,) * (out_rank + len(in_shape)), bool)
    for a, b in links.items():
        allowed = allowed & _equal(b, out_rank + a, out_rank + len(in_shape), out_shape[b])
    return np.broadcast_to(allowed, (*out_shape, *in_shape))


def _equal(one: int, other: int, rank: int, size: int) -> np.ndarray:
    """Returns where the positions on two axes are equal, all other axes of size one."""
    shape = [1] * rank
    shape[one] = shape[other] = size
    return np.eye(size, dtype=bool).reshape(shape)
