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

    Each gives None for what cannot be had, or costs more than something that is known already.

    Args:
      alone: from i, for the stretch of one segment, its ways: name and Jacobian.
      pulled: from i and the Jacobian of (i + 1, j), that of (i, j).
      pushed: from j and the Jacobian of (i, j - 1), that of (i, j).
      joined: from the Jacobians of (i, k) and (k, j), that of (i, j).
      cost: of a Jacobian, given i and j.
    """

    alone: Callable[[int], Iterator[tuple[str, T | None]]]
    pulled: Callable[[int, T], T | None]
    pushed: Callable[[int, T], T | None]
    joined: Callable[[T, T], T | None]
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


def cheapest(segments: int, moves: Moves[T]) -> Best[T] | None:
    """Returns the cheapest way to the Jacobian of the whole chain; None where there is none.

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
            found = [Best(order, made, moves.cost(made, i, j)) for order, made in ways if made]
            if found:
                table[i, j] = min(found, key=lambda best: best.cost)
    return table.get((0, segments))


def _ways(i: int, j: int, table, moves: Moves[T]) -> Iterator[tuple[str, T | None]]:
    tail, head = table.get((i + 1, j)), table.get((i, j - 1))
    if tail:
        yield f"{tail.order}, pulled back to {i}", moves.pulled(i, tail.jacobian)
    if head:
        yield f"{head.order}, pushed on to {j}", moves.pushed(j, head.jacobian)
    for k in range(i + 1, j):
        inner, outer = table.get((i, k)), table.get((k, j))
        if inner and outer:
            order = f"({outer.order}) x ({inner.order})"
            yield order, moves.joined(inner.jacobian, outer.jacobian)
