"""Jacobians as sums of products, with the axes along which they are diagonal named.

A `Term` is a linear map from one tensor to another. An axis that stands among both its rows and
its entries is one along which nothing mixes: there it is diagonal, and the axis is written once.
The identity is a term without factors; the Jacobian of an activation has one factor and all axes
diagonal; that of a dense layer is its weight, diagonal along the examples.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence

import tensorflow as tf

from tfjac import rules
from tfjac.accumulation import contraction
from tfjac.accumulation.contraction import Axis, Factor

# For each axis of a tensor the axes that it was split into; none where it has size one.
Groups = tuple[tuple[Axis, ...], ...]

# Factors that a term keeps unmultiplied, and outer products that a sum keeps apart.
_MOST_FACTORS = 4
_MOST_OUTER = 6
# A diagonal and outer products of this size are as cheap written out.
_SMALL = 32
_MUCH = 8


class Refused(Exception):  # noqa: N818 (an answer)
    """Says why a structure cannot be used."""


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

    @functools.cached_property
    def diagonal(self) -> frozenset[Axis]:
        """The axes along which nothing mixes."""
        return frozenset(flat(self.rows)) & frozenset(flat(self.entries))

    @functools.cached_property
    def structure(self) -> frozenset[tuple[int, Axis]]:
        """The same with their places among the entries: those of terms that agree can be added."""
        places = enumerate(flat(self.entries))
        return frozenset((k, axis) for k, axis in places if axis in self.diagonal)

    @functools.cached_property
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
    return [axis for group in groups for axis in group]


def axes_of(tensor: tf.Tensor) -> Groups:
    """Returns new axes, one for each axis of a tensor whose size is not one.

    Raises:
      Refused: its rank is unknown.
    """
    if tensor.shape.rank is None:
        raise Refused(f"{tensor.name!r} is of unknown rank")
    shape = sizes_of(tensor)
    return tuple(
        () if size == 1 else (Axis(size, functools.partial(_length, tensor, i), i),)
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
        if i > max(len(a), len(b)):
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
    others = [a for a in functools.reduce(contraction.inserted, (f.axes for f in having), ())
              if a not in axes]  # fmt: skip
    part = dataclasses.replace(term, factors=tuple(having), scale=1.0)
    given = whole(part, [*others, *axes], dtype)
    whole_axis = Axis(math.prod(axis.size for axis in axes), None, axes[0].place)
    new = Factor(
        (*others, whole_axis),
        lambda order: tf.reshape(given.in_order(given.axes), contraction.shape_of(order)),
        needs=(given,),
        bytes=dtype.size,
    )
    after = tuple((whole_axis,) if k == place else group for k, group in enumerate(groups))
    return dataclasses.replace(term, factors=tuple(_gathered([new, *rest])), **{side: after})


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
    return _gathered(factors)


def _gathered(factors: list[Factor]) -> list[Factor]:
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
    return found if len(order) == len(axes) else _repeated(found, axes)


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
        moved=contraction.moved(factor.size, factor),
        bytes=factor.bytes,
    )


def _repeated(factor: Factor, axes: Sequence[Axis]) -> Factor:
    def make(order: tuple[Axis, ...]) -> tf.Tensor:
        return contraction.spread(factor, order)

    def fits(order: tuple[Axis, ...]) -> bool:
        return factor.fits(tuple(a for a in order if a in factor.axes))

    moved = contraction.moved(contraction.size_of(axes), factor)
    return Factor(axes, make, fits, needs=(factor,), moved=moved, bytes=factor.bytes)


def undiagonal(term: Term, axis: Axis, dtype: tf.DType, side: str = "entries") -> Term:
    """Returns the term with an axis written out twice, zeros off the diagonal.

    Args:
      term: diagonal along the axis.
      axis: the axis.
      dtype: of the factors.
      side: "entries" or "rows", which is to have an axis of its own.
    """
    fresh = Axis(axis.size, axis.length, axis.place)
    having = [f for f in term.factors if axis in f.axes]
    rest = [f for f in term.factors if axis not in f.axes]
    if having:
        axes = {a for f in having for a in f.axes}
        new = _on_diagonal(contraction.product(having, axes), axis, fresh)
    else:
        new = _eye(axis, fresh, dtype)
    groups = _renamed(getattr(term, side), {axis: fresh})
    factors = tuple(_gathered([new, *rest]))
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
        outer, between, inner = (contraction.length_of(part) for part in parts)
        sizes = [outer, n, between, 1, inner] if is_second else [outer, 1, between, n, inner]
        on = tf.reshape(tf.eye(n, dtype=tf.bool), [1, n, 1, n, 1])
        # Chosen, not multiplied by zero: an infinite entry stays where it is.
        found = tf.where(on, tf.reshape(tensor, sizes), tf.zeros([], tensor.dtype))
        return tf.reshape(found, contraction.shape_of(order))

    def fits(order: tuple[Axis, ...]) -> bool:
        return factor.fits(tuple(a for a in order if a is not fresh))

    moved = contraction.moved(contraction.size_of(axes), factor)
    return Factor(axes, make, fits, needs=(factor,), moved=moved, bytes=factor.bytes)


def total(terms: Sequence[Term], dtype: tf.DType, *, merge: bool) -> Stack:
    """Returns the sum of terms between two tensors, in as few terms as its structure allows.

    Args:
      terms: of the same two tensors.
      dtype: of their factors.
      merge: whether to write terms with more structure out into those with less, as is best where
        the sum is to be carried on.
    """
    if len(terms) < 2:
        return tuple(terms)
    terms = aligned(list(terms), dtype)
    groups: dict[frozenset, list[Term]] = {}
    for term in terms:
        groups.setdefault(term.structure, []).append(term)
    found = [t for group in groups.values() for t in _sum(group, dtype)]
    if merge:
        found = _merged(found, dtype)
    return tuple(found)


def added(stack: Stack, dtype: tf.DType) -> Stack:
    """Returns the sum with one term for each structure, outer products written out."""
    if len(stack) < 2:
        return stack
    groups: dict[frozenset, list[Term]] = {}
    for term in aligned(list(stack), dtype):
        groups.setdefault(term.structure, []).append(term)
    return tuple(_added(_common_factored(group, dtype), dtype) for group in groups.values())


def aligned(terms: list[Term], dtype: tf.DType) -> list[Term]:
    """Returns terms with the same names for the axes that are the same."""
    first = terms[0]
    found = [first]
    for term in terms[1:]:
        for side in ("rows", "entries"):
            for i, known in enumerate(found):
                found[i], term = matched(known, term, (side, side), dtype)
        found.append(term)
    # A split of one may have split no other: once more, until all have the same parts.
    for term in found[:-1]:
        if [len(g) for g in (*term.rows, *term.entries)] != [
            len(g) for g in (*found[-1].rows, *found[-1].entries)
        ]:
            return aligned(found, dtype)
    rows = flat(found[0].rows)
    found = [_with_rows(t, rows) for t in found]
    # Where an entry is not diagonal its axis is the term's own: that of the first which has one.
    own: dict[int, Axis] = {}
    for term in found:
        for place, axis in enumerate(flat(term.entries)):
            if axis not in term.diagonal:
                own.setdefault(place, axis)
    return [
        t.renamed({a: own[k] for k, a in enumerate(flat(t.entries)) if a not in t.diagonal})
        for t in found
    ]


def _with_rows(term: Term, rows: list[Axis]) -> Term:
    """Returns a term with other names of its rows, none of which is that of an entry of its own."""
    names = dict(zip(flat(term.rows), rows))
    own = [a for a in flat(term.entries) if a not in term.diagonal and a in rows]
    if own and any(old is not new for old, new in names.items()):
        term = term.renamed({a: Axis(a.size, a.length, a.place) for a in own})
    return term.renamed(names)


def _is_outer(term: Term) -> bool:
    """Returns whether no factor joins a row that is not diagonal to such an entry."""
    rows = frozenset(flat(term.rows)) - term.diagonal
    entries = frozenset(flat(term.entries)) - term.diagonal
    if not rows or not entries:
        return False
    return not any(rows & {*f.axes} and entries & {*f.axes} for f in term.factors)


def _sum(terms: list[Term], dtype: tf.DType) -> list[Term]:
    """Returns the sum of terms of one structure: at most one that is no outer product."""
    terms = _common_factored(terms, dtype)
    outer = [t for t in terms if _is_outer(t)]
    dense = [t for t in terms if not _is_outer(t)]
    if len(outer) > _MOST_OUTER:
        dense, outer = terms, []
    return [*([_added(dense, dtype)] if dense else []), *outer]


def _common_factored(terms: list[Term], dtype: tf.DType) -> list[Term]:
    """Adds up what multiplies the same factor, the largest first: C a + C b is C (a + b)."""
    shared = {f: [t for t in terms if f in t.factors] for t in terms for f in t.factors}
    shared = {f: having for f, having in shared.items() if len(having) > 1}
    if not shared:
        return terms
    common = max(shared, key=lambda f: f.size)
    rests = [
        dataclasses.replace(t, factors=tuple(f for f in t.factors if f is not common))
        for t in shared[common]
    ]
    rest = _added(_common_factored(rests, dtype), dtype)
    sum_ = dataclasses.replace(rest, factors=tuple(_gathered([common, *rest.factors])))
    others = [t for t in terms if t not in shared[common]]
    return _common_factored([sum_, *others], dtype)


def _added(terms: list[Term], dtype: tf.DType) -> Term:
    """Returns the sum of terms of one structure as one."""
    if len(terms) == 1:
        return terms[0]
    constant = [t for t in terms if not t.factors]
    if len(constant) == len(terms):
        return dataclasses.replace(terms[0], scale=sum(t.scale for t in terms))
    outer = [t for t in terms if _is_outer(t)]
    if len(outer) > 1:
        terms = [_joined(outer, dtype), *(t for t in terms if not _is_outer(t))]
        return _added(terms, dtype)
    parts = []
    for term in terms:
        present = {a for f in term.factors for a in f.axes if a in term.axes}
        parts.append(whole(term, _order_of(term, present), dtype))
    widest = max(parts, key=lambda f: len(f.axes))
    axes = list(widest.axes)
    for part in parts:
        axes = list(contraction.inserted(tuple(axes), part.axes))
    return dataclasses.replace(terms[0], factors=(_sum_of(parts, axes),), scale=1.0)


def _joined(outer: list[Term], dtype: tf.DType) -> Term:
    """Returns the sum of outer products as one product of matrices."""
    entries = frozenset(flat(outer[0].entries)) - outer[0].diagonal
    sides: tuple[list[Factor], list[Factor]] = ([], [])
    for term in outer:
        parts = ([], [])
        for factor in term.factors:
            parts[not entries.isdisjoint(factor.axes)].append(factor)
        halves = (
            dataclasses.replace(term, factors=tuple(parts[0])),
            dataclasses.replace(term, factors=tuple(parts[1]), scale=1.0),
        )
        for side, half in zip(sides, halves):
            axes = {a for f in half.factors for a in f.axes}
            side.append(whole(half, _order_of(half, axes), dtype))
    number = Axis(len(outer))
    stacked = [_stacked(side, number) for side in sides]
    found = contraction.product(stacked, outer[0].axes)
    return dataclasses.replace(outer[0], factors=(found,), scale=1.0)


def _stacked(parts: list[Factor], number: Axis) -> Factor:
    """Returns factors side by side along a new axis."""
    axes = functools.reduce(contraction.inserted, (p.axes for p in parts), ())
    alike = [p if len(p.axes) == len(axes) else _repeated(p, axes) for p in parts]

    def make(order: tuple[Axis, ...]) -> tf.Tensor:
        inner = tuple(a for a in order if a is not number)
        return tf.stack([p.in_order(inner) for p in alike], order.index(number))

    moved = contraction.moved(contraction.size_of([*axes, number]), *alike)
    return Factor(
        (*axes, number), make, lambda order: True, needs=tuple(alike), moved=moved,
        bytes=parts[0].bytes,
    )  # fmt: skip


def _sum_of(parts: list[Factor], axes: Sequence[Axis]) -> Factor:
    """Returns the sum of factors, repeated along the axes that they have not."""
    wide = [p for p in parts if len(p.axes) == len(axes)]
    narrow = [p for p in parts if len(p.axes) < len(axes)]

    def make(order: tuple[Axis, ...]) -> tf.Tensor:
        tensors = [p.in_order(order) for p in wide]
        if not tensors:
            tensors = [contraction.spread(narrow[0], order)]
        start = tf.add_n(tensors) if len(tensors) > 1 else tensors[0]
        rest = [contraction.broadcastable(p, order) for p in narrow if wide or p is not narrow[0]]
        return functools.reduce(lambda a, b: a + b, rest, start)

    size = contraction.size_of(axes)
    return Factor(
        axes,
        make,
        lambda order: all(p.fits(order) for p in wide),
        flops=size * (len(parts) - 1),
        needs=tuple(parts),
        moved=contraction.moved(size, *parts),
        bytes=parts[0].bytes,
    )


def _order_of(term: Term, present: set[Axis]) -> list[Axis]:
    """Returns axes as the largest factor has them, the others put where they follow."""
    order: tuple[Axis, ...] = ()
    for factor in sorted(term.factors, key=lambda f: -f.size):
        order = contraction.inserted(order, factor.axes)
    return [a for a in order if a in present]


def _merged(terms: list[Term], dtype: tf.DType) -> list[Term]:
    """Writes terms with more structure out into those with less, where there is one that is dense.

    Outer products stay as they are: they are carried on for less.
    """
    outer = [t for t in terms if _is_outer(t)]
    inner = [t for t in terms if not _is_outer(t)]
    if len(terms) == 1 or not inner:
        return terms
    if not any(_is_solid(t) for t in inner):
        common = frozenset.intersection(*(t.structure for t in terms))
        gone = {axis for t in terms for _, axis in t.structure - common}
        small = outer and contraction.size_of(gone) <= _SMALL
        return [_flattened(terms, common, dtype)] if small else terms
    # What is much smaller than the largest is carried on by itself for less than a sum costs.
    largest = max(contraction.size_of(t.axes) for t in inner)
    small = [t for t in inner if _MUCH * contraction.size_of(t.axes) <= largest]
    inner = [t for t in inner if t not in small]
    common = frozenset.intersection(*(t.structure for t in inner))
    wide = [t for t in outer if not t.structure >= common]
    common = frozenset.intersection(common, *(t.structure for t in wide))
    rest = [t for t in outer if t not in wide]
    return [_flattened([*inner, *wide], common, dtype), *small, *rest]


def _is_solid(term: Term) -> bool:
    """Returns whether some row that is not diagonal is joined to such an entry."""
    own = [frozenset(flat(groups)) - term.diagonal for groups in (term.rows, term.entries)]
    return all(own) and not _is_outer(term)


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
    """

    out: tuple[int | None, ...]
    given: tuple[int | None, ...]
    links: tuple[tuple[int, int], ...]
    pull: Carry
    push: Carry
    flops: float = 0.0
    selects: bool = False


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
    order = functools.reduce(contraction.inserted, (f.axes for f in having), ())
    others = [a for a in order if a not in acting]
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
        return tf.reshape(carried, contraction.shape_of(order))

    factor = Factor(
        axes,
        make,
        flops=native.flops * contraction.size_of(others),
        needs=(given,),
        moved=contraction.moved(contraction.size_of(axes), given),
        bytes=dtype.size,
        is_mask=native.selects and given.is_mask,
    )
    placed = {**fresh, **{b: groups[a] for a, b in links}}
    after = tuple(placed[i] for i in range(len(new)))
    return dataclasses.replace(term, factors=tuple(_gathered([factor, *rest])), **{side: after})


