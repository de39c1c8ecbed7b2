"""Which axis of which tensor a whole number in the graph is the size of, where its value is unknown."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from tfjac.rules import known


@dataclasses.dataclass(frozen=True)
class AxisSize:
    """The size of an axis of a tensor, unknown while the graph is built.

    Args:
      key: what identifies the tensor.
      axis: from 0.
      tensor: the tensor itself.
    """

    key: tuple[int, str]
    axis: int
    tensor: tf.Tensor = dataclasses.field(compare=False)


Size = AxisSize | int | None


def axis_size(tensor: tf.Tensor, axis: int) -> Size:
    """Returns the size of an axis: a number where it is known."""
    if tensor.shape.rank is None:
        return None
    size = tensor.shape[axis]
    return AxisSize((id(tensor.graph), tensor.name), axis, tensor) if size is None else size


def named(tensor: tf.Tensor, entry: int = 0) -> Size:
    """Returns the size that an entry of a tensor, flattened, is; None where that is not seen."""
    while True:
        values = known.values(tensor)
        if values is not None and values.reshape(-1)[entry] is not None:
            return int(values.reshape(-1)[entry])
        op = tensor.op
        if op.type in ("Shape", "ShapeN"):
            return axis_size(op.inputs[tensor.value_index], entry)
        if op.type == "Size":
            return axis_size(op.inputs[0], 0) if op.inputs[0].shape.rank == 1 else None
        if op.type in _ALIKE:
            return _common(op, entry)
        found = _FROM[op.type](op, tensor.value_index, entry) if op.type in _FROM else None
        if found is None:
            return None
        tensor, entry = found


def _common(op: tf.Operation, entry: int) -> Size:
    """Returns the largest or smallest of several where all are the same."""
    reduces = op.type in ("Max", "Min", "Prod")
    given = [op.inputs[0]] if reduces else list(op.inputs)
    counts = [t.shape.num_elements() if t.shape.rank is not None else None for t in given]
    if None in counts or 0 in counts or (op.type == "Prod" and counts != [1]):
        return None
    entries = range(counts[0]) if reduces else [entry]
    if not reduces and set(counts) != {1}:
        return None
    found = [named(t, k) for t in given for k in entries]
    return found[0] if all(size == found[0] for size in found) else None


_Found = "tuple[tf.Tensor, int] | None"


def _same(op: tf.Operation, o: int, entry: int) -> _Found:
    return op.inputs[0], entry


def _pack(op: tf.Operation, o: int, entry: int) -> _Found:
    return (op.inputs[entry], 0) if op.inputs[0].shape.rank == 0 else None


def _concat(op: tf.Operation, o: int, entry: int) -> _Found:
    for part in list(op.inputs)[:-1]:
        if part.shape.rank != 1 or part.shape[0] is None:
            return None
        if entry < part.shape[0]:
            return part, entry
        entry -= part.shape[0]
    return None


def _by_positions(take: Callable[[tf.Operation, list], np.ndarray | None], first: int):
    """Returns how an op that takes entries of a list by known places is gone back through."""

    def found(op: tf.Operation, o: int, entry: int) -> _Found:
        count = op.inputs[0].shape[0] if op.inputs[0].shape.rank == 1 else None
        if count is None:
            return None
        places = np.arange(count).astype(object)
        taken = take(op, [places, *(known.values(t) for t in list(op.inputs)[first:])])
        return None if taken is None else (op.inputs[0], int(taken.reshape(-1)[entry]))

    return found


def _split(op: tf.Operation, o: int, entry: int) -> _Found:
    sizes = known.values(op.inputs[1])
    if op.inputs[0].shape.rank != 1 or sizes is None or None in sizes.tolist():
        return None
    if -1 in sizes.tolist():
        return None
    return op.inputs[0], int(sum(sizes[:o])) + entry


def _unpack(op: tf.Operation, o: int, entry: int) -> _Found:
    return (op.inputs[0], o) if op.inputs[0].shape.rank == 1 else None


_ALIKE = ("Max", "Maximum", "Min", "Minimum", "Prod")

_FROM: dict[str, Callable] = {
    "Cast": _same,
    "ConcatV2": _concat,
    "ExpandDims": _same,
    "GatherV2": _by_positions(known.gathered, 1),
    "Identity": _same,
    "Pack": _pack,
    "Reshape": _same,
    "Slice": _by_positions(known.sliced, 1),
    "SplitV": _split,
    "Squeeze": _same,
    "StridedSlice": _by_positions(known.strided, 1),
    "Unpack": _unpack,
}
