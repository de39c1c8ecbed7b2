"""Which examples an op takes, or where it puts them, where tensors of indices tell it. Reads only.

An index tensor may count: its entry at position p of an axis is p, so that row p is example p. Or
it is any list of places: rows taken by it stay apart, and come back to their examples where the
same list puts them.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf

from tfjac import rules
from tfjac.graph import lengths, subgraph
from tfjac.rules import Example, Kind, known, sizes

# Ops are gone back through no further than this: an index tensor is made by a few.
_DEEPEST = 30


def moved(op: tf.Operation, i: int, example: Example) -> tuple[Example, sizes.Size] | None:
    """Returns the example axis of the output where indices tell it, and the size of that axis.

    Args:
      op: the op.
      i: the input that has examples.
      example: their axis.

    Returns:
      None where the indices do not tell, so that the op's rule has to. The size is that which the
      indices give the axis, None where nothing else was to be found than that of the examples.
    """
    if op.type not in _READERS or (example.outer, example.inner) != (1, 1) or example.axis < 0:
        return None
    return _READERS[op.type](op, i, example)


def reads(op: tf.Operation) -> bool:
    """Returns whether it is indices that tell where an op takes examples from, or puts them."""
    return op.type in _READERS or op.type in ("DynamicPartition", "TopK", "TopKV2")


_Moved = "tuple[Example, sizes.Size] | None"


def _gather(op: tf.Operation, i: int, example: Example) -> _Moved:
    axis = [0] if op.type == "Gather" else rules.constants(op, 2)
    if i > 0 or axis is None or example.by is not None or op.inputs[1].shape.rank is None:
        return None
    axis = axis[0] + op.inputs[0].shape.rank if axis[0] < 0 else axis[0]
    if axis != example.axis or (op.type == "GatherV2" and op.get_attr("batch_dims")):
        return None
    return _taken(op, op.inputs[1], None, example, axis)


def _gather_nd(op: tf.Operation, i: int, example: Example) -> _Moved:
    indices = op.inputs[1].shape
    if i > 0 or indices.rank is None or indices[-1] is None or example.axis >= indices[-1]:
        return None
    if example.by is not None:
        return None
    return _taken(op, op.inputs[1], example.axis, example, 0)


def _crop(op: tf.Operation, i: int, example: Example) -> _Moved:
    if i > 0 or example.axis != 0 or example.by is not None:
        return None
    return _taken(op, op.inputs[2], None, example, 0)


def _taken(op, indices: tf.Tensor, column: int | None, example: Example, first: int) -> _Moved:
    """Returns where the rows go that indices, or a column of them, take from the examples."""
    size = lengths.of(op.inputs[0], example.axis)
    axis = counted_axis(indices, column, size)
    if axis is not None:
        found = lengths.of(indices, axis)
        sized = example.sized and found == size
        return dataclasses.replace(example, axis=first + axis, sized=sized), found
    if indices.shape.rank != (1 if column is None else 2):
        return None
    by = _name(indices, column)
    return dataclasses.replace(
        example, axis=first, by=by, taken=(op.name, op.type), sized=False
    ), None


def _scatter(op: tf.Operation, i: int, example: Example) -> _Moved:
    """Rows put at indices: one of their columns tells the example."""
    where, rows = {"ScatterNd": (0, 1), "SparseToDense": (0, 2)}.get(op.type, (1, 2))
    if i != rows:
        return None
    indices = op.inputs[where]
    if indices.shape.rank == 1 and op.type == "SparseToDense":
        return _put(op, indices, None, example, 0)
    if indices.shape.rank != 2 or indices.shape[1] is None:
        return None
    found = (_put(op, indices, column, example, column) for column in range(indices.shape[1]))
    return next((place for place in found if place is not None), None)


def _segments(op: tf.Operation, i: int, example: Example) -> _Moved:
    if i > 0 or op.inputs[1].shape.rank != 1:
        return None
    return _put(op, op.inputs[1], None, example, 0)


def _stitch(op: tf.Operation, i: int, example: Example) -> _Moved:
    count = len(op.inputs) // 2
    if i < count or op.inputs[i - count].shape.rank != 1:
        return None
    found = _put(op, op.inputs[i - count], None, example, 0)
    parts = {t.op for t in op.inputs[:count] if t.op.type == "DynamicPartition"}
    indices = {(t.op, t.value_index) for t in op.inputs[:count]}
    if found is not None and len(parts) == 1:
        (partition,) = parts
        if len(indices) == len(partition.outputs) and _counts(partition.inputs[0], None, None):
            # All parts of all places, so that there are as many again.
            return found[0], lengths.of(partition.inputs[0], 0)
    return found


def _sparse_product(op: tf.Operation, i: int, example: Example) -> _Moved:
    column = 1 if op.get_attr("adjoint_a") else 0
    return _put(op, op.inputs[0], column, example, 0) if i == 1 else None


def _sparse_sum(op: tf.Operation, i: int, example: Example) -> _Moved:
    axes, rank = rules.constants(op, 3), op.inputs[2].shape[0]
    if i != 1 or axes is None or rank is None:
        return None
    gone = {axis + rank if axis < 0 else axis for axis in axes}
    left = [axis for axis in range(rank) if axis not in gone]
    places = dict(zip(left, left if op.get_attr("keep_dims") else range(rank)))
    found = (_put(op, op.inputs[0], column, example, places[column]) for column in left)
    return next((place for place in found if place is not None), None)


def _put(op, indices: tf.Tensor, column: int | None, example: Example, axis: int) -> _Moved:
    """Returns the axis of examples whose rows are put where they were taken."""
    if example.axis != 0:
        return None
    counts = example.by is None and counted_axis(indices, column, None) == 0
    if not counts and (example.by is None or example.by != _name(indices, column)):
        return None
    size = lengths.of(op.outputs[0], axis) if op.outputs[0].shape.rank is not None else None
    return dataclasses.replace(example, axis=axis, by=None, sized=False), size


_READERS = {
    "CropAndResize": _crop,
    **dict.fromkeys(("DynamicStitch", "ParallelDynamicStitch"), _stitch),
    **dict.fromkeys(("Gather", "GatherV2"), _gather),
    "GatherNd": _gather_nd,
    **dict.fromkeys(
        ("ScatterNd", "SparseToDense", "TensorScatterAdd", "TensorScatterMax", "TensorScatterMin",
         "TensorScatterSub", "TensorScatterUpdate"), _scatter),
    **dict.fromkeys(
        ("SegmentMax", "SegmentMean", "SegmentMin", "SegmentSum", "UnsortedSegmentMax",
         "UnsortedSegmentMin", "UnsortedSegmentProd", "UnsortedSegmentSum"), _segments),
    "SparseReduceSum": _sparse_sum,
    "SparseTensorDenseMatMul": _sparse_product,
}  # fmt: skip


def partitioned(op: tf.Operation, o: int, example: Example) -> Example | None:
    """Returns the rows that a DynamicPartition puts in output `o`, named by its partitions."""
    plain = (example.axis, example.outer, example.inner, example.by) == (0, 1, 1, None)
    if not plain or op.inputs[1].shape.rank != 1:
        return None
    by = _part_name(op, o)
    return dataclasses.replace(example, by=by, taken=(op.name, op.type), sized=False)


def _part_name(op: tf.Operation, o: int) -> tuple:
    graph, name = subgraph.key_of(op.inputs[1])
    return graph, f"part {o} of {op.get_attr('num_partitions')} by {name}", None


def _name(indices: tf.Tensor, column: int | None) -> tuple:
    """Returns what identifies a list of whole numbers, or a column of several: graph, name, column.

    Casts and changes of shape of one list do not make another.
    """
    while True:
        op = indices.op
        if op.type in ("Cast", "Identity") and not op.inputs[0].dtype.is_floating:
            indices = op.inputs[0]
        elif column is None and op.type == "DynamicPartition" and _counts(op.inputs[0], None, None):
            return _part_name(op, indices.value_index)
        elif column is None and _is_column(op) is not None:
            indices, column = op.inputs[0], _is_column(op)
        else:
            return (*subgraph.key_of(indices), column)


def _is_column(op: tf.Operation) -> int | None:
    """Returns which column of a matrix of whole numbers an op takes."""
    given = op.inputs[0].shape if op.inputs else tf.TensorShape(None)
    if given.rank != 2 or op.outputs[0].shape.rank != 1:
        return None
    if op.type in ("Reshape", "Squeeze"):
        return 0 if given[1] == 1 else None
    if op.type != "StridedSlice" or op.get_attr("shrink_axis_mask") != 2:
        return None
    begin = rules.constants(op, 1)
    whole = rules.rule_for("StridedSlice").local(op, 0, 0).links == ((0, 0),)
    return begin[1] if begin is not None and begin[1] >= 0 and whole else None


def _counts(tensor: tf.Tensor, column: int | None, data: sizes.Size) -> bool:
    return counted_axis(tensor, column, data) == 0


def counted_axis(
    tensor: tf.Tensor, column: int | None, data: sizes.Size, depth: int = 0
) -> int | None:
    """Returns the axis along which indices count from 0: their entry at position p is p.

    Args:
      tensor: of whole numbers.
      column: which entry of its last axis tells, so that there is an axis less; None where each
        entry does.
      data: the size of the axis that they point into, of which not more than one position needs to
        be told apart where that is one.
    """
    if tensor.shape.rank is None or depth > _DEEPEST:
        return None
    if column is not None and tensor.shape[-1] == 1:
        column = None
    values = known.values(tensor)
    if values is not None and values.ndim == tensor.shape.rank:
        return _counted(values if column is None else values[..., column])
    op = tensor.op
    if op.type in _STEPS:
        return _STEPS[op.type](op, tensor, column, data, depth + 1)
    return None


def _counted(values: np.ndarray) -> int | None:
    for axis, size in enumerate(values.shape):
        shape = [size if a == axis else 1 for a in range(values.ndim)]
        if np.all(values == np.arange(size).reshape(shape)):
            return axis
    return None


def _same(op, tensor, column, data, depth) -> int | None:
    if op.inputs[0].dtype.is_floating:
        return None
    return counted_axis(op.inputs[0], column, data, depth)


def _range(op, tensor, column, data, depth) -> int | None:
    return 0 if column is None and known.is_range(tensor) else None


def _pack(op, tensor, column, data, depth) -> int | None:
    axis, rank = op.get_attr("axis"), tensor.shape.rank
    axis = axis + rank if axis < 0 else axis
    if column is not None and axis == rank - 1:
        return counted_axis(op.inputs[column], None, data, depth)
    return _by_move(op, tensor, column, data, depth) if len(op.inputs) == 1 else None


def _concat(op, tensor, column, data, depth) -> int | None:
    axis, rank = rules.constants(op, len(op.inputs) - 1), tensor.shape.rank
    if column is None or axis is None or axis[0] % rank != rank - 1:
        return None
    for part in list(op.inputs)[:-1]:
        if part.shape.rank is None or part.shape[-1] is None:
            return None
        if column < part.shape[-1]:
            return counted_axis(part, column, data, depth)
        column -= part.shape[-1]
    return None


def _by_move(op, tensor, column, data, depth) -> int | None:
    """Follows numbers that are moved, and so keep counting along the axis that they come to."""
    given, local = op.inputs[0], rules.rule_for(op.type).local(op, 0, tensor.value_index)
    if given.shape.rank is None or local.kind not in (Kind.IDENTITY, Kind.SELECTION):
        return None
    if column is not None and (tensor.shape.rank - 1, given.shape.rank - 1) not in local.links:
        return None
    axis = counted_axis(given, column, data, depth)
    if axis is None:
        return None
    rule = rules.rule_for(op.type)
    if op.type == "BroadcastTo" and not _keeps_length(op, axis):
        return None
    found = rule.example(op, 0, tensor.value_index, Example(axis))
    return found.axis if found == Example(found.axis if found else 0) else None


def _keeps_length(op: tf.Operation, axis: int) -> bool:
    """Returns whether an axis is surely not one that is broadcast from a single entry."""
    out = axis + op.outputs[0].shape.rank - op.inputs[0].shape.rank
    wanted = lengths.named(op.inputs[1], out)
    return wanted is not None and wanted == lengths.of(op.inputs[0], axis)


def _by_neutral(neutral: int):
    """Follows numbers through a product with ones, or a sum with zeros, that broadcasts them."""

    def step(op, tensor, column, data, depth) -> int | None:
        for one, other in (op.inputs, op.inputs[::-1]):
            if not _is_all(other, neutral) or (column is not None and other.shape.rank):
                continue
            axis = counted_axis(one, column, data, depth)
            if axis is None or other.shape.rank is None:
                continue
            found = axis + tensor.shape.rank - one.shape.rank
            own = found - (tensor.shape.rank - other.shape.rank)
            if own < 0 or other.shape[own] == 1 or lengths.of(other, own) == lengths.of(one, axis):
                return found
        return None

    return step


def _is_all(tensor: tf.Tensor, value: int) -> bool:
    if tensor.op.type in ("ZerosLike", "OnesLike"):
        return value == (1 if tensor.op.type == "OnesLike" else 0)
    if tensor.op.type == "Fill":
        tensor = tensor.op.inputs[1]
    return known.all_equal(tensor, value)


def _select(op, tensor, column, data, depth) -> int | None:
    """Counting where there are several, and zero else, as a vectorized map has it."""
    condition, counting, other = op.inputs
    if condition.op.type != "Greater" or condition.shape.rank != 0 or not _is_all(other, 0):
        return None
    size, one = condition.op.inputs
    if not _is_all(one, 1) or data is None or lengths.named(size) != data:
        return None
    if other.shape.rank != 0 or counting.shape.rank != tensor.shape.rank:
        return None
    return counted_axis(counting, column, data, depth)


_MOVES = ("ExpandDims", "Reshape", "Slice", "Squeeze", "StridedSlice", "Tile", "Transpose")

_STEPS = {
    "AddV2": _by_neutral(0),
    **dict.fromkeys(("BroadcastTo", *_MOVES), _by_move),
    "Cast": _same,
    "ConcatV2": _concat,
    "Identity": _same,
    "Mul": _by_neutral(1),
    "Pack": _pack,
    "Range": _range,
    "SelectV2": _select,
}  # fmt: skip
