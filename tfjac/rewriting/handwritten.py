"""Gradients written by hand (`tf.custom_gradient`) as ops that can be copied elsewhere.

The function that was written reads tensors of the graph that it was written in. Here it is called
once, on placeholders, to be copied with that graph. Adds no op to it.
"""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from tfjac import graph_memo, tf_internals
from tfjac.graph import bodies, subgraph


@dataclasses.dataclass(frozen=True, eq=False)
class Gradient:
    """The gradient of an op.

    Args:
      cotangents: of its outputs, placeholders.
      results: of its inputs; None for those that nothing is passed back to.
      ops: from the cotangents to the results, in topological order.
      reads: the ops of the graph that those need besides, likewise.
    """

    cotangents: tuple[tf.Tensor, ...]
    results: tuple[tf.Tensor | None, ...]
    ops: tuple[tf.Operation, ...]
    reads: tuple[tf.Operation, ...]


def gradient_of(op: tf.Operation) -> Gradient | None:
    """Returns the gradient of an op; None where it is not to be had, or cannot be copied."""
    return graph_memo.kept_on(op.graph, ("handwritten", op.name), lambda: _read(op))


def _stays(op: tf.Operation) -> bool:
    """Returns whether an op may not be copied with a gradient: it calls a function, or draws."""
    return op.type in subgraph.WITH_BODY or bodies.runs_once(op)


def _read(op: tf.Operation) -> Gradient | None:
    if any(not t.dtype.is_floating for t in op.inputs):
        return None
    graph = tf_internals.scratch_graph(op.graph)
    with graph.as_default():
        cotangents = [tf.compat.v1.placeholder(t.dtype, t.shape) for t in op.outputs]
        try:
            found = tf_internals.gradient_of(op, cotangents)
        except (NotImplementedError, TypeError, ValueError, LookupError):
            return None  # written for other uses
        results = [None if g is None else tf.convert_to_tensor(g) for g in found]
    graph.outputs = [g for g in results if g is not None]
    captured = list(tf_internals.captures(graph).values())
    if not all(tf.is_symbolic_tensor(t) and t.graph is op.graph for t in captured):
        return None
    ops, reads = bodies.needed(graph), bodies.before(captured)
    if any(map(subgraph.is_by_hand, ops)) or any(map(_stays, [*ops, *reads])):
        return None
    return Gradient(tuple(cotangents), tuple(results), tuple(ops), tuple(reads))
