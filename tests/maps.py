"""Functions that keep examples apart, with Jacobians by finite differences as the oracle."""

import numpy as np
import tensorflow as tf
from scenarios import array


def differences(fn, x, step=1e-3):
    """Returns the Jacobian of a function of arrays, by fourth-order central differences."""
    x = np.asarray(x, np.float64)
    columns = []
    for k in range(x.size):
        unit = np.zeros(x.size)
        unit[k] = step
        unit = unit.reshape(x.shape)
        near = np.asarray(fn(x + unit)) - np.asarray(fn(x - unit))
        far = np.asarray(fn(x + 2 * unit)) - np.asarray(fn(x - 2 * unit))
        columns.append((8 * near - far) / (12 * step))
    return np.stack(columns, -1).reshape(columns[0].shape + x.shape)


def blocks_of(fn, x, step=1e-3):
    """Returns the matrix of each example, `[B, m, n]`, each by itself."""
    found = []
    for b in range(x.shape[0]):
        j = differences(lambda one: np.asarray(fn(tf.constant(one))), x[b : b + 1], step)
        found.append(j.reshape(-1, x[b].size))
    return np.stack(found)


def whole_of(blocks):
    """Returns the block-diagonal matrix."""
    b, m, n = blocks.shape
    whole = np.zeros((b, m, b, n))
    for i in range(b):
        whole[i, :, i] = blocks[i]
    return whole.reshape(b * m, b * n)


def const(*shape, seed):
    return tf.constant(array(*shape, seed=seed))


W2, W3, W4, W7 = (const(n, n, seed=n) for n in (2, 3, 4, 7))
V4 = const(4, 4, seed=11)


def net(x):
    return tf.tanh(tf.tanh(x @ W4 + 0.1) @ V4) @ W4


def layer_norm(x):
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    return (x - mean) * tf.math.rsqrt(variance + 0.5)


def rms_norm(x):
    return x * tf.math.rsqrt(tf.reduce_mean(x**2, -1, keepdims=True) + 0.1)


def coupling(x):
    for k in range(2):
        a, b = tf.split(x, 2, axis=1)
        s = tf.tanh(a @ W2 + 0.1 * k)
        x = tf.concat([a, b * tf.exp(s) + tf.sin(a @ W2)], 1)
        x = tf.gather(x, [2, 0, 3, 1], axis=1)
    return x


def interleaved_coupling(x):
    a, b = x[:, ::2], x[:, 1::2]
    b = -b * tf.exp(tf.tanh(a @ W2)) + a
    return tf.reshape(tf.stack([a, b], -1), [-1, 4])


def attention(x):
    q, k = x @ W2, x @ tf.transpose(W2)
    return x + tf.nn.softmax(tf.matmul(q, k, transpose_b=True)) @ x


def mixer(x):
    x = x + tf.transpose(tf.tanh(tf.transpose(x, [0, 2, 1]) @ W3), [0, 2, 1])
    return x + 0.5 * tf.tanh(x @ W2)


def looped(x):
    return tf.while_loop(
        lambda i, h: i < 3,
        lambda i, h: (i + 1, h + 0.3 * tf.tanh(h @ W3)),
        (0, x),
        maximum_iterations=3,
    )[1]


def conditional(x):
    return tf.cond(tf.reduce_sum(W3) < 1e9, lambda: tf.tanh(x @ W3), lambda: x)


def per_example_choice(x):
    return tf.where(tf.reduce_sum(x, 1, keepdims=True) > 0, tf.exp(x), x @ W3)


@tf.function(autograph=False)
def inner(x):
    return tf.sin(x) @ W3


def calls(x):
    return inner(inner(x) * 0.5)


@tf.custom_gradient
def own_exp(x):
    y = tf.exp(x)
    return y, lambda dy: dy * y


def conv(kernel, stride=1, padding="SAME"):
    return lambda x: tf.nn.conv2d(x, kernel, stride, padding)


def householder(x):
    v = tf.constant([[0.6], [0.0], [0.8]], tf.float64)
    return x - 2 * (x @ v) @ tf.transpose(v)


def planar(x):
    return x + tf.tanh(x @ W3[:, :1] + 0.2) * W3[1]


