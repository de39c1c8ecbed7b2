"""Linear ops that a kernel of TensorFlow carries: convolutions, selections, running sums."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import tensorflow as tf

from tfjac import rates
from tfjac.accumulation import factors as factors_
from tfjac.accumulation.factors import Axis, Factor
from tfjac.accumulation.terms import Refused, Term, gathered, undiagonal, whole

Carry = Callable[[tf.Tensor], tf.Tensor]


@dataclasses.dataclass(frozen=True, eq=False)
class Native:
    """A linear op, or the derivative of an op, carried by a kernel of TensorFlow.

    Args:
      out: shape of the output.
      given: shape of the input.
      links: pairs of an output's and an input's axis along which it does the same for each
        position.
      pull: from `[n, *sizes of the other output axes]` to `[n, *sizes of the other input axes]`,
        the adjoint.
      push: the other way round.
      flops: for each of the n.
      selects: whether it only moves entries, and leaves some out.
      kernel: what carries it.
      channels: of a convolution.
      weights: bytes of its filter.
      by_example: whether it is another one for each position of the first axis, which is then the
        slowest one among the n.
    """

    out: tuple[int | None, ...]
    given: tuple[int | None, ...]
    links: tuple[tuple[int, int], ...]
    pull: Carry
    push: Carry
    flops: float = 0.0
    selects: bool = False
    kernel: rates.Kernel = rates.Kernel.ELEMENTWISE
    channels: float = 64.0
    weights: float = 0.0
    by_example: bool = False

    def seconds(self, given: Factor, made: float, count: float, dtype: tf.DType) -> float:
        """Returns what it takes to carry `count` of them, `made` entries in all."""
        flops, width = self.flops * count, dtype.size
        return rates.current().seconds(
            self.kernel,
            flops,
            width * given.size,
            width * made,
            self.channels,
            width,
            weights=self.weights,
        )


def pulled(native: Native, outer: Term, dtype: tf.DType) -> Term:
    """Returns the term of an outer map after a native op."""
    return _carried(native, native.pull, native.out, native.given, native.links, outer,
                    "entries", dtype)  # fmt: skip


def pushed(native: Native, inner: Term, dtype: tf.DType) -> Term:
    """Returns the term of a native op after an inner map."""
    links = tuple((a, b) for b, a in native.links)
    return _carried(native, native.push, native.given, native.out, links, inner, "rows",
                    dtype)  # fmt: skip


def _carried(
    native: Native, carry: Carry, old, new, links, term: Term, side: str, dtype: tf.DType
) -> Term:
    over = [i for i in range(len(old)) if i not in dict(links)]
    for axis in [a for i in over for a in getattr(term, side)[i]]:
        if axis in term.diagonal:
            term = undiagonal(term, axis, dtype, side)
    groups = getattr(term, side)
    acting = [a for i in over for a in groups[i]]
    having = [f for f in term.factors if not set(acting).isdisjoint(f.axes)]
    rest = [f for f in term.factors if f not in having]
    order = functools.reduce(factors_.inserted, (f.axes for f in having), ())
    examples = list(groups[0]) if native.by_example else []
    others = [*examples, *(a for a in order if a not in acting and a not in examples)]
    given = whole(dataclasses.replace(term, factors=tuple(having), scale=1.0), [*others, *acting],
                  dtype)  # fmt: skip
    sizes = [old[i] for i in over]
    if None in sizes:
        raise Refused("an axis of unknown size that is not kept apart")
    fresh = {
        i: () if new[i] == 1 else (Axis(new[i], None, i),)
        for i in range(len(new))
        if i not in dict(links).values()
    }
    axes = (*others, *(a for group in fresh.values() for a in group))

    def make(order: tuple[Axis, ...]) -> tf.Tensor:
        carried = carry(tf.reshape(given.in_order(given.axes), [-1, *sizes]))
        return tf.reshape(carried, factors_.shape_of(order))

    factor = Factor(
        axes,
        make,
        flops=native.flops * factors_.size_of(others),
        needs=(given,),
        seconds=native.seconds(given, factors_.size_of(axes), factors_.size_of(others), dtype),
        bytes=dtype.size,
        is_mask=native.selects and given.is_mask,
    )
    placed = {**fresh, **{b: groups[a] for a, b in links}}
    after = tuple(placed[i] for i in range(len(new)))
    return dataclasses.replace(term, factors=tuple(gathered([factor, *rest])), **{side: after})
