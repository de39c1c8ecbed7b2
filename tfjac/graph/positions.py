"""Where the entries of an op's output come from, by running the op on position numbers."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tfjac import tf_internals
from tfjac.graph import subgraph
from tfjac.rules import Kind, Local

# Position numbers are kept in the op's own dtype, which has to hold them exactly.
_LARGEST = {tf.float64: 2**53, tf.float32: 2**24, tf.float16: 2**11, tf.bfloat16: 2**8}


def sources_of(op: tf.Operation, i: int, o: int, found: Local) -> np.ndarray | None:
    """Returns, for each entry of output `o` flattened, the entry of input `i` that it comes from.

    -1 where it comes from elsewhere. None where it comes from several, or where the graph does not
    tell: sizes unknown, or places given by tensors that are no constants.

    Args:
      op: the op.
      i: an input.
      o: an output.
      found: what the rule says of them.
    """
    out, given = op.outputs[o].shape, op.inputs[i].shape
    if not (out.is_fully_defined() and given.is_fully_defined()):
        return None
    if found.kind in (Kind.IDENTITY, Kind.DIAGONAL):
        return _broadcast(out.as_list(), given.as_list(), found)
    if found.kind is Kind.SELECTION:
        return _moved(op, i, o)
    return None


def _broadcast(out: list[int], given: list[int], found: Local) -> np.ndarray:
    """Returns positions along linked axes; the others of the input have size one."""
    shape = [1] * len(out)
    for b, a in found.links:
        shape[b] = given[a]
    positions = np.arange(int(np.prod(given))).reshape(shape)
    return np.broadcast_to(positions, out).reshape(-1)


def _moved(op: tf.Operation, i: int, o: int) -> np.ndarray | None:
    dtype, size = op.inputs[i].dtype.base_dtype, op.inputs[i].shape.num_elements()
    if size + 1 > _LARGEST.get(dtype, 0):
        return None
    others = []
    for j, tensor in enumerate(op.inputs):
        if j == i:
            others.append(None)
        elif subgraph.carries_derivative(tensor):
            if not tensor.shape.is_fully_defined():
                return None
            others.append(np.zeros(tensor.shape.as_list(), tensor.dtype.as_numpy_dtype))
        else:
            value = tf.get_static_value(tensor)
            if value is None:
                return None
            others.append(value)
    # From one, so that zero stands for an entry from elsewhere.
    numbers = np.arange(1, size + 1).reshape(op.inputs[i].shape.as_list())
    others[i] = numbers.astype(dtype.as_numpy_dtype)
    with tf.Graph().as_default() as graph:
        moved = tf_internals.same_op(
            op, [tf.constant(v, t.dtype) for v, t in zip(others, op.inputs)]
        )
        with tf.compat.v1.Session(graph=graph) as session:
            return session.run(moved[o]).astype(np.int64).reshape(-1) - 1
