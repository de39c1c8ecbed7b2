"""Static and dynamic shape arithmetic, and the check of chunk_size.

A *shape* here is a list of ints and int32 scalars where the rank is known, and a rank-1 int32
tensor where it is not. Static sizes stay Python ints, so that graphs keep as few ops as possible.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import tensorflow as tf

from tfjac import errors

Size = int | tf.Tensor
Shape = Sequence[Size] | tf.Tensor


def shape_of(tensor: tf.Tensor) -> Shape:
    """Returns the shape of `tensor`, static where TensorFlow knows it."""
    return dynamic_shape(tensor.shape, lambda: tf.shape(tensor))


def dynamic_shape(static: tf.TensorShape, run_time_shape) -> Shape:
    """Returns `static` with its unknown sizes filled in from the tensor `run_time_shape()`."""
    if static.rank is None:
        return run_time_shape()
    if static.is_fully_defined():
        return static.as_list()
    dynamic = run_time_shape()
    return [dynamic[i] if size is None else size for i, size in enumerate(static.as_list())]


def size_of(shape: Shape) -> Size:
    """Returns the number of entries of a tensor of `shape`; an int where that is known."""
    if is_static(shape):
        return math.prod(shape)
    return tf.reduce_prod(shape)


def is_static(shape: Shape) -> bool:
    """True if every size of `shape` is a Python int."""
    return isinstance(shape, (list, tuple)) and all(isinstance(size, int) for size in shape)


def join(*shapes: Shape) -> Shape:
    """Returns the shapes one after the other."""
    if all(isinstance(shape, (list, tuple)) for shape in shapes):
        return [size for shape in shapes for size in shape]
    return tf.concat([tf.convert_to_tensor(shape, tf.int32) for shape in shapes], axis=0)


def static_size(shape: tf.TensorShape) -> int | None:
    """Returns the number of entries, or None where a size is unknown."""
    return shape.num_elements() if shape.rank is not None else None


def are_empty(*shapes: tf.TensorShape) -> bool:
    """True if one of them is of tensors without entries, whatever its unknown sizes are."""
    return any(shape.rank is not None and 0 in shape.as_list() for shape in shapes)


def check_chunk_size(chunk_size: int | str | None) -> None:
    """Raises unless `chunk_size` is a positive int, None or "auto"."""
    if chunk_size is None or chunk_size == "auto":
        return
    if isinstance(chunk_size, bool) or not isinstance(chunk_size, int):
        raise errors.InvalidTypeError(
            errors.message(
                "chunk_size",
                'an int, None or "auto"',
                repr(chunk_size),
                "Give the number of rows or columns to carry in one pass.",
            )
        )
    if chunk_size < 1:
        raise errors.InvalidValueError(
            errors.message(
                "chunk_size",
                "at least 1",
                str(chunk_size),
                "Give the number of rows or columns to carry in one pass.",
            )
        )
