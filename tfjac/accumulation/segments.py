"""The stretches of a chain, and how a Jacobian is carried back or on through each."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Sequence

import tensorflow as tf

from tfjac import rules, tf_internals
from tfjac.accumulation import factors as factors_
from tfjac.accumulation import maps, memo, natives, opaque, sums, terms
from tfjac.accumulation.natives import Native
from tfjac.accumulation.terms import Stack, Term
from tfjac.graph import subgraph
from tfjac.graph.sources import Source
from tfjac.strategies import base

# Tensors at which a chain may be cut; each makes planning longer.
_MOST_CUTS = 6
# Ops of a stretch up to which it is looked through for some to be taken for one.
_MOST_FUSED = 200
# Ops whose Jacobian is a matrix, or carried by a kernel: nothing is gained by taking them for one
# with others.
_FACTORS = frozenset(
    {"BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Conv2D", "Conv3D", "Einsum", "MatMul"}
)


def product(outer: Stack, inner: Stack, dtype: tf.DType) -> Stack:
    """Returns the Jacobian of one map after another."""
    return sums.total(_products(outer, inner, dtype), dtype, merge=False)


def _products(outer: Stack, inner: Stack, dtype: tf.DType) -> list[Term]:
    return [terms.composed(one, other, dtype) for one in outer for other in inner]


def cost_of(stack: Stack, made: Sequence[factors_.Factor] = ()) -> float:
    """Returns what it costs to make all factors of a stack, where some are made already."""
    return factors_.total((f for term in stack for f in term.factors), made).cost


def _identity(tensor: tf.Tensor) -> Stack:
    """Returns the identity of a tensor, the same each time, so that work on it is shared."""
    return memo.memoized(("identity", tensor.ref()), lambda: terms.identity(tensor))


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
        self._only_back = any(rules.has_custom_gradient(op) for op in problem.ops)
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

    def alone(self, i: int) -> Iterator[tuple[str, Stack]]:
        """Yields the ways to the Jacobian of one segment."""
        yield "reverse", self.pulled(i, _identity(self._ends[i]))
        if self.can_push and all(piece.can_push for piece in self._pieces[i]):
            start = self._ends[i - 1] if i else self._starts[0]
            yield "forward", self.pushed(i + 1, _identity(start))

    @property
    def is_structured(self) -> bool:
        """Whether the local Jacobian of each op on the way is known."""
        return all(isinstance(p, _Piece) for pieces in self._pieces for p in pieces)

    def pulled(self, i: int, stack: Stack) -> Stack:
        """Carries a stack back through segment `i`."""
        for k, piece in reversed(list(enumerate(self._pieces[i]))):
            stack = piece.pulled(stack, last=(i, k) == (0, 0))
        return stack

    def pushed(self, j: int, stack: Stack) -> Stack | None:
        """Carries a stack on through the segment before cut `j`; None where it does not go."""
        pieces = self._pieces[j - 1]
        if not all(piece.can_push for piece in pieces):
            return None
        for piece in pieces:
            stack = piece.pushed(stack)
        return stack

    def _pieces_of(self, i: int) -> list[_Piece | opaque.Opaque]:
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
    chain = subgraph.chain(subgraph.ops_between(problem.y, starts), starts, problem.y)
    found = [t for t in chain if t is not starts[0] and t.dtype.is_floating]
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


def _piece(
    begins: list[tf.Tensor], end: tf.Tensor, problem: base.Problem
) -> _Piece | opaque.Opaque:
    """Returns the stretch between two neighbors of the chain."""
    ops = subgraph.ops_between(end, begins)
    nodes = _nodes(ops, begins, problem.y.dtype)
    if nodes is not None:
        if len(ops) <= _MOST_FUSED:
            nodes = _fused(ops, nodes, begins, problem.y.dtype)
        return _Piece(begins, end, problem.y.dtype, nodes)
    source = Source(tuple(begins), begins[0].shape, begins[0].dtype, begins[0])
    part = base.Problem(end, (source,), compiled=problem.compiled)
    return opaque.Opaque(part, problem.y.dtype)


class _Piece:
    """The ops between two neighbors of the chain, of each of which the local Jacobian is known.

    Args:
      begins: the tensors at its beginning, several only where a variable was read several times.
      end: the tensor at its end.
      dtype: in which to compute.
      nodes: the ops with their local Jacobians.
    """

    can_push = True

    def __init__(self, begins: list[tf.Tensor], end: tf.Tensor, dtype: tf.DType, nodes) -> None:
        self._begins = begins
        self._end = end
        self._dtype = dtype
        self._nodes = nodes
        # What was carried already, with the stack that it came from: other sources share it.
        self._known: dict[tuple, tuple[Stack, Stack]] = {}

    def pulled(self, stack: Stack, *, last: bool) -> Stack:
        """Carries a stack from the end back to the beginning, and leaves the `last` sum apart."""

        def ways(given: Stack) -> Iterator[Stack]:
            yield self._swept_back(given, last=last)
            if self._alone is not None:
                yield self._total(_products(given, self._alone, self._dtype), merge=not last)

        return self._cheapest(stack, ways, last)

    def pushed(self, stack: Stack) -> Stack:
        """Carries a stack from the beginning on to the end."""

        def ways(given: Stack) -> Iterator[Stack]:
            yield self._swept_on(given)
            if self._alone is not None:
                yield self._total(_products(self._alone, given, self._dtype), merge=True)

        return self._cheapest(stack, ways, "on")

    def _cheapest(self, stack: Stack, ways, kind) -> Stack:
        key = (kind, *(id(term) for term in stack))
        if key not in self._known:
            found = [made for given in self._forms(stack) for made in ways(given)]
            there = [f for term in stack for f in term.factors]
            best = found[0] if len(found) == 1 else min(found, key=lambda s: cost_of(s, there))
            self._known[key] = (best, stack)
        return self._known[key][0]

    def _forms(self, stack: Stack) -> list[Stack]:
        """Returns a stack as it is, and with its outer products written out where it has some."""
        added = sums.added(stack, self._dtype) if len(self._nodes) > 1 else stack
        return [stack] if len(added) == len(stack) else [stack, added]

    def _total(self, found: Sequence[Term], *, merge: bool) -> Stack:
        return sums.total(found, self._dtype, merge=merge)

    @functools.cached_property
    def alone(self) -> Stack:
        """The Jacobian of the piece by itself."""
        return self._swept_back(_identity(self._end), last=True)

    @property
    def _alone(self) -> Stack | None:
        """The same where a stack times that may be had for less than by its ops."""
        return None if len(self._nodes) == 1 or len(self._begins) > 1 else self.alone

    def _swept_back(self, stack: Stack, *, last: bool) -> Stack:
        waiting: dict[tuple, list[Term]] = {subgraph.key_of(self._end): list(stack)}
        for node in reversed(self._nodes):
            arrived = {out: self._total(waiting.pop(out, []), merge=True) for out in node.outputs}
            for edge in node.edges:
                if arrived[edge.out]:
                    back = self._back(edge.steps, arrived[edge.out])
                    waiting.setdefault(edge.given, []).extend(back)
        arrived = [t for b in self._begins for t in waiting.get(subgraph.key_of(b), [])]
        return self._total(arrived, merge=not last)

    def _swept_on(self, stack: Stack) -> Stack:
        known: dict[tuple, Stack] = {subgraph.key_of(b): stack for b in self._begins}
        for node in self._nodes:
            parts: dict[tuple, list[Term]] = {}
            for edge in node.edges:
                if known.get(edge.given):
                    on = self._on(edge.steps, known[edge.given])
                    parts.setdefault(edge.out, []).extend(on)
            for out, part in parts.items():
                known[out] = self._total(part, merge=True)
        return known.get(subgraph.key_of(self._end), ())

    def _back(self, steps: maps.Steps, stack: Stack) -> Stack:
        for step in steps:
            if isinstance(step, Native):
                stack = tuple(natives.pulled(step, term, self._dtype) for term in stack)
            else:
                stack = product(stack, step, self._dtype)
        return stack

    def _on(self, steps: maps.Steps, stack: Stack) -> Stack:
        for step in reversed(steps):
            if isinstance(step, Native):
                stack = tuple(natives.pushed(step, term, self._dtype) for term in stack)
            else:
                stack = product(step, stack, self._dtype)
        return stack


@dataclasses.dataclass(frozen=True)
class _Edge:
    """How a tensor depends on another: keys of both, and the local Jacobian."""

    given: tuple
    out: tuple
    steps: maps.Steps


@dataclasses.dataclass(frozen=True)
class _Node:
    """An op, or several taken for one: the keys of its outputs, and what they depend on."""

    outputs: tuple[tuple, ...]
    edges: tuple[_Edge, ...]


def _nodes(ops: Sequence[tf.Operation], begins: Sequence[tf.Tensor], dtype) -> list[_Node] | None:
    """Returns ops with their local Jacobians; None where one is not known."""
    reached = {subgraph.key_of(t) for t in begins}
    nodes = []
    for op in ops:
        edges = []
        for o, output in enumerate(op.outputs):
            for i, given in enumerate(op.inputs):
                if subgraph.key_of(given) in reached and subgraph.carries_derivative(output):
                    steps = _steps_of(op, i, o, dtype)
                    if steps is None:
                        return None
                    keys = subgraph.key_of(given), subgraph.key_of(output)
                    edges += [_Edge(*keys, steps)] if steps else []
        nodes.append(_Node(tuple(subgraph.key_of(t) for t in op.outputs), tuple(edges)))
        reached.update(subgraph.key_of(output) for output in op.outputs)
    return nodes


def _fused(ops: Sequence[tf.Operation], nodes: list[_Node], begins, dtype) -> list[_Node]:
    """Returns nodes with those taken for one that lie between two tensors by themselves.

    A normalization or an activation of several ops is a diagonal and outer products, which is less
    to multiply by than each of its ops.
    """
    readers: dict[tuple, set[int]] = {}
    for k, node in enumerate(nodes):
        for edge in node.edges:
            readers.setdefault(edge.given, set()).add(k)
    gone: dict[int, _Node | None] = {}
    for k in reversed(range(len(ops) - 1)):
        if k in gone or len(ops[k].outputs) != 1:
            continue
        end = ops[k].outputs[0]
        region = _region(ops, nodes, begins, k)
        if region is None:
            continue
        begin, inside = region
        closed = all(
            readers.get(out, set()) <= inside for j in inside - {k} for out in nodes[j].outputs
        )
        if not closed or len(inside) < 2 or not inside.isdisjoint(gone):
            continue
        piece = _Piece([begin], end, dtype, [nodes[j] for j in sorted(inside)])
        steps = (piece.alone,) if piece.alone else ()
        edge = _Edge(subgraph.key_of(begin), subgraph.key_of(end), steps)
        gone |= dict.fromkeys(inside)
        gone[k] = _Node(nodes[k].outputs, (edge,) if steps else ())
    found = [gone.get(k, node) for k, node in enumerate(nodes)]
    return [node for node in found if node is not None]


def _region(ops, nodes: list[_Node], begins, k: int) -> tuple[tf.Tensor, set[int]] | None:
    """Returns the last tensor that all ways to op `k` lead through, and the ops after it.

    None where one of them mixes as a product of matrices does, or where there is none.
    """
    end = ops[k].outputs[0]
    inner = subgraph.ops_between(end, begins)
    chain = [*begins, *(t for t in subgraph.chain(inner, begins, end) if t is not end)]
    if len(chain) == len(begins) > 1:
        return None
    inside = {ops.index(op) for op in subgraph.ops_between(end, [chain[-1]])}
    if any(ops[j].type in _FACTORS for j in inside):
        return None
    return chain[-1], inside


def _steps_of(op: tf.Operation, i: int, o: int, dtype: tf.DType) -> maps.Steps | None:
    key = ("steps", op, i, o, dtype)
    return memo.memoized(key, lambda: maps.steps_of(op, i, o, dtype))
