"""Where the entries of an op's output come from, by running the op on position numbers."""

from __future__ import annotations

import math

import numpy as np
import tensorflow as tf

from tfjac import graph_memo, rules, tf_internals
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
        shapes = [t.shape.as_list() if t.shape.rank is not None else None for t in op.inputs]
        moved = _moved(op, i, o, shapes)
        return None if moved is None else moved.reshape(-1)
    return None


def sources_of_two(
    op: tf.Operation, i: int, o: int, found: Local
) -> tuple[np.ndarray, list[int]] | None:
    """Returns what `sources_of` does, in the shape of the output, and the shape of the input.

    Axes of unknown size along which the op does the same at each position have two of them.

    Args:
      op: a movement.
      i: an input.
      o: an output.
      found: what the rule says of them.
    """
    shapes = []
    for j, tensor in enumerate(op.inputs):
        links = found.links if j == i else _links(op, j, o)
        shapes.append(_with_two(tensor.shape, {a for _, a in links}))
    out = _with_two(op.outputs[o].shape, {b for b, _ in found.links})
    if out is None or shapes[i] is None:
        return None
    moved = _moved(op, i, o, shapes)
    if moved is None or list(moved.shape) != out:
        return None
    return moved, shapes[i]


def _links(op: tf.Operation, j: int, o: int) -> tuple[tuple[int, int], ...]:
    if not subgraph.carries_derivative(op.inputs[j]):
        return ()
    return rules.rule_of(op).local(op, j, o).links


def _with_two(shape: tf.TensorShape, linked: set[int]) -> list[int] | None:
    """Returns a shape with two for unknown sizes of those axes; None where others are unknown."""
    if shape.rank is None:
        return None
    sizes = [2 if n is None and k in linked else n for k, n in enumerate(shape.as_list())]
    return None if None in sizes else sizes


def _broadcast(out: list[int], given: list[int], found: Local) -> np.ndarray:
    """Returns positions along linked axes; the others of the input have size one."""
    shape = [1] * len(out)
    for b, a in found.links:
        shape[b] = given[a]
    positions = np.arange(int(np.prod(given))).reshape(shape)
    return np.broadcast_to(positions, out).reshape(-1)


def _moved(op: tf.Operation, i: int, o: int, shapes: list) -> np.ndarray | None:
    """Returns from where entries come, in the shape of the output, for inputs of given shapes."""
    dtype, size = op.inputs[i].dtype.base_dtype, math.prod(shapes[i])
    if size + 1 > _LARGEST.get(dtype, 0):
        return None
    others = []
    for j, tensor in enumerate(op.inputs):
        if j == i:
            others.append(None)
        elif subgraph.carries_derivative(tensor):
            if shapes[j] is None or None in shapes[j]:
                return None
            others.append(np.zeros(shapes[j], tensor.dtype.as_numpy_dtype))
        else:
            value = tf.get_static_value(tensor)
            if value is None:
                return None
            others.append(np.asarray(value))
    in_order = np.arange(size).reshape(shapes[i])
    if op.type in _IN_ORDER:
        out = [2 if n is None else n for n in op.outputs[o].shape]
        return in_order.reshape(out) if math.prod(out) == size else None
    if op.type == "Transpose":
        return np.transpose(in_order, others[1])
    return _known(op, i, o, shapes, others)


def _known(op: tf.Operation, i: int, o: int, shapes: list, others: list) -> np.ndarray | None:
    """Returns what was found for the first op of the graph that does the same."""
    attributes = sorted(
        (n, v.SerializeToString(deterministic=True))
        for n, v in op.node_def.attr.items()
        if not n.startswith("_")
    )
    given = [
        tuple(shape) if subgraph.carries_derivative(t) else (value.shape, _contents(value))
        for t, shape, value in zip(op.inputs, shapes, others)
    ]
    known = graph_memo.kept_on(op.graph, "positions", dict)
    key = (op.type, i, o, tuple(attributes), tuple(given))
    if key in known:
        return known[key]
    found = _run(op, i, o, shapes, others)
    if found is not None:
        found.flags.writeable = False
    if found is None or found.size <= _MOST_KEPT:
        known[key] = found
    return found


def _contents(value: np.ndarray) -> bytes | str:
    return repr(value.tolist()) if value.dtype == object else value.tobytes()


def _run(op: tf.Operation, i: int, o: int, shapes: list, others: list) -> np.ndarray | None:
    """Runs the op on position numbers; None where it does not take those shapes."""
    # From one, so that zero stands for an entry from elsewhere.
    numbers = np.arange(1, math.prod(shapes[i]) + 1).reshape(shapes[i])
    numbers = numbers.astype(op.inputs[i].dtype.as_numpy_dtype)
    values = [numbers if j == i else value for j, value in enumerate(others)]
    with tf.Graph().as_default() as graph:
        try:
            moved = tf_internals.same_op(
                op, [tf.constant(v, t.dtype) for v, t in zip(values, op.inputs)]
            )
            with tf.compat.v1.Session(graph=graph) as session:
                return np.asarray(session.run(moved[o]).astype(np.int64) - 1)
        except (tf.errors.InvalidArgumentError, ValueError):
            return None