def written(stack: Stack, apart: int, dtype: tf.DType) -> Factor:
    """Returns a sum of terms written out: `[*rows, *entries]`, the first `apart` axes once.

    Raises:
      Refused: one of these mixes.
    """
    terms = aligned(list(stack), dtype)
    kept = frozenset(flat(terms[0].rows[:apart]))
    for term in terms:
        if flat(term.rows[:apart]) != flat(term.entries[:apart]):
            raise Refused(f"the first {apart} axes are not kept apart")
    term = single(terms, kept, dtype)
    return whole(term, [*flat(term.rows), *flat(term.entries[apart:])], dtype)


def single(terms: list[Term], kept: frozenset[Axis], dtype: tf.DType) -> Term:
    """Returns the sum of terms as one, diagonal along those of `kept` along which all are."""
    terms = aligned(terms, dtype)
    common = frozenset.intersection(*(t.structure for t in terms))
    return _flattened(terms, frozenset(pair for pair in common if pair[1] in kept), dtype)


def _flattened(terms: list[Term], kept: frozenset, dtype: tf.DType) -> Term:
    """Returns the sum of terms as one of the structure `kept`.

    What has most structure is written out first, and no further than the next: it is smallest.
    """
    while True:
        groups: dict[frozenset, list[Term]] = {}
        for term in aligned(terms, dtype):
            groups.setdefault(term.structure, []).append(term)
        terms = [_added(_common_factored(group, dtype), dtype) for group in groups.values()]
        first = max(terms, key=lambda t: len(t.structure))
        if first.structure == kept:
            return first
        rest = [t for t in terms if t is not first]
        inner = [t.structure for t in rest if t.structure < first.structure]
        target = max(inner, key=len, default=kept)
        for _, axis in sorted(first.structure - target, key=lambda pair: pair[0]):
            first = undiagonal(first, axis, dtype)
        terms = [*rest, first]
