"""Samples of losses, normalization over a batch, cells of recurrent nets, and gradient ops."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tfjac.audit.samples import binary, public, raw, single, spread

_RESERVED = ("reserve_space_1", "reserve_space_2", "reserve_space_3")
_GIVEN = np.array([[0.2, -0.3], [0.7, 1.4]], np.float32)
_ALIKE = (((2, 3), (2, 3)), ((0, 2), (0, 2)))


def _normalized(x, scale, offset, mean=None, variance=None, epsilon=1e-4):
    """The definition of the first three outputs, in any dtype."""
    axes = list(range(x.shape.rank - 1))
    if mean is None or not mean.shape[0]:
        mean, variance = tf.reduce_mean(x, axes), tf.math.reduce_variance(x, axes)
        count = x.shape.num_elements() / x.shape[-1]
        given = mean, variance * count / (count - 1)
    else:
        given = mean, variance
    return (x - mean) * scale / tf.sqrt(variance + epsilon) + offset, *given


def _batch_norm(name, is_training):
    def fn(*args):
        return getattr(tf.raw_ops, name)(
            x=args[0],
            scale=args[1],
            offset=args[2],
            is_training=is_training,
            mean=args[3] if len(args) > 3 else tf.zeros([0]),
            variance=args[4] if len(args) > 3 else tf.zeros([0]),
        )[:3]

    given = [] if is_training else [single(2, low=0.1, seed=3), single(2, low=0.4, seed=4)]
    inputs = [single(2, 1, 2, 2), single(2, low=0.5, seed=1), single(2, seed=2), *given]
    return public(
        name, "training" if is_training else "inference", fn, *inputs, reference=_normalized
    )


def _ctc(x):
    indices = tf.constant([[0, 0], [0, 1], [1, 0]], tf.int64)
    return tf.raw_ops.CTCLoss(
        inputs=x, labels_indices=indices, labels_values=[1, 0, 1], sequence_length=[3, 2]
    )[0]


def _lstm(name):
    def fn(x, cs, h, w, wci, wcf, wco, b):
        return getattr(tf.raw_ops, name)(
            seq_len_max=np.int64(2),
            x=x,
            cs_prev=cs,
            h_prev=h,
            w=w,
            wci=wci,
            wcf=wcf,
            wco=wco,
            b=b,
            use_peephole=True,
        )[-1]

    cells, inputs, batch = 1, 2, 1
    shapes = [
        (2, batch, inputs),
        (batch, cells),
        (batch, cells),
        (inputs + cells, 4 * cells),
        (cells,),
        (cells,),
        (cells,),
        (4 * cells,),
    ]
    return public(
        name,
        "with peephole",
        fn,
        *(single(*shape, low=-0.9, high=1.0, seed=k) for k, shape in enumerate(shapes)),
    )


# fmt: off
LOSSES = [
    raw("SoftmaxCrossEntropyWithLogits", spread(2, 3), np.array([[0.2, 0.5, 0.3], [0.6, 0.1, 0.3]]),
        name="probabilities"),
    raw("SoftmaxCrossEntropyWithLogits", spread(2, 3), spread(2, 3, low=0.1, high=0.9, seed=1),
        name="labels that do not sum to 1"),
    raw("SoftmaxCrossEntropyWithLogits", spread(1, 3), spread(2, 3, low=0.1, high=0.9, seed=1),
        name="broadcast"),
    raw("SoftmaxCrossEntropyWithLogits", spread(2, 3), np.eye(2, 3), name="one-hot labels"),
    raw("SparseSoftmaxCrossEntropyWithLogits", spread(2, 3), np.array([2, 0]), name="plain"),
    public("CTCLoss", "two examples", _ctc, spread(3, 2, 3)),
]

NORMALIZATION = [
    *[_batch_norm(name, training) for name in ("FusedBatchNorm", "FusedBatchNormV2",
      "FusedBatchNormV3") for training in (True, False)],
    *[public(name, "training" if training else "inference", lambda g, x, s, name=name, n=n,
          t=training:
             getattr(tf.raw_ops, name)(
                 y_backprop=g, x=x, scale=s, is_training=t,
                 **dict(zip(_RESERVED, (*_statistics(x, t), tf.zeros([0]))[:n])))[:3],
             single(2, 1, 2, 2), single(2, 1, 2, 2, seed=5), single(2, low=0.5, seed=1),
             reference=lambda g, x, s, t=training: _pulled_back(g, x, s, t))
      for name, n in (("FusedBatchNormGrad", 2), ("FusedBatchNormGradV2", 2),
                      ("FusedBatchNormGradV3", 3)) for training in (True, False)],
    *[_lstm(name) for name in ("BlockLSTM", "BlockLSTMV2")],
]

GRADIENTS = [
    *binary("EluGrad ReluGrad SeluGrad SigmoidGrad SoftplusGrad TanhGrad", shapes=_ALIKE,
            edges=((1.0, 0.0),)),
    *binary("LeakyReluGrad", shapes=_ALIKE, alpha=0.3, edges=((1.0, 0.0),)),
    *binary("Relu6Grad", second=(-3.1, 8.0), shapes=_ALIKE, edges=((1.0, 6.0),)),
    *binary("ReciprocalGrad RsqrtGrad SqrtGrad InvGrad", first=(0.5, 2.1), shapes=_ALIKE),
    raw("BiasAddGrad", spread(2, 3), name="NHWC"),
    raw("BiasAddGrad", spread(2, 2, 1, 2), data_format="NCHW", name="NCHW"),
    public("StridedSliceGrad", "strides", lambda dy: tf.raw_ops.StridedSliceGrad(
        shape=[2, 5], begin=[0, 1], end=[2, 4], strides=[1, 2], dy=dy), spread(2, 2)),
    raw("MirrorPadGrad", spread(2, 4), paddings=[[0, 0], [1, 1]], mode="REFLECT"),
    *[raw(f"FakeQuantWithMinMax{kind}Gradient", single(2, 3), single(2, 3, seed=1), *more,
          name="by the gradient", without=(1, 2, 3))
      for kind, more in (("Args", ()), ("Vars", (np.float32(-1.0), np.float32(1.5))),
                         ("VarsPerChannel", (-np.ones(3, np.float32), np.ones(3, np.float32))))],
    raw("LinSpace", np.array(0.2), np.array(1.3), num=4),
    raw("Range", np.array(0.2), np.array(1.35), np.array(0.3), name="plain"),
    raw("OneHot", np.array(0.7), np.array(-0.2), indices=[0, 2, 1], depth=3, axis=1),
]
# fmt: on


def _statistics(x, is_training):
    """Returns mean and variance: of the batch, or given ones."""
    if not is_training:
        return _GIVEN
    axes = list(range(x.shape.rank - 1))
    return tf.reduce_mean(x, axes), tf.math.reduce_variance(x, axes)


def _pulled_back(g, x, scale, is_training):
    """The gradients of the definition."""
    offset = tf.zeros_like(scale)
    given = [] if is_training else [tf.cast(t, x.dtype) for t in _GIVEN]
    y, *_ = _normalized(x, scale, offset, *given)
    return tf.gradients(y, [x, scale, offset], g)


SAMPLES = [*LOSSES, *NORMALIZATION, *GRADIENTS]
