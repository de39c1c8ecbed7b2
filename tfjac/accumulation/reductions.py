"""What is made of a Jacobian without writing it: its squares summed, its trace, its gramians.

All is summed over but the first `kept` axes, along which nothing mixes.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Collection, Sequence

import tensorflow as tf

from tfjac import matrices, rates
from tfjac.accumulation import contraction, sums, terms
from tfjac.accumulation import factors as factors_
from tfjac.accumulation.factors import Axis, Factor
from tfjac.accumulation.terms import Refused, Stack, Term, flat


def squares(stack: Stack, kept: int, dtype: tf.DType, examples: int = 0) -> Factor:
    """Returns the sum of the squares of the entries, in float32 where they have half precision.

    Args:
      stack: the Jacobian.
      kept: number of leading axes of rows and entries that the result keeps.
      dtype: of the entries.
      examples: number of leading axes of the rows alone that the result keeps.
    """
    term = sums.as_one(stack, kept, dtype)
    axes = flat(term.rows[: max(kept, examples)])
    # No entry is a sum over factors' axes, so that its square is the product of theirs.
    parts = []
    for factor in term.factors:
        others = [axis for f in term.factors if f is not factor for axis in f.axes]
        parts.append(_sum_of_squares(factor, {*axes, *others}))
    found = [contraction.product(parts, axes)] if parts else []
    return _scaled(term, term.scale**2, found, axes, matrices.wider(dtype))


def trace(stack: Stack, kept: int, dtype: tf.DType) -> tuple[Factor, ...]:
    """Returns the summands of the trace."""
    return tuple(_trace_of(term, kept, dtype) for term in stack)


def gramian(stack: Stack, of_rows: bool, kept: int, dtype: tf.DType) -> Factor:
    """Returns J times its transpose, or where not `of_rows` its transpose times J."""
    turned = tuple(_turned(term) for term in stack)
    outer, inner = (stack, turned) if of_rows else (turned, stack)
    products = [terms.composed(a, b, dtype) for a in outer for b in inner]
    return sums.written(sums.total(products, dtype, merge=False), kept, dtype)


def _turned(term: Term) -> Term:
    """Returns the transpose, with axes of its own."""
    fresh = {axis: _fresh(axis) for axis in term.axes}
    turned = term.renamed(fresh)
    return dataclasses.replace(turned, rows=turned.entries, entries=turned.rows)


def _fresh(axis: Axis) -> Axis:
    return axis.copied()


def _sum_of_squares(factor: Factor, kept: Collection[Axis]) -> Factor:
    axes = tuple(axis for axis in factor.axes if axis in kept)
    gone = [i for i, axis in enumerate(factor.axes) if axis not in kept]
    if factor.is_mask and not gone:
        return factor
    return Factor(
        axes,
        lambda order: tf.reduce_sum(tf.square(matrices.widened(factor.tensor)), gone),
        flops=2 * factor.size,
        needs=(factor,),
        seconds=2 * factors_.moving(factors_.size_of(axes), factor),
        bytes=factor.bytes,
    )


def _scaled(
    term: Term, scale: float, parts: list[Factor], kept: Sequence[Axis], dtype: tf.DType
) -> Factor:
    """Returns the product of `parts`, times the number of entries along axes that none has."""
    known = {axis for factor in term.factors for axis in factor.axes}
    missing = [axis for axis in term.axes if axis not in known and axis not in kept]
    if any(axis.size is None for axis in missing):
        raise Refused("a sum over an axis of unknown size")
    count = math.prod(axis.size for axis in missing)
    whole = Term((tuple(kept),), ((),), tuple(parts), scale * count)
    return terms.whole(whole, kept, dtype)


def _trace_of(term: Term, kept: int, dtype: tf.DType) -> Factor:
    sums.check_apart([term], kept)
    one, other = terms.matched(term, term, ("rows", "entries"), dtype)
    if (one, other) != (term, term):
        # Rows and entries are split in different ways: it is written out.
        dense = sums.single([term], frozenset(flat(term.rows[:kept])), dtype)
        rows, entries = flat(dense.rows[kept:]), flat(dense.entries[kept:])
        return _dense_trace(dense, rows, entries, flat(dense.rows[:kept]), dtype)
    names = _united(flat(term.rows), flat(term.entries))
    parts = [_on_diagonal(factor, names) for factor in term.factors]
    kept_axes = flat(term.rows[:kept])
    own = {names.get(axis, axis) for axis in flat(term.rows)} - set(kept_axes)
    joined = Term((tuple([*kept_axes, *own]),), ((),), tuple(parts), 1.0)
    found = [contraction.product(parts, kept_axes)] if parts else []
    return _scaled(joined, term.scale, found, kept_axes, dtype)


def _dense_trace(term: Term, rows, entries, kept: Sequence[Axis], dtype: tf.DType) -> Factor:
    whole = terms.whole(term, [*kept, *rows, *entries], dtype)

    def make(order: tuple[Axis, ...]) -> tf.Tensor:
        lead = [axis.length() for axis in kept]
        n = factors_.length_of(rows)
        return tf.linalg.trace(tf.reshape(whole.in_order((*kept, *rows, *entries)), [*lead, n, n]))

    size = factors_.size_of([*kept, *rows])
    return Factor(
        tuple(kept), make, needs=(whole,), flops=size, seconds=rates.moving(size * whole.bytes, 0.0)
    )


def _united(rows: Sequence[Axis], entries: Sequence[Axis]) -> dict[Axis, Axis]:
    """Returns for each axis the one that stands for all that the trace makes the same."""
    names: dict[Axis, Axis] = {}

    def name(axis: Axis) -> Axis:
        while axis in names:
            axis = names[axis]
        return axis

    for row, entry in zip(rows, entries, strict=True):
        one, other = name(row), name(entry)
        if one is not other:
            names[other] = one
    return {axis: name(axis) for axis in names}


def _on_diagonal(factor: Factor, names: dict[Axis, Axis]) -> Factor:
    """Returns a factor with axes renamed, its diagonal taken where two of them become the same."""
    while True:
        wanted = [names.get(axis, axis) for axis in factor.axes]
        twice = next((a for a in wanted if wanted.count(a) > 1), None)
        if twice is None:
            return factor.renamed(names)
        first, second = [k for k, a in enumerate(wanted) if a is twice][:2]
        factor = _diagonal_of(factor, factor.axes[first], factor.axes[second])


def _diagonal_of(factor: Factor, axis: Axis, other: Axis) -> Factor:
    rest = tuple(a for a in factor.axes if a is not axis and a is not other)

    def make(order: tuple[Axis, ...]) -> tf.Tensor:
        return tf.linalg.diag_part(factor.in_order((*rest, axis, other)))

    size = factors_.size_of([*rest, axis])
    seconds = factors_.moving(size, factor)
    return Factor((*rest, axis), make, needs=(factor,), seconds=seconds, bytes=factor.bytes)


def total_of(parts: Sequence[Factor]) -> tf.Tensor:
    """Returns the sum of factors that have the same axes; adds the ops."""
    axes = parts[0].axes
    return functools.reduce(lambda a, b: a + b, (part.in_order(axes) for part in parts))
