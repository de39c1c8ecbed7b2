"""The Jacobian times one vector: a stack of one tangent."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from tfjac.accumulation import memo, segments, sums, terms
from tfjac.accumulation.factors import Factor
from tfjac.accumulation.terms import Refused, Term
from tfjac.strategies import base


def pushed(problem: base.Problem, tangents: Sequence[tf.Tensor]) -> tf.Tensor | None:
    """Returns the derivative of y along one tangent for each source, `y.shape`.

    None where an op on the way has no local Jacobian of known structure, or a gradient of its own
    that was written by hand.
    """
    with memo.seen_by_tapes():
        return _sum_over_sources(problem, tangents)


def _sum_over_sources(problem: base.Problem, tangents: Sequence[tf.Tensor]) -> tf.Tensor | None:
    stacks = []
    for source, tangent in zip(problem.sources, tangents):
        alone = dataclasses.replace(problem, sources=(source,))
        try:
            stacks.append(_pushed(alone, tangent))
        except Refused:
            return None
    found = sums.total([t for stack in stacks for t in stack], problem.y.dtype, merge=True)
    if not found:
        return tf.zeros_like(problem.y)
    factor = sums.written(found, 0, problem.y.dtype)
    return tf.reshape(factor.tensor, tf.shape(problem.y))


def _pushed(problem: base.Problem, tangent: tf.Tensor) -> terms.Stack:
    dtype = problem.y.dtype
    rows = terms.axes_of(tangent)
    axes = terms.flat(rows)

    def make(order) -> tf.Tensor:
        vector, single = tf.cast(tangent, dtype), [k for k, group in enumerate(rows) if not group]
        return tf.squeeze(vector, single) if single else vector

    stack: terms.Stack = (Term(rows, (), (Factor(axes, make, bytes=dtype.size),)),)
    if not problem.ops:
        return stack if problem.y.ref() == problem.sources[0].value.ref() else ()
    chain = segments.Chain(problem)
    if not chain.is_structured or not chain.can_push:
        raise Refused("an op on the way is not known")
    carried = segments.Carried(stack)
    for j in range(1, chain.segments + 1):
        carried = chain.pushed(j, carried)
    return carried.stack
