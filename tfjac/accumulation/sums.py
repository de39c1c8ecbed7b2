"""Sums of terms, in as few as their structure allows, and written out at the end."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import tensorflow as tf

from tfjac.accumulation import contraction
from tfjac.accumulation import factors as factors_
from tfjac.accumulation.factors import Axis, Factor
from tfjac.accumulation.terms import (
    Refused,
    Stack,
    Term,
    flat,
    gathered,
    matched,
    repeated,
    undiagonal,
    whole,
)

# Outer products that a sum keeps apart.
_MOST_OUTER = 6
# A diagonal and outer products of this size are as cheap written out.
_SMALL = 32
# What is so many times smaller than another term is carried on by itself.
_MUCH = 8


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
    found = _split_alike(terms, dtype)
    # A split of one may have split no other: once more, until all have the same parts.
    while any(_parts(term) != _parts(found[-1]) for term in found[:-1]):
        found = _split_alike(found, dtype)
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


def _split_alike(terms: list[Term], dtype: tf.DType) -> list[Term]:
    """Returns terms, each matched with those before it."""
    found = [terms[0]]
    for term in terms[1:]:
        for side in ("rows", "entries"):
            for i, known in enumerate(found):
                found[i], term = matched(known, term, (side, side), dtype)
        found.append(term)
    return found


def _parts(term: Term) -> list[int]:
    return [len(group) for group in (*term.rows, *term.entries)]


def _with_rows(term: Term, rows: list[Axis]) -> Term:
    """Returns a term with other names of its rows, none of which is that of an entry of its own."""
    if flat(term.rows) == rows:
        return term
    names = dict(zip(flat(term.rows), rows))
    own = [a for a in flat(term.entries) if a not in term.diagonal and a in rows]
    if own and any(old is not new for old, new in names.items()):
        term = term.renamed({a: a.copied() for a in own})
    return term.renamed(names)


def _is_outer(term: Term) -> bool:
    """Returns whether no factor joins a row that is not diagonal to such an entry."""
    rows = frozenset(flat(term.rows)) - term.diagonal
    entries = frozenset(flat(term.entries)) - term.diagonal
    if not rows or not entries:
        return False
    return not any(
        not rows.isdisjoint(f.axes) and not entries.isdisjoint(f.axes) for f in term.factors
    )


def _sum(terms: list[Term], dtype: tf.DType) -> list[Term]:
    """Returns the sum of terms of one structure: at most one that is no outer product."""
    if len(terms) == 1:
        return terms
    terms = _common_factored(terms, dtype)
    outer = [t for t in terms if _is_outer(t)]
    dense = [t for t in terms if not _is_outer(t)]
    if len(outer) > _MOST_OUTER:
        dense, outer = terms, []
    return [*([_added(dense, dtype)] if dense else []), *outer]


def _common_factored(terms: list[Term], dtype: tf.DType) -> list[Term]:
    """Adds up what multiplies the same factor, the largest first: C a + C b is C (a + b)."""
    while len(terms) > 1:
        shared: dict[Factor, list[Term]] = {}
        for term in terms:
            for factor in dict.fromkeys(term.factors):
                shared.setdefault(factor, []).append(term)
        shared = {factor: having for factor, having in shared.items() if len(having) > 1}
        if not shared:
            break
        common = max(shared, key=lambda f: f.size)
        rests = [
            dataclasses.replace(t, factors=tuple(f for f in t.factors if f is not common))
            for t in shared[common]
        ]
        rest = _added(_common_factored(rests, dtype), dtype)
        sum_ = dataclasses.replace(rest, factors=tuple(gathered([common, *rest.factors])))
        terms = [sum_, *(t for t in terms if t not in shared[common])]
    return terms


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
        axes = list(factors_.inserted(tuple(axes), part.axes))
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
    axes = functools.reduce(factors_.inserted, (p.axes for p in parts), ())
    alike = [p if len(p.axes) == len(axes) else repeated(p, axes) for p in parts]

    def make(order: tuple[Axis, ...]) -> tf.Tensor:
        inner = tuple(a for a in order if a is not number)
        return tf.stack([p.in_order(inner) for p in alike], order.index(number))

    seconds = factors_.moving(factors_.size_of([*axes, number]), *alike)
    return Factor(
        (*axes, number), make, lambda order: True, needs=tuple(alike), seconds=seconds,
        bytes=parts[0].bytes,
    )  # fmt: skip


def _sum_of(parts: list[Factor], axes: Sequence[Axis]) -> Factor:
    """Returns the sum of factors, repeated along the axes that they have not."""
    wide = [p for p in parts if len(p.axes) == len(axes)]
    narrow = [p for p in parts if len(p.axes) < len(axes)]

    def make(order: tuple[Axis, ...]) -> tf.Tensor:
        tensors = [p.in_order(order) for p in wide]
        if not tensors:
            tensors = [factors_.spread(narrow[0], order)]
        start = tf.add_n(tensors) if len(tensors) > 1 else tensors[0]
        rest = [factors_.broadcastable(p, order) for p in narrow if wide or p is not narrow[0]]
        return functools.reduce(lambda a, b: a + b, rest, start)

    size = factors_.size_of(axes)
    return Factor(
        axes,
        make,
        lambda order: all(p.fits(order) for p in wide),
        flops=size * (len(parts) - 1),
        needs=tuple(parts),
        seconds=(len(parts) - 1) * factors_.moving(size, *parts[:2]),
        bytes=parts[0].bytes,
    )


def _order_of(term: Term, present: set[Axis]) -> list[Axis]:
    """Returns axes as the largest factor has them, the others put where they follow."""
    order: tuple[Axis, ...] = ()
    for factor in sorted(term.factors, key=lambda f: -f.size):
        order = factors_.inserted(order, factor.axes)
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
        small = outer and factors_.size_of(gone) <= _SMALL
        return [_flattened(terms, common, dtype)] if small else terms
    # What is much smaller than the largest is carried on by itself for less than a sum costs.
    largest = max(factors_.size_of(t.axes) for t in inner)
    small = [t for t in inner if _MUCH * factors_.size_of(t.axes) <= largest]
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


def written(stack: Stack, apart: int, dtype: tf.DType) -> Factor:
    """Returns a sum of terms written out: `[*rows, *entries]`, the first `apart` axes once.

    Raises:
      Refused: one of these mixes.
    """
    terms = aligned(list(stack), dtype)
    check_apart(terms, apart)
    term = single(terms, frozenset(flat(terms[0].rows[:apart])), dtype)
    return whole(term, [*flat(term.rows), *flat(term.entries[apart:])], dtype)


def check_apart(terms: Sequence[Term], apart: int) -> None:
    """Raises Refused unless terms are diagonal along the first `apart` axes."""
    for term in terms:
        if flat(term.rows[:apart]) != flat(term.entries[:apart]):
            raise Refused(f"the first {apart} axes are not kept apart")


def as_one(stack: Stack, apart: int, dtype: tf.DType) -> Term:
    """Returns the sum as one term, diagonal along each axis along which all of it is.

    Raises:
      Refused: one of the first `apart` axes mixes.
    """
    check_apart(stack, apart)
    if len(stack) == 1:
        return stack[0]
    found = aligned(list(stack), dtype)
    common = frozenset(flat(found[0].rows)).intersection(*(t.diagonal for t in found))
    return single(found, common, dtype)


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
