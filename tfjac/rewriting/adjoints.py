"""Gradients that TensorFlow has no gradient for, though they are linear in their cotangent.

The derivative of a linear map is the map, and its gradient the adjoint: the op that it came from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

from tfjac import tf_internals
from tfjac.rewriting.replacement import Replacement

# From the op, its inputs (the cotangent first) and a tangent of its output, to one of its input.
Adjoint = Callable[[tf.Operation, Sequence[tf.Tensor], tf.Tensor], tf.Tensor]


def _linear(adjoint: Adjoint) -> Replacement:
    def build(op: tf.Operation, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        cotangent, *others = inputs

        @tf.custom_gradient
        def forth(u):
            (found,) = tf_internals.same_op(op, [u, *others])
            return found, back

        @tf.custom_gradient
        def back(v):
            found = tf.ensure_shape(
                tf.cast(adjoint(op, inputs, v), cotangent.dtype), cotangent.shape
            )
            return found, forth

        return [forth(cotangent)]

    return Replacement(build, "it has no derivative", _by_cotangent)


def _by_cotangent(op: tf.Operation, given: Sequence[bool]) -> bool:
    return given[0] and not any(given[1:])


def _resized(kind: Callable[..., tf.Tensor]) -> Adjoint:
    def adjoint(op, inputs, v):
        size = tf.shape(inputs[0])[1:3]
        return kind(
            images=v,
            size=size,
            align_corners=op.get_attr("align_corners"),
            half_pixel_centers=op.get_attr("half_pixel_centers"),
        )

    return adjoint


def _scaled(op, inputs, v):
    cotangent, _, scale, translation = inputs
    return tf.raw_ops.ScaleAndTranslate(
        images=v,
        size=tf.shape(cotangent)[1:3],
        scale=scale,
        translation=translation,
        kernel_type=op.get_attr("kernel_type").decode(),
        antialias=op.get_attr("antialias"),
    )


def _cropped(op, inputs, v):
    cotangent, boxes, indices, _ = inputs
    return tf.raw_ops.CropAndResize(
        image=v,
        boxes=boxes,
        box_ind=indices,
        crop_size=tf.shape(cotangent)[1:3],
        method=op.get_attr("method").decode(),
    )


TABLE = {
    "CropAndResizeGradImage": _linear(_cropped),
    "ResizeBicubicGrad": _linear(_resized(tf.raw_ops.ResizeBicubic)),
    "ResizeBilinearGrad": _linear(_resized(tf.raw_ops.ResizeBilinear)),
    "ResizeNearestNeighborGrad": _linear(_resized(tf.raw_ops.ResizeNearestNeighbor)),
    "ScaleAndTranslateGrad": _linear(_scaled),
}
