"""Jacobians as sums of products, with the axes along which they are diagonal named.

A `Term` is a linear map from one tensor to another. An axis that stands among both its rows and
its entries is one along which nothing mixes: there it is diagonal, and the axis is written once.
The identity is a term without factors; the Jacobian of an activation has one factor and all axes
diagonal; that of a dense layer is its weight, diagonal along the examples.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import tensorflow as tf

from tfjac import nominal, rules
from tfjac.accumulation import contraction
from tfjac.accumulation import factors as factors_
from tfjac.accumulation.factors import Axis, Factor

T = TypeVar("T")

# For each axis of a tensor the axes that it was split into; none where it has size one.
Groups = tuple[tuple[Axis, ...], ...]

# Factors that a term keeps unmultiplied.
_MOST_FACTORS = 4


class Refused(Exception):  # noqa: N818 (an answer)
    """Says why a structure cannot be used."""


class _once:  # noqa: N801 (reads as what it stands for)
    """A property that is computed once, without the lock of Python 3.11's `cached_property`."""

    def __init__(self, read: Callable[[Term], T]) -> None:
        self._read = read
        self.__doc__ = read.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, term: Term, owner: type | None = None) -> T:
        found = term.__dict__[self._name] = self._read(term)
        return found


@dataclasses.dataclass(frozen=True, eq=False)
class Term:
    """A product of factors, summed over the axes that are neither rows nor entries.

    Args:
      rows: axes of the tensor that is differentiated.
      entries: axes of the tensor by which it is.
      factors: along an axis that none has the term is constant, or the identity where diagonal.
      scale: a number that multiplies it.
    """

    rows: Groups
    entries: Groups
    factors: tuple[Factor, ...] = ()
    scale: float = 1.0

    @_once
    def diagonal(self) -> frozenset[Axis]:
        """The axes along which nothing mixes."""
        return frozenset(flat(self.rows)) & frozenset(flat(self.entries))

    @_once
    def structure(self) -> frozenset[tuple[int, Axis]]:
        """The same with their places among the entries: those of terms that agree can be added."""
        places = enumerate(flat(self.entries))
        return frozenset((k, axis) for k, axis in places if axis in self.diagonal)

    @_once
    def axes(self) -> frozenset[Axis]:
        """All axes that the result has, diagonal ones once."""
        return frozenset(flat(self.rows)) | frozenset(flat(self.entries))

    def renamed(self, names: dict[Axis, Axis]) -> Term:
        """Returns the same with other names of axes."""
        if all(old is new for old, new in names.items()):
            return self
        return Term(
            _renamed(self.rows, names),
            _renamed(self.entries, names),
            tuple(f.renamed(names) for f in self.factors),
            self.scale,
        )

    def split(self, axis: Axis, inner: int) -> Term:
        """Returns the same with an axis in two parts."""
        parts = axis.parts(inner)

        def cut(groups: Groups) -> Groups:
            return tuple(
                tuple(p for a in group for p in (parts if a is axis else (a,))) for group in groups
            )

        return Term(
            cut(self.rows),
            cut(self.entries),
            tuple(f.split(axis, inner) for f in self.factors),
            self.scale,
        )


Stack = tuple[Term, ...]  # their sum; zero where there are none


def flat(groups: Groups) -> list[Axis]:
    """Returns the axes of all groups."""
    return list(itertools.chain.from_iterable(groups))


def axes_of(tensor: tf.Tensor) -> Groups:
    """Returns new axes, one for each axis of a tensor whose size is not one.

    Raises:
      Refused: its rank is unknown.
    """
    if tensor.shape.rank is None:
        raise Refused(f"{tensor.name!r} is of unknown rank")
    shape = sizes_of(tensor)
    guesses = nominal.shape_of(tensor) if None in shape else shape
    return tuple(
        () if size == 1 else (Axis(size, functools.partial(_length, tensor, i), i, guesses[i]),)
        for i, size in enumerate(shape)
    )


def sizes_of(tensor: tf.Tensor) -> list[int | None]:
    """Returns the sizes of a tensor's axes, those too that TensorFlow does not fold."""
    is_told = tensor.op.type == "Reshape" and tensor.op.inputs[0].shape.rank is not None
    return (rules.reshaped(tensor.op) if is_told else tensor.shape).as_list()


def _length(tensor: tf.Tensor, axis: int) -> tf.Tensor:
    return tf.shape(tensor)[axis]


def identity(tensor: tf.Tensor) -> Stack:
    """Returns the identity of a tensor, which is never written out."""
    axes = axes_of(tensor)
    return (Term(axes, axes),)


def _renamed(groups: Groups, names: dict[Axis, Axis]) -> Groups:
    return tuple(tuple(names.get(a, a) for a in group) for group in groups)


