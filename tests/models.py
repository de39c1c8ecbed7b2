"""Models and functions of a batch, each with whether its examples stay apart.

`apart` speaks of derivatives: example b of y has none by another example of x. `name` is the Keras
layer for rows that are one layer (`keras.Conv2D.dilated`), `stack.`, `op.` and `flow.` for models
of several, single ops and control flow that keep examples apart, `mix.` for what mixes them and
`open.` for what keeps them apart in a way that need not be seen.
"""

from __future__ import annotations

import dataclasses
import functools
import tempfile
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf
from keras import layers as kl

Function = Callable[[tf.Tensor], tf.Tensor]


@dataclasses.dataclass(frozen=True)
class Model:
    """One function of a batch of examples.

    Args:
      name: its name in test ids.
      make: returns the function, built anew from fixed seeds.
      shape: of one example.
      apart: whether examples stay apart; None where either answer will do, though examples do stay
        apart, so that a Jacobian that is given is right.
      why: the op type to be named where examples mix; "" where several would do.
      oracle: whether `numerical_batch_mixing` tells; False where it depends on a draw, or where
        TensorFlow takes the derivative of one evaluation only once.
    """

    name: str
    make: Callable[[], Function]
    shape: tuple[int, ...]
    apart: bool | None = True
    why: str = ""
    oracle: bool = True

    def inputs(self, examples: int = 3, seed: int = 0) -> np.ndarray:
        """Returns a batch in [-1, 1)."""
        values = np.random.default_rng(seed).uniform(-1, 1, (examples, *self.shape))
        return values.astype(np.float32)


