"""Convolution, pooling and resizing: examples stay apart, neighbors in space do not."""

from __future__ import annotations

import math

import tensorflow as tf

from tfjac import nominal
from tfjac.rules.kinds import OPAQUE, ZERO, Kind, Local, Rule, constant, family

_EXAMPLES = (0, 0)


def _channel(op: tf.Operation) -> int | None:
    rank = op.inputs[0].shape.rank
    if rank is None:
        return None
    return 1 if op.get_attr("data_format").startswith(b"NC") else rank - 1


def _convolution(op: tf.Operation, i: int, o: int) -> Local:
    if i == 0:
        return Local(Kind.WINDOW, (_EXAMPLES,))
    channel, rank = _channel(op), op.inputs[1].shape.rank
    # Each filter gives one channel of the output.
    if channel is None or rank is None:
        return OPAQUE
    return Local(Kind.WINDOW, ((channel, rank - 1),))


def _convolution_flops(op: tf.Operation) -> float:
    kernel = nominal.shape_of(op.inputs[1])
    return 2.0 * nominal.entries(op.outputs[0]) * math.prod(kernel[:-1])


def _depthwise(op: tf.Operation, i: int, o: int) -> Local:
    return Local(Kind.WINDOW, (_EXAMPLES,) if i == 0 else ())


def _depthwise_flops(op: tf.Operation) -> float:
    kernel = nominal.shape_of(op.inputs[1])
    return 2.0 * nominal.entries(op.outputs[0]) * math.prod(kernel[:-2])


def _transposed(op: tf.Operation, i: int, o: int) -> Local:
    """The input's gradient of a convolution: inputs are sizes, filter, cotangent."""
    if i == 2:
        return Local(Kind.WINDOW, (_EXAMPLES,))
    return Local(Kind.WINDOW) if i == 1 else ZERO


def _transposed_flops(op: tf.Operation) -> float:
    left_out = 2 if op.type.startswith("Depthwise") else 1
    kernel = nominal.shape_of(op.inputs[1])
    return 2.0 * nominal.entries(op.inputs[2]) * math.prod(kernel[:-left_out])


def _of_filter(op: tf.Operation, i: int, o: int) -> Local:
    """The filter's gradient: sums over examples, but the channels stay apart."""
    return ZERO if i == 1 else Local(Kind.WINDOW)


def _pooling(op: tf.Operation, i: int, o: int) -> Local:
    if i > 0:
        return ZERO
    channel = _channel(op)
    if channel is None:
        return OPAQUE
    # The window may go over channels too, and over examples where its size cannot be told.
    sizes = constant(op, 1) if op.type == "MaxPoolV2" else op.get_attr("ksize")
    one = [a for a in (0, channel) if sizes is not None and sizes[a] == 1]
    return Local(Kind.WINDOW, tuple((a, a) for a in one))


def _pooling_flops(op: tf.Operation) -> float:
    return nominal.entries(op.inputs[0])


def _pooling_of_last(op: tf.Operation, i: int, o: int) -> Local:
    return ZERO if i > 0 else Local(Kind.WINDOW, (_EXAMPLES, (3, 3)))


def _pooling_gradient(op: tf.Operation, i: int, o: int) -> Local:
    # MaxPoolGrad takes what was pooled as well, of which only the places of the maxima matter.
    is_cotangent = i == (1 if op.type.startswith("AvgPool") else 2)
    return Local(Kind.WINDOW, (_EXAMPLES,)) if is_cotangent else ZERO


def _dilation(op: tf.Operation, i: int, o: int) -> Local:
    return Local(Kind.WINDOW, (_EXAMPLES, (3, 3)) if i == 0 else ((3, 2),))


def _resizing(op: tf.Operation, i: int, o: int) -> Local:
    return ZERO if i > 0 else Local(Kind.WINDOW, (_EXAMPLES, (3, 3)))


def _cropping(op: tf.Operation, i: int, o: int) -> Local:
    # Which picture each box is cut from stands in input 2, so the boxes do not follow examples.
    if i == 0:
        return Local(Kind.WINDOW, ((3, 3),))
    return Local(Kind.WINDOW, (_EXAMPLES,)) if i == 1 else ZERO


_CONVOLUTION = Rule(_convolution, _convolution_flops)
_POOLING = Rule(_pooling, _pooling_flops)
_RESIZING = Rule(_resizing, _pooling_flops)

TABLE: dict[str, Rule] = {
    **family("Conv2D Conv3D", _CONVOLUTION),
    "DepthwiseConv2dNative": Rule(_depthwise, _depthwise_flops),
    **family("Conv2DBackpropInput Conv3DBackpropInputV2 DepthwiseConv2dNativeBackpropInput",
             Rule(_transposed, _transposed_flops)),
    **family("Conv2DBackpropFilter Conv3DBackpropFilterV2 DepthwiseConv2dNativeBackpropFilter",
             Rule(_of_filter, _pooling_flops)),
    **family("AvgPool AvgPool3D MaxPool MaxPool3D MaxPoolV2", _POOLING),
    **family("FractionalAvgPool FractionalMaxPool MaxPoolWithArgmax",
             Rule(_pooling_of_last, _pooling_flops)),
    **family("AvgPoolGrad AvgPool3DGrad MaxPoolGrad MaxPool3DGrad MaxPoolGradV2",
             Rule(_pooling_gradient, _pooling_flops)),
    "Dilation2D": Rule(_dilation, _pooling_flops),
    **family("ResizeArea ResizeBicubic ResizeBilinear ResizeNearestNeighbor", _RESIZING),
    "CropAndResize": Rule(_cropping, _pooling_flops),
    "ScaleAndTranslate": Rule(_resizing, _pooling_flops),
    "ImageProjectiveTransformV3": Rule(_resizing, _pooling_flops),
}  # fmt: skip