# name -> function of [B, ...], shape of one example; the Jacobian is square and well conditioned.
SQUARE = {
    "identity": (tf.identity, (3,)),
    "elementwise": (lambda x: 2.0 * tf.tanh(x) + x**3, (3,)),
    "decreasing": (lambda x: -tf.exp(x), (3,)),
    "scaled by a number": (lambda x: -2.0 * x, (7,)),
    "one number": (lambda x: -tf.sin(x), (1,)),
    "no axes but that of examples": (lambda x: -(x**3), ()),
    "dense": (lambda x: x @ W4, (4,)),
    "dense of 2": (lambda x: tf.tanh(x @ W2), (2,)),
    "dense of 3": (lambda x: tf.exp(x @ W3), (3,)),
    "dense of 7": (lambda x: tf.nn.softplus(x @ W7), (7,)),
    "net": (net, (4,)),
    "through a wider layer": (
        lambda x: tf.tanh(x @ const(4, 9, seed=3)) @ const(9, 4, seed=4),
        (4,),
    ),
    "residual": (lambda x: x + 0.3 * tf.tanh(x @ W4), (4,)),
    "layer norm": (lambda x: x + layer_norm(x), (4,)),
    "rms norm": (rms_norm, (3,)),
    "times its sum": (lambda x: x * tf.reduce_sum(x, 1, keepdims=True), (3,)),
    "softmax and x": (lambda x: x + tf.nn.softmax(x), (4,)),
    "reversal of 2": (lambda x: tf.reverse(x, [1]), (2,)),
    "reversal of 3": (lambda x: tf.reverse(tf.exp(x), [1]), (3,)),
    "reversal of 4": (lambda x: tf.reverse(x, [1]), (4,)),
    "reversal of 7": (lambda x: tf.reverse(x, [-1]), (7,)),
    "roll": (lambda x: tf.roll(x, 1, 1) * 1.5, (4,)),
    "permutation": (lambda x: tf.gather(tf.tanh(x), [1, 0, 3, 2, 5, 4, 6], axis=1), (7,)),
    "sort": (lambda x: tf.sort(x, 1), (4,)),
    "transposition": (lambda x: tf.transpose(x, [0, 2, 1]), (2, 3)),
    "transposition and reshape": (
        lambda x: tf.reshape(tf.transpose(tf.exp(x), [0, 2, 1]), [-1, 3, 2]),
        (3, 2),
    ),
    "reshape to one axis": (lambda x: tf.reshape(x, [-1, 4]) @ W4, (2, 2)),
    "reshape to two axes": (lambda x: tf.tanh(tf.reshape(x @ W4, [-1, 2, 2])), (4,)),
    "tokens": (lambda x: tf.tanh(x @ W2) @ W2, (3, 2)),
    "tokens and a number of each": (lambda x: tf.einsum("btd,de->bte", tf.sin(x), W2), (3, 2)),
    "mixed along tokens": (lambda x: tf.einsum("btd,ts->bsd", tf.sin(x), W3), (3, 2)),
    "mixer": (mixer, (3, 2)),
    "attention": (attention, (3, 2)),
    "coupling": (coupling, (4,)),
    "interleaved coupling": (interleaved_coupling, (4,)),
    "parts in another order": (lambda x: tf.concat([x[:, 2:], tf.exp(x[:, :2])], 1), (3,)),
    "unstacked and stacked": (lambda x: tf.stack(tf.unstack(x, axis=1)[::-1], 1) ** 3, (3,)),
    "running sum": (lambda x: tf.cumsum(tf.tanh(x), 1), (4,)),
    "running sum, reversed": (lambda x: -tf.cumsum(x, 1, reverse=True), (3,)),
    "1x1 convolution": (conv(tf.reshape(W2, [1, 1, 2, 2])), (3, 3, 2)),
    "3x3 convolution": (lambda x: x + 0.2 * conv(const(3, 3, 2, 2, seed=5))(x), (2, 3, 2)),
    "convolution by patches": (conv(const(2, 2, 1, 4, seed=6), 2), (4, 2, 1)),
    "depthwise": (
        lambda x: x + 0.2 * tf.nn.depthwise_conv2d(x, const(3, 3, 2, 1, seed=7), [1] * 4, "SAME"),
        (2, 2, 2),
    ),
    "space to depth": (lambda x: tf.nn.space_to_depth(tf.exp(x), 2), (2, 4, 1)),
    "loop": (looped, (3,)),
    "branch": (conditional, (3,)),
    "choice of each example": (per_example_choice, (3,)),
    "calls": (calls, (3,)),
    "custom gradient": (lambda x: own_exp(x @ W3), (3,)),
    "reflection": (householder, (3,)),
    "planar flow": (planar, (3,)),
    "triangular solve": (
        lambda x: tf.transpose(
            tf.linalg.triangular_solve(W3 + 3 * tf.eye(3, dtype=tf.float64), tf.transpose(x))
        ),
        (3,),
    ),
    "axes of size one": (lambda x: -2.0 * x, (1, 1)),
    "matrix from the left": (lambda x: tf.squeeze(W3 @ x[..., None], -1), (3,)),
    "padded and cut": (lambda x: tf.pad(tf.exp(x), [[0, 0], [1, 0]])[:, 1:], (3,)),
    "larger of two": (lambda x: tf.maximum(2.0 * x, x), (3,)),
    "product with what is reversed": (lambda x: x * tf.reverse(x, [1]) + x, (4,)),
}

# The Jacobian is not square, or singular.
OTHER = {
    "wider": (lambda x: tf.tanh(x @ const(3, 5, seed=1)), (3,)),
    "narrower": (lambda x: tf.tanh(x @ const(5, 2, seed=1)), (5,)),
    "sum": (lambda x: tf.reduce_sum(x**2, 1), (4,)),
    "norm": (lambda x: tf.norm(x, axis=1, keepdims=True), (4,)),
    "repeated": (lambda x: tf.tile(tf.sin(x), [1, 2]), (3,)),
    "gathered twice": (lambda x: tf.gather(tf.exp(x), [0, 0, 2, 1], axis=1), (3,)),
    "outer product": (lambda x: x[:, :, None] * x[:, None, :], (3,)),
    "tokens to wider": (lambda x: tf.tanh(x @ const(2, 4, seed=1)), (3, 2)),
    "pooled": (lambda x: tf.nn.avg_pool2d(x, 2, 2, "VALID"), (4, 4, 1)),
    "strided convolution": (conv(const(3, 3, 2, 3, seed=1), 2), (4, 4, 2)),
    "softmax": (tf.nn.softmax, (4,)),
    "layer norm alone": (layer_norm, (4,)),
    "to one and back": (lambda x: (x @ W4[:, :1]) @ W4[:1], (4,)),
    "part left out": (lambda x: tf.pad(x[:, 1:], [[0, 0], [0, 1]]), (3,)),
    "relu": (tf.nn.relu, (5,)),
    "scalar to several": (lambda x: tf.stack([tf.sin(x), tf.cos(x), x], 1), ()),
}
