"""What handles hold (variables, lists of tensors), told again to loops that were loaded.

TensorFlow notes it while a loop is traced, and differentiates by the note: a second gradient of a
loop, and one under a vectorized map, fail without it. A SavedModel keeps the notes of the arguments
of functions alone. Adds no ops.
"""

from __future__ import annotations

from collections.abc import Iterable

import tensorflow as tf

from tfjac import graph_memo, tf_internals
from tfjac.graph import subgraph

_HANDLES = (tf.resource, tf.variant)
# Ops whose first output holds what their first input does.
_PASSING_ON = frozenset(
    {
        "Identity",
        "TensorListPopBack",
        "TensorListPushBack",
        "TensorListResize",
        "TensorListScatterIntoExistingList",
        "TensorListSetItem",
    }
)


def restore(ops: Iterable[tf.Operation]) -> None:
    """Notes what the handles in the bodies of ops hold, as tracing them would have.

    Where a note is there already, or two branches differ, nothing changes.

    Args:
      ops: any; in those that call nothing there is nothing to be done.
    """
    for op in ops:
        if op.type in subgraph.WITH_BODY:
            graph_memo.kept_on(op.graph, ("handles", op.name), lambda op=op: _enter(op))


def _enter(op: tf.Operation) -> None:
    found = subgraph.bodies(op)
    graphs = [graph for graph in found.graphs if graph is not None]
    condition = [tf_internals.body_of(op, "cond")] if found.repeats else []
    for graph in [*graphs, *(g for g in condition if g is not None)]:
        # A function may be called from elsewhere with other handles, a loop's body may not.
        if op.type not in subgraph.CALLS:
            _pass_on(op.inputs[found.skip :], graph.inputs)
        _through(graph)
    if graphs and len(graphs) == len(found.graphs):
        _return([graph.outputs for graph in graphs], op.outputs)
    if found.repeats:
        _prepare_gradient(op, op)


def _prepare_gradient(loop: tf.Operation, known: tf.Operation) -> None:
    """Makes the graphs of a loop that TensorFlow differentiates, with shapes and notes.

    TensorFlow makes them without, and from then on the body of the loop has neither.

    Args:
      loop: the loop.
      known: the same, or what it was made from, whose bodies have them.
    """
    for attribute in ("body", "cond"):
        graph = tf_internals.body_of(known, attribute)
        made = graph and tf_internals.body_to_differentiate(loop, attribute)
        for op in graph.get_operations() if made else ():
            copy = made.get_operation_by_name(op.name)
            _pass_on(op.outputs, copy.outputs)
            for tensor, other in zip(op.outputs, copy.outputs):
                other.set_shape(tensor.shape)
            if op.type in ("StatelessWhile", "While"):
                _prepare_gradient(copy, op)


def _through(graph: tf.Graph) -> None:
    for op in graph.get_operations():
        if op.type in _PASSING_ON:
            _pass_on(op.inputs[:1], op.outputs[:1])
        restore([op])


def _return(by_body: list[list[tf.Tensor]], outputs: list[tf.Tensor]) -> None:
    for held, output in zip(zip(*by_body), outputs):
        if output.dtype in _HANDLES and len({tf_internals.held_by(t) for t in held}) == 1:
            _pass_on(held[:1], [output])


def _pass_on(held: Iterable[tf.Tensor], handles: Iterable[tf.Tensor]) -> None:
    for source, handle in zip(held, handles):
        if handle.dtype in _HANDLES and not tf_internals.held_by(handle):
            tf_internals.note_held(handle, source)
