"""The fewest floating-point operations known for a Jacobian: what its floor is made of.

All count multiply-adds for one example; a multiply-add is two operations.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence


def forward(sizes: Sequence[int]) -> int:
    """Returns the multiply-adds of a forward pass through dense layers of these sizes."""
    return sum(a * b for a, b in zip(sizes[:-1], sizes[1:]))


def dense_chain(sizes: Sequence[int]) -> int:
    """Returns the multiply-adds of the cheapest order to multiply the layers' Jacobians.

    The matrix chain product (Godbole 1973); elementwise layers between them scale rows and are not
    counted.
    """

    @functools.cache
    def cheapest(first: int, last: int) -> int:
        if last - first == 1:
            return 0
        return min(
            cheapest(first, cut) + cheapest(cut, last) + sizes[first] * sizes[cut] * sizes[last]
            for cut in range(first + 1, last)
        )

    return cheapest(0, len(sizes) - 1)


def mlp(sizes: Sequence[int]) -> int:
    """Returns the multiply-adds of a forward pass and the Jacobian of dense layers."""
    return forward(sizes) + dense_chain(sizes)


def residual(size: int, width: int, blocks: int) -> int:
    """Returns the same of dense, `blocks` times x + W relu(V x), dense; by reverse mode."""
    block = 2 * width * width
    passes = size * (blocks * block + width * size)
    return 2 * size * width + blocks * block + passes


def lenet(rows: int) -> int:
    """Returns the same of the net that `workloads.lenet` describes, by reverse mode."""
    convolutions = 28 * 28 * 25 * 20 + 10 * 10 * 25 * 20 * 50
    hidden, last = 1250 * 500, 500 * 10
    # The first product of reverse mode is the last layer's weight itself.
    return convolutions + hidden + last + rows * (convolutions + hidden)


def attention(positions: int, width: int, heads: int) -> int:
    """Returns the same of the block that `workloads.attention` describes.

    Three outer products for each pair of positions and each head: through the value, whose weight
    times the output's is the same for all; through the key; and through the query, a product over
    the positions.
    """
    projections = 4 * positions * width * width
    scores = 2 * positions * positions * width
    return projections + scores + 3 * positions * positions * heads * width * width


def lstm(steps: int, inputs: int, units: int, rows: int) -> int:
    """Returns the same of an LSTM with a dense layer on its last state, by reverse mode."""
    step = 4 * units * (inputs + units)
    return steps * step + units * rows + rows * steps * step
