"""What a `tf.GradientTape` needs to differentiate through a result that `tf.gradients` built.

To differentiate a called function, a loop or a branch, `tf.gradients` adds outputs to its op. A
tape that recorded the op before does not know these outputs: it drops, without a word, what flows
through them, and cannot go back through a branch at all (TensorFlow 2.21).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import tensorflow as tf

from tfjac import graph_memo, tf_internals
from tfjac.graph import subgraph

T = TypeVar("T", bound=Sequence)

# Op types whose gradient, as a tape calls it, asserts that the op has the outputs it had before.
_BRANCHES = frozenset({"Case", "If", "StatelessCase", "StatelessIf"})


def recorded(
    build: Callable[[], T],
    y: tf.Tensor,
    ops: Sequence[tf.Operation],
    vectors: Sequence[tf.Tensor] = (),
) -> T:
    """Returns `build()`, recorded on the active tapes as one operation where that is needed.

    Args:
      build: adds ops that differentiate `y` and returns a structure of tensors, composite tensors
        and None.
      y: the target.
      ops: the ops between the sources and y.
      vectors: tensors that the result depends on besides those behind y.

    The operation's inputs are the tensors behind y, except the outputs of ops with a body between
    source and target, and what an earlier such operation made within: by these alone a tape will
    not find a derivative of the result.
    """
    changed = [op for op in ops if op.type in subgraph.WITH_BODY]
    unseen = any(_unseen(op.graph) & _keys(op.outputs) for op in ops)
    if not (changed or unseen) or not tf_internals.is_recording():
        return build()
    behind = subgraph.tensors_behind(y)
    left_out = _keys(t for op in changed for t in op.outputs)
    inputs = [
        *vectors,
        *(t for t in behind if subgraph.key_of(t) not in left_out | _unseen(t.graph)),
    ]
    branches = [(list(op.outputs), list(op.inputs)) for op in changed if op.type in _BRANCHES]
    results = _as_one(build, inputs, _keys([*behind, *vectors]))
    for outputs, needed in branches:
        _record(outputs, needed)
    return results


def _as_one(build: Callable[[], T], inputs: Sequence[tf.Tensor], known: set) -> T:
    """Returns `build()`, recorded as one operation; `known` are tensors that were there before."""
    with tf_internals.stop_recording():
        results = build()
        flat = tf.nest.flatten(results, expand_composites=True)
        # An operation that gives what it was given would hide where that came from.
        flat = [
            tf.identity(t) if t is not None and subgraph.key_of(t) in known else t for t in flat
        ]
    outputs = [t for t in flat if t is not None and subgraph.carries_derivative(t)]
    _remember_unseen(outputs, known)
    if outputs:
        _record(outputs, inputs)
    return tf.nest.pack_sequence_as(results, flat, expand_composites=True)


def _record(outputs: Sequence[tf.Tensor], inputs: Sequence[tf.Tensor]) -> None:
    """Records that `outputs` are computed from `inputs`, differentiated by `tf.gradients`."""

    def backward(*cotangents: tf.Tensor | None) -> list[tf.Tensor | None]:
        # None is a cotangent of zeros to a tape, and one of ones to tf.gradients.
        ys, us = zip(*[(y, u) for y, u in zip(outputs, cotangents) if u is not None])

        def pulled() -> list[Any]:
            # Every input counts as independent: the tape itself goes on from there.
            return tf.gradients(ys, inputs, grad_ys=us, stop_gradients=list(inputs))

        if not tf_internals.is_recording():
            return pulled()
        given = [*us, *inputs]
        return _as_one(lambda: [_dense(g) for g in pulled()], given, _keys(given))

    tf_internals.record_operation("Jacobian", outputs, [_as_watched(t) for t in inputs], backward)


def _dense(gradient: Any) -> tf.Tensor | None:
    return None if gradient is None else tf.convert_to_tensor(gradient)


def _keys(tensors) -> set[tuple[int, str]]:
    return {subgraph.key_of(t) for t in tensors}


def _unseen(graph: tf.Graph) -> set[tuple[int, str]]:
    """Returns the keys of the tensors of a graph that no tape has seen being made."""
    return graph_memo.kept_on(graph, "unseen by tapes", set)


def _remember_unseen(outputs: Sequence[tf.Tensor], known: set) -> None:
    """Remembers what is between the tensors known before and the outputs of an operation."""
    for y in outputs:
        for tensor in subgraph.tensors_behind(y, known):
            if subgraph.key_of(tensor) not in known:
                _unseen(tensor.graph).add(subgraph.key_of(tensor))
    for y in outputs:
        _unseen(y.graph).discard(subgraph.key_of(y))


def _as_watched(tensor: tf.Tensor) -> tf.Tensor:
    """Returns `tensor`, or the eager handle where it stands for a variable: tapes watch that."""
    if tensor.dtype != tf.resource:
        return tensor
    return tf_internals.captures(tensor.graph).get(tensor.name, tensor)
