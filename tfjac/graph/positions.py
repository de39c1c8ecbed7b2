"""Where the entries of an op's output come from, by running the op on position numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from tfjac import graph_memo, tf_internals
from tfjac.graph import subgraph
from tfjac.rules import Kind, Local

# Position numbers are kept in the op's own dtype, which has to hold them exactly.
_LARGEST = {tf.float64: 2**53, tf.float32: 2**24, tf.float16: 2**11, tf.bfloat16: 2**8}

# Leave the order of entries as it is.
_IN_ORDER = frozenset({"ExpandDims", "Reshape", "Squeeze"})

# Entries of a movement that is kept on its graph for others that do the same.
_MOST_KEPT = 1 << 18


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
            others.append(np.asarray(value))
    shape = op.inputs[i].shape.as_list()
    if op.type in _IN_ORDER:
        return np.arange(size)
    if op.type == "Transpose":
        return np.transpose(np.arange(size).reshape(shape), others[1]).reshape(-1)
    return _known(op, i, o, others, lambda: _run(op, i, o, others))


def _known(
    op: tf.Operation, i: int, o: int, others: list, find: Callable[[], np.ndarray]
) -> np.ndarray:
    """Returns what `find()` gave for the first op of the graph that does the same."""
    attributes = sorted(
        (n, v.SerializeToString(deterministic=True))
        for n, v in op.node_def.attr.items()
        if not n.startswith("_")
    )
    given = [
        tuple(t.shape) if subgraph.carries_derivative(t) else (value.shape, _contents(value))
        for t, value in zip(op.inputs, others)
    ]
    known = graph_memo.kept_on(op.graph, "positions", dict)
    key = (op.type, i, o, tuple(attributes), tuple(given))
    if key in known:
        return known[key]
    found = find()
    found.flags.writeable = False
    if found.size <= _MOST_KEPT:
        known[key] = found
    return found


def _contents(value: np.ndarray) -> bytes | str:
    return repr(value.tolist()) if value.dtype == object else value.tobytes()


def _run(op: tf.Operation, i: int, o: int, others: list) -> np.ndarray:
    shape, size = op.inputs[i].shape.as_list(), op.inputs[i].shape.num_elements()
    # From one, so that zero stands for an entry from elsewhere.
    numbers = np.arange(1, size + 1).reshape(shape).astype(op.inputs[i].dtype.as_numpy_dtype)
    values = [numbers if j == i else value for j, value in enumerate(others)]
    with tf.Graph().as_default() as graph:
        moved = tf_internals.same_op(
            op, [tf.constant(v, t.dtype) for v, t in zip(values, op.inputs)]
        )
        with tf.compat.v1.Session(graph=graph) as session:
            return session.run(moved[o]).astype(np.int64).reshape(-1) - 1