def matched(one: Term, other: Term, sides: tuple[str, str], dtype: tf.DType) -> tuple[Term, Term]:
    """Returns two terms with one's `sides[0]` and the other's `sides[1]` split alike.

    Where an axis has been split in two ways that have no parts in common it is put together again,
    and is not diagonal any more.
    """
    if getattr(one, sides[0]) == getattr(other, sides[1]):
        return one, other
    for place in range(len(getattr(one, sides[0]))):
        split = _split_alike(one, other, sides, place)
        if split is None:
            split = (_put_together(one, sides[0], place, dtype),
                     _put_together(other, sides[1], place, dtype))  # fmt: skip
        one, other = split
        if len(getattr(one, sides[0])[place]) != len(getattr(other, sides[1])[place]):
            raise Refused("an axis of which the graph does not tell whether its size is one")
    return one, other


def _split_alike(one: Term, other: Term, sides, place: int) -> tuple[Term, Term] | None:
    i = 1
    while True:
        a, b = getattr(one, sides[0])[place], getattr(other, sides[1])[place]
        if a == b or (i > len(a) and i > len(b)):
            return one, other
        if i > len(a) or i > len(b):
            return None
        inner, outer = a[-i].size, b[-i].size
        # Of an unknown size, the last part is what is left.
        is_rest = None in (inner, outer) and i == len(a) == len(b)
        if inner != outer and not is_rest:
            if outer is not None and (inner is None or inner % outer == 0):
                one = one.split(a[-i], outer)
            elif inner is not None and (outer is None or outer % inner == 0):
                other = other.split(b[-i], inner)
            else:
                return None
        i += 1


def _put_together(term: Term, side: str, place: int, dtype: tf.DType) -> Term:
    """Returns the term with one axis, that is not diagonal, for an axis of the tensor."""
    for axis in getattr(term, side)[place]:
        if axis in term.diagonal:
            term = undiagonal(term, axis, dtype, side)
    groups = getattr(term, side)
    axes = groups[place]
    if len(axes) < 2:
        return term
    if None in [axis.size for axis in axes]:
        raise Refused("an axis of unknown size that is split in two ways")
    having = [f for f in term.factors if not set(axes).isdisjoint(f.axes)]
    rest = [f for f in term.factors if f not in having]
    others = [a for a in functools.reduce(factors_.inserted, (f.axes for f in having), ())
              if a not in axes]  # fmt: skip
    part = dataclasses.replace(term, factors=tuple(having), scale=1.0)
    given = whole(part, [*others, *axes], dtype)
    whole_axis = Axis(math.prod(axis.size for axis in axes), None, axes[0].place)
    new = Factor(
        (*others, whole_axis),
        lambda order: tf.reshape(given.in_order(given.axes), factors_.shape_of(order)),
        needs=(given,),
        bytes=dtype.size,
    )
    after = tuple((whole_axis,) if k == place else group for k, group in enumerate(groups))
    return dataclasses.replace(term, factors=tuple(gathered([new, *rest])), **{side: after})


def composed(outer: Term, inner: Term, dtype: tf.DType) -> Term:
    """Returns the term of the outer map after the inner one.

    Args:
      outer: from a tensor in between to the target.
      inner: from the source to the tensor in between.
      dtype: of the factors.
    """
    outer, inner = matched(outer, inner, ("entries", "rows"), dtype)
    middle = flat(outer.entries)
    inner = inner.renamed(dict(zip(flat(inner.rows), middle)))
    scale = outer.scale * inner.scale
    kept = frozenset(flat(outer.rows)) | frozenset(flat(inner.entries))
    factors = [*outer.factors, *inner.factors]
    for axis in middle:
        if axis not in kept and not any(axis in f.axes for f in factors):
            if axis.size is None:
                raise Refused("a sum over an axis of unknown size")
            scale *= axis.size
    return Term(outer.rows, inner.entries, tuple(_multiplied(factors, kept)), scale)


def _multiplied(factors: list[Factor], kept: frozenset[Axis]) -> list[Factor]:
    """Multiplies what is joined by an axis to sum over, and leaves the rest unmultiplied."""
    while True:
        axis = next((a for f in factors for a in f.axes if a not in kept), None)
        if axis is None:
            break
        joined = [f for f in factors if axis in f.axes]
        while True:
            inside = {a for f in joined for a in f.axes if a not in kept}
            wider = [f for f in factors if not inside.isdisjoint(f.axes)]
            if len(wider) == len(joined):
                break
            joined = wider
        rest = [f for f in factors if f not in joined]
        factors = [contraction.product(joined, kept), *rest]
    return gathered(factors)


def gathered(factors: list[Factor]) -> list[Factor]:
    """Multiplies factors that have the same axes, and the smallest where there are too many."""
    by_axes: dict[frozenset[Axis], Factor] = {}
    for factor in factors:
        key = frozenset(factor.axes)
        known = by_axes.get(key)
        by_axes[key] = factor if known is None else contraction.product([known, factor], key)
    found = sorted(by_axes.values(), key=lambda f: -f.size)
    while len(found) > _MOST_FACTORS or (len(found) > 1 and not found[-1].axes):
        small = found.pop()
        found[-1] = contraction.product([found[-1], small], {*found[-1].axes, *small.axes})
    return found


