"""Lists of tensors, of which loops are made: where the example axis of their elements goes."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from tfjac.rules.kinds import OPAQUE, Example, Local, Rule, family


def _unknown(op: tf.Operation, i: int, o: int) -> Local:
    return OPAQUE  # a list has no axes of its own to link


def _shifted(by: int):
    """Returns how an axis is numbered after `by` axes were put before the elements' own."""

    def move(op: tf.Operation, i: int, example: Example) -> Example | None:
        axis = example.axis + by
        # Examples that are the elements themselves have axis -1; with other things among them there
        # is no telling which element belongs to which.
        lost = axis < -1 or (axis == -1 and (example.outer, example.inner) != (1, 1))
        return None if lost else dataclasses.replace(example, axis=axis)

    return move


def _put(op: tf.Operation, i: int, example: Example) -> Example | None:
    # Which element is put where, or taken out, is not told here.
    return None if example.axis < 0 else example


def _concatenated(op: tf.Operation, i: int, example: Example) -> Example | None:
    return None if example.axis <= 0 else example


def _by_indices(by: int):
    """Returns the same where elements are taken or put by indices, in any order."""
    shift = _shifted(by)

    def move(op: tf.Operation, i: int, example: Example) -> Example | None:
        moved = shift(op, i, example)
        return None if moved is None or -1 in (example.axis, moved.axis) else moved

    return move


def _stacked(op: tf.Operation, i: int, example: Example) -> Example | None:
    moved = _shifted(1)(op, i, example)
    if moved is None or moved.axis != 0 or op.outputs[0].shape[0] is not None:
        return moved
    return dataclasses.replace(moved, sized=False)  # as many as the list is long


TABLE: dict[str, Rule] = {
    "TensorListFromTensor": Rule(_unknown, move=_shifted(-1)),
    **family("TensorListScatter TensorListScatterV2", Rule(_unknown, move=_by_indices(-1))),
    "TensorListStack": Rule(_unknown, move=_stacked),
    "TensorListGather": Rule(_unknown, move=_by_indices(1)),
    **family("TensorListGetItem TensorListPopBack TensorListPushBack TensorListResize "
             "TensorListSetItem", Rule(_unknown, move=_put)),
    **family("TensorListConcat TensorListConcatLists TensorListConcatV2 TensorListSplit",
             Rule(_unknown, move=_concatenated)),
}  # fmt: skip
