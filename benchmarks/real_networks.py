"""Networks as people have them, by name: each a function of a batch, and the shape of an example.

Those of `keras.applications` are made without weights, at the smallest images that they take, with
ten logits and in inference. Weights are random, of a fixed seed.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

layers = keras.layers
Function = Callable[[tf.Tensor], tf.Tensor]


@dataclasses.dataclass(frozen=True)
class Network:
    """A network.

    Args:
      title: in words.
      make: makes the function.
      shape: of one example.
      unsafe_at_one: whether TensorFlow's vectorized map of it reads out of bounds at one example,
        and the process may end.
    """

    title: str
    make: Callable[[], Function]
    shape: tuple[int, ...]
    unsafe_at_one: bool = False


def _application(name: str, side: int) -> Network:
    def make() -> Function:
        keras.utils.set_random_seed(0)
        build = getattr(keras.applications, name)
        model = build(
            weights=None, input_shape=(side, side, 3), classes=10, classifier_activation=None
        )
        return lambda x: model(x, training=False)

    return Network(f"{name}, {side}x{side}", make, (side, side, 3))


def _keras(make: Callable[[tf.Tensor], tf.Tensor], *shape: int) -> Function:
    """Returns the function of a Keras model that is written as a function of its input."""
    keras.utils.set_random_seed(0)
    given = keras.Input(shape)
    model = keras.Model(given, make(given))
    return lambda x: model(x, training=False)


def _block(x, heads: int, width: int, causal: bool):
    """A pre-norm transformer block."""
    z = layers.LayerNormalization()(x)
    z = layers.MultiHeadAttention(heads, width // heads)(z, z, use_causal_mask=causal)
    x = layers.Add()([x, z])
    z = layers.Dense(4 * width, "gelu")(layers.LayerNormalization()(x))
    return layers.Add()([x, layers.Dense(width)(z)])


def _vit(image):
    x = layers.Reshape([16, 64])(layers.Conv2D(64, 8, 8)(image))
    for _ in range(4):
        x = _block(x, 4, 64, causal=False)
    return layers.Dense(10)(layers.GlobalAveragePooling1D()(layers.LayerNormalization()(x)))


def _gpt(embedded):
    x = embedded
    for _ in range(4):
        x = _block(x, 4, 64, causal=True)
    return layers.Dense(50)(layers.LayerNormalization()(x)[:, -1])


def _rotated(x, angles):
    first, second = tf.split(x, 2, axis=-1)
    cos, sin = tf.cos(angles), tf.sin(angles)
    return tf.concat([first * cos - second * sin, first * sin + second * cos], -1)


def _llama() -> Function:
    """One block: RMSNorm, rotary attention of 4 heads of 16, SwiGLU."""
    random = np.random.default_rng(0)

    def weight(*shape: int) -> tf.Variable:
        return tf.Variable((random.normal(size=shape) / shape[0] ** 0.5).astype(np.float32))

    query, key, value, out = (weight(64, 64) for _ in range(4))
    gate, up, down = weight(64, 192), weight(64, 192), weight(192, 64)
    steps = np.arange(16)[:, None] / 10_000 ** (np.arange(8) / 8)
    angles = tf.constant(steps.astype(np.float32))
    mask = tf.constant(np.triu(np.full([16, 16], -1e9, np.float32), 1))

    def normalized(x):
        return x * tf.math.rsqrt(tf.reduce_mean(x * x, -1, keepdims=True) + 1e-6)

    def heads(x):
        return tf.transpose(tf.reshape(x, [-1, 16, 4, 16]), [0, 2, 1, 3])

    def function(x):
        z = normalized(x)
        q, k = (_rotated(heads(z @ w), angles) for w in (query, key))
        weights = tf.nn.softmax(tf.matmul(q, k, transpose_b=True) / 4.0 + mask)
        attended = tf.transpose(weights @ heads(z @ value), [0, 2, 1, 3])
        x = x + tf.reshape(attended, [-1, 16, 64]) @ out
        z = normalized(x)
        return (x + (tf.nn.silu(z @ gate) * (z @ up)) @ down)[:, -1]

    return function


def _unet(image, normalization):
    def convolved(x, channels):
        return layers.Activation("relu")(
            normalization()(layers.Conv2D(channels, 3, padding="same")(x))
        )

    first = convolved(image, 16)
    second = convolved(layers.MaxPooling2D()(first), 32)
    lowest = convolved(layers.MaxPooling2D()(second), 32)
    x = layers.Concatenate()([layers.UpSampling2D()(lowest), second])
    x = layers.Concatenate()([layers.UpSampling2D()(convolved(x, 32)), first])
    return layers.Conv2D(1, 1)(convolved(x, 16))


def _generator(z):
    x = layers.Reshape([4, 4, 64])(layers.Dense(4 * 4 * 64)(z))
    for channels in (64, 32):
        x = layers.Conv2DTranspose(channels, 4, 2, "same")(x)
        x = layers.Activation("relu")(layers.BatchNormalization()(x))
    return layers.Conv2DTranspose(3, 4, 2, "same", activation="tanh")(x)


def _vae(x):
    mean = layers.Dense(32)(layers.Dense(256, "relu")(x))
    return layers.Dense(784, "sigmoid")(layers.Dense(256, "relu")(mean))


def _seq2seq(x):
    encoded = layers.GRU(32, return_sequences=True)(x)
    decoded = layers.GRU(32, return_sequences=True)(x)
    attended = layers.Attention()([decoded, encoded])
    return layers.Dense(10)(layers.Concatenate()([decoded, attended])[:, -1])


def _convlstm(x):
    return layers.Dense(3)(layers.Flatten()(layers.ConvLSTM2D(4, 3)(x)))


def _experts(x):
    """Four experts, the two best of which each example is given to."""
    scores = layers.Dense(4)(x)
    best = keras.ops.top_k(scores, 2)[0][:, -1:]
    gates = keras.ops.softmax(keras.ops.where(scores >= best, scores, -1e9))
    outputs = [layers.Dense(32)(layers.Dense(128, "gelu")(x)) for _ in range(4)]
    return keras.ops.sum(keras.ops.stack(outputs, 1) * gates[:, :, None], 1)


def _graph_net() -> Function:
    """Three rounds of messages along the 64 edges of a graph of 32 nodes."""
    random = np.random.default_rng(0)
    senders, receivers = random.integers(0, 32, size=(2, 64))
    weights = [tf.constant((random.normal(size=[8, 8]) / 3).astype(np.float32)) for _ in range(6)]

    def function(x):
        nodes = tf.transpose(x, [1, 0, 2])
        for message, own in zip(weights[::2], weights[1::2]):
            sent = tf.nn.relu(tf.gather(nodes, senders) @ message)
            nodes = tf.tanh(nodes @ own + tf.math.unsorted_segment_sum(sent, receivers, 32))
        return tf.reduce_mean(nodes, 0)

    return function


def _of_layers(title: str, make: Callable, *shape: int) -> Network:
    return Network(title, functools.partial(_keras, make, *shape), shape)


NETWORKS = {
    "mobilenet_v2": _application("MobileNetV2", 32),
    "mobilenet_v3": _application("MobileNetV3Small", 32),
    "efficientnet": _application("EfficientNetB0", 64),
    "resnet50": _application("ResNet50", 32),
    "resnet50_v2": _application("ResNet50V2", 32),
    "densenet": _application("DenseNet121", 32),
    "xception": _application("Xception", 71),
    "inception": _application("InceptionV3", 75),
    "nasnet": _application("NASNetMobile", 32),
    "convnext": _application("ConvNeXtTiny", 64),
    "vgg16": _application("VGG16", 32),
    "vit": _of_layers("vision transformer, 4 blocks of 64, 32x32", _vit, 32, 32, 3),
    "gpt": _of_layers("GPT, 4 blocks of 64, by 16 embedded tokens", _gpt, 16, 64),
    "llama": Network("llama block of 64, by 16 embedded tokens", _llama, (16, 64)),
    "unet_group": _of_layers(
        "U-Net with GroupNorm, image by image, 16x16",
        functools.partial(_unet, normalization=lambda: layers.GroupNormalization(8)),
        16,
        16,
        1,
    ),
    "unet_batch": _of_layers(
        "U-Net with BatchNorm, image by image, 16x16",
        functools.partial(_unet, normalization=layers.BatchNormalization),
        16,
        16,
        1,
    ),
    "dcgan": _of_layers("DCGAN generator, 32x32x3 by 64", _generator, 64),
    "vae": _of_layers("VAE 784-256-32-256-784, by its mean", _vae, 784),
    "seq2seq": dataclasses.replace(
        _of_layers("GRU encoder and decoder with attention, 10 steps", _seq2seq, 10, 16),
        unsafe_at_one=True,
    ),
    "convlstm": _of_layers("ConvLSTM2D, 5 frames of 8x8", _convlstm, 5, 8, 8, 2),
    "graph_net": Network("messages along 64 edges of 32 nodes", _graph_net, (32, 8)),
    "experts": _of_layers("mixture of 4 experts, 2 of them used", _experts, 64),
}
