"""The cheapest order for a Jacobian, or for what is made of it, told before anything is built."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable

from tfjac.accumulation import bracketing, memo, segments, terms
from tfjac.accumulation import factors as factors_
from tfjac.accumulation.factors import Factor
from tfjac.accumulation.terms import Refused, Stack
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


def is_mapped(problem: base.Problem, source: base.Source) -> bool:
    """Returns whether a vectorized map would have to carry each row to the source itself.

    There several sources are better served by one map, than by one of each.
    """
    if not problem.ops:
        return False
    try:
        return _chain(problem, source).begins_in_map
    except Refused:
        return True


def _chain(problem: base.Problem, source: base.Source) -> segments.Chain:
    alone = dataclasses.replace(problem, sources=(source,))
    key = ("chain", problem.y.ref(), source.value.ref())
    return memo.memoized(key, lambda: segments.Chain(alone))


def _accumulate(problem: base.Problem, source: base.Source, finish) -> Accumulated:
    alone = dataclasses.replace(problem, sources=(source,))
    if not alone.ops:
        is_source = problem.y.ref() == source.value.ref()
        same = terms.identity(problem.y) if is_source else ()
        return Accumulated(same, finish(same) if same else (), "identity" if same else "zero")
    best = _cheapest(_chain(problem, source), finish)
    return Accumulated(best.jacobian.stack, _finished(best.jacobian, finish), best.order)


def _finished(carried: segments.Carried, finish) -> tuple[Factor, ...]:
    return finish(carried.stack) if carried.stack else ()


def _cheapest(chain: segments.Chain, finish) -> bracketing.Best[segments.Carried]:
    """Returns the cheapest order: that of reverse mode, unless another is found to be cheaper.

    Whatever costs more before it is done is not followed to its end.
    """

    def cost(carried: segments.Carried, i: int, j: int) -> float:
        if (i, j) != (0, chain.segments):
            return carried.cost
        made = [factor for term in carried.stack for factor in term.factors]
        return carried.cost + factors_.total(_finished(carried, finish), made).seconds

    reverse = chain.reverse()
    bound = cost(reverse, 0, chain.segments)
    moves = bracketing.Moves(
        lambda i: chain.alone(i, bound),
        lambda i, tail: chain.pulled(i, tail, bound),
        lambda j, head: chain.pushed(j, head, bound),
        lambda inner, outer: chain.joined(inner, outer, bound),
        cost,
    )
    found = bracketing.cheapest(chain.segments, moves)
    known = bracketing.Best(chain.reverse_order, reverse, bound)
    return found if found is not None and found.cost <= bound else known
