"""A stretch of graph of which nothing is known, carried as one vectorized map."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence

import tensorflow as tf

from tfjac import nominal, shapes, sweeps
from tfjac.accumulation import factors as factors_
from tfjac.accumulation import sums, terms
from tfjac.accumulation.factors import Axis, Factor
from tfjac.accumulation.terms import Refused, Stack, Term
from tfjac.graph import dependence
from tfjac.rules import Example
from tfjac.strategies import base, forward, mapping


@dataclasses.dataclass(frozen=True)
class _Rows:
    """Vectors to map, in place of unit vectors: `stack[0]`, `stack[1]`, ..."""

    stack: tf.Tensor

    @property
    def size(self) -> shapes.Size:
        return shapes.shape_of(self.stack)[0]

    def __getitem__(self, index: tf.Tensor | int) -> tf.Tensor:
        # The last one where there are fewer, as in a last chunk, of which no more is kept.
        return tf.gather(self.stack, tf.minimum(index, self.size - 1))


class Opaque:
    """TensorFlow's own gradient of a stretch of graph, under a vectorized map.

    Args:
      part: the stretch: its end by its beginning.
      dtype: of the stacks that are carried.
    """

    def __init__(self, part: base.Problem, dtype: tf.DType) -> None:
        self._part = part
        self._dtype = dtype
        (self._source,) = part.sources
        for end in (part.y, self._source):
            if end.shape.rank is None or not end.shape[1:].is_fully_defined():
                raise Refused(f"a tensor of shape {end.shape} has unknown sizes")
        if part.compiled and not mapping.supports_vectorized_map(part).ok:
            raise Refused(mapping.supports_vectorized_map(part).reason)

    @functools.cached_property
    def can_push(self) -> bool:
        """Whether it has a pushforward."""
        if isinstance(self._source.value, tf.Variable):
            return False
        strategy = forward.Forward()
        is_pooled = any(op.type in forward.POOLS for op in self._part.ops)
        if is_pooled or mapping.has_no_second_map(self._part):
            return False  # wrong, or one by one
        return strategy.supports(self._part).ok and strategy.cost(self._part).seconds < math.inf

    @functools.cached_property
    def _links(self) -> list[tuple[int, int]]:
        """Pairs of an axis of the end and one of the beginning along which nothing mixes.

        A variable that was read several times begins at each of its reads: all have to agree.
        """
        if isinstance(self._source.value, tf.Variable):
            return []
        axes = range(self._source.shape.rank)
        found = [(_kept_axis(self._part.y, self._source.tensors, a), a) for a in axes]
        return [(b, a) for b, a in found if b is not None]

    def pulled(self, stack: Stack, *, last: bool) -> Stack:
        """Carries a stack from the end back to the beginning, in one term, `last` or not."""
        del last
        return self._mapped(sweeps.pullback, stack, "entries", self._source, self._links)

    def pushed(self, stack: Stack) -> Stack:
        """Carries a stack from the beginning on to the end."""
        links = [(a, b) for b, a in self._links]
        return self._mapped(sweeps.pushforward, stack, "rows", self._part.y, links)

    def _mapped(self, make_map, stack: Stack, side: str, new, links) -> Stack:
        """Returns the stack after a map to vectors of the shape of `new`."""
        if not stack:
            return stack
        linked = {a for a, _ in links}
        terms_ = sums.aligned(list(stack), self._dtype)
        kept = frozenset(
            axis
            for k, group in enumerate(getattr(terms_[0], side))
            for axis in (group if k in linked else ())
        )
        term = sums.single(terms_, kept, self._dtype)
        groups = getattr(term, side)
        own = terms.flat(groups)
        other = terms.flat(term.rows if side == "entries" else term.entries)
        many = [a for a in other if a not in own]
        given = terms.whole(term, [*many, *own], self._dtype)
        placed = {b: groups[a] for a, b in links}
        guesses = [nominal.SIZE if size is None else size for size in new.shape.as_list()]
        after = tuple(
            placed.get(k, () if size == 1 else (Axis(size, self._length(side, k), k, guesses[k]),))
            for k, size in enumerate(new.shape.as_list())
        )
        axes = (*many, *terms.flat(after))

        def make(order: tuple[Axis, ...]) -> tf.Tensor:
            # Not -1: of a batch of no examples it would not be found.
            shape = shapes.join([factors_.length_of(many)], self._shape_before(side))
            vectors = tf.cast(tf.reshape(given.tensor, shape), self._dtype_before(side))
            linear_map = make_map(self._part.y, self._part.sources)
            if linear_map.function is None:
                return tf.zeros([axis.length() for axis in order], self._dtype)
            (found,) = self._run(linear_map, _Rows(vectors))
            return tf.reshape(tf.cast(found, self._dtype), factors_.shape_of(order))

        factor = Factor(
            axes,
            make,
            flops=factors_.size_of(many) * self._part.flops_per_pass,
            needs=(given,),
            seconds=self._seconds(side, factors_.size_of(many)),
            bytes=self._dtype.size,
        )
        return (Term(*_sides(term, side, after), (factor,)),)

    def _length(self, side: str, k: int) -> Callable[[], tf.Tensor]:
        """Returns what gives the size of an axis of the other end."""
        after = {"entries": "rows", "rows": "entries"}[side]
        return lambda: self._shape_before(after)[k]

    def _shape_before(self, side: str) -> shapes.Shape:
        return shapes.shape_of(self._part.y) if side == "entries" else self._source.run_time_shape()

    def _dtype_before(self, side: str) -> tf.DType:
        return self._part.y.dtype if side == "entries" else self._source.dtype

    def _seconds(self, side: str, vectors: float) -> float:
        """Returns what a map over vectors is expected to take."""
        found = self._part.kernels
        runs = found.reverse if side == "entries" else found.forward
        if self._is_mapped:
            return mapping.mapped_seconds(runs, vectors, found.turns)
        return vectors * base.pass_seconds(runs, found.turns + 1)

    @functools.cached_property
    def _is_mapped(self) -> bool:
        repeated = any(_repeats_a_label(op) for op in self._part.ops)
        return mapping.supports_vectorized_map(self._part).ok and not repeated

    def _run(self, linear_map, rows: _Rows) -> list[tf.Tensor]:
        if not self._is_mapped:
            return sweeps.map_in_loop(linear_map, rows)
        chunk = base.chunk_size_at_run_time(self._part, "auto", rows.size)
        return mapping.mapped(self._part, linear_map, rows, chunk)


def _kept_axis(end: tf.Tensor, begins: Sequence[tf.Tensor], axis: int) -> int | None:
    """Returns the axis of the end that numbers the positions of an axis of all the beginnings."""
    states = [dependence.example_axis(end, begin, axis) for begin in begins]
    found = [state for state in states if state is not None]
    if not found or any(state != found[0] for state in found):
        return None
    if not all(isinstance(s, Example) and (s.outer, s.inner) == (1, 1) and s.sized for s in found):
        return None
    return found[0].axis if found[0].axis >= 0 else None


def _repeats_a_label(op: tf.Operation) -> bool:
    """Returns whether it is an Einsum whose gradient TensorFlow 2.21 cannot vectorize."""
    if op.type != "Einsum":
        return False
    texts = op.get_attr("equation").decode().replace(".", "").replace("->", ",").split(",")
    return any(len(set(text)) < len(text) for text in texts)


def _sides(term: Term, side: str, after: terms.Groups) -> tuple[terms.Groups, terms.Groups]:
    return (term.rows, after) if side == "entries" else (after, term.entries)
