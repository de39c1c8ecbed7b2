"""The ops of called functions, loops and branches that lie between a source and a target.

Reads the graph; adds nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

import tensorflow as tf

from tfjac import tf_internals
from tfjac.graph import stops, subgraph

# Stateful ops that may be run again: they only read.
_READ_ONLY = frozenset({"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VarHandleOp"})


class Reached:
    """The tensors that depend on the source, derivatives passing through them."""

    def __init__(self, tensors: Iterable[tf.Tensor]) -> None:
        self._keys = {subgraph.key_of(t) for t in tensors}
        self._outer = subgraph.OuterTensors()

    @classmethod
    def after(cls, tensors: Iterable[tf.Tensor], ops: Iterable[tf.Operation]) -> Reached:
        """Returns those that depend on some tensors through ops, in topological order."""
        found = cls(tensors)
        for op in ops:
            found.through(op)
        return found

    def __contains__(self, tensor: tf.Tensor) -> bool:
        """Returns whether a tensor, or the outer one that it stands for, is among them."""
        if not subgraph.carries_derivative(tensor):
            return False
        return self._outer.find(tensor, self._keys) in self._keys

    def given(self, op: tf.Operation) -> list[bool]:
        """Returns which inputs of an op are among them."""
        return [t in self for t in op.inputs]

    def through(self, op: tf.Operation) -> None:
        """Adds the outputs of an op that has one of them as an input."""
        if not stops.stops(op) and any(self.given(op)):
            self._keys |= {subgraph.key_of(t) for t in op.outputs}


@dataclasses.dataclass(frozen=True, eq=False)
class Inner:
    """What lies between in one body.

    Args:
      graph: of the body.
      ops: those on a way from an input that depends on the source to an output.
      reached: the tensors of the body that depend on the source.
    """

    graph: tf.Graph
    ops: tuple[tf.Operation, ...]
    reached: Reached


def inner(op: tf.Operation, given: Sequence[bool]) -> list[Inner]:
    """Returns what lies between in each body that an op calls, not in those called by these.

    Args:
      op: any op; one that calls nothing, or whose bodies are not to be had, gives none.
      given: which of its inputs depend on the source.
    """
    found = subgraph.bodies(op)
    if found is None:
        return []
    reached = list(given)[found.skip :]
    graphs = [g for g in found.graphs if g is not None and len(g.inputs) == len(reached)]
    while True:
        read = [_read(graph, reached) for graph in graphs]
        if not found.repeats:
            return read
        # What a turn of a loop gives is given to the next one.
        after = [
            was or any(each.graph.outputs[k] in each.reached for each in read)
            for k, was in enumerate(reached)
        ]
        if after == reached:
            return read
        reached = after


def walk(
    ops: Iterable[tf.Operation], reached: Reached
) -> Iterator[tuple[tf.Operation, list[bool]]]:
    """Yields ops and those of their bodies, at any depth, with which inputs depend on the source.

    Args:
      ops: the ops between.
      reached: the tensors that depend on the source.
    """
    for op in ops:
        given = reached.given(op)
        yield op, given
        for each in inner(op, given):
            yield from walk(each.ops, each.reached)


def needed(graph: tf.Graph) -> list[tf.Operation]:
    """Returns the ops of a body that its outputs need, in topological order.

    Not as they were made: a loop that is differentiated is given inputs that were made after it.
    """
    return before(graph.outputs)


def before(tensors: Sequence[tf.Tensor]) -> list[tf.Operation]:
    """Returns the ops of a graph that some of its tensors need, in topological order."""
    found: dict[str, tf.Operation] = {}
    waiting = [t.op for t in reversed(tensors)]
    while waiting:
        op = waiting[-1]
        before = [t.op for t in op.inputs if t.op.name not in found]
        if op.name in found or not before:
            found[op.name] = waiting.pop()
        else:
            waiting += before
    return list(found.values())


def runs_once(op: tf.Operation) -> bool:
    """Returns whether an op may not run again, lest it draws or writes something else."""
    if op.type not in subgraph.WITH_BODY:
        return tf_internals.is_stateful(op.type) and op.type not in _READ_ONLY
    found = subgraph.bodies(op)
    if None in found.graphs or any(_is_written(t) for t in op.inputs if t.dtype == tf.resource):
        return True
    return any(runs_once(part) for graph in found.graphs for part in needed(graph))


def _is_written(handle: tf.Tensor) -> bool:
    """Returns whether an op of its graph may write to the variable that a handle stands for."""
    return any(_writes(reader) for reader in handle.consumers())


def _writes(op: tf.Operation) -> bool:
    types = [op.type]
    if op.type in subgraph.WITH_BODY:
        types = [node.op for node in tf_internals.nodes_within(op)]
    return any(t not in _READ_ONLY and t.startswith(("Assign", "Resource")) for t in types)


def runs_in_gradient(op: tf.Operation) -> str:
    """Returns the type of an op that a gradient written by hand runs anew, "" where there is none.

    As where `tf.recompute_grad` draws the mask of a dropout again.
    """
    for part in subgraph.gradient_by_hand(op).ops if subgraph.is_by_hand(op) else ():
        if runs_once(part):
            return part.type
    return ""


def _read(graph: tf.Graph, given: Sequence[bool]) -> Inner:
    begins = [t for t, is_given in zip(graph.inputs, given) if is_given]
    reached = Reached.after(begins, graph.get_operations())
    between = [
        op
        for op in needed(graph)
        if any(reached.given(op)) and any(t in reached for t in op.outputs)
    ]
    return Inner(graph, tuple(between), reached)
