"""The Jacobian as a product of local ones, multiplied in the cheapest order."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from tfjac.accumulation import factors as factors_
from tfjac.accumulation import memo, order, sums
from tfjac.accumulation.factors import Factor
from tfjac.accumulation.terms import Refused, Stack
from tfjac.strategies import base


@dataclasses.dataclass(frozen=True)
class CrossCountry:
    """Multiplies the Jacobians of the segments of the chain in the cheapest order.

    Rows, columns or both are carried together and keep what structure they have: the identity is
    never written, nor a diagonal, nor what is the same for all examples more than once. Which
    order is cheapest is told from the shapes.
    """

    name = "cross_country"

    def supports(self, problem: base.Problem) -> base.Support:
        """Says no to complex tensors, and where sizes that it needs are not known."""
        for part in (problem.y, *(s.value for s in problem.sources)):
            if part.dtype.is_complex:
                return base.Support(False, "complex tensors go by their own conventions")
        try:
            for source in problem.sources:
                _accumulated(problem, source)
        except Refused as refused:
            return base.Support(False, str(refused))
        return base.SUPPORTED

    def cost(self, problem: base.Problem) -> base.Cost:
        """Counts the operations of the order that was found."""
        found = [_accumulated(problem, source) for source in problem.sources]
        total = factors_.total(factor for each in found for factor in each.factors)
        return base.Cost(
            None,
            base.value_seconds(problem) + total.seconds,
            graph_ops=2 * total.steps,
            chunk_size=None,
            counted_flops=total.flops,
            counted_bytes=total.bytes,
            order="; ".join(f.order for f in found),
        )

    def build(self, problem: base.Problem) -> list[tf.Tensor | None]:
        """Adds the ops of that order."""
        with memo.seen_by_tapes():
            return [self._by(problem, source) for source in problem.sources]

    def _by(self, problem: base.Problem, source: base.Source) -> tf.Tensor | None:
        for factor in _accumulated(problem, source).factors:
            return tf.reshape(factor.tensor, base.jacobian_shape(problem, source))
        return None


def _accumulated(problem: base.Problem, source: base.Source) -> order.Accumulated:
    def written(stack: Stack) -> tuple[Factor, ...]:
        return (sums.written(stack, problem.apart, problem.y.dtype),)

    return order.accumulated(problem, source, "jacobian", written)
