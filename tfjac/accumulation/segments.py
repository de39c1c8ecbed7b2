"""The stretches of a chain, and how a Jacobian is carried back or on through each."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence

import tensorflow as tf

from tfjac import nominal, tf_internals
from tfjac.accumulation import factors as factors_
from tfjac.accumulation import memo, opaque, pieces, terms
from tfjac.accumulation.pieces import Piece
from tfjac.accumulation.terms import Stack
from tfjac.graph import paths, subgraph
from tfjac.graph.sources import Source
from tfjac.strategies import base

# Columns for each row beyond which going forward is not tried.
_WIDER = 8
# Tensors at which a chain may be cut; each makes planning longer.
_MOST_CUTS = 6


@dataclasses.dataclass(frozen=True, eq=False)
class Carried:
    """A Jacobian, and what it costs to make.

    Args:
      stack: the Jacobian, a sum of terms.
      cost: of all that it is made from.
    """

    stack: Stack
    cost: float = 0.0


class Chain:
    """The tensors at which the way from a source to the target may be cut, and how to go on.

    Raises:
      Refused: the way from the source to the target has no structure to be used.
    """

    def __init__(self, problem: base.Problem) -> None:
        self._problem = problem
        self._starts = _starts(problem)
        self._links = _links(problem, self._starts)
        # A gradient written by hand need not be linear: it gets the cotangents that TensorFlow's
        # own reverse mode would give it, and no others.
        self._only_back = problem.is_by_hand
        cuts = [] if self._only_back else _narrow(self._links)
        self._ends = [*cuts, problem.y]
        self._pieces = [self._pieces_of(i) for i in range(self.segments)]

    @property
    def segments(self) -> int:
        """Number of segments between the cuts."""
        return len(self._ends)

    @property
    def can_push(self) -> bool:
        """Whether tangents of the source can be carried on at all."""
        return not self._only_back and len(self._starts) == 1

    def alone(self, i: int, bound: float = math.inf) -> Iterator[tuple[str, Carried | None]]:
        """Yields the ways to the Jacobian of one segment; None for one that costs more."""
        yield "reverse", self.pulled(i, Carried(pieces.identity(self._ends[i])), bound)
        if not self.can_push or not all(piece.can_push for piece in self._pieces[i]):
            return
        start = self._ends[i - 1] if i else self._starts[0]
        if not self._is_wider(start, self._ends[i]):
            yield "forward", self.pushed(i + 1, Carried(pieces.identity(start)), bound)

    def _is_wider(self, start: tf.Tensor, end: tf.Tensor) -> bool:
        """Returns whether there are so many more columns than rows that none need be carried on."""
        (source,) = self._problem.sources
        read = isinstance(source.value, tf.Variable) and start is self._starts[0]
        sizes = nominal.shape_of(start)[0 if read else 1 :]
        return math.prod(sizes) > _WIDER * math.prod(nominal.shape_of(end)[1:])

    @property
    def is_structured(self) -> bool:
        """Whether the local Jacobian of each op on the way is known."""
        return all(isinstance(p, Piece) for segment in self._pieces for p in segment)

    @property
    def begins_in_map(self) -> bool:
        """Whether the source is read within a piece that goes as one vectorized map."""
        return not isinstance(self._pieces[0][0], Piece)

    @property
    def reverse_order(self) -> str:
        """The order of `reverse`, in words."""
        return "".join(
            ["reverse", *(f", pulled back to {i}" for i in range(self.segments - 2, -1, -1))]
        )

    def reverse(self) -> Carried:
        """Returns the Jacobian of the whole chain, carried back from its end."""
        found = Carried(pieces.identity(self._ends[-1]))
        for i in reversed(range(self.segments)):
            found = self.pulled(i, found)
        return found

    def pulled(self, i: int, given: Carried, bound: float = math.inf) -> Carried | None:
        """Carries a stack back through segment `i`; None where that costs more than `bound`."""
        for k, piece in reversed(list(enumerate(self._pieces[i]))):
            given = _carried(piece, "last" if (i, k) == (0, 0) else "back", given)
            if given.cost > bound:
                return None
        return given

    def pushed(self, j: int, given: Carried, bound: float = math.inf) -> Carried | None:
        """Carries a stack on through the segment before cut `j`.

        None where it does not go, or costs more than `bound`.
        """
        if not all(piece.can_push for piece in self._pieces[j - 1]):
            return None
        for piece in self._pieces[j - 1]:
            given = _carried(piece, "on", given)
            if given.cost > bound:
                return None
        return given

    def joined(self, inner: Carried, outer: Carried, bound: float) -> Carried | None:
        """Returns the product of the Jacobians of two segments; None where it costs more."""
        known = inner.cost + outer.cost
        if known > bound:
            return None

        def multiply() -> tuple[Stack, float]:
            found = pieces.product(outer.stack, inner.stack, self._problem.y.dtype)
            return found, pieces.cost_of(found, [*_factors(inner.stack), *_factors(outer.stack)])

        found, spent = memo.memoized(("joined", outer.stack, inner.stack), multiply)
        return Carried(found, known + spent)

    def _pieces_of(self, i: int) -> list[Piece | opaque.Opaque]:
        if not self._links:
            return [opaque.Opaque(self._problem, self._problem.y.dtype)]
        begins = [self._ends[i - 1]] if i else self._starts
        first = 1 + (_place(self._links, begins[0]) if i else 0)
        found = []
        for tensor in self._links[first : _place(self._links, self._ends[i]) + 1]:
            key = ("piece", *(t.ref() for t in begins), tensor.ref(), self._problem.y.dtype)
            make = functools.partial(_piece, begins, tensor, self._problem)
            found.append(memo.memoized(key, make))
            begins = [tensor]
        return found


def _carried(piece: Piece | opaque.Opaque, way: str, given: Carried) -> Carried:
    """Carries a stack "back", back to the source ("last") or "on" through a piece.

    Once for each stack, so that sources share what was carried back to where their paths meet.
    """

    def carry() -> tuple[Stack, float]:
        on = way == "on"
        found = piece.pushed(given.stack) if on else piece.pulled(given.stack, last=way == "last")
        return found, pieces.cost_of(found, _factors(given.stack))

    found, spent = memo.memoized(("carried", piece, way, given.stack), carry)
    return Carried(found, given.cost + spent)


def _factors(stack: Stack) -> list[factors_.Factor]:
    return [factor for term in stack for factor in term.factors]


def _place(tensors: Sequence[tf.Tensor], wanted: tf.Tensor) -> int:
    return next(k for k, t in enumerate(tensors) if t is wanted)


def _starts(problem: base.Problem) -> list[tf.Tensor]:
    """Returns the tensors that stand for the source in the graph of the target.

    Itself, what captured it, or what was read of a variable; none where that does not stand for it.
    """
    (source,) = problem.sources
    if not isinstance(source.value, tf.Variable):
        inner = tf_internals.known_in_graph(problem.y.graph, source.value)
        return [] if inner is None else [inner]
    handles = {subgraph.key_of(t) for t in source.tensors}
    readers = [op for op in problem.ops if any(subgraph.key_of(t) in handles for t in op.inputs)]
    if any(op.type != "ReadVariableOp" for op in readers):
        return []
    return [op.outputs[0] for op in readers]


def _links(problem: base.Problem, starts: list[tf.Tensor]) -> list[tf.Tensor]:
    """Returns a start and the tensors at which the way to the target may be cut, the target last.

    Empty where the way is to be taken as a whole.
    """
    if problem.y.shape.rank is None:
        raise terms.Refused(f"{problem.y.name!r} is of unknown rank")
    if not starts or any(op.graph is not problem.y.graph for op in problem.ops):
        return []
    found = [t for t in paths.to(problem.y).chain(starts) if t.dtype.is_floating]
    return [starts[0], *(t for t in found if t.shape.rank is not None)] if found else []


def _narrow(chain: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Returns the tensors within the chain that are narrower than those around, in its order.

    Of neighbors of one size the first; the narrowest where there are many.
    """
    sizes = [factors_.size_of(terms.flat(terms.axes_of(t))) for t in chain]
    found, k = [], 1
    while k < len(chain) - 1:
        end = k
        while end < len(chain) - 1 and sizes[end + 1] == sizes[k]:
            end += 1
        if end < len(chain) - 1 and sizes[k - 1] > sizes[k] < sizes[end + 1]:
            found.append(k)
        k = end + 1
    kept = sorted(sorted(found, key=lambda k: sizes[k])[:_MOST_CUTS])
    return [chain[k] for k in kept]


def _piece(begins: list[tf.Tensor], end: tf.Tensor, problem: base.Problem) -> Piece | opaque.Opaque:
    """Returns the piece between two neighbors of the chain."""
    ops = paths.to(problem.y).ops(begins, end)
    nodes = pieces.nodes_of(ops, begins, problem.y.dtype)
    if nodes is not None:
        return Piece(begins, end, problem.y.dtype, nodes)
    source = Source(tuple(begins), begins[0].shape, begins[0].dtype, begins[0])
    part = base.Problem(end, (source,), compiled=problem.compiled)
    return opaque.Opaque(part, problem.y.dtype)
