"""The cheapest order in which to multiply the Jacobians of a chain.

Between tensors 0, 1, ..., n lie n segments. The Jacobian of tensor j by tensor i can be had from
that of a shorter stretch by carrying it back through one more segment, or on through one more, or
as the product of two; each stretch is to be had at its cheapest. This is the dynamic programme for
matrix-free Jacobian chain products: A. Griewank and U. Naumann, "Accumulating Jacobians as chained
sparse matrix products", 2003; U. Naumann, arXiv:2406.11862.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Moves(Generic[T]):
    """How to have the Jacobian `(i, j)` of tensor j by tensor i; costs are those of all of it.

    Args:
      alone: from i, for the stretch of one segment, its ways: name and Jacobian.
      pulled: from i and the Jacobian of (i + 1, j), that of (i, j).
      pushed: from j and the Jacobian of (i, j - 1), that of (i, j); None where it cannot be had.
      joined: from the Jacobians of (i, k) and (k, j), that of (i, j).
      cost: of a Jacobian, given i and j.
    """

    alone: Callable[[int], Iterator[tuple[str, T]]]
    pulled: Callable[[int, T], T]
    pushed: Callable[[int, T], T | None]
    joined: Callable[[T, T], T]
    cost: Callable[[T, int, int], float]


@dataclasses.dataclass(frozen=True)
class Best(Generic[T]):
    """The cheapest way to have the Jacobian of a stretch.

    Args:
      order: in words.
      jacobian: what `Moves` made.
      cost: of it.
    """

    order: str
    jacobian: T
    cost: float


def cheapest(segments: int, moves: Moves[T]) -> Best[T]:
    """Returns the cheapest way to the Jacobian of the whole chain.

    Cost: calls `pulled` and `pushed` about `segments ** 2 / 2` times, `joined` up to
    `segments ** 3 / 6` times.

    Args:
      segments: one or more.
      moves: see there.
    """
    table: dict[tuple[int, int], Best[T]] = {}
    for length in range(1, segments + 1):
        for i in range(segments - length + 1):
            j = i + length
            ways = moves.alone(i) if length == 1 else _ways(i, j, table, moves)
            found = [Best(order, made, moves.cost(made, i, j)) for order, made in ways]
            table[i, j] = min(found, key=lambda best: best.cost)
    return table[0, segments]


def _ways(i: int, j: int, table, moves: Moves[T]) -> Iterator[tuple[str, T]]:
    tail, head = table[i + 1, j], table[i, j - 1]
    yield f"{tail.order}, pulled back to {i}", moves.pulled(i, tail.jacobian)
    pushed = moves.pushed(j, head.jacobian)
    if pushed is not None:
        yield f"{head.order}, pushed on to {j}", pushed
    for k in range(i + 1, j):
        inner, outer = table[i, k], table[k, j]
        order = f"({outer.order}) x ({inner.order})"
        yield order, moves.joined(inner.jacobian, outer.jacobian)
