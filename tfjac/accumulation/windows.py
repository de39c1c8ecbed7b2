"""Local Jacobians of convolution, pooling and resizing."""

from __future__ import annotations

import math

import tensorflow as tf

from tfjac import gradients, nominal, rules, tf_internals
from tfjac.accumulation import terms
from tfjac.accumulation.factors import Axis
from tfjac.accumulation.local import Steps, derivative, factor, native, term
from tfjac.graph import kernels
from tfjac.rules import Local

_TRANSPOSED = frozenset(
    {
        "Conv2DBackpropInput",
        "Conv3DBackpropInputV2",
        "DepthwiseConv2dNativeBackpropInput",
    }
)


def _linear(op: tf.Operation, i: int, o: int, found: Local, dtype: tf.DType) -> Steps | None:
    """An op that is linear in one input and does the same for each example."""
    out, given = op.outputs[o].shape, op.inputs[i].shape
    if (0, 0) not in found.links or not (out[1:] + given[1:]).is_fully_defined():
        return None
    own = op.inputs[i].dtype

    def run(tensor: tf.Tensor) -> tf.Tensor:
        inputs = list(op.inputs)
        inputs[i] = tensor
        if op.type in _TRANSPOSED:  # the first input is the shape of the output
            inputs[0] = tf.stack([tf.shape(tensor)[0], *out[1:].as_list()])
        (found_, *_) = tf_internals.same_op(op, inputs)
        return tf.ensure_shape(found_, [tensor.shape[0], *out[1:]])

    def push(tangent: tf.Tensor) -> tf.Tensor:
        return tf.cast(run(tf.cast(tangent, own)), dtype)

    def pull(cotangent: tf.Tensor) -> tf.Tensor:
        # Linear: where it is differentiated does not matter, only what shape it has.
        n = cotangent.shape[0] if cotangent.shape[0] is not None else tf.shape(cotangent)[0]
        where = tf.zeros([n, *given[1:].as_list()], own)
        made = run(where)
        (back,) = gradients.gradients(made, [where], [tf.cast(cotangent, made.dtype)])
        return tf.cast(back, dtype)

    each = rules.rule_of(op).flops(op) / max(1, nominal.shape_of(op.outputs[o])[0])
    kernel, channels = kernels.kernel_of(op)
    kind = {"kernel": kernel, "channels": channels, "weights": kernels.weights_of(op)}
    return (native(op, i, o, ((0, 0),), pull, push, each, **kind),)


def _linear_in_input(op: tf.Operation, i: int, o: int, found: Local, dtype) -> Steps | None:
    if i != (2 if op.type in _TRANSPOSED else 0):
        return None
    return _linear(op, i, o, found, dtype)


def _convolution(op: tf.Operation, i: int, o: int, found: Local, dtype) -> Steps | None:
    if i == 1 and op.type in ("Conv2D", "DepthwiseConv2dNative"):
        return _by_filter(op, dtype)
    return _linear_in_input(op, i, o, found, dtype)


def _by_filter(op: tf.Operation, dtype: tf.DType) -> Steps | None:
    """The patches that the filter is multiplied with, the same for each output channel."""
    rows, entries = terms.axes_of(op.outputs[0]), list(terms.axes_of(op.inputs[1]))
    channels = op.inputs[0].shape[-1]
    if op.get_attr("data_format") != b"NHWC" or channels is None:
        return None
    if channels != op.inputs[1].shape[2] or not op.inputs[1].shape.is_fully_defined():
        return None  # in groups
    if op.type == "Conv2D":
        entries[3] = rows[3]
    else:
        rows = (*rows[:3], (*entries[2], *entries[3]))
    patches = factor(lambda: _patches(op), (*rows[:3], *entries[:3]), dtype)
    return term(rows, tuple(entries), [patches])


def _patches(op: tf.Operation) -> tf.Tensor:
    """Returns what each entry of the filter meets, `[*output without channels, *filter[:3]]`."""
    x, padding = op.inputs[0], op.get_attr("padding").decode()
    if padding == "EXPLICIT":
        edges = op.get_attr("explicit_paddings")
        x, padding = tf.pad(x, [edges[2 * k : 2 * k + 2] for k in range(4)]), "VALID"
    height, width, channels = op.inputs[1].shape.as_list()[:3]
    found = tf.image.extract_patches(
        x, [1, height, width, 1], op.get_attr("strides"), op.get_attr("dilations"), padding
    )
    return tf.reshape(found, [*_sizes(found), height, width, channels])


