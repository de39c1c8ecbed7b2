"""The ops between two tensors, of each of which the local Jacobian is known."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence

import tensorflow as tf

from tfjac.accumulation import factors as factors_
from tfjac.accumulation import maps, memo, natives, sums, terms
from tfjac.accumulation.natives import Native
from tfjac.accumulation.terms import Stack, Term
from tfjac.graph import paths, subgraph

# Ops of a piece up to which it is looked through for some to be taken for one.
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
    return factors_.total((f for term in stack for f in term.factors), made).seconds


def identity(tensor: tf.Tensor) -> Stack:
    """Returns the identity of a tensor, the same each time, so that work on it is shared."""
    return memo.memoized(("identity", tensor.ref()), lambda: terms.identity(tensor))


class Piece:
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

    def pulled(self, stack: Stack, *, last: bool) -> Stack:
        """Carries a stack from the end back to the beginning, and leaves the `last` sum apart."""

        def ways(given: Stack) -> Iterator[Stack]:
            yield self._swept_back(given, last=last)
            if self._alone is not None:
                yield self._total(_products(given, self._alone, self._dtype), merge=not last)

        return self._cheapest(stack, ways)

    def pushed(self, stack: Stack) -> Stack:
        """Carries a stack from the beginning on to the end."""

        def ways(given: Stack) -> Iterator[Stack]:
            yield self._swept_on(given)
            if self._alone is not None:
                yield self._total(_products(self._alone, given, self._dtype), merge=True)

        return self._cheapest(stack, ways)

    def _cheapest(self, stack: Stack, ways: Callable[[Stack], Iterator[Stack]]) -> Stack:
        found = [made for given in self._forms(stack) for made in ways(given)]
        if len(found) == 1:
            return found[0]
        there = [f for term in stack for f in term.factors]
        return min(found, key=lambda made: cost_of(made, there))

    def _forms(self, stack: Stack) -> list[Stack]:
        """Returns a stack as it is, and with its outer products written out where it has some."""
        added = sums.added(stack, self._dtype) if len(self._nodes) > 1 else stack
        return [stack] if len(added) == len(stack) else [stack, added]

    def _total(self, found: Sequence[Term], *, merge: bool) -> Stack:
        return sums.total(found, self._dtype, merge=merge)

    @functools.cached_property
    def alone(self) -> Stack:
        """The Jacobian of the piece by itself."""
        return self._swept_back(identity(self._end), last=True)

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
class Node:
    """An op, or several taken for one: the keys of its outputs, and what they depend on."""

    outputs: tuple[tuple, ...]
    edges: tuple[_Edge, ...]


def nodes_of(
    ops: Sequence[tf.Operation], begins: Sequence[tf.Tensor], dtype: tf.DType
) -> list[Node] | None:
    """Returns ops with their local Jacobians; None where one is not known.

    Args:
      ops: those between the tensors `begins` and another, in topological order.
      begins: where paths begin.
      dtype: in which to compute.
    """
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
        nodes.append(Node(tuple(subgraph.key_of(t) for t in op.outputs), tuple(edges)))
        reached.update(subgraph.key_of(output) for output in op.outputs)
    return nodes if len(ops) > _MOST_FUSED else _fused(ops, nodes, begins, dtype)


def _fused(ops: Sequence[tf.Operation], nodes: list[Node], begins, dtype) -> list[Node]:
    """Returns nodes with those taken for one that lie between two tensors by themselves.

    A normalization or an activation of several ops is a diagonal and outer products, which is less
    to multiply by than each of its ops.
    """
    regions = _Regions(ops, begins)
    readers: dict[tuple, set[int]] = {}
    for k, node in enumerate(nodes):
        for edge in node.edges:
            readers.setdefault(edge.given, set()).add(k)
    gone: dict[int, Node | None] = {}
    for k in reversed(range(len(ops) - 1)):
        if k in gone or len(ops[k].outputs) != 1:
            continue
        region = regions.before(k)
        if region is None:
            continue
        begin, inside = region
        closed = all(
            readers.get(out, set()) <= inside for j in inside - {k} for out in nodes[j].outputs
        )
        if not closed or len(inside) < 2 or not inside.isdisjoint(gone):
            continue
        end = ops[k].outputs[0]
        piece = Piece([begin], end, dtype, [nodes[j] for j in sorted(inside)])
        steps = (piece.alone,) if piece.alone else ()
        edge = _Edge(subgraph.key_of(begin), subgraph.key_of(end), steps)
        gone |= dict.fromkeys(inside)
        gone[k] = Node(nodes[k].outputs, (edge,) if steps else ())
    found = [gone.get(k, node) for k, node in enumerate(nodes)]
    return [node for node in found if node is not None]


class _Regions:
    """For each op of a piece the last tensor before it through which all paths to it lead."""

    def __init__(self, ops: Sequence[tf.Operation], begins: Sequence[tf.Tensor]) -> None:
        self._ops = ops
        self._number = {subgraph.key_of(t): k for k, op in enumerate(ops) for t in op.outputs}
        # A tensor, and the one before it, if there is one: dominators, as a tree.
        root = None if len(begins) > 1 else paths.Node(begins[0], None, 0)
        self._before: dict[tuple, paths.Node | None] = {subgraph.key_of(t): root for t in begins}
        self._last: list[paths.Node | None] = []
        for op in ops:
            keys = (subgraph.key_of(t) for t in op.inputs if subgraph.carries_derivative(t))
            last = paths.common([self._before[key] for key in keys if key in self._before])
            self._last.append(last)
            depth = 0 if last is None else last.depth + 1
            self._before |= {subgraph.key_of(t): paths.Node(t, last, depth) for t in op.outputs}

    def before(self, k: int) -> tuple[tf.Tensor, set[int]] | None:
        """Returns that tensor and the ops from it to op `k`.

        None where one of them mixes as a product of matrices does, or where there is none.
        """
        last = self._last[k]
        if last is None:
            return None
        begin, inside, waiting = subgraph.key_of(last.tensor), {k}, [k]
        while waiting:
            op = self._ops[waiting.pop()]
            if op.type in _FACTORS:
                return None
            keys = {subgraph.key_of(t) for t in op.inputs} - {begin}
            more = {self._number[key] for key in keys if key in self._number} - inside
            inside |= more
            waiting.extend(more)
        return last.tensor, inside


def _steps_of(op: tf.Operation, i: int, o: int, dtype: tf.DType) -> maps.Steps | None:
    key = ("steps", op, i, o, dtype)
    return memo.memoized(key, lambda: maps.steps_of(op, i, o, dtype))
