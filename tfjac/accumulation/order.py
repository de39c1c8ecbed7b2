"""The cheapest order for a Jacobian, or for what is made of it, told before anything is built."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable

from tfjac.accumulation import bracketing, memo, segments, terms
from tfjac.accumulation import factors as factors_
from tfjac.accumulation.factors import Factor
from tfjac.accumulation.terms import Stack
from tfjac.strategies import base


@dataclasses.dataclass(frozen=True)
class Accumulated:
    """What was planned for one source.

    Args:
      jacobian: a sum of terms; none where it is zero.
      factors: what is wanted of it, not made yet.
      order: in which the Jacobian is multiplied, in words.
    """

    jacobian: Stack
    factors: tuple[Factor, ...]
    order: str


def accumulated(
    problem: base.Problem,
    source: base.Source,
    wanted: Hashable,
    finish: Callable[[Stack], tuple[Factor, ...]],
) -> Accumulated:
    """Returns what `finish` makes of the Jacobian, the order chosen in which that costs least.

    Args:
      problem: the problem.
      source: one of its sources.
      wanted: names what `finish` makes, which is planned once in a graph.
      finish: from the Jacobian, a sum of terms, makes what is wanted; adds no op.

    Raises:
      Refused: the way from the source to the target has no structure to be used.
    """
    key = ("accumulated", wanted, problem.y.ref(), source.value.ref(), problem.apart)
    return memo.memoized(key, lambda: _accumulate(problem, source, finish))


def _accumulate(problem: base.Problem, source: base.Source, finish) -> Accumulated:
    alone = dataclasses.replace(problem, sources=(source,))
    if not alone.ops:
        is_source = problem.y.ref() == source.value.ref()
        same = terms.identity(problem.y) if is_source else ()
        return Accumulated(same, finish(same) if same else (), "identity" if same else "zero")
    chain = segments.Chain(alone)

    def finished(stack: Stack) -> tuple[Factor, ...]:
        return finish(stack) if stack else ()

    def cost(stack: Stack, i: int, j: int) -> float:
        if (i, j) == (0, chain.segments):
            return factors_.total(finished(stack)).cost
        return segments.cost_of(stack)

    def joined(inner: Stack, outer: Stack) -> Stack:
        return segments.product(outer, inner, problem.y.dtype)

    moves = bracketing.Moves(chain.alone, chain.pulled, chain.pushed, joined, cost)
    best = bracketing.cheapest(chain.segments, moves)
    return Accumulated(best.jacobian, finished(best.jacobian), best.order)