def numerical_batch_mixing(fn: Function, x: np.ndarray) -> float:
    """Returns the largest |dy[b] / dx[b']| for b' other than b, over the largest entry of all.

    One eager evaluation, so one draw of what is random, and one reverse pass for each entry of y.

    Args:
      fn: from x to y, with as many examples in y as in x.
      x: a batch.
    """
    given = tf.constant(x)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(given)
        y = fn(given)
    full = tape.jacobian(y, given, experimental_use_pfor=False)
    if full is None:
        return 0.0
    examples = x.shape[0]
    if y.shape[0] != examples:
        raise ValueError(f"{y.shape[0]} examples in y, {examples} in x")
    size = np.abs(full.numpy()).reshape(examples, -1, examples, max(x.size // examples, 1))
    by_pair = size.max(axis=(1, 3), initial=0.0)
    return float(by_pair[~np.eye(examples, dtype=bool)].max() / max(by_pair.max(), 1e-30))


def _weights(*shape: int, seed: int = 7) -> tf.Tensor:
    values = np.random.default_rng(seed).uniform(-1, 1, shape)
    return tf.constant(values.astype(np.float32))


def _built(build: Callable[[], Callable], shape, **call) -> Function:
    keras.utils.set_random_seed(0)
    layer = build()

    def fn(x):
        return layer(x, **call)

    fn(tf.zeros((2, *shape)))
    return fn


def _model(name, build, shape, *, apart=True, why="", oracle=True, **call) -> Model:
    make = functools.partial(_built, build, shape, **call)
    return Model(name, make, shape, apart, why, oracle)


def _keras(name, build, shape, **kwargs) -> Model:
    return _model(f"keras.{name}", build, shape, **kwargs)


def _function(name, fn, shape, apart=True, why="", oracle=True) -> Model:
    return Model(name, lambda: fn, shape, apart, why, oracle)


def _mix(name, fn, shape=(4,), why="", oracle=True) -> Model:
    return _function(f"mix.{name}", fn, shape, False, why, oracle)


def _op(name, fn, shape=(4,)) -> Model:
    return _function(f"op.{name}", fn, shape)


def _flow(name, fn, shape=(4,)) -> Model:
    return _function(f"flow.{name}", fn, shape)


def _open(name, fn, shape=(4,), oracle=True) -> Model:
    return _function(f"open.{name}", fn, shape, None, "", oracle)


# Layers of Keras.

NO_DERIVATIVE = {
    "CategoryEncoding": "of whole numbers",
    "ContrastLimitedAdaptiveHistogramEqualization": "constant between steps",
    "Discretization": "to whole numbers",
    "Embedding": "of whole numbers",
    "Equalization": "constant between steps",
    "HashedCrossing": "of text or whole numbers",
    "Hashing": "of text or whole numbers",
    "IntegerLookup": "of whole numbers",
    "StringLookup": "of text",
    "TextVectorization": "of text",
    "MaxNumBoundingBoxes": "of boxes, not of images",
    "RandomColorJitter": "the op HSVToRGB has none in TensorFlow",
    "RandomHue": "the op HSVToRGB has none in TensorFlow",
    "RandomPosterization": "constant between steps",
    "RandomSaturation": "the op HSVToRGB has none in TensorFlow",
    "FlaxLayer": "runs on JAX",
    "JaxLayer": "runs on JAX",
    "TorchModuleWrapper": "runs on PyTorch",
    "InputLayer": "a place for an input, not a function of one",
    "InputSpec": "not a layer",
    "Layer": "a base class",
    "Wrapper": "a base class",
}

ACTIVATIONS = (
    "celu", "elu", "exponential", "gelu", "glu", "hard_shrink", "hard_sigmoid", "hard_silu",
    "hard_tanh", "leaky_relu", "linear", "log_sigmoid", "log_softmax", "mish", "relu", "relu6",
    "selu", "sigmoid", "silu", "soft_shrink", "softmax", "softplus", "softsign", "sparse_plus",
    "sparse_sigmoid", "sparsemax", "squareplus", "tanh", "tanh_shrink",
)  # fmt: skip


def _activation(name: str) -> Model:
    return _keras(f"Activation.{name}", lambda: kl.Activation(name), (4,))


def _threshold(x):
    return keras.activations.threshold(x, 0.1, 0.0)


def _merged(build) -> Callable[[], Callable]:
    """Returns how to build the layer that brings x and a function of x together."""

    def build_merged():
        layer = build()
        return lambda x: layer([x, tf.sin(2.0 * x)])

    return build_merged


def _self_attention(build) -> Callable[[], Callable]:
    def build_attention():
        layer = build()
        return lambda x, **call: layer(x, x, **call)

    return build_attention


def _cell(build, states: int) -> Callable[[], Callable]:
    """Returns how to build one step of a cell of two units from zeros."""

    def build_step():
        cell = build()

        def step(x):
            zeros = tf.zeros([tf.shape(x)[0], 2])
            return cell(x, [zeros] * states)[0]

        return step

    return build_step


_CONVOLUTIONS = (
    _keras("Conv1D", lambda: kl.Conv1D(4, 3), (6, 3)),
    _keras("Conv1D.causal_dilated", lambda: kl.Conv1D(2, 2, padding="causal", dilation_rate=2),
           (6, 3)),
    _keras("Conv1D.strided_same", lambda: kl.Conv1D(2, 3, strides=2, padding="same"), (6, 3)),
    _keras("Conv1D.groups", lambda: kl.Conv1D(4, 3, groups=2), (5, 4)),
    _keras("Conv2D", lambda: kl.Conv2D(3, 3), (5, 5, 2)),
    _keras("Conv2D.strided_same", lambda: kl.Conv2D(2, 3, strides=2, padding="same"), (5, 5, 2)),
    _keras("Conv2D.dilated", lambda: kl.Conv2D(2, 2, dilation_rate=2), (5, 5, 2)),
    _keras("Conv2D.groups", lambda: kl.Conv2D(4, 2, groups=2, activation="relu"), (4, 4, 2)),
    _keras("Conv3D", lambda: kl.Conv3D(2, 2), (3, 3, 3, 2)),
    _keras("Conv3D.strided_same", lambda: kl.Conv3D(2, 2, strides=2, padding="same"), (3, 3, 3, 1)),
    _keras("Conv1DTranspose", lambda: kl.Conv1DTranspose(2, 3, strides=2), (5, 3)),
    _keras("Conv1DTranspose.dilated", lambda: kl.Conv1DTranspose(2, 2, dilation_rate=2), (5, 3)),
    _keras("Conv2DTranspose", lambda: kl.Conv2DTranspose(1, 3, strides=2, padding="same"),
           (3, 3, 2)),
    _keras("Conv3DTranspose", lambda: kl.Conv3DTranspose(1, 2, strides=2), (2, 2, 1, 2)),
    _keras("DepthwiseConv1D", lambda: kl.DepthwiseConv1D(3), (6, 3)),
    _keras("DepthwiseConv2D", lambda: kl.DepthwiseConv2D(2, depth_multiplier=2), (4, 4, 2)),
    _keras("DepthwiseConv2D.dilated", lambda: kl.DepthwiseConv2D(2, dilation_rate=2), (5, 5, 2)),
    _keras("DepthwiseConv2D.dilated_same",
           lambda: kl.DepthwiseConv2D(3, dilation_rate=2, padding="same"), (5, 5, 2)),
    _keras("SeparableConv1D", lambda: kl.SeparableConv1D(4, 3), (6, 3)),
    _keras("SeparableConv1D.dilated", lambda: kl.SeparableConv1D(4, 2, dilation_rate=2), (6, 3)),
    _keras("SeparableConv2D", lambda: kl.SeparableConv2D(4, 2), (4, 4, 3)),
    _keras("SeparableConv2D.strided",
           lambda: kl.SeparableConv2D(3, 2, strides=2, padding="same"), (4, 4, 3)),
)  # fmt: skip

_POOLINGS = (
    _keras("MaxPooling1D", lambda: kl.MaxPooling1D(2), (6, 3)),
    _keras("MaxPooling2D", lambda: kl.MaxPooling2D(2), (4, 4, 3)),
    _keras("MaxPooling2D.overlapping", lambda: kl.MaxPooling2D(3, strides=1, padding="same"),
           (4, 4, 2)),
    _keras("MaxPooling3D", lambda: kl.MaxPooling3D(2), (4, 2, 2, 2)),
    _keras("AveragePooling1D", lambda: kl.AveragePooling1D(2, strides=1, padding="same"), (6, 3)),
    _keras("AveragePooling2D", lambda: kl.AveragePooling2D(2), (4, 4, 3)),
    _keras("AveragePooling3D", lambda: kl.AveragePooling3D(2), (4, 2, 2, 2)),
    _keras("GlobalMaxPooling1D", lambda: kl.GlobalMaxPooling1D(), (6, 3)),
    _keras("GlobalMaxPooling2D", lambda: kl.GlobalMaxPooling2D(keepdims=True), (3, 3, 2)),
    _keras("GlobalMaxPooling3D", lambda: kl.GlobalMaxPooling3D(), (2, 2, 2, 3)),
    _keras("GlobalAveragePooling1D", lambda: kl.GlobalAveragePooling1D(), (6, 3)),
    _keras("GlobalAveragePooling2D", lambda: kl.GlobalAveragePooling2D(keepdims=True), (3, 3, 2)),
    _keras("GlobalAveragePooling3D", lambda: kl.GlobalAveragePooling3D(), (2, 2, 2, 3)),
    _keras("AdaptiveAveragePooling1D", lambda: kl.AdaptiveAveragePooling1D(3), (5, 2)),
    _keras("AdaptiveAveragePooling2D", lambda: kl.AdaptiveAveragePooling2D((2, 3)), (5, 4, 2)),
    _keras("AdaptiveAveragePooling3D", lambda: kl.AdaptiveAveragePooling3D(2), (3, 3, 3, 1)),
    _keras("AdaptiveMaxPooling1D", lambda: kl.AdaptiveMaxPooling1D(3), (5, 2)),
    _keras("AdaptiveMaxPooling2D", lambda: kl.AdaptiveMaxPooling2D((2, 3)), (5, 4, 2)),
    _keras("AdaptiveMaxPooling3D", lambda: kl.AdaptiveMaxPooling3D(2), (3, 3, 3, 1)),
)  # fmt: skip

_NORMALIZATIONS = (
    _keras("BatchNormalization", lambda: kl.BatchNormalization(), (4,)),
    _keras("BatchNormalization.images", lambda: kl.BatchNormalization(), (3, 3, 2)),
    _keras("BatchNormalization.frozen", lambda: kl.BatchNormalization(trainable=False), (4,),
           training=True),
    _keras("LayerNormalization", lambda: kl.LayerNormalization(), (4,)),
    _keras("LayerNormalization.two_axes", lambda: kl.LayerNormalization(axis=[1, 2]), (3, 4)),
    _keras("RMSNormalization", lambda: kl.RMSNormalization(), (3, 4)),
    _keras("GroupNormalization", lambda: kl.GroupNormalization(groups=2), (3, 3, 4)),
    _keras("GroupNormalization.instance", lambda: kl.GroupNormalization(groups=-1), (3, 3, 4)),
    _keras("UnitNormalization", lambda: kl.UnitNormalization(), (3, 4)),
    _keras("SpectralNormalization", lambda: kl.SpectralNormalization(kl.Dense(3)), (4,)),
    _keras("SpectralNormalization.training", lambda: kl.SpectralNormalization(kl.Conv1D(2, 2)),
           (4, 2), training=True),
    _keras("Normalization", lambda: kl.Normalization(mean=[0.1, 0.2], variance=[1.0, 2.0]), (2,)),
    _keras("Normalization.inverse", lambda: kl.Normalization(mean=0.1, variance=2.0, invert=True,
                                                             axis=None), (3,)),
)  # fmt: skip

_CORE = (
    _keras("Dense", lambda: kl.Dense(3, activation="tanh"), (5,)),
    _keras("Dense.sequence", lambda: kl.Dense(5), (3, 4)),
    _keras("EinsumDense", lambda: kl.EinsumDense("abc,cd->abd", (None, 5), bias_axes="d"), (3, 4)),
    _keras("EinsumDense.ellipsis", lambda: kl.EinsumDense("...x,xy->...y", 5, bias_axes="y"),
           (2, 2, 3)),
    _keras("ReversibleEmbedding", lambda: kl.ReversibleEmbedding(5, 4), (3, 4), reverse=True),
    _keras("Identity", lambda: kl.Identity(), (4,)),
    _keras("Lambda", lambda: kl.Lambda(lambda x: x * tf.sin(x)), (4,)),
    _keras("Masking", lambda: kl.Masking(), (4, 3)),
    _keras("ActivityRegularization", lambda: kl.ActivityRegularization(l2=0.1), (4,)),
    _keras("LeakyReLU", lambda: kl.LeakyReLU(), (4,)),
    _keras("PReLU", lambda: kl.PReLU(alpha_initializer="ones"), (3, 2)),
    _keras("PReLU.shared", lambda: kl.PReLU("random_normal", shared_axes=[1]), (3, 2)),
    _keras("ELU", lambda: kl.ELU(), (4,)),
    _keras("ReLU", lambda: kl.ReLU(max_value=0.5, negative_slope=0.1, threshold=0.1), (4,)),
    _keras("Softmax", lambda: kl.Softmax(), (3, 4)),
    _keras("Softmax.two_axes", lambda: kl.Softmax(axis=(1, 2)), (3, 4)),
    _keras("Activation.threshold", lambda: kl.Activation(_threshold), (4,)),
    *map(_activation, ACTIVATIONS),
)  # fmt: skip

_RESHAPING = (
    _keras("Reshape", lambda: kl.Reshape((2, 3)), (6,)),
    _keras("Reshape.left_over", lambda: kl.Reshape((-1, 2)), (4, 3)),
    _keras("Flatten", lambda: kl.Flatten(), (2, 3)),
    _keras("Flatten.scalars", lambda: kl.Flatten(), ()),
    _keras("Permute", lambda: kl.Permute((2, 1)), (2, 3)),
    _keras("RepeatVector", lambda: kl.RepeatVector(3), (4,)),
    _keras("Cropping1D", lambda: kl.Cropping1D((1, 2)), (6, 2)),
    _keras("Cropping2D", lambda: kl.Cropping2D(((1, 0), (1, 1))), (4, 4, 2)),
    _keras("Cropping3D", lambda: kl.Cropping3D(1), (3, 4, 3, 1)),
    _keras("ZeroPadding1D", lambda: kl.ZeroPadding1D((1, 2)), (4, 2)),
    _keras("ZeroPadding2D", lambda: kl.ZeroPadding2D(((1, 0), (1, 1))), (3, 3, 2)),
    _keras("ZeroPadding3D", lambda: kl.ZeroPadding3D(1), (2, 1, 2, 1)),
    _keras("UpSampling1D", lambda: kl.UpSampling1D(2), (4, 2)),
    _keras("UpSampling2D", lambda: kl.UpSampling2D(2), (2, 3, 2)),
    _keras("UpSampling2D.bilinear", lambda: kl.UpSampling2D(2, interpolation="bilinear"),
           (2, 3, 2)),
    _keras("UpSampling3D", lambda: kl.UpSampling3D(2), (2, 1, 2, 1)),
)  # fmt: skip

_MERGING = (
    _keras("Add", _merged(lambda: kl.Add()), (4,)),
    _keras("Subtract", _merged(lambda: kl.Subtract()), (4,)),
    _keras("Multiply", _merged(lambda: kl.Multiply()), (4,)),
    _keras("Maximum", _merged(lambda: kl.Maximum()), (4,)),
    _keras("Minimum", _merged(lambda: kl.Minimum()), (4,)),
    _keras("Average", _merged(lambda: kl.Average()), (4,)),
    _keras("Concatenate", _merged(lambda: kl.Concatenate()), (4,)),
    _keras("Concatenate.axis_1", _merged(lambda: kl.Concatenate(axis=1)), (3, 2)),
    _keras("Dot", _merged(lambda: kl.Dot(axes=1)), (4,)),
    _keras("Dot.matrices", _merged(lambda: kl.Dot(axes=(2, 2), normalize=True)), (3, 2)),
)

_RECURRENT = (
    _keras("LSTM", lambda: kl.LSTM(2), (4, 3)),
    _keras("LSTM.sequences", lambda: kl.LSTM(2, return_sequences=True), (4, 3)),
    _keras("LSTM.backwards", lambda: kl.LSTM(2, go_backwards=True), (4, 3)),
    _keras("LSTM.unrolled", lambda: kl.LSTM(2, unroll=True, return_sequences=True), (4, 3)),
    _keras("LSTM.dropout", lambda: kl.LSTM(2, dropout=0.3, recurrent_dropout=0.3), (4, 3),
           training=True),
    _keras("GRU", lambda: kl.GRU(2), (4, 3)),
    _keras("GRU.reset_before", lambda: kl.GRU(2, reset_after=False, return_sequences=True), (4, 3)),
    _keras("SimpleRNN", lambda: kl.SimpleRNN(2), (4, 3)),
    _keras("RNN", lambda: kl.RNN(kl.SimpleRNNCell(2), return_sequences=True), (4, 3)),
    _keras("LSTMCell", _cell(lambda: kl.LSTMCell(2), 2), (3,)),
    _keras("GRUCell", _cell(lambda: kl.GRUCell(2), 1), (3,)),
    _keras("SimpleRNNCell", _cell(lambda: kl.SimpleRNNCell(2), 1), (3,)),
    _keras("StackedRNNCells",
           lambda: kl.RNN(kl.StackedRNNCells([kl.LSTMCell(3), kl.GRUCell(2)])), (4, 3)),
    _keras("ConvLSTM1D", lambda: kl.ConvLSTM1D(2, 2), (3, 4, 2)),
    _keras("ConvLSTM2D", lambda: kl.ConvLSTM2D(2, 2, padding="same", return_sequences=True),
           (2, 3, 3, 1)),
    _keras("ConvLSTM3D", lambda: kl.ConvLSTM3D(2, 2), (2, 2, 2, 2, 1)),
    _keras("Bidirectional", lambda: kl.Bidirectional(kl.LSTM(2, return_sequences=True)), (4, 3)),
    _keras("Bidirectional.sum", lambda: kl.Bidirectional(kl.GRU(2), merge_mode="sum"), (4, 3)),
    _keras("TimeDistributed", lambda: kl.TimeDistributed(kl.Dense(2)), (4, 3)),
    _keras("TimeDistributed.Conv1D", lambda: kl.TimeDistributed(kl.Conv1D(2, 2)), (3, 4, 2)),
)  # fmt: skip

_ATTENTION = (
    _keras("MultiHeadAttention", _self_attention(lambda: kl.MultiHeadAttention(2, 3)), (3, 4)),
    _keras("MultiHeadAttention.causal", _self_attention(lambda: kl.MultiHeadAttention(2, 3)),
           (3, 4), use_causal_mask=True),
    _keras("MultiHeadAttention.two_axes",
           _self_attention(lambda: kl.MultiHeadAttention(2, 2, attention_axes=(1, 2))), (2, 2, 4)),
    _keras("MultiHeadAttention.dropout",
           _self_attention(lambda: kl.MultiHeadAttention(2, 3, dropout=0.3)), (3, 4),
           training=True),
    _keras("GroupQueryAttention", _self_attention(lambda: kl.GroupQueryAttention(2, 4, 2)),
           (3, 4)),
    _keras("GroupQueryAttention.causal", _self_attention(lambda: kl.GroupQueryAttention(2, 2, 1)),
           (3, 4), use_causal_mask=True),
    _keras("Attention", _merged(lambda: kl.Attention(use_scale=True)), (3, 4)),
    _keras("Attention.concat", _merged(lambda: kl.Attention(score_mode="concat")), (3, 2)),
    _keras("AdditiveAttention", _merged(lambda: kl.AdditiveAttention()), (3, 2)),
)  # fmt: skip


def _noise(name, build, shape) -> tuple[Model, Model]:
    return (_keras(name, build, shape), _keras(f"{name}.training", build, shape, training=True))


_NOISE = (
    *_noise("Dropout", lambda: kl.Dropout(0.4), (6,)),
    _keras("Dropout.shared", lambda: kl.Dropout(0.4, noise_shape=(1, None)), (6,), training=True),
    *_noise("AlphaDropout", lambda: kl.AlphaDropout(0.4), (6,)),
    *_noise("GaussianDropout", lambda: kl.GaussianDropout(0.4), (6,)),
    *_noise("GaussianNoise", lambda: kl.GaussianNoise(0.4), (6,)),
    *_noise("SpatialDropout1D", lambda: kl.SpatialDropout1D(0.4), (4, 3)),
    *_noise("SpatialDropout2D", lambda: kl.SpatialDropout2D(0.4), (2, 2, 3)),
    *_noise("SpatialDropout3D", lambda: kl.SpatialDropout3D(0.4), (2, 2, 1, 3)),
)

_PICTURE = (4, 4, 3)
_RANGE = (-1.0, 1.0)


def _image(name, build, **kwargs) -> Model:
    return _keras(name, build, _PICTURE, training=True, **kwargs)


_PREPROCESSING = (
    _keras("Rescaling", lambda: kl.Rescaling(2.0, offset=0.1), (4,)),
    _keras("Pipeline", lambda: kl.Pipeline([kl.Rescaling(2.0), kl.CenterCrop(2, 2)]), _PICTURE),
    _keras("Resizing", lambda: kl.Resizing(3, 5), _PICTURE),
    _keras("Resizing.nearest", lambda: kl.Resizing(3, 5, interpolation="nearest"), _PICTURE),
    _keras("Resizing.bicubic", lambda: kl.Resizing(3, 5, interpolation="bicubic"), _PICTURE),
    _keras("Resizing.antialias", lambda: kl.Resizing(2, 3, antialias=True), _PICTURE),
    _keras("Resizing.crop", lambda: kl.Resizing(2, 3, crop_to_aspect_ratio=True), _PICTURE),
    _keras("Resizing.pad", lambda: kl.Resizing(3, 5, pad_to_aspect_ratio=True), _PICTURE),
    _keras("CenterCrop", lambda: kl.CenterCrop(2, 3), _PICTURE),
    _keras("CenterCrop.larger", lambda: kl.CenterCrop(2, 5), _PICTURE),
    _keras("STFTSpectrogram", lambda: kl.STFTSpectrogram("magnitude", 6, 3, 8), (16, 1)),
    _keras("STFTSpectrogram.log", lambda: kl.STFTSpectrogram("log", 6, 3, 8), (16, 1)),
    _keras("MelSpectrogram", lambda: kl.MelSpectrogram(8, 4, num_mel_bins=3, power_to_db=False),
           (16,)),
    _image("AutoContrast", lambda: kl.AutoContrast(_RANGE)),
    _image("AugMix", lambda: kl.AugMix(_RANGE, num_chains=1, chain_depth=1, seed=1)),
    _image("RandAugment", lambda: kl.RandAugment(_RANGE, num_ops=1, seed=1)),
    _image("RandomBrightness", lambda: kl.RandomBrightness(0.3, _RANGE, seed=1)),
    _image("RandomColorDegeneration", lambda: kl.RandomColorDegeneration((0.2, 0.8), _RANGE,
                                                                         seed=1)),
    _image("RandomContrast", lambda: kl.RandomContrast(0.3, _RANGE, seed=1)),
    _image("RandomCrop", lambda: kl.RandomCrop(2, 3, seed=1)),
    _image("RandomElasticTransform", lambda: kl.RandomElasticTransform(value_range=_RANGE, seed=1)),
    _image("RandomErasing", lambda: kl.RandomErasing(value_range=_RANGE, seed=1)),
    _image("RandomFlip", lambda: kl.RandomFlip(seed=1)),
    _image("RandomGaussianBlur", lambda: kl.RandomGaussianBlur(value_range=_RANGE, seed=1)),
    _image("RandomGrayscale", lambda: kl.RandomGrayscale(seed=1)),
    _image("RandomInvert", lambda: kl.RandomInvert(0.5, _RANGE, seed=1)),
    _image("RandomPerspective", lambda: kl.RandomPerspective(seed=1)),
    _image("RandomRotation", lambda: kl.RandomRotation(0.3, seed=1)),
    _image("RandomSharpness", lambda: kl.RandomSharpness((0.2, 0.8), _RANGE, seed=1)),
    _image("RandomShear", lambda: kl.RandomShear(0.3, 0.3, seed=1)),
    _image("RandomTranslation", lambda: kl.RandomTranslation(0.3, 0.3, seed=1)),
    _image("RandomZoom", lambda: kl.RandomZoom(0.3, seed=1)),
    _image("Solarization", lambda: kl.Solarization(0.3, 0.5, _RANGE, seed=1)),
    _keras("RandomRotation.inference", lambda: kl.RandomRotation(0.3), _PICTURE, training=False),
)  # fmt: skip

_MIXING_LAYERS = (
    _keras("BatchNormalization.training", lambda: kl.BatchNormalization(), (4,), training=True,
           apart=False, why="Mean"),
    _keras("BatchNormalization.training_images", lambda: kl.BatchNormalization(), (3, 3, 2),
           training=True, apart=False, why="Mean"),
    _keras("UnitNormalization.examples", lambda: kl.UnitNormalization(axis=0), (4,), apart=False,
           why="Sum"),
    _keras("Softmax.examples", lambda: kl.Softmax(axis=0), (4,), apart=False, why="Softmax"),
    _keras("Lambda.mixing", lambda: kl.Lambda(lambda x: x - tf.reduce_mean(x, 0)), (4,),
           apart=False, why="Mean"),
    # The floor of the decibels is below the loudest of all examples.
    _keras("MelSpectrogram.decibels",
           lambda: kl.MelSpectrogram(8, 4, num_mel_bins=3, top_db=3.0), (16,), apart=False,
           why="Max"),
    _image("MixUp", lambda: kl.MixUp(1.0, seed=1), apart=False, why="GatherV2", oracle=False),
    _image("CutMix", lambda: kl.CutMix(seed=1), apart=False, why="GatherV2", oracle=False),
)  # fmt: skip


# Models of several layers.


def _reloaded_by_keras() -> Function:
    model = keras.Sequential([keras.Input((4,)), kl.Dense(5, "tanh"), kl.LayerNormalization()])
    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/model.keras")
        return keras.saving.load_model(f"{folder}/model.keras")


def _exported() -> Function:
    model = keras.Sequential([keras.Input((4, 3)), kl.Conv1D(3, 2), kl.LSTM(2)])
    with tempfile.TemporaryDirectory() as folder:
        model.export(folder, verbose=False)
        loaded = tf.saved_model.load(folder)
    return lambda x: loaded.serve(x)


def _as_layer() -> Function:
    model = keras.Sequential([keras.Input((4,)), kl.Dense(5, "tanh"), kl.Dense(3, "softmax")])
    with tempfile.TemporaryDirectory() as folder:
        model.export(folder, verbose=False)
        return kl.TFSMLayer(folder, call_endpoint="serve")


def _saved_module(fn: Function, shape) -> Callable[[], Function]:
    """Returns how to save a function without Keras and to load it again."""

    def build():
        module = tf.Module()
        spec = tf.TensorSpec([None, *shape])
        module.run = tf.function(fn, input_signature=[spec], autograph=False)
        with tempfile.TemporaryDirectory() as folder:
            tf.saved_model.save(module, folder)
            loaded = tf.saved_model.load(folder)
        return lambda x: loaded.run(x)

    return build


def _resnet_block():
    x = keras.Input((3, 3, 2))
    y = kl.Conv2D(4, 3, padding="same", use_bias=False)(x)
    y = kl.ReLU()(kl.BatchNormalization()(y))
    y = kl.BatchNormalization()(kl.Conv2D(4, 3, padding="same", use_bias=False)(y))
    return keras.Model(x, kl.ReLU()(kl.Add()([y, kl.Conv2D(4, 1)(x)])))


def _u_net():
    x = keras.Input((4, 4, 1))
    fine = kl.Conv2D(2, 3, padding="same", activation="relu")(x)
    coarse = kl.Conv2D(3, 3, padding="same", activation="relu")(kl.MaxPooling2D(2)(fine))
    bottom = kl.Conv2D(4, 3, padding="same", activation="relu")(kl.MaxPooling2D(2)(coarse))
    up = kl.Concatenate()([kl.UpSampling2D(2)(bottom), coarse])
    up = kl.Conv2D(3, 3, padding="same", activation="relu")(up)
    up = kl.Concatenate()([kl.Conv2DTranspose(2, 2, strides=2)(up), fine])
    return keras.Model(x, kl.Conv2D(1, 1, activation="sigmoid")(up))


def _transformer_block():
    x = keras.Input((3, 4))
    y = kl.LayerNormalization()(x)
    x1 = kl.Add()([x, kl.MultiHeadAttention(2, 2)(y, y)])
    y = kl.Dense(4)(kl.Dense(8, activation="gelu")(kl.LayerNormalization()(x1)))
    return keras.Model(x, kl.Add()([x1, y]))


def _cross_attention():
    x = keras.Input((4, 3))
    query = kl.Dense(3)(kl.Cropping1D((0, 2))(x))
    return keras.Model(x, kl.MultiHeadAttention(1, 2)(query, x))


def _autoencoder():
    encoder, mean, log_variance = kl.Dense(6, "relu"), kl.Dense(2), kl.Dense(2)
    decoder = keras.Sequential([kl.Dense(6, "relu"), kl.Dense(5, "sigmoid")])

    def fn(x):
        hidden = encoder(x)
        center, spread = mean(hidden), tf.exp(0.5 * log_variance(hidden))
        return decoder(center + spread * tf.random.normal(tf.shape(center), seed=3))

    return fn


def _coupling_flow():
    nets = [keras.Sequential([kl.Dense(5, "tanh"), kl.Dense(4)]) for _ in range(2)]

    def fn(x):
        for net in nets:
            kept, moved = tf.split(x, 2, axis=-1)
            scale, shift = tf.split(net(kept), 2, axis=-1)
            x = tf.reverse(tf.concat([kept, moved * tf.exp(tf.tanh(scale)) + shift], -1), [-1])
        return x

    return fn


def _squeeze_excite():
    x = keras.Input((3, 3, 4))
    gate = kl.Dense(2, activation="relu")(kl.GlobalAveragePooling2D()(x))
    gate = kl.Reshape((1, 1, 4))(kl.Dense(4, activation="sigmoid")(gate))
    return keras.Model(x, kl.Multiply()([x, gate]))


def _causal_stack():
    x = keras.Input((6, 2))
    y = x
    for rate in (1, 2, 4):
        gate = kl.Conv1D(2, 2, padding="causal", dilation_rate=rate, activation="sigmoid")(y)
        value = kl.Conv1D(2, 2, padding="causal", dilation_rate=rate, activation="tanh")(y)
        y = kl.Add()([y, kl.Multiply()([gate, value])])
    return keras.Model(x, y)


def _experts():
    experts, gate = [kl.Dense(3, "tanh") for _ in range(3)], kl.Dense(3, "softmax")
    return lambda x: tf.einsum("be,beo->bo", gate(x), tf.stack([e(x) for e in experts], axis=1))


def _hypernetwork():
    make = kl.Dense(12)
    return lambda x: tf.einsum("bi,bio->bo", x, tf.reshape(make(x), [-1, 4, 3]))


def _siamese():
    net = keras.Sequential([kl.Dense(5, "relu"), kl.Dense(3)])

    def fn(x):
        left, right = tf.unstack(x, axis=1)
        return tf.reduce_sum(tf.square(net(left) - net(right)), -1)

    return fn


def _message_passing():
    adjacency = tf.constant(np.eye(4, k=1, dtype=np.float32) + np.eye(4, dtype=np.float32))
    update = kl.Dense(3, "relu")
    return lambda x: update(tf.einsum("nm,bmd->bnd", adjacency, x))


def _edges():
    senders, receivers, update = [0, 1, 2, 3, 0], [1, 2, 3, 0, 2], kl.Dense(3, "relu")

    def fn(x):
        ends = [tf.gather(x, senders, axis=1), tf.gather(x, receivers, axis=1)]
        messages = update(tf.concat(ends, -1))
        by_node = tf.math.unsorted_segment_sum(tf.transpose(messages, [1, 0, 2]), receivers, 4)
        return tf.transpose(by_node, [1, 0, 2])

    return fn


def _per_token():
    first, second = kl.Dense(5, "gelu"), kl.Dense(4)

    def fn(x):
        tokens = tf.reshape(x, [-1, 4])
        return tf.reshape(second(first(tokens)), [-1, 3, 4])

    return fn


def _per_token_by_shape():
    dense = kl.Dense(2, "tanh")

    def fn(x):
        shape = tf.shape(x)
        tokens = dense(tf.reshape(x, [shape[0] * shape[1], 4]))
        return tf.reshape(tokens, tf.concat([shape[:2], [2]], 0))

    return fn


def _shuffle_net():
    first, second = kl.Conv2D(4, 1, groups=2), kl.DepthwiseConv2D(2)

    def fn(x):
        y = first(x)
        shape = tf.shape(y)
        y = tf.reshape(y, [shape[0], 3, 3, 2, 2])
        return second(tf.reshape(tf.transpose(y, [0, 1, 2, 4, 3]), [-1, 3, 3, 4]))

    return fn


def _fourier_layer():
    lift, weights = kl.Dense(2), tf.complex(_weights(3, 2, 2), _weights(3, 2, 2, seed=8))

    def fn(x):
        y = tf.transpose(lift(x), [0, 2, 1])
        spectrum = tf.signal.rfft(y)[..., :3]
        spectrum = tf.einsum("bik,kio->bok", spectrum, weights)
        return tf.signal.irfft(tf.pad(spectrum, [[0, 0], [0, 0], [0, 1]]), [6])

    return fn


def _physics_informed():
    net = keras.Sequential([kl.Dense(6, "tanh"), kl.Dense(1)])

    def fn(x):
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                u = net(x)
            slope = inner.gradient(u, x)
            first = slope[:, :1]
        return outer.gradient(first, x) + u * slope

    return fn


def _own_jacobian():
    net = keras.Sequential([kl.Dense(4, "tanh"), kl.Dense(2)])

    def fn(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = net(x)
        return tape.batch_jacobian(y, x)

    return fn


def _force():
    net = keras.Sequential([kl.Dense(6, "tanh"), kl.Dense(1)])

    def fn(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            energy = tf.reduce_sum(net(x))
        return -tape.gradient(energy, x)

    return fn


def _force_of(model: Callable[[], Callable]) -> Callable[[], Callable]:
    """Returns how to build the gradient of the sum of all outputs of a model."""

    def build():
        net = model()

        def fn(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = net(x)
            return tape.gradient(y, x)

        return fn

    return build


def _neural_ode():
    field = keras.Sequential([kl.Dense(5, "tanh"), kl.Dense(3)])

    def step(i, x):
        k1 = field(x)
        k2 = field(x + 0.05 * k1)
        k3 = field(x + 0.05 * k2)
        k4 = field(x + 0.1 * k3)
        return i + 1, x + 0.1 / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

    return lambda x: tf.while_loop(lambda i, _: i < 4, step, (0, x))[1]


def _fixed_point():
    weights = 0.3 * _weights(3, 3)

    def fn(x):
        def going(_, z, change):
            return tf.reduce_max(tf.abs(change)) > 1e-3

        def step(i, z, _):
            new = tf.tanh(z @ weights + x)
            return i + 1, new, new - z

        return tf.while_loop(going, step, (0, tf.zeros_like(x), tf.ones_like(x)),
                             maximum_iterations=20)[1]  # fmt: skip

    return fn


def _capsules():
    weights = _weights(3, 2, 4, 2)

    def fn(x):
        votes = tf.einsum("bid,ioed->bioe", x, tf.reshape(weights, [3, 2, 4, 2]))
        logits = tf.zeros_like(votes[..., 0])
        for _ in range(2):
            out = tf.reduce_sum(tf.nn.softmax(logits, -1)[..., None] * votes, 1, keepdims=True)
            norm = tf.reduce_sum(out * out, -1, keepdims=True)
            out = out * tf.sqrt(norm) / (1.0 + norm)
            logits += tf.reduce_sum(out * votes, -1)
        return out[:, 0]

    return fn


def _mixture_density():
    net = kl.Dense(9)

    def fn(x):
        logits, centers, spreads = tf.split(net(x), 3, axis=-1)
        target = tf.reduce_sum(x, -1, keepdims=True)
        exponents = -tf.square((target - centers) * tf.exp(-spreads)) - spreads
        return tf.reduce_logsumexp(tf.nn.log_softmax(logits) + exponents, -1)

    return fn


def _attention_pooling():
    score, value = kl.Dense(1), kl.Dense(3)
    return lambda x: tf.reduce_sum(tf.nn.softmax(score(x), axis=1) * value(x), axis=1)


def _rotary_attention():
    angle = tf.range(3, dtype=tf.float32)[:, None] * tf.constant([1.0, 0.1])

    def turned(x):
        even, odd = x[..., ::2], x[..., 1::2]
        pairs = [even * tf.cos(angle) - odd * tf.sin(angle),
                 even * tf.sin(angle) + odd * tf.cos(angle)]  # fmt: skip
        return tf.reshape(tf.stack(pairs, -1), tf.shape(x))

    def fn(x):
        scores = tf.matmul(turned(x), turned(x), transpose_b=True)
        mask = tf.linalg.band_part(tf.ones_like(scores), -1, 0)
        return tf.nn.softmax(tf.where(mask > 0, scores, -1e9)) @ x

    return fn


def _heads_by_hand():
    project = kl.Dense(12, use_bias=False)

    def fn(x):
        shape = tf.shape(x)
        parts = tf.reshape(project(x), [shape[0], shape[1], 3, 2, 2])
        query, key, value = tf.unstack(tf.transpose(parts, [2, 0, 3, 1, 4]))
        weights = tf.nn.softmax(tf.matmul(query, key, transpose_b=True))
        return tf.reshape(tf.transpose(weights @ value, [0, 2, 1, 3]), [shape[0], shape[1], 4])

    return fn


def _masked_sequence():
    return keras.Sequential([kl.Masking(0.0), kl.LSTM(2, return_sequences=True), kl.GRU(2)])


def _sequence_to_sequence():
    encoder, decoder = kl.LSTM(2, return_state=True), kl.LSTM(2, return_sequences=True)

    def fn(x):
        _, hidden, cell = encoder(x)
        return decoder(x[:, ::-1], initial_state=[hidden, cell])

    return fn


_STACKS = (
    _model("stack.mlp", lambda: keras.Sequential([kl.Dense(6, "relu"), kl.Dense(5, "tanh"),
                                                  kl.Dense(3, "softmax")]), (4,)),
    _model("stack.le_net", lambda: keras.Sequential(
        [kl.Conv2D(3, 3, activation="tanh"), kl.MaxPooling2D(2), kl.Conv2D(4, 2, activation="tanh"),
         kl.Flatten(), kl.Dense(5, "tanh"), kl.Dense(3)]), (7, 7, 1)),
    _model("stack.resnet_block", _resnet_block, (3, 3, 2)),
    _model("stack.u_net", _u_net, (4, 4, 1)),
    _model("stack.transformer_block", _transformer_block, (3, 4)),
    _model("stack.cross_attention", _cross_attention, (4, 3)),
    _model("stack.variational_autoencoder", _autoencoder, (5,)),
    _model("stack.coupling_flow", _coupling_flow, (4,)),
    _model("stack.squeeze_excite", _squeeze_excite, (3, 3, 4)),
    _model("stack.depthwise_separable", lambda: keras.Sequential(
        [kl.DepthwiseConv2D(2), kl.BatchNormalization(), kl.ReLU(6.0), kl.Conv2D(3, 1),
         kl.GlobalAveragePooling2D(), kl.Dense(2)]), (4, 4, 2)),
    _model("stack.dilated_causal", _causal_stack, (6, 2)),
    _model("stack.experts", _experts, (4,)),
    _model("stack.hypernetwork", _hypernetwork, (4,)),
    _model("stack.siamese", _siamese, (2, 4)),
    _model("stack.message_passing", _message_passing, (4, 3)),
    _model("stack.edges", _edges, (4, 3)),
    _model("stack.per_token", _per_token, (3, 4)),
    _model("stack.per_token_by_shape", _per_token_by_shape, (3, 4)),
    _model("stack.channel_shuffle", _shuffle_net, (3, 3, 4)),
    _model("stack.fourier_layer", _fourier_layer, (6, 2)),
    _model("stack.physics_informed", _physics_informed, (2,)),
    _model("stack.own_jacobian", _own_jacobian, (3,)),
    _model("stack.force", _force, (4,)),
    _model("stack.force_of_convolution", _force_of(
        lambda: keras.Sequential([kl.Conv1D(3, 2, activation="tanh"), kl.AveragePooling1D(2)])),
           (5, 2)),
    _model("stack.force_of_max_pooling", _force_of(lambda: keras.Sequential(
        [kl.Conv2D(2, 2, activation="tanh"), kl.MaxPooling2D(2), kl.Flatten(), kl.Dense(1)])),
           (5, 5, 1)),
    _model("stack.force_of_recurrence", _force_of(lambda: kl.LSTM(2)), (3, 2)),
    _model("stack.force_of_attention",
           _force_of(_self_attention(lambda: kl.MultiHeadAttention(1, 2))), (3, 2)),
    _model("stack.neural_ode", _neural_ode, (3,)),
    _model("stack.fixed_point", _fixed_point, (3,)),
    _model("stack.capsules", _capsules, (3, 2)),
    _model("stack.mixture_density", _mixture_density, (4,)),
    _model("stack.attention_pooling", _attention_pooling, (4, 3)),
    _model("stack.rotary_attention", _rotary_attention, (3, 4)),
    _model("stack.heads_by_hand", _heads_by_hand, (3, 4)),
    _model("stack.masked_sequence", _masked_sequence, (4, 3)),
    _model("stack.sequence_to_sequence", _sequence_to_sequence, (4, 2)),
    _model("stack.two_recurrent", lambda: keras.Sequential(
        [kl.Bidirectional(kl.LSTM(2, return_sequences=True)), kl.GRU(3), kl.Dense(2)]), (4, 2)),
    _model("stack.reloaded_by_keras", _reloaded_by_keras, (4,)),
    _model("stack.exported", _exported, (4, 3), oracle=False),
    _model("stack.saved_module", _saved_module(lambda x: tf.tanh(x @ _weights(4, 3)), (4,)), (4,)),
    _keras("TFSMLayer", _as_layer, (4,)),
)  # fmt: skip


# Ops that keep examples apart.


def _matrices(x):
    """Returns positive definite matrices, `[B, 3, 3]`, of examples of that shape."""
    return x @ tf.transpose(x, [0, 2, 1]) + 3.0 * tf.eye(3)


@tf.custom_gradient
def _half_gradient(x):
    return tf.square(x), lambda upstream: 0.5 * upstream


@tf.custom_gradient
def _mixing_forward(x):
    return x - tf.reduce_mean(x, 0), lambda upstream: 2.0 * upstream


@tf.custom_gradient
def _by_numpy(x):
    y = tf.numpy_function(np.square, [x], tf.float32)
    return tf.ensure_shape(y, x.shape), lambda upstream: 2.0 * x * upstream


def _checked(x):
    with tf.control_dependencies([tf.debugging.assert_less(tf.reduce_sum(x), 1e9)]):
        return tf.debugging.check_numerics(x * x, "not finite")


def _sinkhorn(x):
    for _ in range(3):
        x = x - tf.reduce_logsumexp(x, 1, keepdims=True)
        x = x - tf.reduce_logsumexp(x, 2, keepdims=True)
    return tf.exp(x)


def _time_major_merged(x):
    major = tf.transpose(x, [1, 0, 2])
    tokens = tf.tanh(tf.reshape(major, [-1, 4]) @ _weights(4, 2))
    return tf.transpose(tf.reshape(tokens, [3, -1, 2]), [1, 0, 2])


def _sorted_by_first(x):
    order = tf.argsort(x[..., 0], axis=1)
    return tf.gather(x, order, axis=1, batch_dims=1)


def _space_to_batch(x):
    moved = tf.space_to_batch(x, [2, 2], [[0, 0], [0, 0]])
    return tf.batch_to_space(tf.tanh(moved), [2, 2], [[0, 0], [0, 0]])


def _gathered_entries(x):
    rows = tf.range(tf.shape(x)[0])
    return tf.gather_nd(x, tf.stack([rows, tf.ones_like(rows)], 1))


def _kalman(x):
    center, covariance = x[:, :3], tf.eye(3)[None] + tf.linalg.diag(tf.square(x[:, :3]))
    gain = tf.linalg.solve(covariance + tf.eye(3), covariance)
    return center + tf.linalg.matvec(gain, x[:, 3:] - center)


_OPS = (
    _op("sum_over_features", lambda x: tf.reduce_sum(x, 1)),
    _op("transposed_and_back", lambda x: tf.transpose(tf.tanh(tf.transpose(x)))),
    _op("product_of_transposed", lambda x: tf.transpose(_weights(3, 4) @ tf.transpose(x))),
    _op("gather_features", lambda x: tf.gather(x, [2, 0, 0], axis=1)),
    _op("gather_features_from_transposed",
        lambda x: tf.transpose(tf.gather(tf.transpose(x), [2, 0, 0]))),
    _op("gather_nd_batch_dims",
        lambda x: tf.gather_nd(x, tf.zeros([tf.shape(x)[0], 2, 1], tf.int32), batch_dims=1)),
    _op("gather_own_entry", lambda x: tf.gather(x, tf.argmax(x, 1), axis=1, batch_dims=1)),
    _op("sort_features", lambda x: tf.sort(x, axis=1)),
    _op("sort_rows_of_each", _sorted_by_first, (3, 2)),
    _op("top_k", lambda x: tf.math.top_k(x, 2).values),
    _op("reverse_features", lambda x: tf.reverse(x, [1]) * x),
    _op("reverse_sequence", lambda x: tf.reverse_sequence(
        x, tf.fill([tf.shape(x)[0]], 2), seq_axis=1, batch_axis=0), (3, 2)),
    _op("roll_features", lambda x: tf.roll(x, 1, axis=1) * x),
    _op("cumulative", lambda x: tf.cumsum(x, 1) * tf.math.cumprod(x, -1)),
    _op("stick_breaking", lambda x: tf.sigmoid(x) * tf.math.cumprod(1.0 - tf.sigmoid(x), 1,
                                                                   exclusive=True)),
    _op("softmax_of_each", lambda x: tf.nn.softmax(x, axis=1), (3, 2)),
    _op("norm_of_each", lambda x: tf.math.l2_normalize(x, axis=[1, 2]), (3, 2)),
    _op("moments_of_each", lambda x: (x - tf.nn.moments(x, [1], keepdims=True)[0])
        / tf.sqrt(tf.nn.moments(x, [1], keepdims=True)[1])),
    _op("standardized_images", lambda x: tf.image.per_image_standardization(x), (3, 3, 2)),
    _op("fused_batch_norm_inference", lambda x: tf.compat.v1.nn.fused_batch_norm(
        x, tf.ones(2), tf.zeros(2), tf.zeros(2), tf.ones(2), is_training=False)[0], (3, 3, 2)),
    _op("local_response", lambda x: tf.nn.local_response_normalization(x, 1), (2, 2, 4)),
    _op("pairs_within", lambda x: x[:, :, None] - x[:, None]),
    _op("gram_of_each", lambda x: tf.matmul(x, x, transpose_b=True), (3, 2)),
    _op("einsum_of_each", lambda x: tf.einsum("bij,bkj->bik", x, x), (3, 2)),
    _op("einsum_ellipsis", lambda x: tf.einsum("...j,jk->...k", x, _weights(4, 2)), (3, 4)),
    _op("tensordot", lambda x: tf.tensordot(x, _weights(4, 2), 1), (3, 4)),
    _op("tensordot_inner_axis", lambda x: tf.tensordot(x, _weights(3, 2), [[1], [0]]), (3, 4)),
    _op("matvec", lambda x: tf.linalg.matvec(_weights(3, 4), x)),
    _op("outer_of_each", lambda x: x[:, :, None] * x[:, None, :]),
    _op("cholesky", lambda x: tf.linalg.cholesky(_matrices(x)), (3, 3)),
    _op("inverse", lambda x: tf.linalg.inv(_matrices(x)), (3, 3)),
    _op("determinant", lambda x: tf.linalg.logdet(_matrices(x)), (3, 3)),
    _op("solve", lambda x: tf.linalg.solve(_matrices(x), x), (3, 3)),
    _op("triangular_solve",
        lambda x: tf.linalg.triangular_solve(tf.linalg.cholesky(_matrices(x)), x), (3, 3)),
    _op("eigenvalues", lambda x: tf.linalg.eigh(_matrices(x))[0], (3, 3)),
    _op("singular_values", lambda x: tf.linalg.svd(x, compute_uv=False), (3, 2)),
    _op("qr", lambda x: tf.linalg.qr(x)[1], (3, 2)),
    _op("matrix_exponential", lambda x: tf.linalg.expm(x), (2, 2)),
    _op("trace", lambda x: tf.linalg.trace(x), (3, 3)),
    _op("diagonal_matrices", lambda x: tf.linalg.diag(x) @ _weights(4, 2)),
    _op("set_diagonal", lambda x: tf.linalg.set_diag(
        tf.ones([tf.shape(x)[0], 3, 3]), x), (3,)),
    _op("kalman_gain", _kalman, (6,)),
    _op("fourier", lambda x: tf.abs(tf.signal.fft(tf.complex(x, tf.sin(x))))),
    _op("fourier_2d", lambda x: tf.math.real(tf.signal.fft2d(tf.complex(x, 0.0 * x))), (3, 2)),
    _op("frames", lambda x: tf.signal.frame(x, 4, 2), (8,)),
    _op("stft", lambda x: tf.abs(tf.signal.stft(x, 4, 2)), (10,)),
    _op("dct", lambda x: tf.signal.dct(x)),
    _op("sinkhorn", _sinkhorn, (3, 3)),
    _op("patches", lambda x: tf.image.extract_patches(
        x, [1, 2, 2, 1], [1, 1, 1, 1], [1, 1, 1, 1], "VALID"), (3, 3, 1)),
    _op("pixel_shuffle", lambda x: tf.nn.depth_to_space(x, 2), (2, 2, 4)),
    _op("space_to_depth", lambda x: tf.nn.space_to_depth(x, 2), (4, 2, 2)),
    _op("space_to_batch_and_back", _space_to_batch, (4, 4, 1)),
    _op("dilated_by_atrous", lambda x: tf.nn.atrous_conv2d(x, _weights(2, 2, 2, 3), 2, "SAME"),
        (4, 4, 2)),
    _op("crop_and_resize", lambda x: tf.image.crop_and_resize(
        x, tf.tile([[0.1, 0.1, 0.9, 0.9]], [tf.shape(x)[0], 1]), tf.range(tf.shape(x)[0]), [2, 2]),
        (3, 3, 1)),
    _op("resize", lambda x: tf.image.resize(x, [5, 2]), (3, 3, 2)),
    _op("sobel", lambda x: tf.image.sobel_edges(x), (3, 3, 1)),
    _op("hue_saturation_value", lambda x: tf.image.rgb_to_hsv(0.5 + 0.5 * x), (2, 2, 3)),
    _op("total_variation", lambda x: tf.image.total_variation(x), (3, 3, 2)),
    _op("cross_entropy", lambda x: tf.nn.softmax_cross_entropy_with_logits(
        tf.one_hot(tf.zeros([tf.shape(x)[0]], tf.int32), 4), x)),
    _op("sparse_cross_entropy", lambda x: tf.nn.sparse_softmax_cross_entropy_with_logits(
        tf.zeros([tf.shape(x)[0]], tf.int32), x)),
    _op("sigmoid_cross_entropy", lambda x: tf.nn.sigmoid_cross_entropy_with_logits(
        tf.ones_like(x), x)),
    _op("huber", lambda x: tf.keras.losses.huber(tf.zeros_like(x), x)),
    _op("ctc", lambda x: tf.nn.ctc_loss(
        tf.ones([tf.shape(x)[0], 1], tf.int32), tf.transpose(x, [1, 0, 2]),
        tf.ones([tf.shape(x)[0]], tf.int32), tf.fill([tf.shape(x)[0]], 4), blank_index=0), (4, 3)),
    _op("split_features", lambda x: tf.concat(tf.split(x, [1, 3], axis=1)[::-1], 1)),
    _op("unstacked_features", lambda x: tf.stack([a * a for a in tf.unstack(x, axis=1)], 1)),
    _op("broadcast_features", lambda x: tf.broadcast_to(
        x[:, None], tf.stack([tf.shape(x)[0], 3, 4])) * _weights(3, 1)),
    _op("repeat_features", lambda x: tf.repeat(x, [1, 0, 2, 1], axis=1)),
    _op("tile_features", lambda x: tf.tile(x, [1, 3])),
    _op("scatter_of_each", lambda x: tf.transpose(tf.tensor_scatter_nd_update(
        tf.transpose(x), [[1], [3]], tf.transpose(tf.sin(x[:, :2]))))),
    _op("boolean_mask_of_features", lambda x: tf.boolean_mask(x, [True, False, True, True], 1)),
    _op("strided_slices", lambda x: x[:, 1::2] * x[..., None][:, :2, 0]),
    _op("reshaped_and_back", lambda x: tf.reshape(tf.cumsum(tf.reshape(x, [-1, 2, 3]), 1),
                                                  tf.shape(x)), (6,)),
    _op("time_major_merged", _time_major_merged, (3, 4)),
    _op("scalars", lambda x: x * tf.sin(x), ()),
    _op("diagonal_of_scalars", lambda x: tf.stack([tf.sin(x), x * x], 1), ()),
    _op("entry_by_own_row", _gathered_entries),
    _op("clip_by_norm_of_each", lambda x: tf.clip_by_norm(x, 0.5, axes=[1])),
    _op("custom_gradient", lambda x: _half_gradient(x) * x),
    _op("custom_gradient_hides_mixing", lambda x: _mixing_forward(x)),
    _op("custom_gradient_of_numpy", lambda x: _by_numpy(x)),
    _op("checked", _checked),
    _op("gradient_passed_through",
        lambda x: tf.grad_pass_through(lambda a: a - tf.reduce_mean(a, 0))(x) * x),
    _op("recomputed", lambda x: tf.recompute_grad(lambda a: tf.tanh(a) * a)(x)),
    _op("straight_through", lambda x: x + tf.stop_gradient(tf.round(x) - x)),
    _op("stopped_mean_of_batch", lambda x: x * x - tf.stop_gradient(tf.reduce_mean(x, 0))),
    _op("stopped_keys", lambda x: tf.matmul(x, tf.stop_gradient(x), transpose_b=True)),
    _op("ranks_in_batch", lambda x: x * tf.cast(tf.argsort(tf.argsort(x, 0), 0), x.dtype)),
    _op("mask_by_batch", lambda x: tf.where(x > tf.reduce_mean(x), x * x, 0.5 * x)),
    _op("random_gamma", lambda x: tf.random.gamma([], tf.exp(x), seed=3)),
    _op("half_precision", lambda x: tf.cast(tf.cast(x, tf.float16) * 2.0, tf.float32)),
)  # fmt: skip


# Control flow and functions that keep examples apart.


def _scan_over_time(x):
    w, u, zeros = _weights(3, 2), _weights(2, 2), tf.zeros([tf.shape(x)[0], 2])
    states = tf.scan(lambda h, now: tf.tanh(now @ w + h @ u), tf.transpose(x, [1, 0, 2]), zeros)
    return tf.transpose(states, [1, 0, 2])


def _loop_over_time(x):
    w, u = _weights(3, 2), _weights(2, 2)
    frames = tf.TensorArray(x.dtype, 4).unstack(tf.transpose(x, [1, 0, 2]))
    states = tf.TensorArray(x.dtype, 4)

    def step(t, hidden, states):
        hidden = tf.tanh(frames.read(t) @ w + hidden @ u)
        return t + 1, hidden, states.write(t, hidden)

    first = (0, tf.zeros([tf.shape(x)[0], 2]), states)
    _, _, states = tf.while_loop(lambda t, *_: t < 4, step, first)
    return tf.transpose(states.stack(), [1, 0, 2])


def _nested_functions(x):
    weights = _weights(4, 4)

    @tf.function(autograph=False)
    def inner(a):
        return tf.tanh(a @ weights)

    @tf.function(autograph=False)
    def middle(a, b):
        return inner(a) * b, inner(b)

    one, other = middle(x, tf.sin(x))
    return one + other


def _captured(x):
    @tf.function(autograph=False)
    def inner(a):
        return a * x + tf.function(lambda: tf.sin(x), autograph=False)()

    return inner(tf.cos(x))


def _swapping_loop(x):
    return tf.while_loop(
        lambda i, *_: i < 3, lambda i, a, b: (i + 1, tf.sin(b), a * b), (0, x, tf.cos(x))
    )[1]


def _loop_until(x):
    return tf.while_loop(
        lambda a: tf.reduce_sum(a) < 10.0, lambda a: (a * 1.5 + 1.0,), (x,), maximum_iterations=9
    )[0]


def _loop_of_unknown_size(x):
    return tf.while_loop(
        lambda i, _: i < 3,
        lambda i, a: (i + 1, tf.sin(a @ _weights(4, 4))),
        (0, x),
        shape_invariants=(tf.TensorShape([]), tf.TensorShape([None, 4])),
    )[1]


def _unrolled_autograph():
    @tf.function
    def fn(x):
        total = tf.zeros_like(x)
        for k in tf.range(3):
            total = total * x + tf.sin(x)
            if k > 0:
                total = tf.tanh(total)
        return total

    return fn


_FLOWS = (
    _flow("scan_over_time", _scan_over_time, (4, 3)),
    _flow("loop_over_time", _loop_over_time, (4, 3)),
    _flow("nested_functions", _nested_functions),
    _flow("captured", _captured),
    _flow("compiled_function", lambda x: tf.function(
        lambda a: tf.nn.softmax(a @ _weights(4, 3)), jit_compile=True, autograph=False)(x)),
    _flow("compiled_in_function", lambda x: tf.function(lambda a: tf.function(
        tf.tanh, jit_compile=True, autograph=False)(a) * a, autograph=False)(x)),
    _flow("cond", lambda x: tf.cond(
        tf.reduce_sum(x) > 0.0, lambda: tf.sin(x), lambda: x @ _weights(4, 4))),
    _flow("switch_case", lambda x: tf.switch_case(
        tf.shape(x)[0] % 3, [lambda: tf.sin(x), lambda: tf.cumsum(x, 1), lambda: x * x])),
    _flow("cond_in_loop", lambda x: tf.while_loop(
        lambda i, a: i < 3, lambda i, a: (i + 1, tf.cond(i > 1, lambda: tf.sin(a), lambda: a * x)),
        (0, x))[1]),
    _flow("loop_in_cond", lambda x: tf.cond(
        tf.shape(x)[0] > 0, lambda: _swapping_loop(x), lambda: x)),
    _flow("swapping_loop", _swapping_loop),
    _flow("loop_until_batch_large", _loop_until),
    _flow("loop_of_unknown_size", _loop_of_unknown_size),
    _flow("loop_of_growing_list", lambda x: tf.transpose(tf.map_fn(
        lambda k: x * tf.cast(k, x.dtype), tf.range(3), fn_output_signature=tf.float32),
        [1, 0, 2])),
    _flow("map_over_time", lambda x: tf.transpose(tf.map_fn(
        lambda frame: tf.nn.softmax(frame @ _weights(3, 2)), tf.transpose(x, [1, 0, 2])),
        [1, 0, 2]), (4, 3)),
    _flow("fold_over_time", lambda x: tf.foldl(
        lambda total, frame: tf.tanh(total + frame), tf.transpose(x, [1, 0, 2])), (4, 3)),
    _flow("vectorized_over_time", lambda x: tf.transpose(tf.vectorized_map(
        lambda frame: tf.nn.softmax(frame @ _weights(3, 2)), tf.transpose(x, [1, 0, 2])),
        [1, 0, 2]), (4, 3)),
    _flow("vectorized_map", lambda x: tf.vectorized_map(
        lambda row: tf.sin(row) * tf.reduce_sum(row), x)),
    _flow("vectorized_map_of_product", lambda x: tf.vectorized_map(
        lambda row: tf.linalg.matvec(_weights(3, 4), tf.tanh(row)), x)),
    _flow("vectorized_map_of_slices", lambda x: tf.vectorized_map(
        lambda row: tf.concat([row[2:], row[:2] * row[0]], 0), x)),
    _model("flow.autograph", _unrolled_autograph, (4,)),
)  # fmt: skip


# What mixes examples.


def _center(x):
    return x - tf.reduce_mean(x, 0)


def _count(x):
    return tf.shape(x)[0]


def _running_sum(x):
    sums = tf.TensorArray(x.dtype, _count(x))

    def step(i, total, sums):
        total = tf.tanh(total + tf.gather(x, i))
        return i + 1, total, sums.write(i, total)

    first = (0, tf.zeros_like(x[0]), sums)
    return tf.while_loop(lambda i, *_: i < _count(x), step, first)[2].stack()


def _rows_of_array(x):
    rows = tf.TensorArray(x.dtype, _count(x)).unstack(x)
    return rows.gather(tf.reverse(tf.range(_count(x)), [0]))


def _scattered_to_array(x):
    rows = tf.TensorArray(x.dtype, _count(x), element_shape=x.shape[1:])
    return rows.scatter(tf.reverse(tf.range(_count(x)), [0]), x).stack()


def _scattered_to_list(x):
    places = tf.reverse(tf.range(_count(x)), [0])
    rows = tf.raw_ops.TensorListScatterV2(
        tensor=x, indices=places, element_shape=x.shape[1:], num_elements=_count(x)
    )
    return tf.raw_ops.TensorListStack(
        input_handle=rows, element_shape=x.shape[1:], element_dtype=x.dtype
    )


def _along_array(next_row):
    """Returns the function that writes to each place of an array what is made of others.

    Args:
      next_row: from a function that reads a row, the place and the number of rows to what is
        written there.
    """

    def fn(x):
        count = _count(x)
        rows = tf.TensorArray(x.dtype, count, clear_after_read=False).unstack(x)
        out = tf.TensorArray(x.dtype, count)

        def step(i, out):
            return i + 1, out.write(i, next_row(rows.read, i, count))

        return tf.while_loop(lambda i, _: i < count, step, (0, out))[1].stack()

    return fn


def _written_elsewhere(x):
    count = _count(x)
    rows = tf.TensorArray(x.dtype, count).unstack(x)
    out = tf.TensorArray(x.dtype, count)

    def step(i, out):
        return i + 1, out.write(count - 1 - i, tf.sin(rows.read(i)))

    return tf.while_loop(lambda i, _: i < count, step, (0, out))[1].stack()


def _carried_to_next(x):
    count = _count(x)
    rows = tf.TensorArray(x.dtype, count).unstack(x)
    out = tf.TensorArray(x.dtype, count)

    def step(i, before, out):
        now = rows.read(i)
        return i + 1, now, out.write(i, now * before)

    return tf.while_loop(lambda i, *_: i < count, step, (0, tf.ones_like(x[0]), out))[2].stack()


def _one_function_two_places():
    @tf.function(autograph=False)
    def visit(rows, out, place, item):
        return rows.read(place), out.write(place, item)

    @tf.function(autograph=False)
    def fn(x):
        count = _count(x)
        rows = tf.TensorArray(x.dtype, count, clear_after_read=False, element_shape=[4]).unstack(x)
        out = tf.TensorArray(x.dtype, count, element_shape=[4])

        def step(i, out):
            row, _ = visit(rows, out, i, tf.zeros([4]))
            return i + 1, visit(rows, out, count - 1 - i, row)[1]

        return tf.while_loop(lambda i, _: i < count, step, (0, out))[1].stack()

    return fn


@tf.custom_gradient
def _mixing_gradient(x):
    return tf.square(x), lambda upstream: upstream + tf.reverse(upstream, [0])


@tf.custom_gradient
def _mixing_both(x):
    y = _center(x)
    return y, lambda upstream: _center(upstream)


@tf.custom_gradient
def _mixing_from_nothing(x):
    # What reaches y, reaches it through the gradient alone.
    y = tf.stop_gradient(tf.cumsum(x, 0))
    return y, lambda upstream: tf.cumsum(upstream, 0, reverse=True)


def _groups_of_three(x):
    groups = tf.reshape(x, [-1, 3, 4])
    return tf.reshape(groups - tf.reduce_mean(groups, 1, keepdims=True), [-1, 4])


def _conv_over_batch(x):
    rows = tf.transpose(x)[:, :, None]
    return tf.transpose(tf.nn.conv1d(rows, _weights(3, 1, 1), 1, "SAME")[..., 0])


def _conv_with_channels_of_batch(x):
    pixels = tf.transpose(x)[None, None]
    mixed = tf.nn.conv2d(pixels, _weights(1, 1, 3, 3), 1, "SAME")
    return tf.transpose(mixed[0, 0])


def _filters_of_batch(x):
    kernel = tf.transpose(x)[None, :, None]  # [1, features, 1, B]
    scores = tf.nn.conv2d(x[:, None, :, None], kernel, 1, "VALID")
    return scores[:, 0, 0]


def _pool_over_batch(x):
    rows = tf.transpose(x)[:, :, None]
    return tf.transpose(tf.nn.max_pool1d(rows, 2, 1, "SAME")[..., 0])


def _attention_over_batch(x):
    scores = tf.matmul(x @ _weights(4, 3), x @ _weights(4, 3, seed=8), transpose_b=True)
    return tf.nn.softmax(scores) @ x


def _contrastive(x):
    z = tf.math.l2_normalize(tf.tanh(x @ _weights(4, 3)), axis=1)
    similarity = tf.matmul(z, z, transpose_b=True) / 0.5
    return tf.nn.sparse_softmax_cross_entropy_with_logits(tf.range(_count(x)), similarity)


def _triplets(x):
    distance = tf.reduce_sum(tf.square(x[:, None] - x[None]), -1)
    return tf.reduce_max(distance, 1) - tf.reduce_mean(distance, 1)


def _whitened(x):
    centered = _center(x)
    covariance = tf.matmul(centered, centered, transpose_a=True) / 3.0 + tf.eye(4)
    return tf.transpose(tf.linalg.triangular_solve(tf.linalg.cholesky(covariance),
                                                   tf.transpose(centered)))  # fmt: skip


def _mean_of_halves(x):
    side = tf.range(_count(x)) % 2
    return x - tf.gather(tf.math.unsorted_segment_mean(x, side, 2), side)


def _segments(x):
    side = tf.range(_count(x)) // 2
    return x * tf.gather(tf.math.segment_sum(x, side), side)


def _interleaved(x):
    return tf.reshape(tf.tile(x, [2, 1]), [-1, 8])


def _wrong_way_back(x):
    tokens = tf.tanh(tf.reshape(tf.transpose(x, [1, 0, 2]), [-1, 4]))
    return tf.reshape(tokens, [-1, 3, 4])


def _wrong_blocks_back(x):
    moved = tf.space_to_batch(x, [2, 2], [[0, 0], [0, 0]])
    return tf.reshape(moved, tf.shape(x))


def _mixing_loop(x):
    return tf.while_loop(
        lambda i, _: i < 2, lambda i, a: (i + 1, tf.sin(a + tf.roll(a, 1, 0))), (0, x)
    )[1]


def _mixing_late_in_loop(x):
    # The third of the loop's tensors is mixed in the third turn at the earliest.
    return tf.while_loop(
        lambda i, *_: i < 4,
        lambda i, a, b, c: (i + 1, _center(a), tf.sin(a), b * c),
        (0, x, tf.ones_like(x), tf.ones_like(x)),
    )[3]


def _mixing_nested(x):
    inner = tf.function(_center, autograph=False)
    return tf.function(lambda a: inner(tf.sin(a)) * a, autograph=False)(x)


def _mixing_capture(x):
    @tf.function(autograph=False)
    def inner(a):
        return a * tf.reduce_sum(x, 0)

    return inner(tf.sin(x))


def _squared_batch_energy(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        energy = tf.square(tf.reduce_sum(tf.sin(x)))
    return tape.gradient(energy, x)


def _first_row_by_dynamic_size(x):
    one = tf.minimum(_count(x), 1)
    return x * tf.slice(x, [0, 0], tf.stack([one, 4]))


def _first_row_broadcast(x):
    one = tf.minimum(_count(x), 1)
    return tf.broadcast_to(tf.slice(x, [0, 0], tf.stack([one, 4])), tf.shape(x))


def _first_row_by_slice(x):
    return x + tf.sin(x[: tf.minimum(_count(x), 1)])


def _first_row_by_array(x):
    place = tf.constant(0)
    rows = tf.TensorArray(x.dtype, _count(x)).unstack(x)
    one = tf.TensorArray(x.dtype, tf.minimum(_count(x), 1)).write(place, rows.read(place))
    return x * one.stack()


def _mean_by_matrix_of_ones(x):
    return tf.ones([_count(x), _count(x)]) @ x


def _sorted_by_norm(x):
    return tf.gather(x, tf.argsort(tf.norm(x, axis=1)))


def _stitched(x):
    order = tf.reverse(tf.range(_count(x)), [0])
    return tf.dynamic_stitch([order], [x])


def _partitioned(x):
    side = (tf.range(_count(x)) + 1) % 2
    return tf.concat(tf.dynamic_partition(x, side, 2), 0)


def _by_sparse_matrix(x):
    matrix = tf.sparse.from_dense(np.eye(3, k=1) + np.eye(3))
    return tf.sparse.sparse_dense_matmul(tf.cast(matrix, x.dtype), x)


def _examples_as_time():
    layer = kl.LSTM(2, return_sequences=True)
    return lambda x: layer(x[None])[0]


def _batch_norm_in_stack():
    dense, norm = kl.Dense(4, "tanh"), kl.BatchNormalization()
    return lambda x: tf.nn.softmax(norm(dense(x), training=True))


def _global_context():
    attend = kl.MultiHeadAttention(1, 2)

    def fn(x):
        tokens = tf.reshape(x, [1, -1, 4])
        return tf.reshape(attend(tokens, tokens), [-1, 3, 4])

    return fn


def _squared_pairs_of_scalars(x):
    return tf.square(x[:, None] - x[None, :])


def _mixing_map(x):
    return tf.map_fn(lambda row: row * tf.reduce_sum(x, 0), x)


def _merged_batch_moments(x):
    mean, variance = tf.nn.moments(x, [0, 1], keepdims=True)
    return tf.nn.batch_normalization(x, mean, variance, None, None, 1e-3)


def _gradient_of_pooling(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        pooled = tf.raw_ops.MaxPoolV2(
            input=x[:, :, None, None], ksize=[1, 2, 1, 1], strides=[1, 2, 1, 1], padding="VALID"
        )
        energy = tf.square(tf.reduce_sum(pooled))
    return x + tape.gradient(energy, x)


def _mixing_backward_only(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.nn.softmax(x, axis=0)
    return tape.gradient(y, x, output_gradients=_weights(1, 4) * tf.ones_like(x))


_MIXING = (
    _mix("centered", _center, why="Mean"),
    _mix("moments", lambda x: (x - tf.nn.moments(x, [0])[0]) / tf.nn.moments(x, [0])[1],
         why="Mean"),
    _mix("moments_of_batch_and_time", _merged_batch_moments, (3, 4), "Mean"),
    _mix("fused_batch_norm_training", lambda x: tf.compat.v1.nn.fused_batch_norm(
        x, tf.ones(2), tf.zeros(2), is_training=True)[0], (3, 3, 2), "FusedBatchNormV3"),
    _model("mix.batch_norm_in_stack", _batch_norm_in_stack, (4,), apart=False, why="Mean"),
    _mix("softmax_over_examples", lambda x: tf.nn.softmax(x, axis=0), why="Softmax"),
    _mix("logsumexp_over_examples", lambda x: x - tf.reduce_logsumexp(x, 0)),
    _mix("max_subtracted", lambda x: x - tf.reduce_max(x, 0), why="Max"),
    _mix("sum_over_all", lambda x: x * tf.reduce_sum(x), why="Sum"),
    _mix("product_over_examples", lambda x: x + tf.reduce_prod(x, 0, keepdims=True), why="Prod"),
    _mix("norm_over_examples", lambda x: tf.math.l2_normalize(x, axis=0), why="Sum"),
    _mix("norm_of_batch", lambda x: x / tf.norm(x), why="Sum"),
    _mix("clip_by_global_norm", lambda x: tf.clip_by_global_norm([x], 0.1)[0][0]),
    _mix("cumsum", lambda x: tf.cumsum(x, 0), why="Cumsum"),
    _mix("cumsum_backward", lambda x: tf.cumsum(x, -2, reverse=True, exclusive=True), why="Cumsum"),
    _mix("cumprod", lambda x: tf.math.cumprod(x, 0), why="Cumprod"),
    _mix("sort", lambda x: tf.sort(x, axis=0), why="TopKV2"),
    _mix("top_k_of_transposed", lambda x: tf.transpose(tf.math.top_k(tf.transpose(x), 3)[0]),
         why="TopKV2"),
    _mix("sorted_by_norm", _sorted_by_norm, why="GatherV2"),
    _mix("gather", lambda x: tf.gather(x, [1, 2, 0]), why="GatherV2"),
    _mix("gather_added", lambda x: x + tf.gather(x, tf.zeros([_count(x)], tf.int32)),
         why="GatherV2"),
    _mix("gather_nd", lambda x: tf.gather_nd(x, [[2], [0], [1]]), why="GatherNd"),
    _mix("reverse", lambda x: tf.reverse(x, [0]), why="ReverseV2"),
    _mix("reverse_by_stride", lambda x: x[::-1], why="StridedSlice"),
    _mix("reverse_added", lambda x: 0.7 * x + 0.3 * tf.reverse(x, [0]), why="ReverseV2"),
    _mix("reverse_sequence", lambda x: tf.reverse_sequence(x, [2, 3, 3, 2], 0, 1),
         why="ReverseSequence"),
    _mix("roll", lambda x: tf.roll(x, 1, 0), why="Roll"),
    _mix("roll_both", lambda x: tf.roll(x, [1, 1], [1, 0]), why="Roll"),
    _mix("shifted_and_padded", lambda x: tf.pad(x[1:], [[0, 1], [0, 0]]), why="StridedSlice"),
    _mix("padded_and_cut", lambda x: tf.pad(x, [[1, 0], [0, 0]])[:-1], why="Pad"),
    _mix("mirrored", lambda x: tf.pad(x, [[1, 0], [0, 0]], "REFLECT")[:-1], why="MirrorPad"),
    _mix("turned_by_concat", lambda x: tf.concat([x[1:], x[:1]], 0), why="StridedSlice"),
    _mix("turned_by_split", lambda x: tf.concat(tf.split(x, [1, 2], 0)[::-1], 0), why="SplitV"),
    _mix("every_second_repeated", lambda x: tf.repeat(x, 2, axis=0)[: _count(x)]),
    _mix("first_row", lambda x: x * x[0], why="StridedSlice"),
    _mix("first_row_kept", lambda x: x * x[:1], why="StridedSlice"),
    _mix("first_row_by_slice", _first_row_by_slice, why="StridedSlice"),
    _mix("first_row_by_dynamic_size", _first_row_by_dynamic_size, why="Slice"),
    _mix("first_row_broadcast", _first_row_broadcast, why="Slice"),
    _mix("first_row_by_array", _first_row_by_array),
    _mix("tiled_and_reshaped", _interleaved, why="Tile"),
    _mix("gram", lambda x: tf.matmul(x, x, transpose_b=True), why="MatMul"),
    _mix("covariance", lambda x: x @ tf.matmul(x, x, transpose_a=True), why="MatMul"),
    _mix("matrix_of_ones", _mean_by_matrix_of_ones, why="MatMul"),
    _mix("matrix_from_left", lambda x: _weights(3, 3) @ x, why="MatMul"),
    _mix("sparse_matrix", _by_sparse_matrix, why="SparseTensorDenseMatMul"),
    _mix("pairs", lambda x: x[:, None] - x[None], why="Sub"),
    _mix("pairs_of_scalars", _squared_pairs_of_scalars, (), "Sub"),
    _mix("kernel", lambda x: tf.exp(-tf.reduce_sum(tf.square(x[:, None] - x[None]), -1)),
         why="Sub"),
    _mix("triplets", _triplets, why="Sub"),
    _mix("einsum_over_examples", lambda x: x + tf.einsum("bi,bj->ij", x, x)[0], why="Einsum"),
    _mix("einsum_of_pairs", lambda x: tf.einsum("bi,ci->bc", x, x), why="Einsum"),
    _mix("einsum_ellipsis_over_examples", lambda x: x * tf.einsum("b...->...", x), why="Einsum"),
    _mix("einsum_transposed", lambda x: tf.einsum("bi->ib", x), (3,)),
    _mix("transposed", tf.transpose, (3,)),
    _mix("transposed_added", lambda x: x + tf.transpose(x), (3,), "AddV2"),
    _mix("transposed_and_reshaped", lambda x: tf.reshape(tf.transpose(x), tf.shape(x)),
         why="Reshape"),
    _mix("reshaped_and_transposed", lambda x: tf.transpose(tf.reshape(x, [4, -1])), why="Reshape"),
    _mix("reshaped_to_one_row", lambda x: tf.reshape(tf.cumsum(tf.reshape(x, [-1])), [-1, 4]),
         why="Cumsum"),
    _mix("reshaped_with_other_axis_first",
         lambda x: tf.transpose(tf.reshape(x, [2, -1, 3]), [1, 0, 2]), (2, 3), "Reshape"),
    _mix("groups_of_three", _groups_of_three),
    _mix("wrong_way_back", _wrong_way_back, (3, 4)),
    _mix("wrong_blocks_back", _wrong_blocks_back, (4, 4, 1)),
    _mix("diagonal_matrix", lambda x: tf.linalg.diag(x) @ _weights(3, 3) @ x[:, None], ()),
    _mix("band_of_diagonals", lambda x: tf.linalg.diag(
        tf.ensure_shape(x, [3, 3]), k=(-1, 1)), (3,), "MatrixDiagV3"),
    _mix("softmax_of_scalars", lambda x: tf.nn.softmax(x), (), "Softmax"),
    _mix("cumsum_of_scalars", lambda x: tf.cumsum(x), (), "Cumsum"),
    _mix("inverse", lambda x: tf.linalg.inv(x + 3.0 * tf.eye(3)), (3,), "MatrixInverse"),
    _mix("cholesky_of_gram", lambda x: tf.linalg.cholesky(
        tf.matmul(x, x, transpose_b=True) + tf.eye(3))),
    _mix("qr", lambda x: tf.linalg.qr(x)[0], (2,), "Qr"),
    _mix("singular_values", lambda x: x * tf.linalg.svd(x, compute_uv=False)[0], (3,), "Svd"),
    _mix("eigenvalues", lambda x: tf.linalg.eigvalsh(x + tf.transpose(x)), (3,)),
    _mix("determinant", lambda x: x * tf.linalg.det(x + 2.0 * tf.eye(3)), (3,),
         "MatrixDeterminant"),
    _mix("solve_from_left", lambda x: tf.linalg.solve(_weights(3, 3) + 3.0 * tf.eye(3), x),
         why="MatrixSolve"),
    _mix("triangular_solve_from_left", lambda x: tf.linalg.triangular_solve(
        _weights(3, 3) + 3.0 * tf.eye(3), x), why="MatrixTriangularSolve"),
    _mix("least_squares", lambda x: tf.linalg.lstsq(_weights(3, 3) + 3.0 * tf.eye(3), x)),
    _mix("whitened", _whitened),
    _mix("fourier_over_batch", lambda x: tf.math.real(tf.transpose(tf.signal.fft(
        tf.transpose(tf.complex(x, x))))), why="FFT"),
    _mix("fourier_2d", lambda x: tf.math.real(tf.signal.fft2d(tf.complex(x, x))), why="FFT2D"),
    _mix("convolution_over_batch", _conv_over_batch, why="Conv2D"),
    _mix("convolution_with_channels_of_batch", _conv_with_channels_of_batch, why="Conv2D"),
    _mix("convolution_with_filters_of_batch", _filters_of_batch, why="Conv2D"),
    _mix("pooling_over_batch", _pool_over_batch, why="MaxPool"),
    _mix("resized_over_batch", lambda x: tf.image.resize(
        tf.image.resize(x[None, :, :, None], [5, 4]), [3, 4])[0, :, :, 0]),
    _mix("local_response_over_batch", lambda x: tf.transpose(tf.nn.local_response_normalization(
        tf.transpose(x)[None, None], 1)[0, 0]), why="LRN"),
    _mix("segment_sum", _segments, why="SegmentSum"),
    _mix("unsorted_segment_mean", _mean_of_halves),
    _mix("scatter", lambda x: tf.scatter_nd([[2], [0], [1]], x, tf.shape(x)), why="ScatterNd"),
    _mix("scatter_add", lambda x: tf.tensor_scatter_nd_add(x, [[1], [0], [2]], tf.sin(x)),
         why="TensorScatterAdd"),
    _mix("stitched", _stitched, why="DynamicStitch"),
    _mix("partitioned", _partitioned, why="DynamicPartition"),
    _mix("rows_of_array", _rows_of_array),
    _mix("scattered_to_array", _scattered_to_array),
    _mix("scattered_to_list", _scattered_to_list),
    _mix("next_row_of_array", _along_array(lambda read, i, n: read((i + 1) % n))),
    _mix("two_rows_of_array", _along_array(lambda read, i, n: read(i) * read(n - 1 - i))),
    _mix("one_row_of_array", _along_array(lambda read, i, n: read(i) + read(n - 1))),
    _mix("written_elsewhere", _written_elsewhere),
    _mix("carried_to_next", _carried_to_next),
    Model("mix.one_function_two_places", _one_function_two_places, (4,), False),
    _mix("attention_over_batch", _attention_over_batch),
    _model("mix.attention_over_all_tokens", _global_context, (3, 4), apart=False),
    _model("mix.examples_as_time", _examples_as_time, (3,), apart=False),
    _mix("contrastive", _contrastive, why="MatMul"),
    _mix("scan", lambda x: tf.scan(lambda total, row: tf.tanh(total + row), x)),
    _mix("loop_along_batch", _running_sum),
    _mix("loop_body", _mixing_loop, why="Roll"),
    _mix("loop_body_late", _mixing_late_in_loop, why="Mean"),
    _mix("cond_branch", lambda x: tf.cond(
        tf.reduce_sum(x) > 1e9, lambda: tf.sin(x), lambda: _center(x)), why="Mean"),
    _mix("switch_branch", lambda x: tf.switch_case(
        _count(x) - 1, [lambda: tf.sin(x), lambda: x, lambda: tf.roll(x, 1, 0)]), why="Roll"),
    _mix("nested_function", _mixing_nested, why="Mean"),
    _mix("captured", _mixing_capture, why="Sum"),
    _mix("compiled_function", lambda x: tf.function(
        _center, jit_compile=True, autograph=False)(x), why="Mean"),
    _model("mix.saved_module", _saved_module(_center, (4,)), (4,), apart=False, why="Mean"),
    _model("mix.saved_custom_gradient", _saved_module(_mixing_gradient, (4,)), (4,), apart=False,
           why="IdentityN"),
    _mix("custom_gradient", lambda x: _mixing_gradient(x) * x, why="IdentityN"),
    _mix("custom_gradient_both", _mixing_both),
    _mix("custom_gradient_alone", _mixing_from_nothing, why="IdentityN"),
    _mix("recomputed", lambda x: tf.recompute_grad(_center)(x)),
    _mix("map_with_closure", _mixing_map),
    _mix("vectorized_map_with_closure", lambda x: tf.vectorized_map(
        lambda row: row * tf.reduce_sum(x, 0), x)),
    _mix("python_function", lambda x: tf.ensure_shape(
        tf.py_function(_center, [x], tf.float32), x.shape), why="EagerPyFunc", oracle=False),
    _mix("stopped_left_only", lambda x: tf.stop_gradient(x) - tf.reduce_mean(x, 0), why="Mean"),
    _mix("where", lambda x: tf.where(x > 0.0, x, tf.roll(x, 1, 0)), why="Roll"),
    _mix("gradient_of_squared_sum", _squared_batch_energy),
    _mix("gradient_of_pooling", _gradient_of_pooling),
    _mix("gradient_of_mixing", _mixing_backward_only),
    _mix("complex_parts", lambda x: tf.abs(tf.complex(x, tf.reverse(x, [0]))), why="ReverseV2"),
    _mix("far_behind", lambda x: functools.reduce(
        lambda a, _: tf.sin(a) + 0.1 * x, range(30), tf.roll(x, 1, 0)), why="Roll"),
)  # fmt: skip


# What keeps examples apart in ways that need not be seen.


def _block_diagonal_attention(x):
    scores = tf.matmul(x, x, transpose_b=True)
    return tf.nn.softmax(tf.where(tf.eye(_count(x)) > 0.0, scores, -1e9)) @ x


def _array_over_examples(x):
    rows = tf.TensorArray(x.dtype, _count(x)).unstack(x)
    out = tf.TensorArray(x.dtype, _count(x))

    def step(i, out):
        return i + 1, out.write(i, tf.sin(rows.read(i)))

    return tf.while_loop(lambda i, _: i < _count(x), step, (0, out))[1].stack()


def _partition_and_stitch(x):
    side = tf.range(_count(x)) % 2
    places = tf.dynamic_partition(tf.range(_count(x)), side, 2)
    even, odd = tf.dynamic_partition(x, side, 2)
    return tf.dynamic_stitch(places, [tf.sin(even), tf.cos(odd)])


def _sorted_and_back(x):
    order = tf.argsort(x[:, 0])
    return tf.gather(tf.sin(tf.gather(x, order)), tf.argsort(order))


def _rows_replaced(x):
    rows = tf.where(x[:, 0] > 0.0)
    return tf.tensor_scatter_nd_update(x, rows, tf.sin(tf.gather_nd(x, rows)))


_OPEN = (
    _open("reversed_twice", lambda x: tf.reverse(tf.sin(tf.reverse(x, [0])), [0])),
    _open("rolled_and_back", lambda x: tf.roll(tf.sin(tf.roll(x, 1, 0)), -1, 0)),
    _open("sorted_and_back", _sorted_and_back),
    _open("gathered_in_order", lambda x: tf.gather(x, tf.range(_count(x)))),
    _open("split_and_joined", lambda x: tf.concat(
        [tf.sin(part) for part in tf.split(x, [1, 2], 0)], 0)),
    _open("cut_and_joined", lambda x: tf.concat([x[:1], tf.sin(x[1:])], 0)),
    _open("cut_to_its_size", lambda x: x[: _count(x)]),
    _open("sliced_to_its_size", lambda x: tf.slice(x, [0, 0], tf.shape(x))),
    _open("padded_and_cut", lambda x: tf.pad(x, [[1, 2], [0, 0]])[1 : 1 + _count(x)]),
    _open("tiled_and_cut", lambda x: tf.tile(x, [2, 1])[: _count(x)]),
    _open("repeated_and_summed", lambda x: tf.reduce_sum(
        tf.reshape(tf.repeat(x, 2, axis=0), [-1, 2, 4]), 1)),
    _open("stacked_in_batch", lambda x: tf.reduce_sum(
        tf.reshape(tf.concat([x, tf.sin(x)], 0), [2, -1, 4]), 0)),
    _open("identity_matrix", lambda x: tf.eye(_count(x)) @ x),
    _open("diagonal_of_gram", lambda x: tf.linalg.diag_part(tf.matmul(x, x, transpose_b=True))),
    _open("diagonal_of_pairs", lambda x: tf.einsum("bbi->bi", x[:, None] * x[None])),
    _open("block_diagonal_attention", _block_diagonal_attention),
    _open("mean_taken_and_put_back", lambda x: (x * x - tf.reduce_mean(x, 0))
          + tf.reduce_mean(x, 0)),
    _open("times_zero", lambda x: x * x + 0.0 * tf.reduce_sum(x)),
    _open("map_over_examples", lambda x: tf.map_fn(lambda row: tf.sin(row) * row[0], x)),
    _open("array_over_examples", _array_over_examples),
    _open("partition_and_stitch", _partition_and_stitch),
    _open("rows_replaced", _rows_replaced),
    _open("segments_of_one", lambda x: tf.math.segment_sum(tf.sin(x), tf.range(_count(x)))),
    _open("branch_never_taken", lambda x: tf.cond(
        _count(x) > 0, lambda: tf.sin(x), lambda: tf.roll(x, 1, 0))),
    _open("loop_of_no_turn", lambda x: tf.while_loop(
        lambda i, _: i < 0, lambda i, a: (i + 1, tf.roll(a, 1, 0)), (0, tf.sin(x)))[1]),
    _open("python_function", lambda x: tf.ensure_shape(
        tf.py_function(tf.square, [x], tf.float32), x.shape), oracle=False),
    _open("unknown_rank_on_the_way", lambda x: tf.ensure_shape(
        tf.tanh(tf.compat.v1.placeholder_with_default(x, None)), x.shape)),
)  # fmt: skip


def _exists(name: str) -> bool:
    """Returns whether the Keras that is installed has the layer that a row is named for."""
    group, layer, *_ = name.split(".")
    return group != "keras" or hasattr(kl, layer)


_ALL: tuple[Model, ...] = (
    *_CORE,
    *_CONVOLUTIONS,
    *_POOLINGS,
    *_NORMALIZATIONS,
    *_RESHAPING,
    *_MERGING,
    *_RECURRENT,
    *_ATTENTION,
    *_NOISE,
    *_PREPROCESSING,
    *_STACKS,
    *_OPS,
    *_FLOWS,
    *_MIXING_LAYERS,
    *_MIXING,
    *_OPEN,
)

MODELS = tuple(model for model in _ALL if _exists(model.name))