def whole(term: Term, axes: Sequence[Axis], dtype: tf.DType) -> Factor:
    """Returns the term as one factor with these axes, in this order.

    Args:
      term: of which `axes` are all that its factors have, or more.
      axes: along those that no factor has it is repeated.
      dtype: of the result.
    """
    factors = list(term.factors)
    if not factors:
        return _constant(term.scale, axes, dtype)
    present = {a for f in factors for a in f.axes}
    order = [a for a in axes if a in present]
    if term.scale != 1.0:
        small = min(factors, key=lambda f: f.size)
        factors = [_scaled(f, term.scale) if f is small else f for f in factors]
    found = contraction.product(factors, order, order)
    return found if len(order) == len(axes) else repeated(found, axes)


def _constant(value: float, axes: Sequence[Axis], dtype: tf.DType) -> Factor:
    def make(order: tuple[Axis, ...]) -> tf.Tensor:
        return tf.fill([a.length() for a in order], tf.constant(value, dtype))

    return Factor(axes, make, lambda order: True, bytes=dtype.size)


def _scaled(factor: Factor, scale: float) -> Factor:
    return Factor(
        factor.axes,
        lambda order: factor.in_order(order) * scale,
        factor.fits,
        flops=factor.size,
        needs=(factor,),
        seconds=factors_.moving(factor.size, factor),
        bytes=factor.bytes,
    )


def repeated(factor: Factor, axes: Sequence[Axis]) -> Factor:
    """Returns a factor repeated along the axes that it has not."""

    def make(order: tuple[Axis, ...]) -> tf.Tensor:
        return factors_.spread(factor, order)

    def fits(order: tuple[Axis, ...]) -> bool:
        return factor.fits(tuple(a for a in order if a in factor.axes))

    seconds = factors_.moving(factors_.size_of(axes), factor)
    return Factor(axes, make, fits, needs=(factor,), seconds=seconds, bytes=factor.bytes)


def undiagonal(term: Term, axis: Axis, dtype: tf.DType, side: str = "entries") -> Term:
    """Returns the term with an axis written out twice, zeros off the diagonal.

    Args:
      term: diagonal along the axis.
      axis: the axis.
      dtype: of the factors.
      side: "entries" or "rows", which is to have an axis of its own.
    """
    fresh = axis.copied()
    having = [f for f in term.factors if axis in f.axes]
    rest = [f for f in term.factors if axis not in f.axes]
    if having:
        axes = {a for f in having for a in f.axes}
        new = _on_diagonal(contraction.product(having, axes), axis, fresh)
    else:
        new = _eye(axis, fresh, dtype)
    groups = _renamed(getattr(term, side), {axis: fresh})
    factors = tuple(gathered([new, *rest]))
    return dataclasses.replace(term, factors=factors, **{side: groups})


def _eye(axis: Axis, fresh: Axis, dtype: tf.DType) -> Factor:
    def make(order: tuple[Axis, ...]) -> tf.Tensor:
        return tf.eye(axis.length(), dtype=dtype)

    return Factor((axis, fresh), make, lambda order: True, bytes=dtype.size, is_mask=True)


def _on_diagonal(factor: Factor, axis: Axis, fresh: Axis) -> Factor:
    """Returns the factor with zeros between different positions of `axis` and `fresh`."""
    place = factor.axes.index(axis)
    axes = (*factor.axes[: place + 1], fresh, *factor.axes[place + 1 :])

    def make(order: tuple[Axis, ...]) -> tf.Tensor:
        tensor = factor.in_order(tuple(a for a in order if a is not fresh))
        first, second = sorted((order.index(axis), order.index(fresh)))
        n, is_second = axis.length(), order[second] is fresh
        parts = (order[:first], order[first + 1 : second], order[second + 1 :])
        outer, between, inner = (factors_.length_of(part) for part in parts)
        sizes = [outer, n, between, 1, inner] if is_second else [outer, 1, between, n, inner]
        on = tf.reshape(tf.eye(n, dtype=tf.bool), [1, n, 1, n, 1])
        # Chosen, not multiplied by zero: an infinite entry stays where it is.
        found = tf.where(on, tf.reshape(tensor, sizes), tf.zeros([], tensor.dtype))
        return tf.reshape(found, factors_.shape_of(order))

    def fits(order: tuple[Axis, ...]) -> bool:
        return factor.fits(tuple(a for a in order if a is not fresh))

    seconds = factors_.moving(factors_.size_of(axes), factor)
    return Factor(axes, make, fits, needs=(factor,), seconds=seconds, bytes=factor.bytes)