def _sizes(patches: tf.Tensor) -> list[tf.Tensor | int]:
    known = patches.shape.as_list()[:3]
    return [tf.shape(patches)[k] if n is None else n for k, n in enumerate(known)]


def _pool(op: tf.Operation, i: int, o: int, found: Local, dtype: tf.DType) -> Steps | None:
    """Windows side by side, where each entry goes to one maximum or mean at most, or others."""
    tiles = _tiles(op, i, o)
    is_max = op.type.startswith("Max")
    if tiles is None:
        return _overlapping(op, dtype) if is_max else _linear(op, i, o, found, dtype)
    rows = tuple(terms.axes_of(op.outputs[o]))
    entries = tuple(
        (*group, *((Axis(tile, None, place),) if tile > 1 else ()))
        for place, (group, tile) in enumerate(zip(rows, tiles))
    )
    if not is_max:
        return term(rows, entries, scale=1.0 / math.prod(tiles))
    # By a cotangent of ones the gradient tells, of each window, the entry that was chosen.
    return term(rows, entries, [factor(lambda: derivative(op, i, o, dtype), entries, dtype)])


def _overlapping(op: tf.Operation, dtype: tf.DType) -> Steps | None:
    """Maxima of windows that share entries, or leave some out: by TensorFlow's gradient of it."""
    if op.type != "MaxPool" or op.get_attr("data_format") != b"NHWC":
        return None
    if op.get_attr("padding") == b"EXPLICIT":
        return None  # its second gradient has no such option
    x, y = op.inputs[0], op.outputs[0]
    # Of as many entries TensorFlow's second gradient is wrong.
    if not (x.shape[1:] + y.shape[1:]).is_fully_defined() or x.shape[1:] == y.shape[1:]:
        return None
    options = {name: op.get_attr(name) for name in ("ksize", "strides", "padding")}

    def carry(kernel, vectors: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
        # Of each example as many vectors, one after the other.
        count = tf.shape(vectors)[0] // tf.maximum(tf.shape(x)[0], 1)
        found = kernel(
            orig_input=tf.repeat(x, count, 0),
            orig_output=tf.repeat(y, count, 0),
            grad=tf.cast(vectors, x.dtype),
            **options,
        )
        return tf.cast(tf.ensure_shape(found, [vectors.shape[0], *like.shape[1:]]), dtype)

    each = rules.rule_of(op).flops(op) / max(1, nominal.shape_of(y)[0])
    kernel, _ = kernels.kernel_of(op)
    return (
        native(
            op, 0, 0, ((0, 0),),
            lambda cotangent: carry(tf.raw_ops.MaxPoolGrad, cotangent, x),
            lambda tangent: carry(tf.raw_ops.MaxPoolGradGrad, tangent, y),
            each, kernel=kernel, by_example=True,
        ),
    )  # fmt: skip


def _tiles(op: tf.Operation, i: int, o: int) -> list[int] | None:
    """Returns the sizes of the windows where they lie side by side and cover the input."""
    if op.type == "MaxPoolV2":
        return None
    sizes = [int(k) for k in op.get_attr("ksize")]
    out, given = op.outputs[o].shape.as_list(), op.inputs[i].shape.as_list()
    if sizes != [int(s) for s in op.get_attr("strides")] or sizes[0] != 1:
        return None
    pairs = list(zip(sizes, out, given))[1:]
    if any(n is None or m is None or k * n != m for k, n, m in pairs):
        return None
    return sizes


BY_TYPE = {
    **dict.fromkeys(("AvgPool", "AvgPool3D", "MaxPool", "MaxPool3D"), _pool),
    **dict.fromkeys(("Conv2D", "DepthwiseConv2dNative"), _convolution),
    **dict.fromkeys(
        ("Conv3D", "ResizeBilinear", "ResizeNearestNeighbor",
         "ResizeBicubic", *_TRANSPOSED),
        _linear_in_input,
    ),
}  # fmt: skip
