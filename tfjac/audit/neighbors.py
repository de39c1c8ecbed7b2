"""Samples of convolution, pooling, images and normalization over neighbors."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tfjac.audit.samples import public, raw, single, spread

_BOXES = np.array([[0.1, 0.2, 0.7, 0.9], [0.05, 0.3, 0.8, 0.6]], np.float32)
_TURN = np.array([[0.9, 0.2, 0.1, -0.1, 0.8, 0.3, 0.0, 0.0]], np.float32)
_FLAT = {"ksize": [1, 2, 2, 1], "strides": [1, 1, 2, 1], "padding": "VALID"}
_DEEP = {"ksize": [1, 1, 2, 2, 1], "strides": [1, 1, 1, 2, 1], "padding": "VALID"}


def _lrn(x, depth_radius=1, bias=1.5, alpha=0.7, beta=0.6):
    """The definition, in any dtype."""
    squares = tf.pad(x * x, [[0, 0]] * 3 + [[depth_radius] * 2])
    depth = x.shape[-1]
    around = tf.add_n([squares[..., k : k + depth] for k in range(2 * depth_radius + 1)])
    return x / (bias + alpha * around) ** beta


# fmt: off
CONVOLUTIONS = [
    *[raw("Conv2D", spread(*x), spread(*w, seed=1), strides=[1, *strides, 1], padding=padding,
          dilations=[1, *dilations, 1], explicit_paddings=explicit, name=name)
      for name, x, w, strides, padding, dilations, explicit in (
          ("strided", (1, 3, 4, 2), (2, 2, 2, 2), (1, 2), "VALID", (1, 1), []),
          ("same", (1, 3, 2, 2), (2, 1, 2, 2), (2, 1), "SAME", (1, 1), []),
          ("explicit", (2, 2, 2, 1), (2, 2, 1, 1), (1, 1), "EXPLICIT", (1, 1),
           [0, 0, 1, 0, 0, 1, 0, 0]),
          ("one by one", (2, 1, 2, 2), (1, 1, 2, 2), (1, 1), "VALID", (1, 1), []),
          ("dilated", (1, 4, 3, 1), (2, 2, 1, 1), (1, 1), "VALID", (1, 2), []),
          ("grouped", (1, 2, 2, 4), (1, 2, 2, 2), (1, 1), "VALID", (1, 1), []))],
    *[raw("Conv2D", single(*x), single(*w, seed=1), strides=[1, 1, 1, 1], padding="VALID",
          dilations=[1, *dilations, 1], name=f"{name}, float32")
      for name, x, w, dilations in (("dilated", (1, 4, 3, 1), (2, 2, 1, 1), (1, 2)),
                                    ("grouped", (1, 2, 2, 4), (1, 2, 2, 2), (1, 1)))],
    raw("Conv3D", spread(1, 2, 3, 2, 1), spread(1, 2, 2, 1, 2, seed=1), strides=[1, 1, 1, 1, 1],
        padding="VALID", name="plain"),
    raw("DepthwiseConv2dNative", spread(1, 3, 2, 2), spread(2, 2, 2, 2, seed=1),
        strides=[1, 1, 1, 1], padding="VALID", name="plain"),
    raw("DepthwiseConv2dNative", spread(1, 3, 3, 2), spread(2, 1, 2, 1, seed=1),
        strides=[1, 2, 2, 1], padding="SAME", name="strided"),
    *[raw(name, spread(*w), spread(*g, seed=1), input_sizes=sizes, strides=strides, padding=padding,
          name=padding)
      for name, sizes, w, g, strides, padding in (
          ("Conv2DBackpropInput", [1, 3, 4, 2], (2, 2, 2, 1), (1, 2, 2, 1), [1, 1, 2, 1], "VALID"),
          ("Conv2DBackpropInput", [1, 3, 3, 2], (2, 2, 2, 1), (1, 2, 2, 1), [1, 2, 2, 1], "SAME"),
          ("Conv3DBackpropInputV2", [1, 2, 2, 2, 1], (1, 2, 1, 1, 2), (1, 2, 1, 2, 2),
           [1, 1, 1, 1, 1], "VALID"),
          ("DepthwiseConv2dNativeBackpropInput", [1, 3, 2, 2], (2, 1, 2, 2), (1, 2, 2, 4),
           [1, 1, 1, 1], "VALID"))],
    *[raw(name, spread(*x), spread(*g, seed=1), filter_sizes=sizes, strides=strides,
          padding="VALID", name="VALID")
      for name, sizes, x, g, strides in (
          ("Conv2DBackpropFilter", [2, 2, 2, 1], (1, 3, 4, 2), (1, 2, 2, 1), [1, 1, 2, 1]),
          ("Conv3DBackpropFilterV2", [1, 2, 1, 1, 2], (1, 2, 2, 2, 1), (1, 2, 1, 2, 2),
           [1, 1, 1, 1, 1]),
          ("DepthwiseConv2dNativeBackpropFilter", [2, 1, 2, 2], (1, 3, 2, 2), (1, 2, 2, 4),
           [1, 1, 1, 1]))],
]

POOLING = [
    *[raw(name, spread(1, 3, 4, 2), **_FLAT, name="VALID")
      for name in ("AvgPool", "MaxPool", "MaxPoolV2", "MaxPoolWithArgmax")],
    *[raw(name, spread(1, 3, 2, 1), ksize=[1, 2, 1, 1], strides=[1, 2, 1, 1], padding="SAME",
          name="SAME") for name in ("AvgPool", "MaxPool", "MaxPoolV2", "MaxPoolWithArgmax")],
    *[raw(name, spread(1, 2, 2, 2), ksize=[1, 2, 2, 1], strides=[1, 1, 1, 1], padding="SAME",
          name="as large as its input")
      for name in ("AvgPool", "MaxPool", "MaxPoolV2", "MaxPoolWithArgmax")],
    *[raw(name, np.ones([1, 2, 2, 1]), **_FLAT, name="ties")
      for name in ("MaxPool", "MaxPoolV2", "MaxPoolWithArgmax")],
    *[raw(name, single(1, 1, 3, 4, 1), **_DEEP, name="VALID") for name in ("AvgPool3D",
          "MaxPool3D")],
    *[raw(name, single(1, 1, 2, 2, 1), ksize=[1, 1, 2, 2, 1], strides=[1] * 5, padding="SAME",
          name="as large as its input") for name in ("AvgPool3D", "MaxPool3D")],
    *[raw(name, spread(1, 4, 3, 2), pooling_ratio=[1.0, 1.5, 1.2, 1.0], deterministic=True, seed=3,
          seed2=5, name="deterministic") for name in ("FractionalAvgPool", "FractionalMaxPool")],
    raw("AvgPoolGrad", spread(1, 2, 2, 1), orig_input_shape=[1, 3, 4, 1], **_FLAT, name="plain"),
    raw("AvgPool3DGrad", single(1, 1, 2, 2, 1), orig_input_shape=[1, 1, 3, 4, 1], **_DEEP,
        name="plain"),
    *[public(name, "by the gradient", lambda x, g, op=op, grad=grad, given=given: grad(
        orig_input=x, orig_output=tf.stop_gradient(op(input=x, **given)), grad=g, **given),
        x, g, without=(0,))
      for name, op, grad, x, g, given in (
          ("MaxPoolGrad", tf.raw_ops.MaxPool, tf.raw_ops.MaxPoolGrad, spread(1, 3, 4, 1),
           spread(1, 2, 2, 1, seed=1), _FLAT),
          ("MaxPool3DGrad", tf.raw_ops.MaxPool3D, tf.raw_ops.MaxPool3DGrad, single(1, 1, 3, 4, 1),
           single(1, 1, 2, 2, 1, seed=1), _DEEP))],
    public("MaxPoolGradV2", "by the gradient", lambda x, g: tf.raw_ops.MaxPoolGradV2(
        orig_input=x, orig_output=tf.stop_gradient(tf.raw_ops.MaxPool(input=x, **_FLAT)), grad=g,
        **_FLAT), spread(1, 3, 4, 1), spread(1, 2, 2, 1, seed=1), without=(0,)),
    *[public(name, "by the gradient", lambda x, g, op=op, grad=grad, given=given: grad(
        orig_input=x, orig_output=tf.stop_gradient(op(input=x, **given)), grad=g, **given),
        x, g, without=(0,))
      for name, op, grad, x, g, given in (
          ("MaxPoolGradGrad", tf.raw_ops.MaxPool, tf.raw_ops.MaxPoolGradGrad, spread(1, 2, 4, 1),
           spread(1, 2, 4, 1, seed=1), _FLAT),
          ("MaxPool3DGradGrad", tf.raw_ops.MaxPool3D, tf.raw_ops.MaxPool3DGradGrad,
           single(1, 1, 2, 4, 1), single(1, 1, 2, 4, 1, seed=1), _DEEP))],
    raw("Dilation2D", spread(1, 3, 4, 1), spread(2, 2, 1, low=-0.5, high=0.6, seed=1),
        strides=[1, 1, 2, 1], rates=[1, 1, 1, 1], padding="VALID", name="VALID"),
    raw("Dilation2D", spread(1, 4, 2, 2), spread(2, 1, 2, low=-0.5, high=0.6, seed=1),
        strides=[1, 1, 1, 1], rates=[1, 2, 1, 1], padding="SAME", name="rates"),
]

IMAGES = [
    *[raw(name, spread(*shape), size=size, **more)
      for name in ("ResizeBicubic", "ResizeBilinear", "ResizeNearestNeighbor")
      for shape, size, more in (
          ((1, 2, 3, 2), [3, 2], {"half_pixel_centers": True}),
          ((1, 3, 2, 1), [2, 4], {"align_corners": True}), ((1, 2, 2, 1), [2, 2], {}),
          ((1, 4, 4, 1), [2, 3], {}))],
    *[raw("CropAndResize", single(2, 3, 4, 1), _BOXES, box_ind=[1, 0], crop_size=[2, 3],
          method=method, name=method) for method in ("bilinear", "nearest")],
    raw("CropAndResize", single(1, 3, 3, 1), _BOXES[:1], box_ind=[0], crop_size=[1, 2],
        name="one row"),
    raw("CropAndResize", single(1, 3, 3, 1), np.array([[0.1, 0.2, 1.3, 1.4]], np.float32),
        box_ind=[0], crop_size=[3, 3], extrapolation_value=0.5, name="beyond the image"),
    raw("ScaleAndTranslate", single(1, 3, 2, 1), np.array([2, 4], np.int32),
        np.array([0.8, 1.7], np.float32), np.array([0.1, -0.2], np.float32), name="antialias"),
    raw("ScaleAndTranslate", single(1, 3, 2, 1), np.array([2, 4], np.int32),
        np.array([0.8, 1.7], np.float32), np.array([0.1, -0.2], np.float32), antialias=False,
        kernel_type="triangle", name="triangle"),
    *[raw("ImageProjectiveTransformV3", spread(1, 3, 4, 1), _TURN, np.array([3, 3], np.int32),
          np.float32(0.2), interpolation=interpolation, fill_mode=fill,
          name=f"{interpolation}, {fill}")
      for interpolation in ("BILINEAR", "NEAREST")
      for fill in ("CONSTANT", "REFLECT", "WRAP", "NEAREST")],
    *[raw("ImageProjectiveTransformV2", spread(1, 3, 4, 1), _TURN, np.array([3, 3], np.int32),
          interpolation=interpolation, name=interpolation)
      for interpolation in ("BILINEAR", "NEAREST")],
    raw("ImageProjectiveTransformV3", spread(1, 3, 4, 1),
        np.array([[1.0, 0, 1, 0, 1, 0, 0, 0]], np.float32), np.array([3, 4], np.int32),
        np.float32(0.2), interpolation="NEAREST", name="a shift by one"),
    raw("RGBToHSV", np.array([[0.2, 0.7, 0.4], [0.9, 0.1, 0.3]]), name="inside"),
    raw("RGBToHSV", np.array([[0.5, 0.5, 0.5]]), name="gray"),
    raw("RGBToHSV", np.array([[0.0, 0.0, 0.0]]), name="black"),
    raw("RGBToHSV", np.array([[0.7, 0.7, 0.2]]), name="two alike"),
    raw("RGBToHSV", np.array([[0.3, 0.2, 0.9], [0.9, 0.3, 0.2], [0.2, 0.3, 0.9]]),
          name="all sixths"),
    raw("HSVToRGB", np.array([[0.2, 0.7, 0.4], [0.9, 0.1, 0.3]]), name="inside"),
    raw("LRN", single(1, 1, 3, 4), depth_radius=1, bias=1.5, alpha=0.7, beta=0.6, reference=_lrn,
        name="plain"),
    raw("DrawBoundingBoxes", single(1, 4, 4, 3, low=0.1, high=0.9), _BOXES[None], name="two boxes",
        without=(1,)),
    raw("ExtractGlimpse", single(1, 4, 4, 1), np.array([2, 2], np.int32),
        np.array([[0.0, 0.0]], np.float32), centered=True, normalized=True, name="center",
        without=(2,)),
    public("ResizeBilinearGrad", "plain", lambda g: tf.raw_ops.ResizeBilinearGrad(
        grads=g, original_image=tf.zeros([1, 2, 2, 1])), single(1, 3, 3, 1)),
]
# fmt: on

SAMPLES = [*CONVOLUTIONS, *POOLING, *IMAGES]
