"""What a `tf.GradientTape` needs to differentiate through a result that `tf.gradients` built.

To differentiate a called function, a loop or a branch, `tf.gradients` adds outputs to its op. A
tape that recorded the op before does not know these outputs and drops, without a word, what flows
through them (TensorFlow 2.21: a loss on such a Jacobian gets a gradient that is too small).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import tensorflow as tf

from tfjac import tf_internals
from tfjac.graph import subgraph

T = TypeVar("T", bound=Sequence)


def recorded(
    build: Callable[[], T],
    y: tf.Tensor,
    ops: Sequence[tf.Operation],
    vectors: Sequence[tf.Tensor] = (),
) -> T:
    """Returns `build()`, recorded on the active tapes as one operation where that is needed.

    Args:
      build: adds ops that differentiate `y` and returns tensors or None.
      y: the target.
      ops: the ops between the sources and y.
      vectors: tensors that the result depends on besides those behind y.

    The operation's inputs are the tensors behind y, except the outputs of ops with a body between
    source and target: by these alone a tape will not find a derivative of the result.
    """
    changed = {op.name for op in ops if op.type in subgraph.WITH_BODY}
    if not changed or not tf_internals.is_recording():
        return build()
    inputs = [*vectors, *(t for t in subgraph.tensors_behind(y) if t.op.name not in changed)]
    with tf_internals.stop_recording():
        results = build()
    outputs = [result for result in results if result is not None]

    def backward(*cotangents):
        # Every input counts as independent: the tape itself goes on from there.
        return tf.gradients(outputs, inputs, grad_ys=list(cotangents), stop_gradients=inputs)

    if outputs:
        tf_internals.record_operation(
            "Jacobian", outputs, [_as_watched(t) for t in inputs], backward
        )
    return results


def _as_watched(tensor: tf.Tensor) -> tf.Tensor:
    """Returns `tensor`, or the eager handle where it stands for a variable: tapes watch that."""
    if tensor.dtype != tf.resource:
        return tensor
    return tf_internals.captures(tensor.graph).get(tensor.name, tensor)
