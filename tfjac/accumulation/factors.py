"""Tensors whose axes have names, made when they are asked for.

Nothing is added to the graph before: to compare orders of multiplication, one makes the products
of each and asks what they cost.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterable, Sequence

import tensorflow as tf

from tfjac import nominal, rates

# As many factors one after another are made in the order that suits the last; the axes of the first
# stay as they are. So Python calls itself no deeper, however long the chain.
_FLIGHT = 32
# TensorFlow's elementwise kernels broadcast along so many axes.
MOST_BROADCAST_AXES = 5


class Axis:
    """An axis that several tensors may share; equal to itself alone.

    Args:
      size: of it; None where the graph does not tell.
      length: gives the size at run time where it is unknown.
      place: where it stood in its tensor; of axes in no other order the first comes first, so that
        examples do.
      guess: to reckon with where the size is unknown.
    """

    __slots__ = ("size", "place", "expected", "_length", "_parts")

    def __init__(
        self,
        size: int | None,
        length: Callable[[], tf.Tensor] | None = None,
        place: int = 0,
        guess: int = nominal.SIZE,
    ) -> None:
        self.size = size
        self.place = place
        self.expected = guess if size is None else size
        self._length = length
        self._parts: dict[int, tuple[Axis, Axis]] | None = None

    def length(self) -> tf.Tensor | int:
        """Returns the size as a number, or as a scalar tensor."""
        return self._length() if self.size is None else self.size

    def parts(self, inner: int) -> tuple[Axis, Axis]:
        """Returns the two axes that it is split into, the second of size `inner`."""
        self._parts = self._parts or {}
        if inner not in self._parts:
            outer = None if self.size is None else self.size // inner
            length = lambda: self.length() // inner  # noqa: E731
            guess = max(1, self.expected // inner)
            parts = (Axis(outer, length, self.place, guess), Axis(inner, None, self.place))
            self._parts[inner] = parts
        return self._parts[inner]

    def copied(self) -> Axis:
        """Returns another axis of the same size and place."""
        return Axis(self.size, self.length, self.place, self.expected)


def size_of(axes: Iterable[Axis]) -> float:
    """Returns the number of entries along axes, unknown sizes guessed."""
    return float(math.prod([axis.expected for axis in axes]))


class Factor:
    """A tensor whose axes have names, made when it is asked for.

    Args:
      axes: one for each axis of the tensor, none twice; `size` is the number of entries.
      make: from the order wanted of the axes, makes the tensor in that order.
      fits: whether it can be made in an order as cheaply; else its axes are moved afterwards.
      flops: what it takes to make it from those that it needs.
      needs: the factors that it is made from.
      seconds: what that is expected to take.
      bytes: of one entry.
      is_mask: of zeros and ones: what it multiplies is chosen, so that zero times infinity is zero.
    """

    # Planning makes many: what Python's garbage collector has to go through is kept small.
    __slots__ = (
        "axes", "bytes", "flops", "is_mask", "needs", "products", "seconds", "size",
        "_depth", "_fits", "_known_fits", "_made", "_make", "_since_landing",
    )  # fmt: skip

    def __init__(
        self,
        axes: Iterable[Axis],
        make: Callable[[tuple[Axis, ...]], tf.Tensor],
        fits: Callable[[tuple[Axis, ...]], bool] | None = None,
        *,
        flops: float = 0.0,
        needs: tuple[Factor, ...] = (),
        seconds: float = 0.0,
        bytes: int = 4,  # noqa: A002
        is_mask: bool = False,
    ) -> None:
        self.axes = tuple(axes)
        self.size = size_of(self.axes)
        self.flops = flops
        self.needs = needs
        self.seconds = seconds
        self.bytes = bytes
        self.is_mask = is_mask
        self._make = make
        self._fits = fits
        self._made: dict[tuple[Axis, ...], tf.Tensor] | None = None
        self._depth = 1 + max((need._depth for need in needs), default=-1)
        self._since_landing = 1 + max((need._after for need in needs), default=-1)
        self._known_fits: dict[tuple[Axis, ...], bool] | None = None
        self.products: dict = {}

    @property
    def tensor(self) -> tf.Tensor:
        """The tensor; adds the ops that make it."""
        return self.in_order(self.axes)

    def fits(self, order: tuple[Axis, ...]) -> bool:
        """Returns whether its axes are to be had in an order without moving entries."""
        if self._made:
            return order in self._made
        if order == self.axes or self._fits is None or self._is_landing:
            return order == self.axes
        self._known_fits = self._known_fits or {}
        if order not in self._known_fits:
            self._known_fits[order] = self._fits(order)
        return self._known_fits[order]

    def in_order(self, order: tuple[Axis, ...]) -> tf.Tensor:
        """Returns the tensor with its axes in an order; adds the ops that make it."""
        if not self._made:
            self._make_landings()
            first = order if self.fits(order) else self.axes
            self._made = {first: self._make(first)}
        if order not in self._made:
            known, tensor = next(iter(self._made.items()))
            self._made[order] = tf.transpose(tensor, [known.index(axis) for axis in order])
        return self._made[order]

    @property
    def _is_landing(self) -> bool:
        return self._since_landing == _FLIGHT

    @property
    def _after(self) -> int:
        """How many factors after the last landing it is, on the longest way."""
        return 0 if self._is_landing else self._since_landing

    def _make_landings(self) -> None:
        """Makes what lies deep below, the deepest first, so that Python need not go all the way."""
        if self._depth <= _FLIGHT:
            return
        seen, waiting, found = {id(self)}, list(self.needs), []
        while waiting:
            factor = waiting.pop()
            if id(factor) not in seen and not factor._made:
                seen.add(id(factor))
                waiting.extend(factor.needs)
                if factor._is_landing:
                    found.append(factor)
        for factor in sorted(found, key=lambda f: f._depth):
            factor.in_order(factor.axes)

    def renamed(self, names: dict[Axis, Axis]) -> Factor:
        """Returns the same tensor with other names of its axes."""
        if not any(axis in names for axis in self.axes):
            return self
        named = _Renamed(self, tuple(names.get(axis, axis) for axis in self.axes))
        return Factor(
            named.axes,
            named.make,
            named.fits,
            needs=(self,),
            bytes=self.bytes,
            is_mask=self.is_mask,
        )

    def split(self, axis: Axis, inner: int) -> Factor:
        """Returns the factor with an axis in two parts."""
        if axis not in self.axes:
            return self
        key = ("split", axis, inner)
        if key not in self.products:
            self.products[key] = _split(self, axis, inner)
        return self.products[key]


class _Renamed:
    """A factor with other names of its axes."""

    __slots__ = ("axes", "_factor")

    def __init__(self, factor: Factor, axes: tuple[Axis, ...]) -> None:
        self.axes = axes
        self._factor = factor

    def make(self, order: tuple[Axis, ...]) -> tf.Tensor:
        return self._factor.in_order(self._back(order))

    def fits(self, order: tuple[Axis, ...]) -> bool:
        return self._factor.fits(self._back(order))

    def _back(self, order: tuple[Axis, ...]) -> tuple[Axis, ...]:
        old = dict(zip(self.axes, self._factor.axes))
        return tuple(old[axis] for axis in order)


def _split(factor: Factor, axis: Axis, inner: int) -> Factor:
    parts = axis.parts(inner)
    axes = tuple(part for a in factor.axes for part in (parts if a is axis else (a,)))

    def whole(order: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(axis if a is parts[0] else a for a in order if a is not parts[1])

    def fits(order: tuple[Axis, ...]) -> bool:
        side_by_side = order.index(parts[1]) == order.index(parts[0]) + 1
        return side_by_side and factor.fits(whole(order))

    def make(order: tuple[Axis, ...]) -> tf.Tensor:
        return tf.reshape(factor.in_order(whole(order)), shape_of(order))

    return Factor(axes, make, fits, needs=(factor,), bytes=factor.bytes, is_mask=factor.is_mask)


@dataclasses.dataclass(frozen=True)
class Total:
    """What it takes to make some factors, with all that they are made from.

    Args:
      flops: floating-point operations.
      seconds: what that is expected to take.
      steps: how many factors are made.
      bytes: of the largest factor and of those that it is made from: what is held at once.
    """

    flops: float
    seconds: float
    steps: int
    bytes: float


def total(factors: Iterable[Factor], made: Iterable[Factor] = ()) -> Total:
    """Returns the cost of all that factors are made from; what several need counts once.

    Args:
      factors: to be made.
      made: which are there already, and do not count.
    """
    seen = {id(factor) for factor in made}
    waiting, flops, seconds, held = list(factors), 0.0, 0.0, 0.0
    while waiting:
        factor = waiting.pop()
        if id(factor) in seen:
            continue
        seen.add(id(factor))
        flops += factor.flops
        seconds += factor.seconds
        held = max(held, factor.bytes * (factor.size + sum(f.size for f in factor.needs)))
        waiting.extend(factor.needs)
    return Total(flops, seconds, len(seen), held)


def shape_of(axes: Sequence[Axis]) -> tf.Tensor | list[int]:
    """Returns the shape of a tensor with these axes, to reshape to."""
    unknown = [a for a in axes if a.size is None]
    if not unknown:
        return [a.size for a in axes]
    if len(unknown) == 1:
        return [-1 if a.size is None else a.size for a in axes]
    return tf.stack([a.length() for a in axes])


def length_of(group: Sequence[Axis]) -> tf.Tensor | int:
    """Returns the number of entries along axes, at run time where it is unknown."""
    return _product([axis.length() for axis in group])


def _product(lengths: Sequence[tf.Tensor | int]) -> tf.Tensor | int:
    return functools.reduce(lambda a, b: a * b, lengths, 1)


def moving(made: float, *factors: Factor) -> float:
    """Returns the seconds that it takes to read factors and to write `made` entries."""
    width = factors[0].bytes
    return rates.moving(width * sum(f.size for f in factors), width * made)


def inserted(axes: tuple[Axis, ...], more: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """Returns axes, and the others each after the one that it follows among `more`."""
    found = list(axes)
    for i, axis in enumerate(more):
        if axis not in found:
            before = [k for k, a in enumerate(found) if a in more[:i]]
            start = before[-1] + 1 if before else 0
            places = [a.place for a in found[start:]]
            lower = next((k for k, p in enumerate(places) if p >= axis.place), len(places))
            found.insert(start + lower, axis)
    return tuple(found)


def along(factor: Factor, axes: Sequence[Axis]) -> tf.Tensor:
    """Returns the tensor with its axes in an order, and axes of size one for those it has not."""
    found = factor.in_order(tuple(a for a in axes if a in factor.axes))
    if len(factor.axes) == len(axes):
        return found
    return tf.reshape(found, shape_of([a if a in factor.axes else _ONE for a in axes]))


_ONE = Axis(1)


def spread(factor: Factor, order: tuple[Axis, ...]) -> tf.Tensor:
    """Returns the tensor repeated along the axes of an order that it has not."""
    groups = [list(g) for _, g in itertools.groupby(order, lambda a: a in factor.axes)]
    having = [group[0] in factor.axes for group in groups]
    if all(having):
        return factor.in_order(order)
    lengths = [length_of(group) for group in groups]
    shape = [n if has else 1 for n, has in zip(lengths, having)]
    found = tf.reshape(along(factor, order), shape)
    if len(groups) <= MOST_BROADCAST_AXES:
        found = tf.broadcast_to(found, lengths)
    else:
        for k in [k for k, has in enumerate(having) if not has]:
            parts = [_product(shape[:k]), 1, _product(shape[k + 1 :])]
            found = tf.tile(tf.reshape(found, parts), [1, lengths[k], 1])
            shape[k] = lengths[k]
    return tf.reshape(found, shape_of(order))


def broadcastable(factor: Factor, order: tuple[Axis, ...]) -> tf.Tensor:
    """Returns a tensor that TensorFlow broadcasts to one that has all axes of an order."""
    groups = itertools.groupby(order, lambda a: a in factor.axes)
    few = len(list(groups)) <= MOST_BROADCAST_AXES
    return along(factor, order) if few else spread(factor, order)
