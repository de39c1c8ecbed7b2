"""Determinants of a Jacobian as a product of square ones, one for each stretch of the chain."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import tensorflow as tf

from tfjac import matrices, shapes
from tfjac.accumulation import factors as factors_
from tfjac.accumulation import order, sums, terms
from tfjac.accumulation.factors import Axis, Factor
from tfjac.accumulation.terms import Refused, Term, flat
from tfjac.graph.sources import Source
from tfjac.strategies import base

SignAndLog = tuple[tf.Tensor, tf.Tensor]


def slogdet(problem: base.Problem, kept: int, matrix_slogdet: Callable[..., SignAndLog]):
    """Returns sign and logarithm of the absolute determinant; None where none is saved.

    Stretches that are diagonal, or the same matrix for all examples, are taken by themselves: a
    sum of logarithms, and one determinant for all. What lies between the others is multiplied.

    Args:
      problem: of one source, which has as many entries as the target.
      kept: number of leading axes that the result keeps, 0 or 1.
      matrix_slogdet: of matrices.
    """
    links = _square_links(problem, kept)
    if len(links) < 2:
        return None
    try:
        stretches = [_stretch(problem, a, b, kept) for a, b in zip(links, links[1:])]
    except Refused:
        return None
    each = [k for k, stretch in enumerate(stretches) if stretch.is_of_each]
    if each and len(each) == len(stretches):
        return None
    if each:
        try:
            middle = _stretch(problem, links[each[0]], links[each[-1] + 1], kept)
        except Refused:
            return None
        stretches[each[0] : each[-1] + 1] = [middle]
    found = [stretch.slogdet(matrix_slogdet) for stretch in stretches]
    sign = math.prod(f[0] for f in found)
    return sign, sum(f[1] for f in found)


def _square_links(problem: base.Problem, kept: int) -> list[tf.Tensor]:
    """Returns the source and the tensors of the chain that have as many entries, in order."""
    (source,) = problem.sources
    if isinstance(source.value, tf.Variable) or problem.y.ref() == source.value.ref():
        return []
    size = shapes.static_size(problem.y.shape[kept:])
    if size is None:
        return []
    lead = problem.y.shape[:kept]
    alike = [
        t
        for t in problem.chain
        if t.dtype == problem.y.dtype
        and t.shape.rank is not None
        and t.shape.rank >= kept
        and t.shape[:kept].as_list() == lead.as_list()
        and shapes.static_size(t.shape[kept:]) == size
    ]
    inner = [t for t in alike if t is not source.value and t is not problem.y]
    return [source.value, *inner, problem.y]


@dataclasses.dataclass(frozen=True)
class _Stretch:
    """The Jacobian of a stretch of the chain, as one term.

    Args:
      term: the term.
      kept: its axes that the result keeps.
      dtype: of the factors.
    """

    term: Term
    kept: tuple[Axis, ...]
    dtype: tf.DType

    @property
    def _rows(self) -> list[Axis]:
        return [a for a in flat(self.term.rows) if a not in self.term.diagonal]

    @property
    def _entries(self) -> list[Axis]:
        return [a for a in flat(self.term.entries) if a not in self.term.diagonal]

    @property
    def is_of_each(self) -> bool:
        """Whether each example has a matrix of its own."""
        having = {a for f in self.term.factors for a in f.axes}
        return bool(self._rows) and not having.isdisjoint(self.kept)

    def slogdet(self, matrix_slogdet: Callable[..., SignAndLog]) -> SignAndLog:
        """Returns sign and logarithm, `[examples]` or the same for all of them; adds the ops."""
        if not self._rows:
            return self._of_diagonal()
        lead = [*self.kept, *self._of_blocks]
        present = {a for f in self.term.factors for a in f.axes}
        blocks = [a for a in lead if a in present]
        axes = [*blocks, *self._rows, *self._entries]
        whole = terms.whole(self.term, axes, self.dtype)
        n = math.prod(a.size for a in self._rows)
        shape = [*(a.length() for a in blocks), n, n]
        sign, log = matrix_slogdet(tf.reshape(whole.in_order(tuple(axes)), shape))
        return self._gathered(sign, log, blocks, self._sign(n))

    @property
    def _of_blocks(self) -> list[Axis]:
        return [a for a in flat(self.term.rows) if a in self.term.diagonal and a not in self.kept]

    def _of_diagonal(self) -> SignAndLog:
        signs: list[tf.Tensor] = []
        logs: list[tf.Tensor] = []
        for factor in self.term.factors:
            tensor = matrices.widened(factor.tensor)
            made = tf.sign(tensor), tf.math.log(tf.abs(tensor))
            sign, log = self._gathered(*made, factor.axes, 1)
            signs.append(sign)
            logs.append(log)
        count = math.prod(a.size for a in self._of_blocks)
        sign = self._sign(1) * math.copysign(1, self.term.scale) ** (count % 2)
        log = count * math.log(abs(self.term.scale))
        dtype = matrices.wider(self.dtype)
        return math.prod(signs, start=tf.constant(sign, dtype)), sum(logs, tf.constant(log, dtype))

    def _gathered(self, sign, log, axes: Sequence[Axis], also: int) -> SignAndLog:
        """Returns the product over the axes that are not kept, of all positions of blocks."""
        gone = [k for k, axis in enumerate(axes) if axis not in self.kept]
        missing = [a for a in self._of_blocks if a not in axes]
        times = math.prod(a.size for a in missing)
        sign, log = tf.reduce_prod(sign, gone), tf.reduce_sum(log, gone)
        here = [axis for axis in axes if axis in self.kept]
        if here and len(self.kept) > 1:
            sign, log = (self._of_examples(part, here) for part in (sign, log))
        return also * (sign if times % 2 else sign * sign), times * log

    def _of_examples(self, part: tf.Tensor, axes: Sequence[Axis]) -> tf.Tensor:
        """Returns `[examples]` of what has some of the axes that these were split into."""
        spread = factors_.spread(Factor(axes, lambda order: part), self.kept)
        return tf.reshape(spread, [factors_.length_of(self.kept)])

    def _sign(self, n: int) -> int:
        """Returns the sign of the permutation that rows and entries are moved by."""
        rows = [a for a in flat(self.term.rows) if a not in self.kept]
        entries = [a for a in flat(self.term.entries) if a not in self.kept]
        blocks = self._of_blocks
        found = 1
        for axes, own in ((rows, self._rows), (entries, self._entries)):
            found *= _parity(axes, [*blocks, *own])
        return found


def _parity(axes: Sequence[Axis], wanted: Sequence[Axis]) -> int:
    """Returns the sign of the permutation that puts entries along `axes` in order of `wanted`."""
    order = [(list(wanted).index(axis), axis.size) for axis in axes]
    is_odd = False
    for end in range(len(order) - 1, 0, -1):
        for k in range(end):
            (one, m), (other, n) = order[k : k + 2]
            if one > other:
                # m x n entries turn, in blocks of what follows, as often as there is what precedes.
                blocks = math.prod(size for _, size in order[:k] + order[k + 2 :])
                is_odd ^= bool(blocks * math.comb(m, 2) * math.comb(n, 2) % 2)
                order[k : k + 2] = order[k + 1], order[k]
    return -1 if is_odd else 1


def _stretch(problem: base.Problem, begin: tf.Tensor, end: tf.Tensor, kept: int) -> _Stretch:
    source = Source((begin,), begin.shape, begin.dtype, begin)
    part = base.Problem(end, (source,), kept, problem.compiled)
    dtype = end.dtype

    def finish(stack: terms.Stack) -> tuple[Factor, ...]:
        return sums.as_one(stack, kept, dtype).factors

    jacobian = order.accumulated(part, source, "one term", finish).jacobian
    if not jacobian:
        raise Refused("it is zero")
    term = sums.as_one(jacobian, kept, dtype)
    axes = tuple(flat(term.rows[:kept]))
    if None in [a.size for a in term.axes if a not in axes]:
        raise Refused("an axis of unknown size")
    rows, entries = (
        [a for a in flat(side) if a not in term.diagonal] for side in (term.rows, term.entries)
    )
    if math.prod(a.size for a in rows) != math.prod(a.size for a in entries):
        raise Refused("blocks that are not square")
    return _Stretch(term, axes, dtype)
