"""Ops that take entries by indices, or put them by indices."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from tfjac.rules import known
from tfjac.rules.kinds import (
    OPAQUE,
    ZERO,
    Example,
    Kind,
    Local,
    Rule,
    aligned,
    axis_of,
    constant,
    family,
    linked,
    local,
    moves,
    ranks,
    same_axes,
)


def _gather(op: tf.Operation, i: int, o: int) -> Local:
    if i > 0:
        return ZERO
    rank, indices = op.inputs[0].shape.rank, op.inputs[1].shape.rank
    if rank is None or indices is None:
        return OPAQUE
    axis, batch = 0, 0
    if op.type == "GatherV2":
        where = constant(op, 2)
        if where is None:
            return OPAQUE
        axis, batch = axis_of(where[0], rank), axis_of(op.get_attr("batch_dims"), indices)
    before = [(a, a) for a in range(axis)]
    after = [(a - 1 + indices - batch, a) for a in range(axis + 1, rank)]
    if indices == 1 and batch == 0 and _takes_all(op, axis):
        before.append((axis, axis))
    return Local(Kind.SELECTION, tuple(before + after))


def _takes_all(op: tf.Operation, axis: int) -> bool:
    """Returns whether entry p is taken from p, and as many as there are."""
    size, taken = op.inputs[0].shape[axis], op.inputs[1].shape[0]
    return size is not None and size == taken and known.is_range(op.inputs[1])


def _gather_example(op: tf.Operation, i: int, example: Example) -> Example | None:
    found = linked(_gather(op, i, 0), example)
    if found is None and op.inputs[1].shape.rank == 1 and known.is_range(op.inputs[1]):
        # The first of them in order, as many as the indices are; a vectorized map does so.
        axis = constant(op, 2) if op.type == "GatherV2" else [0]
        if axis is not None and axis_of(axis[0], op.inputs[0].shape.rank) == example.axis:
            plain = (example.outer, example.inner) == (1, 1)
            return dataclasses.replace(example, sized=False) if plain else None
    return found


def _gather_nd(op: tf.Operation, i: int, o: int) -> Local:
    if i > 0:
        return ZERO
    rank, indices = op.inputs[0].shape.rank, op.inputs[1].shape
    if rank is None or indices.rank is None or indices[-1] is None:
        return OPAQUE
    depth = indices[-1]
    lead = indices.rank - 1
    return Local(Kind.SELECTION, tuple((lead + a - depth, a) for a in range(depth, rank)))


def _leading(drop_in: int, inputs: Sequence[int] = (0,)):
    """Returns how an op depends on data of which it moves the last `drop_in` axes about."""

    def read(op: tf.Operation, i: int, o: int) -> Local:
        both = ranks(op, i, o)
        if i not in inputs:
            return ZERO
        if both is None:
            return OPAQUE
        return Local(Kind.SELECTION, tuple((a, a) for a in range(both[1] - drop_in)))

    return read


def _to_diagonal(op: tf.Operation, i: int, o: int) -> Local:
    band = None if op.type == "MatrixDiag" else constant(op, 1)
    is_one = op.type == "MatrixDiag" or (band is not None and band[0] == band[-1])
    return _leading(1 if is_one else 2)(op, i, o)


def _set_diagonal(op: tf.Operation, i: int, o: int) -> Local:
    if i == 0:
        return local(Kind.DIAGONAL, aligned(op, 0, o))
    return _leading(2)(op, 0, o) if i == 1 else ZERO


def _trailing_after(k: int):
    """Returns how an op depends on data that it moves along the axes that indices number."""

    def read(op: tf.Operation, i: int, o: int) -> Local:
        if i != k:
            return ZERO
        both = ranks(op, i, o)
        if both is None:
            return OPAQUE
        return Local(Kind.SELECTION, _common_trailing(op, i, o))

    return read


def _common_trailing(op: tf.Operation, i: int, o: int) -> tuple:
    indices = op.inputs[0].shape if op.type == "ScatterNd" else op.inputs[1].shape
    if indices.rank is None or indices[-1] is None:
        return ()
    lead_in, lead_out = indices.rank - 1, indices[-1]
    rank = op.inputs[i].shape.rank
    return tuple((lead_out + a - lead_in, a) for a in range(lead_in, rank))


def _scatter_into(op: tf.Operation, i: int, o: int) -> Local:
    if i == 0:
        return local(Kind.DIAGONAL, aligned(op, 0, o))
    return _added(_trailing_after(2))(op, i, o)


def _added(read):
    """Returns the same where entries that come to one place are added up, or taken off."""

    def mixing(op: tf.Operation, i: int, o: int) -> Local:
        found = read(op, i, o)
        return (
            dataclasses.replace(found, kind=Kind.MIXING)
            if found.links or found.kind is (Kind.SELECTION)
            else found
        )

    return mixing


def _rows_of_segments(op: tf.Operation, i: int, o: int) -> Local:
    """Rows moved, or added up, by whole numbers that stand beside them."""
    both = ranks(op, i, o)
    if i > 0:
        return ZERO
    if both is None or op.inputs[1].shape.rank is None:
        return OPAQUE
    lead = op.inputs[1].shape.rank
    return Local(Kind.MIXING, tuple((1 + a - lead, a) for a in range(lead, both[1])))


def _stitch(op: tf.Operation, i: int, o: int) -> Local:
    both = ranks(op, i, o)
    count = len(op.inputs) // 2
    if i < count:
        return ZERO
    if both is None or op.inputs[i - count].shape.rank is None:
        return OPAQUE
    lead = op.inputs[i - count].shape.rank
    return Local(Kind.SELECTION, tuple((1 + a - lead, a) for a in range(lead, both[1])))


def _last_axis(op: tf.Operation, i: int, o: int) -> Local:
    # Which entry comes where depends on their values, so that positions do not tell.
    return ZERO if i > 0 else local(Kind.MIXING, same_axes(op, 0, o, but=[-1]))


def _to_dense(op: tf.Operation, i: int, o: int) -> Local:
    """Values put where indices say, and a number everywhere else."""
    return Local(Kind.SELECTION) if i > 1 else ZERO


def _sparse_sum(op: tf.Operation, i: int, o: int) -> Local:
    return Local(Kind.MIXING) if i == 1 else ZERO


TABLE: dict[str, Rule] = {
    **family("Gather GatherV2", moves(_gather, _gather_example)),
    "GatherNd": moves(_gather_nd),
    **family("MatrixDiag MatrixDiagV2 MatrixDiagV3", moves(_to_diagonal)),
    **family("MatrixDiagPart MatrixDiagPartV2 MatrixDiagPartV3", moves(_leading(2))),
    **family("MatrixSetDiag MatrixSetDiagV2 MatrixSetDiagV3", moves(_set_diagonal)),
    "ScatterNd": moves(_added(_trailing_after(1))),
    **family("TensorScatterUpdate TensorScatterAdd TensorScatterSub TensorScatterMax "
             "TensorScatterMin ScatterNdNonAliasingAdd", moves(_scatter_into)),
    **family("SegmentSum SegmentMean SegmentMax SegmentMin UnsortedSegmentSum "
             "UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentProd",
             Rule(_rows_of_segments)),
    "SparseToDense": moves(_to_dense),
    "SparseReduceSum": Rule(_sparse_sum),
    "DynamicPartition": Rule(_rows_of_segments),
    **family("DynamicStitch ParallelDynamicStitch", moves(_stitch)),
    **family("TopK TopKV2 NthElement", moves(_last_axis)),
}  # fmt: skip
