"""Projective transforms of images, and local response normalization."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tfjac import gradients, tf_internals
from tfjac.rewriting.replacement import Replacement


def _transformed(op: tf.Operation, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Reads each output pixel at the place that the transform names, as the kernel does."""
    images, transforms, shape, *fill = inputs
    (fill,) = fill or (tf.zeros([]),)  # as ImageProjectiveTransformV2 has none
    images = tf.cast(images, tf.float64 if images.dtype == tf.float64 else tf.float32)
    y, x = _places(transforms, shape)
    fill_mode = op.get_attr("fill_mode").decode()
    sizes = tf.shape(images)
    # Where the projection is zero no place is finite, and the fill value is read.
    y, x = (_mapped(v, tf.cast(n, v.dtype), fill_mode) for v, n in ((y, sizes[1]), (x, sizes[2])))
    read = _Pixels(images, transforms, fill).read
    if op.get_attr("interpolation") == b"NEAREST":
        return [_shaped(op, read(_rounded(y), _rounded(x)))]
    top, left = tf.floor(y), tf.floor(x)
    down, right = (tf.cast(v, images.dtype)[..., tf.newaxis] for v in (y - top, x - left))
    upper = (1 - right) * read(top, left) + right * read(top, left + 1)
    lower = (1 - right) * read(top + 1, left) + right * read(top + 1, left + 1)
    return [_shaped(op, (1 - down) * upper + down * lower)]


def _shaped(op: tf.Operation, found: tf.Tensor) -> tf.Tensor:
    return tf.ensure_shape(tf.cast(found, op.outputs[0].dtype), op.outputs[0].shape)


def _places(transforms: tf.Tensor, shape: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns row and column in the input for each output pixel, `[transforms, rows, columns]`."""
    t = [v[:, tf.newaxis, tf.newaxis] for v in tf.unstack(tf.reshape(transforms, [-1, 8]), axis=1)]
    rows = tf.range(tf.cast(shape[0], tf.float32))[tf.newaxis, :, tf.newaxis]
    columns = tf.range(tf.cast(shape[1], tf.float32))[tf.newaxis, tf.newaxis, :]
    projection = t[6] * columns + t[7] * rows + 1
    row = (t[3] * columns + t[4] * rows + t[5]) / projection
    return row, (t[0] * columns + t[1] * rows + t[2]) / projection


def _mapped(place: tf.Tensor, size: tf.Tensor, fill_mode: str) -> tf.Tensor:
    """Returns a coordinate brought into the image as the fill mode says."""
    if fill_mode == "CONSTANT":
        return place
    if fill_mode == "REFLECT":
        place = tf.where(place < 0, -place - 1, place)
        period = 2 * size
        place -= period * tf.stop_gradient(tf.floor(place / period))
        place = tf.where(place >= size, period - place - 1, place)
    elif fill_mode == "WRAP":
        turns = tf.maximum(size - 1, 1)
        below = size * (tf.floor(-place / turns) + 1)
        above = -size * tf.floor(place / turns)
        outside = tf.where(place > size - 1, above, tf.zeros_like(place))
        place += tf.stop_gradient(tf.where(place < 0, below, outside))
    return tf.clip_by_value(place, tf.zeros([], place.dtype), size - 1)


def _rounded(place: tf.Tensor) -> tf.Tensor:
    """Returns the nearest whole number, halves away from zero."""
    whole = tf.where(place < 0, tf.math.ceil(place), tf.floor(place))
    return whole + tf.where(tf.abs(place - whole) >= 0.5, tf.sign(place), tf.zeros_like(place))


class _Pixels:
    """Pixels of images by their places, and a fill value outside."""

    def __init__(self, images: tf.Tensor, transforms: tf.Tensor, fill: tf.Tensor) -> None:
        sizes = tf.shape(images)
        self._height, self._width = (tf.cast(n, tf.float32) for n in (sizes[1], sizes[2]))
        self._flat = tf.reshape(images, [sizes[0], sizes[1] * sizes[2], sizes[3]])
        self._examples, self._shared = sizes[0], transforms.shape[0] == 1
        self._fill = tf.cast(fill, images.dtype)

    def read(self, row: tf.Tensor, column: tf.Tensor) -> tf.Tensor:
        inside = (row >= 0) & (row < self._height) & (column >= 0) & (column < self._width)
        place = tf.where(inside, row * self._width + column, tf.zeros_like(row))
        place = tf.cast(tf.stop_gradient(place), tf.int32)
        if self._shared:  # by all images
            found = tf.gather(self._flat, place[0], axis=1)
        else:
            wanted = tf.concat([[self._examples], tf.shape(place)[1:]], 0)
            found = tf.gather(self._flat, tf.broadcast_to(place, wanted), batch_dims=1)
        return tf.where(inside[..., tf.newaxis], found, self._fill)


def _response_normalized(op: tf.Operation, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    (x,) = inputs
    return [_normalize(op, x)]


def _normalize(op: tf.Operation, x: tf.Tensor) -> tf.Tensor:
    radius, channels = op.get_attr("depth_radius"), x.shape[-1]
    apart = np.abs(np.subtract.outer(np.arange(channels), np.arange(channels)))
    squares = tf.tensordot(tf.square(x), tf.constant(apart <= radius, x.dtype), 1)
    scale = op.get_attr("bias") + op.get_attr("alpha") * squares
    return x * tf.pow(scale, -op.get_attr("beta"))


def _response_gradient(op: tf.Operation, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    cotangent, x, _ = inputs
    y = _normalize(op, x)
    return gradients.gradients(y, [x], [cotangent])


def _knows_channels(op: tf.Operation, given: Sequence[bool]) -> bool:
    return op.inputs[0].shape.rank is not None and op.inputs[0].shape[-1] is not None


def _resized(op: tf.Operation, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    images, size = inputs
    return tf_internals.same_op(op, [tf.cast(images, tf.float32), size], T=tf.float32)


def _is_half(op: tf.Operation, given: Sequence[bool]) -> bool:
    return op.inputs[0].dtype not in (tf.float32, tf.float64)


_TRANSFORM = Replacement(
    _transformed,
    "the gradient by the images resamples with the inverse matrix, which is not the adjoint; by "
    "the transforms it is missing",
)
TABLE = {
    "ImageProjectiveTransformV2": _TRANSFORM,
    "ImageProjectiveTransformV3": _TRANSFORM,
    "ResizeBicubic": Replacement(_resized, "it has no derivative in half precision", _is_half),
    "LRN": Replacement(
        _response_normalized, "it has no second derivative", _knows_channels, first=False
    ),
    "LRNGrad": Replacement(_response_gradient, "it has no derivative", _knows_channels),
}
