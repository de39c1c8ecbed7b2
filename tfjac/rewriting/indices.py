"""Entries that are put and taken by indices, which may name one place twice."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tfjac import tf_internals
from tfjac.rewriting.replacement import Replacement


def _stitched(op: tf.Operation, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Stitches numbers of entries, and takes the entries that have them: the last one stays."""
    count = len(inputs) // 2
    indices, data = inputs[:count], inputs[count:]
    rest = tf.shape(data[0])[tf.rank(indices[0]) :]
    rows = [tf.reshape(d, tf.concat([[-1], rest], 0)) for d in data]
    numbers, begin = [], tf.constant(0)
    for index, row in zip(indices, rows):
        end = begin + tf.shape(row)[0]
        numbers.append(tf.reshape(tf.range(begin, end), tf.shape(index)))
        begin = end
    kind = getattr(tf.raw_ops, op.type)
    # A place that no index names has any number.
    places = tf.clip_by_value(kind(indices=indices, data=numbers), 0, tf.maximum(begin - 1, 0))
    return [tf.gather(tf.concat(rows, 0), places)]


def _may_repeat(op: tf.Operation, given: Sequence[bool]) -> bool:
    indices = op.inputs[: len(op.inputs) // 2]
    parts = {t.ref() for t in indices if t.op.type == "DynamicPartition"}
    makers = {t.op.name: t.op for t in indices}
    if len(parts) == len(indices) and len(makers) == 1:
        # What was taken apart is put together again.
        (maker,) = makers.values()
        data = maker.inputs[0]
        return data.op.type != "Range" and _repeats([tf.get_static_value(data)])
    return _repeats([tf.get_static_value(t) for t in indices])


def _repeats(values: Sequence[np.ndarray | None]) -> bool:
    if any(value is None for value in values):
        return True
    flat = np.concatenate([value.reshape(-1) for value in values])
    return len(np.unique(flat)) < len(flat)


def _gathered(op: tf.Operation, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Takes all elements of a list, of which those that were not set are zero, and then some."""
    elements, indices, shape = inputs
    known = op.outputs[0].shape[1:]
    if known.is_fully_defined():
        found = tf.raw_ops.TensorListStack(
            input_handle=elements,
            element_shape=tf.constant(known.as_list(), tf.int32),
            element_dtype=op.outputs[0].dtype,
        )
        return [tf.gather(found, indices)]
    once, places = tf.unique(indices)
    (found,) = tf_internals.same_op(op, [elements, once, shape])
    return [tf.gather(found, places)]


def _is_mended(op: tf.Operation, given: Sequence[bool]) -> bool:
    known = op.outputs[0].shape[1:].is_fully_defined()
    return known or _repeats([tf.get_static_value(op.inputs[1])])


def _updated(op: tf.Operation, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Puts numbers of updates, and takes the updates that have them: the last one stays."""
    tensor, indices, updates = inputs
    depth = indices.shape[-1]
    lead = tf.shape(indices)[:-1]
    count = tf.reduce_prod(lead)
    places = tf.tensor_scatter_nd_update(
        tf.fill(tf.shape(tensor)[:depth], -1), indices, tf.reshape(tf.range(count), lead)
    )
    rest = tf.shape(tensor)[depth:]
    rows = tf.reshape(updates, tf.concat([[count], rest], 0))
    # One more, which stands for the places that none is put to.
    rows = tf.concat([rows, tf.zeros(tf.concat([[1], rest], 0), rows.dtype)], 0)
    taken = tf.gather(rows, tf.where(places >= 0, places, count))
    ones = tf.ones(tf.shape(rest), tf.int32)
    is_put = tf.reshape(places >= 0, tf.concat([tf.shape(places), ones], 0))
    return [tf.where(is_put, taken, tensor)]


def _may_update_twice(op: tf.Operation, given: Sequence[bool]) -> bool:
    indices = op.inputs[1].shape
    if indices.rank is None or indices[-1] is None:
        return False
    value = tf.get_static_value(op.inputs[1])
    if value is None:
        return True
    flat = value.reshape(-1, indices[-1])
    return len(np.unique(flat, axis=0)) < len(flat)


def _padded(op: tf.Operation, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    x, edges, value = inputs
    return [tf.pad(x - value, edges) + value]


def _by_value(op: tf.Operation, given: Sequence[bool]) -> bool:
    return given[2]


def _gathered_at(op: tf.Operation, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Takes entries by one index as by a list of one, and all of them by indices of no entries."""
    params, indices = inputs
    if indices.shape[-1] == 0:
        shape = tf.concat([tf.shape(indices)[:-1], tf.shape(params)], 0)
        return [tf.broadcast_to(params, shape)]
    return [tf.gather_nd(params, indices[tf.newaxis])[0]]


def _is_one_or_none(op: tf.Operation, given: Sequence[bool]) -> bool:
    shape = op.inputs[1].shape
    return shape.rank is not None and (shape.rank == 1 or shape[-1] == 0)


_OVERWRITTEN = "what is overwritten by another entry has a derivative all the same"
TABLE = {
    "DynamicStitch": Replacement(_stitched, _OVERWRITTEN, _may_repeat),
    "PadV2": Replacement(_padded, "the derivative by constant_values is missing", _by_value),
    "TensorScatterUpdate": Replacement(_updated, _OVERWRITTEN, _may_update_twice),
    "GatherNd": Replacement(
        _gathered_at, "the gradient of one index or none has the wrong shape", _is_one_or_none
    ),
    "ParallelDynamicStitch": Replacement(_stitched, _OVERWRITTEN, _may_repeat),
    "TensorListGather": Replacement(
        _gathered, "of an element that is taken twice one derivative is lost", _is_mended
    ),
}
