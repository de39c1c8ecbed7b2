"""Odd graphs under "cross_country": row by row gradients ("unstack") say what is right."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import tfjac
from tfjac.accumulation import contraction

pytestmark = pytest.mark.filterwarnings("ignore::tfjac.errors.LoopFallbackWarning")

STRATEGIES = ("cross_country", "unstack")


def array(*shape, seed=0, dtype=np.float64):
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(dtype)


def const(like, *shape, seed=1):
    return tf.constant(array(*shape, seed=seed), like.dtype)


def in_graph(body, **options):
    return tf.function(body, autograph=False, **options)


def dense(x, width, seed=1):
    return tf.tensordot(x, const(x, x.shape[-1], width, seed=seed), 1)


def layer(x, width, seed=1):
    return tf.tanh(dense(x, width, seed))


def agree(found, wanted, tolerance=1e-12):
    """Asserts that the entries agree, relative to the largest finite one."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    found, wanted = found.astype(np.float64), wanted.astype(np.float64)
    scale = np.abs(wanted[np.isfinite(wanted)]).max(initial=0)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance * scale)


# Ops in the middle of the graph.


def layer_norm(x):
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    return (x - mean) * tf.math.rsqrt(variance + 0.1) * const(x, x.shape[-1])


def attention(x):
    q, k, v = (dense(x, 3, seed) for seed in (1, 2, 3))
    return x + tf.nn.softmax(q @ tf.linalg.matrix_transpose(k)) @ v


@tf.custom_gradient
def clipped(x):
    return tf.sin(x), lambda upstream: tf.clip_by_value(upstream, -0.3, 0.3)


@tf.custom_gradient
def doubled(x):
    return x * x, lambda upstream: 5.0 * upstream * x


@tf.custom_gradient
def reversed_gradient(x):
    return tf.identity(x), lambda upstream: -upstream


@tf.custom_gradient
def norm_of_gradient(x):
    return x, lambda upstream: upstream / (1 + tf.norm(upstream))


def looped(x, times=3, **options):
    def body(i, state):
        return i + 1, tf.sin(state) * x + state

    return tf.while_loop(lambda i, state: i < times, body, (0, x), **options)[1]


def lstm(x):
    h = c = tf.zeros_like(x[:, 0, :1]) + const(x, 2)
    w = const(x, x.shape[-1] + 2, 8)
    for t in range(x.shape[1]):
        i, f, o, g = tf.split(tf.concat([x[:, t], h], 1) @ w, 4, 1)
        c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
        h = tf.sigmoid(o) * tf.tanh(c)
    return h


def scanned(x):
    return tf.scan(lambda a, b: tf.tanh(a * b + a), x)


def ladder(x):
    a = layer(x, 2, 1)
    b = layer(a, 6, 2) + dense(x, 6, 3)
    c = layer(b, 1, 4)
    d = layer(c, 5, 5) * dense(a, 5, 6)
    return dense(d, 6, 7) + b * c


def diamond(x):
    neck = tf.reduce_sum(tf.sin(x), 1, keepdims=True)
    return tf.exp(neck) * x + tf.cos(neck) * tf.reverse(x, [1]) + neck


def conv2d(x, strides=1, padding="SAME", dilations=1, size=2, out=2, data="NHWC"):
    kernel = const(x, size, size, x.shape[3], out)
    return tf.nn.conv2d(x, kernel, strides, padding, dilations=dilations)


def depthwise(x, strides=(1, 1, 1, 1), padding="SAME", dilations=None):
    return tf.nn.depthwise_conv2d(
        x, const(x, 2, 2, x.shape[3], 2), strides, padding, dilations=dilations
    )


def transposed(x, strides=2, padding="SAME"):
    b, h, w, c = x.shape
    b = tf.shape(x)[0] if b is None else b
    size = [b, h * strides, w * strides, 1]
    return tf.nn.conv2d_transpose(x, const(x, 2, 2, 1, c), size, strides, padding)


def dilated(x):
    return tf.nn.dilation2d(x, const(x, 2, 2, 1), [1] * 4, "SAME", "NHWC", [1] * 4)


def in_single(fn):
    return lambda x: tf.cast(fn(tf.cast(x, tf.float32)), x.dtype)


def swap(x, fn):
    return tf.transpose(fn(tf.transpose(x)))


def merged(x, fn):
    """Applies fn to the batch merged with the axis after it."""
    y = fn(tf.reshape(x, [-1, x.shape[-1]]))
    return tf.reshape(y, [-1, x.shape[1], *y.shape[1:]])


def ties(x):
    return tf.round(x * 2) / 2 + x - tf.stop_gradient(x)


def scatter(x):
    return tf.tensor_scatter_nd_add(
        tf.reverse(x, [0]), [[0, 1], [1, 0], [0, 1]], tf.reshape(x, [-1])[:3] * 2
    )


# name: (function, shape): examples of the first axis are independent.
EXAMPLES = {
    "identity": (lambda x: x, (2, 3)),
    "negated twice": (lambda x: tf.negative(-x), (2, 3)),
    "of one example": (lambda x: layer(x, 2) * x[:, :1], (1, 3)),
    "times a size-one axis": (lambda x: x * x[:, :1], (2, 3)),
    "size-one axes against each other": (lambda x: x[:, :, None] * x[:, None, :], (2, 3)),
    "size-one axis of a constant": (lambda x: x[:, :1] * const(x, 1, 3), (2, 3)),
    "constant of higher rank": (lambda x: tf.transpose(x * const(x, 2, 1, 3), [1, 0, 2]), (2, 3)),
    "scalar constant": (lambda x: const(x) * x / (2 + const(x)), (2, 3)),
    "column minus row sums": (lambda x: x - tf.reduce_sum(x, 1, keepdims=True), (2, 3)),
    "broadcast then summed back": (
        lambda x: tf.reduce_sum(x[:, :, None] * x[:, None, :] + const(x, 3, 3), 1),
        (2, 3),
    ),
    "broadcast_to": (lambda x: tf.broadcast_to(x[:, :, None], [2, 3, 2]) * const(x, 3, 2), (2, 3)),
    "ones": (lambda x: tf.sin(x) * x, (2, 1)),
    "all size-one": (lambda x: tf.sin(x) * x + tf.transpose(x, [0, 2, 1]), (1, 1, 1)),
    "x many times": (lambda x: x * x * x + x / (1 + x * x) - x + tf.sin(x) * x, (2, 3)),
    "identity and transpose": (lambda x: x + tf.transpose(x, [0, 2, 1]), (2, 3, 3)),
    "product with transpose": (lambda x: x @ tf.transpose(x, [0, 2, 1]), (2, 2, 3)),
    "product with itself": (lambda x: x @ x @ x + x, (2, 2, 2)),
    "adjoint product": (lambda x: tf.matmul(x, x, transpose_a=True, adjoint_b=False), (2, 3, 2)),
    "matrix times batch": (lambda x: const(x, 2, 3) @ x + const(x, 2, 1), (2, 3, 2)),
    "batch times broadcast batch": (
        lambda x: x[:, None] @ const(x, 1, 3, 3, 2),
        (2, 2, 3),
    ),
    "broadcast batch on both sides": (
        lambda x: x[:, None] @ x[:, :, None] * x[:, None, :1],
        (2, 2, 1),
    ),
    "outer product": (lambda x: tf.einsum("bi,bj->bij", x, tf.sin(x)) + x[:, None], (2, 3)),
    "einsum with ellipsis": (lambda x: tf.einsum("...ij,jk->...ki", x, const(x, 3, 2)), (2, 2, 3)),
    "einsum with broadcast ellipsis": (
        lambda x: tf.einsum("b...i,...i->b...", x, const(x, 1, 3)),
        (2, 2, 3),
    ),
    "einsum of a diagonal": (lambda x: tf.einsum("bii->bi", x * x), (2, 3, 3)),
    "einsum of a trace": (lambda x: tf.einsum("bii->b", tf.sin(x)), (2, 3, 3)),
    "einsum onto a diagonal": (lambda x: tf.linalg.diag(tf.sin(x)) @ const(x, 3, 2), (2, 3)),
    "einsum with a summed label": (lambda x: tf.einsum("bij,bk->bk", x, x[:, 0]), (2, 2, 3)),
    "einsum of two summed labels": (lambda x: tf.einsum("bij,bij->b", x, tf.sin(x)), (2, 2, 3)),
    "einsum of three": (lambda x: tf.einsum("bi,bj,ijk->bk", x, x * x, const(x, 3, 3, 2)), (2, 3)),
    "einsum transposing the batch": (
        lambda x: tf.transpose(tf.einsum("bij,jk->kib", x, const(x, 3, 2)), [2, 1, 0]),
        (2, 2, 3),
    ),
    "attention": (attention, (2, 2, 3)),
    "matvec": (lambda x: tf.linalg.matvec(x[:, :2], x[:, 2]), (2, 3, 3)),
    "axes merged and split": (
        lambda x: tf.reshape(tf.reshape(x, [2, 6]) * const(x, 6), [2, 2, 3]) + x[:, :2],
        (2, 3, 2)[:1] + (2, 3),
    ),
    "axes split otherwise": (
        lambda x: tf.reshape(tf.transpose(tf.reshape(x, [-1, 3, 2]), [0, 2, 1]), [-1, 6]) * x,
        (2, 6),
    ),
    "axes split unevenly": (
        lambda x: tf.reshape(tf.tanh(tf.reshape(x, [-1, 4, 3])), [-1, 6, 2]) @ const(x, 2, 2),
        (2, 2, 6),
    ),
    "batch merged": (lambda x: merged(x, lambda y: layer(y, 2)), (2, 3, 4)),
    "batch merged, softmax": (lambda x: merged(x, tf.nn.softmax) + x, (2, 3, 4)),
    "batch merged, with a neck": (
        lambda x: merged(x, lambda y: layer(layer(y, 1), 4)) * x,
        (2, 3, 4),
    ),
    "batch merged, then a sum inside": (
        lambda x: tf.reduce_sum(merged(x, lambda y: layer(y, 4)), 1) + x[:, 0],
        (2, 3, 4),
    ),
    "batch inside": (lambda x: swap(x, lambda y: const(x, 2, 3) @ y), (2, 3)),
    "batch inside, softmax": (lambda x: swap(x, lambda y: tf.nn.softmax(y, 0)), (2, 3)),
    "batch in the middle": (
        lambda x: tf.transpose(
            tf.tensordot(tf.transpose(x, [1, 0, 2]), const(x, 3, 2), 1), [1, 2, 0]
        ),
        (2, 2, 3),
    ),
    "batch last and merged": (
        lambda x: tf.transpose(
            tf.reshape(tf.tanh(tf.reshape(tf.transpose(x, [1, 2, 0]), [6, -1])), [2, 3, -1]),
            [2, 1, 0],
        ),
        (2, 2, 3),
    ),
    "neck of one": (lambda x: layer(layer(x, 1, 1), 5, 2), (2, 6)),
    "two necks": (lambda x: layer(layer(layer(layer(x, 1, 1), 6, 2), 2, 3), 5, 4), (2, 5)),
    "ladder of necks with skips": (ladder, (2, 6)),
    "skip over a neck": (lambda x: x + layer(layer(x, 1, 1), 6, 2), (2, 6)),
    "skip over a neck, times": (lambda x: tf.sin(x) * layer(layer(x, 1, 1), 6, 2), (2, 6)),
    "nested skips": (
        lambda x: (lambda h: h + layer(layer(h, 1, 3), 4, 4) + x)(x + layer(layer(x, 2), 4)),
        (2, 4),
    ),
    "neck by a sum": (diamond, (2, 4)),
    "neck by a slice": (lambda x: tf.pad(tf.sin(x[:, 1:2]), [[0, 0], [2, 3]]) * x[:, :1], (2, 4)),
    "neck, then a softmax": (lambda x: tf.nn.softmax(layer(layer(x, 1), 5)), (2, 5)),
    "two ways out of a neck": (
        lambda x: (lambda h: tf.concat([layer(h, 3, 2), layer(h, 4, 3) * x], 1))(layer(x, 1)),
        (2, 4),
    ),
    "softmax of rank 2": (lambda x: tf.nn.softmax(x) + x, (2, 3)),
    "softmax of rank 3": (lambda x: tf.nn.softmax(x * x) * x, (2, 2, 3)),
    "softmax of rank 4": (lambda x: tf.nn.softmax(x) - tf.transpose(x, [0, 2, 1, 3]), (2, 2, 2, 2)),
    "softmax of rank 5": (lambda x: tf.nn.softmax(x) + x, (1, 2, 1, 2, 3)),
    "softmax of a middle axis": (lambda x: tf.nn.softmax(x, 1) + x, (2, 3, 2)),
    "softmax of a size-one axis": (lambda x: tf.nn.softmax(x) + x, (2, 3, 1)),
    "log_softmax of rank 2": (lambda x: tf.nn.log_softmax(x) - x, (2, 3)),
    "log_softmax of rank 4": (lambda x: tf.nn.log_softmax(x * x, -1) + x, (2, 1, 2, 3)),
    "log_softmax of a middle axis": (lambda x: tf.nn.log_softmax(x, 1), (2, 3, 2)),
    "softmax of softmax": (lambda x: tf.nn.softmax(tf.nn.softmax(x) * x) @ const(x, 3, 2), (2, 3)),
    "softmax cross entropy": (
        lambda x: tf.nn.softmax_cross_entropy_with_logits(tf.nn.softmax(x[:, ::-1]), x),
        (2, 3),
    ),
    "sparse cross entropy": (
        lambda x: tf.nn.sparse_softmax_cross_entropy_with_logits([0, 2], x),
        (2, 3),
    ),
    "logsumexp": (lambda x: tf.reduce_logsumexp(x, 1, keepdims=True) * x, (2, 3)),
    "layer norm": (layer_norm, (2, 4)),
    "layer norm with a residual": (lambda x: layer_norm(x + layer(layer_norm(x), 3)), (2, 2, 3)),
    "layer norm of two axes": (
        lambda x: (lambda m: (x - m[0]) / tf.sqrt(m[1] + 0.1))(
            tf.nn.moments(x, [1, 2], None, True)
        ),
        (2, 2, 3),
    ),
    "batch norm by ops": (
        lambda x: tf.nn.batch_normalization(
            x, const(x, 3), const(x, 3) ** 2 + 1, const(x, 3, seed=2), const(x, 3, seed=3), 0.1
        ),
        (2, 3),
    ),
    "sum of several axes": (lambda x: tf.reduce_sum(x * x, [1, 3]) + x[:, 0, :, 0], (2, 2, 3, 2)),
    "sum of negative axes": (lambda x: tf.reduce_sum(x * x, [-1, 1], keepdims=True), (2, 2, 3)),
    "sum of no axes": (lambda x: tf.reduce_sum(x * x, []), (2, 3)),
    "mean kept and taken away": (lambda x: x - tf.reduce_mean(x, [1, 2], True), (2, 2, 3)),
    "max with ties": (lambda x: tf.reduce_max(ties(x), 1), (2, 9)),
    "min with ties, kept": (lambda x: tf.reduce_min(ties(x), [1, 2], True) * x, (2, 3, 3)),
    "maximum with ties": (lambda x: tf.maximum(x, ties(x)) + tf.minimum(x, x), (2, 4)),
    "maximum against a column": (lambda x: tf.maximum(x, x[:, :1]), (2, 4)),
    "amax of the last two": (lambda x: tf.reduce_max(x @ const(x, 3, 3), [-1, -2]), (2, 2, 3)),
    "prod": (lambda x: tf.reduce_prod(x, 1), (2, 4)),
    "prod of two axes, kept": (lambda x: tf.reduce_prod(x, [1, 2], True) + x, (2, 2, 2)),
    "prod with a zero": (lambda x: tf.reduce_prod(x * [[0.0, 1, 1, 2]], 1) + x[:, 0], (2, 4)),
    "norm": (lambda x: x / tf.norm(x, axis=1, keepdims=True), (2, 3)),
    "one norm": (lambda x: tf.norm(x, 1, axis=[1, 2]), (2, 2, 2)),
    "largest norm": (lambda x: tf.norm(x, np.inf, axis=1), (2, 3)),
    "l2_normalize": (lambda x: tf.nn.l2_normalize(x, 1) * x, (2, 3)),
    "cumsum": (lambda x: tf.cumsum(x * x, 1) + x, (2, 4)),
    "cumsum, exclusive and reversed": (
        lambda x: tf.cumsum(x, 1, exclusive=True, reverse=True) * x,
        (2, 4),
    ),
    "cumprod": (lambda x: tf.math.cumprod(x, 1), (2, 4)),
    "cumulative logsumexp": (lambda x: tf.math.cumulative_logsumexp(x, 1), (2, 3)),
    "concat with itself": (lambda x: tf.concat([x, x * x, x[:, :1]], 1), (2, 3)),
    "concat of axes": (lambda x: tf.concat([x, tf.transpose(x, [0, 2, 1])], -1), (2, 2, 2)),
    "concat with a constant": (
        lambda x: tf.concat([const(x, 2, 1), tf.sin(x), const(x, 2, 2)], 1) * 2,
        (2, 2),
    ),
    "channels exchanged, and a residual": (
        lambda x: x + tf.reshape(tf.transpose(tf.reshape(x, [-1, 2, 3]), [0, 2, 1]), [-1, 6]),
        (2, 6),
    ),
    "axes split in two ways": (
        lambda x: (
            tf.reshape(tf.reshape(x, [-1, 2, 3]) * const(x, 3), [-1, 6])
            + tf.reshape(tf.reshape(x, [-1, 3, 2]) * const(x, 2), [-1, 6])
        ),
        (2, 6),
    ),
    "stack of x and its reverse": (lambda x: tf.stack([x, x * x, x[:, ::-1]], 2), (2, 4)),
    "stack": (lambda x: tf.stack([x, tf.sin(x), x[:, ::-1]], 1), (2, 3)),
    "unstack": (lambda x: tf.add_n(tf.unstack(x * x, axis=1)) * x[:, 0], (2, 3, 2)),
    "unstack of a middle axis": (
        lambda x: (lambda a, b: tf.stack([a * b, b @ const(x, 2, 2)], 2))(
            *tf.unstack(tf.transpose(x, [1, 0, 2]))
        ),
        (2, 2, 2),
    ),
    "split, unequal": (
        lambda x: (lambda a, b: tf.concat([b, a * b[:, :1]], 1))(*tf.split(x, [1, 3], 1)),
        (2, 4),
    ),
    "split, one part unused": (lambda x: tf.split(x, 3, 1)[1] * 2, (2, 3)),
    "slice with strides": (lambda x: x[:, 1::2] * x[:, 4::-2][:, :2], (2, 5)),
    "slice with a new axis and ellipsis": (lambda x: x[..., None, 1] * x[:, :1, :1], (2, 2, 3)),
    "slice of the batch with all": (lambda x: tf.slice(x, [0, 1], [-1, 2]) * 3, (2, 4)),
    "pad": (lambda x: tf.pad(tf.sin(x), [[0, 0], [1, 2]], constant_values=7.0), (2, 3)),
    "mirror pad": (lambda x: tf.pad(x * x, [[0, 0], [2, 1]], "REFLECT"), (2, 3)),
    "symmetric pad": (lambda x: tf.pad(x * x, [[0, 0], [1, 2]], "SYMMETRIC"), (2, 3)),
    "roll": (lambda x: tf.roll(x, [1], [1]) * x - tf.roll(x, -2, 1), (2, 4)),
    "roll of two axes": (lambda x: tf.roll(x, [1, 1], [1, 2]) * x, (2, 2, 3)),
    "reverse": (lambda x: tf.reverse(x, [1, 2]) + x, (2, 2, 3)),
    "reverse sequences": (lambda x: tf.reverse_sequence(x, [2, 3], 1) * x, (2, 3)),
    "gather with repeats": (lambda x: tf.gather(x, [2, 0, 2, 2], axis=1) * 2, (2, 3)),
    "gather by a matrix": (lambda x: tf.gather(tf.sin(x), [[0, 2], [1, 1]], axis=1), (2, 3)),
    "gather with batch dims": (
        lambda x: tf.gather(x, [[0, 2], [1, 1]], axis=1, batch_dims=1) * x[:, :2],
        (2, 3),
    ),
    "tile": (lambda x: tf.tile(x, [1, 3]) * tf.range(6, dtype=x.dtype), (2, 2)),
    "sort": (lambda x: tf.sort(x, 1) * x, (2, 4)),
    "top_k": (lambda x: tf.math.top_k(x, 2)[0], (2, 4)),
    "where of x": (lambda x: tf.where(x > 0, x * x, tf.exp(x)), (2, 4)),
    "where, broadcast": (lambda x: tf.where(x[:, :1] > 0, x, x[:, :1]), (2, 4)),
    "clip": (lambda x: tf.clip_by_value(x * 2, -1, 1) + x, (2, 4)),
    "band part": (lambda x: tf.linalg.band_part(x @ x, 0, 1), (2, 3, 3)),
    "diag part": (lambda x: tf.linalg.diag_part(x @ x), (2, 3, 3)),
    "set_diag": (lambda x: tf.linalg.set_diag(x, tf.sin(x[:, 0])), (2, 3, 3)),
    "inverse": (lambda x: tf.linalg.inv(x + 5 * tf.eye(2, dtype=x.dtype)), (2, 2, 2)),
    "determinant": (lambda x: tf.linalg.det(x) + x[:, 0, 0], (2, 2, 2)),
    "solve": (lambda x: tf.linalg.solve(x + 5 * tf.eye(2, dtype=x.dtype), x), (2, 2, 2)),
    "cholesky": (
        lambda x: tf.linalg.cholesky(x @ tf.linalg.matrix_transpose(x) + tf.eye(2, dtype=x.dtype)),
        (2, 2, 2),
    ),
    "powers": (lambda x: tf.abs(x) ** tf.sin(x) + tf.abs(x[:, :1]) ** x, (2, 3)),
    "atan2 and hypot": (lambda x: tf.atan2(x, x[:, ::-1]) * tf.abs(x), (2, 3)),
    "squared difference": (
        lambda x: tf.math.squared_difference(x[:, :, None], x[:, None]),
        (2, 3),
    ),
    "xlogy": (lambda x: tf.math.xlogy(x, tf.abs(x)) + tf.math.divide_no_nan(x, x[:, :1]), (2, 3)),
    "floor and sign": (lambda x: tf.floor(x) + tf.sign(x) * x + x % 0.3, (2, 3)),
    "activations": (
        lambda x: (
            tf.nn.elu(x)
            + tf.nn.selu(x) * tf.nn.softplus(x)
            + tf.nn.relu6(x * 9)
            + tf.nn.leaky_relu(x)
            + tf.nn.gelu(x)
            + tf.nn.silu(x)
        ),
        (2, 4),
    ),
    "relu at nought": (lambda x: tf.nn.relu(x - x) + tf.nn.relu(x), (2, 3)),
    "max pool": (lambda x: tf.nn.max_pool2d(x, 2, 2, "VALID"), (2, 4, 4, 2)),
    "max pool, overlapping": (lambda x: tf.nn.max_pool2d(x, 3, 1, "SAME"), (2, 3, 3, 1)),
    "max pool, padded": (lambda x: tf.nn.max_pool2d(x, 2, 2, "SAME") * 2, (2, 3, 3, 2)),
    "max pool, ties": (lambda x: tf.nn.max_pool2d(ties(x), 2, 1, "SAME"), (2, 3, 3, 1)),
    "max pool, gaps": (lambda x: tf.nn.max_pool2d(x, 1, 2, "VALID"), (2, 3, 3, 1)),
    "max pool, 1d": (lambda x: tf.nn.max_pool1d(tf.sin(x), 2, 1, "SAME"), (2, 4, 2)),
    "max pool of a function": (lambda x: tf.nn.max_pool2d(tf.sin(x), 2, 1, "SAME"), (2, 3, 3, 1)),
    "max pool of a conv": (lambda x: tf.nn.max_pool2d(conv2d(x), 3, 1, "SAME"), (2, 3, 3, 1)),
    "max pools": (
        lambda x: tf.nn.max_pool2d(tf.nn.max_pool2d(x * x, 3, 1, "SAME"), 3, 1, "SAME"),
        (2, 3, 3, 2),
    ),
    "max pool, then a layer": (
        lambda x: layer(tf.reshape(tf.nn.max_pool2d(x, 2, 2, "VALID"), [-1, 4]), 3),
        (2, 4, 4, 1),
    ),
    "average pool": (lambda x: tf.nn.avg_pool2d(x * x, 2, 2, "VALID"), (2, 4, 4, 2)),
    "average pool, overlapping": (lambda x: tf.nn.avg_pool2d(x, 3, 1, "SAME"), (2, 3, 3, 1)),
    "average pool, padded": (lambda x: tf.nn.avg_pool2d(x, 2, 2, "SAME"), (2, 3, 3, 2)),
    "average pool, gaps": (lambda x: tf.nn.avg_pool2d(x, 1, 2, "VALID"), (2, 3, 3, 1)),
    "average pool with a residual": (lambda x: tf.nn.avg_pool2d(x, 3, 1, "SAME") - x, (2, 3, 3, 1)),
    "conv": (conv2d, (2, 3, 3, 2)),
    "conv, strided": (lambda x: conv2d(x, 2), (2, 4, 4, 2)),
    "conv, strided unevenly": (lambda x: conv2d(x, (2, 1), "VALID"), (2, 4, 3, 1)),
    "conv, strided, padded unevenly": (lambda x: conv2d(x, 2, size=3), (2, 4, 5, 1)),
    "conv, atrous": (
        lambda x: tf.nn.atrous_conv2d(x, const(x, 2, 2, 1, 2), 2, "SAME"),
        (2, 4, 4, 1),
    ),
    "max pool, 3d": (in_single(lambda x: tf.nn.max_pool3d(x, 2, 1, "SAME")), (1, 2, 3, 2, 1)),
    "average pool, 3d": (
        in_single(lambda x: tf.nn.avg_pool3d(x, 2, 1, "VALID")),
        (2, 2, 3, 2, 1),
    ),
    "max pool of a function, 3d": (
        in_single(lambda x: tf.nn.max_pool3d(tf.sin(x), 2, 1, "SAME")),
        (1, 2, 3, 2, 1),
    ),
    "conv, explicit padding": (
        lambda x: conv2d(x, 2, [[0, 0], [1, 0], [0, 2], [0, 0]]),
        (2, 3, 3, 1),
    ),
    "conv, 1x1": (lambda x: conv2d(x, size=1, out=3) + x[..., :1], (2, 2, 2, 3)),
    "conv, 1x1, strided": (lambda x: conv2d(x, 2, size=1, out=3), (2, 3, 3, 2)),
    "conv of conv": (lambda x: conv2d(tf.nn.relu(conv2d(x)), 2), (2, 3, 3, 1)),
    "channel shuffle with a residual": (
        lambda x: (
            x + tf.reshape(tf.einsum("bhij->bhji", tf.reshape(x, [-1, 2, 2, 3])), [-1, 2, 6]) * 2
        ),
        (2, 2, 6),
    ),
    "conv with a residual": (lambda x: x + conv2d(tf.sin(x)), (2, 3, 3, 2)),
    "conv of a wide kernel": (lambda x: conv2d(x, size=5, out=1), (2, 3, 2, 2)),
    "conv of x by x": (
        lambda x: tf.map_fn(
            lambda e: tf.nn.conv2d(e[None], tf.reshape(e[:2, :2], [2, 2, 1, 1]), 1, "SAME")[0], x
        ),
        (2, 3, 3, 1),
    ),
    "conv, depthwise": (depthwise, (2, 3, 3, 2)),
    "conv, depthwise, strided": (lambda x: depthwise(x, (1, 2, 2, 1)), (2, 4, 3, 2)),
    "conv, depthwise, dilated": (lambda x: depthwise(x, dilations=(2, 2)), (2, 3, 3, 1)),
    "conv, separable": (
        lambda x: tf.nn.separable_conv2d(
            x, const(x, 2, 2, 2, 1), const(x, 1, 1, 2, 3), [1] * 4, "SAME"
        ),
        (2, 2, 2, 2),
    ),
    "conv, transposed": (transposed, (2, 2, 2, 2)),
    "conv, transposed, one stride": (lambda x: transposed(x, 1), (2, 3, 3, 1)),
    "conv, 1d": (lambda x: tf.nn.conv1d(x, const(x, 3, 2, 2), 1, "SAME") + x, (2, 4, 2)),
    "conv, 1d, strided": (lambda x: tf.nn.conv1d(x, const(x, 3, 2, 1), 2, "VALID"), (2, 5, 2)),
    "conv, 3d": (
        lambda x: tf.nn.conv3d(x, const(x, 2, 2, 2, 1, 2), [1, 1, 2, 1, 1], "SAME"),
        (2, 2, 2, 2, 1),
    ),
    "resize, bilinear": (lambda x: tf.cast(tf.image.resize(x, [3, 4]), x.dtype), (2, 2, 2, 1)),
    "resize, nearest": (
        lambda x: tf.image.resize(x * x, [3, 3], "nearest") * 2,
        (2, 2, 2, 1),
    ),
    "space to depth": (lambda x: tf.nn.space_to_depth(x * x, 2), (2, 4, 2, 1)),
    "depth to space": (lambda x: tf.nn.depth_to_space(tf.sin(x), 2), (2, 1, 2, 4)),
    "image patches": (
        lambda x: tf.image.extract_patches(x, [1, 2, 2, 1], [1, 1, 1, 1], [1, 1, 1, 1], "VALID"),
        (2, 3, 3, 1),
    ),
    "custom gradient": (lambda x: doubled(dense(x, 3)) + x, (2, 3)),
    "custom gradient that turns": (lambda x: reversed_gradient(x * x) * x, (2, 3)),
    "stop_gradient": (lambda x: tf.stop_gradient(tf.sin(x)) * x + tf.stop_gradient(x), (2, 3)),
    "stop_gradient on a neck": (lambda x: tf.stop_gradient(layer(x, 1)) * layer(x, 3), (2, 3)),
    "cond on a constant": (
        lambda x: tf.cond(tf.constant(True), lambda: tf.sin(x) * x, lambda: x),
        (2, 3),
    ),
    "while loop": (looped, (2, 3)),
    "while loop between layers": (lambda x: layer(looped(layer(x, 2)), 3), (2, 3)),
    "map_fn": (lambda x: tf.map_fn(lambda e: tf.sin(e) * e[0], x), (2, 3)),
    "vectorized_map": (lambda x: tf.vectorized_map(lambda e: tf.sin(e) * e[0], x), (2, 3)),
    "LSTM": (lstm, (2, 3, 2)),
    "FFT there and back": (
        lambda x: tf.cast(tf.signal.irfft(tf.signal.rfft(tf.cast(x, tf.float32))), x.dtype),
        (2, 4),
    ),
    "partitioned call": (lambda x: tf.function(lambda y: tf.sin(y) * layer(y, 3))(x) + x, (2, 3)),
    "mixed precision": (
        lambda x: tf.cast(tf.cast(tf.sin(x), tf.float32) * 2, x.dtype) * x,
        (2, 3),
    ),
    "casts to integers": (lambda x: tf.cast(tf.cast(x * 5, tf.int32), x.dtype) * x, (2, 3)),
    "no feature": (lambda x: tf.sin(x) * x, (2, 0)),
    "rank one": (lambda x: tf.sin(x) * x, (3,)),
    "rank one to rank two": (lambda x: x[:, None] * const(x, 3) + 1, (2,)),
    "rank three to rank one": (lambda x: tf.reduce_sum(x * x, [1, 2]), (2, 2, 3)),
    "gradient inside": (lambda x: tf.gradients(tf.reduce_sum(layer(x, 2) ** 3), x)[0] * x, (2, 3)),
}

# name: (function, shape): of no batch, or one whose examples mix.
WHOLE = {
    "recompute_grad": (lambda x: tf.recompute_grad(lambda y: tf.sin(y) * y)(x) + x, (2, 3)),
    "repeat": (lambda x: tf.repeat(x, [1, 0, 2], axis=1) * 2, (2, 3)),
    "gather_nd with batch dims": (
        lambda x: tf.gather_nd(x, [[[0, 1]], [[1, 2]]], batch_dims=1),
        (2, 2, 3),
    ),
    "scalar": (lambda x: tf.sin(x) * x, ()),
    "scalar to a vector": (lambda x: x * const(x, 3) + x * x, ()),
    "scalar times a tensor of it": (lambda x: x[0, 0] * x + x[1, 0], (2, 2)),
    "vector against a matrix of it": (lambda x: x + x[:, None] * x[None], (3,)),
    "rank differences": (lambda x: x[0] * x + x[0, 0] * x[:, :1, :1], (2, 2, 2)),
    "sum to a scalar": (lambda x: tf.reduce_sum(x * tf.sin(x)), (2, 3)),
    "sum to a scalar and back": (lambda x: x / tf.reduce_sum(x * x), (2, 3)),
    "x + its transpose": (lambda x: x + tf.transpose(x), (3, 3)),
    "x times its transpose": (lambda x: x * tf.transpose(x) - x, (3, 3)),
    "x @ its transpose": (lambda x: x @ tf.transpose(x), (2, 3)),
    "its transpose @ x": (lambda x: tf.matmul(x, x, transpose_a=True), (2, 3)),
    "x @ x": (lambda x: x @ x, (3, 3)),
    "x @ x @ x": (lambda x: x @ x @ x + x, (2, 2)),
    "transposed products": (lambda x: tf.matmul(x, x, True, True) + x @ x, (3, 3)),
    "a x b + x": (lambda x: const(x, 2, 2) @ x @ const(x, 3, 3) + x, (2, 3)),
    "a x b by einsum": (
        lambda x: tf.einsum("ai,ij,jb->ab", const(x, 2, 2), x, const(x, 3, 3)) + x,
        (2, 3),
    ),
    "a x + x b": (lambda x: const(x, 3, 3) @ x + x @ const(x, 3, 3, seed=2), (3, 3)),
    "Kronecker product": (
        lambda x: tf.reshape(tf.einsum("ij,kl->ikjl", x, x), [4, 4]),
        (2, 2),
    ),
    "outer product by tensordot": (lambda x: tf.tensordot(x, tf.sin(x), 0), (3,)),
    "dot product": (lambda x: tf.tensordot(x, tf.sin(x), 1), (3,)),
    "quadratic form": (lambda x: tf.einsum("i,ij,j->", x, const(x, 3, 3), x) * x, (3,)),
    "batch broadcast by x": (lambda x: const(x, 2, 2, 3) @ x, (3, 2)),
    "batches broadcast against each other": (
        lambda x: x[:, None] @ x[None, :, :, :],
        (2, 2, 2),
    ),
    "einsum over the batch": (lambda x: tf.einsum("bi,bj->ij", x, x), (2, 3)),
    "trace by einsum": (lambda x: tf.einsum("ii->", x) * x, (3, 3)),
    "einsum with ellipsis and sums": (lambda x: tf.einsum("i...,ij...->j...", x, x[None]), (1, 2)),
    "einsum of a permutation": (lambda x: tf.einsum("ijk->kij", x) * 2, (2, 2, 3)),
    "einsum repeated in one": (lambda x: tf.einsum("iij,j->i", x, x[0, 0]), (2, 2, 3)),
    "scalar einsum": (lambda x: tf.einsum("ij,ij->", x, x), (2, 3)),
    "flat and back": (lambda x: tf.reshape(tf.reverse(tf.reshape(x, [-1]), [0]), [3, 2]), (2, 3)),
    "flat cumsum": (lambda x: tf.reshape(tf.cumsum(tf.reshape(x, [-1])), [2, 3]) * x, (2, 3)),
    "flat, split in the middle": (
        lambda x: tf.concat([tf.reshape(x, [-1])[:4], tf.reshape(x, [-1])[2:] ** 2], 0),
        (2, 3),
    ),
    "reshaped to coprime": (
        lambda x: tf.reshape(x, [3, 4]) @ tf.reshape(tf.sin(x), [4, 3]),
        (2, 6),
    ),
    "reshaped to coprime, diagonal": (
        lambda x: tf.reshape(tf.reshape(x * x, [3, 2]) * const(x, 2), [2, 3]) * x,
        (2, 3),
    ),
    "reshaped, transposed, reshaped": (
        lambda x: tf.reshape(tf.transpose(tf.reshape(x, [3, 2, 2])), [4, 3]) + tf.transpose(x),
        (3, 4),
    ),
    "sum over the batch": (lambda x: tf.reduce_sum(layer(x, 3), 0, True) * x, (2, 3)),
    "softmax over the batch": (lambda x: tf.nn.softmax(x, 0) + x, (2, 3)),
    "softmax of one vector": (lambda x: tf.nn.softmax(x) * x, (4,)),
    "batch norm by ops, training": (
        lambda x: (lambda m: (x - m[0]) * tf.math.rsqrt(m[1] + 0.1))(tf.nn.moments(x, [0])),
        (3, 2),
    ),
    "graph convolution": (lambda x: tf.nn.relu(const(x, 3, 3) @ x @ const(x, 2, 2)) + x, (3, 2)),
    "neck across the batch": (lambda x: layer(tf.reshape(x, [1, 6]), 1) * x, (2, 3)),
    "neck across the batch and out": (
        lambda x: tf.reshape(layer(layer(tf.reshape(x, [1, 6]), 1), 6, 2), [2, 3]) + x,
        (2, 3),
    ),
    "roll of the batch": (lambda x: tf.roll(x, 1, 0) * x, (3, 2)),
    "reverse of the batch": (lambda x: tf.reverse(x, [0]) * tf.sin(x), (3, 2)),
    "gather of the batch": (lambda x: tf.gather(x, [1, 1, 0]) * 2, (2, 3)),
    "concat along the batch": (lambda x: tf.concat([x, x * x, x[:1]], 0), (2, 2)),
    "tile of the batch": (lambda x: tf.tile(x, [2, 2]) * 2, (2, 2)),
    "tile of a new axis": (lambda x: tf.tile(x[None], [2, 1, 1]) * const(x, 2, 1, 1), (2, 2)),
    "strides along the batch": (lambda x: x[::2] * x[1::2], (4, 2)),
    "difference along the batch": (lambda x: x[1:] - x[:-1] ** 2, (3, 2)),
    "scatter": (scatter, (2, 2)),
    "scatter_nd": (lambda x: tf.scatter_nd([[0], [2], [0]], x, [3, 2]) * 2, (3, 2)),
    "segment sum": (
        lambda x: tf.ensure_shape(tf.math.segment_sum(x * x, [0, 0, 1]), [2, 2]),
        (3, 2),
    ),
    "unsorted segment max": (lambda x: tf.math.unsorted_segment_max(x, [1, 0, 1], 2), (3, 2)),
    "dynamic stitch": (lambda x: tf.dynamic_stitch([[0, 2], [1]], [x[:2], x[2:] ** 2]), (3, 2)),
    "embedding lookup": (lambda x: tf.nn.embedding_lookup(x, [[0, 1], [1, 1]]), (2, 3)),
    "conv by its kernel": (
        lambda x: tf.nn.conv2d(const(x, 1, 3, 3, 2), x, 1, "SAME"),
        (2, 2, 2, 1),
    ),
    "conv by its kernel, strided": (
        lambda x: tf.nn.conv2d(const(x, 2, 4, 4, 1), x * x, 2, "VALID"),
        (2, 2, 1, 2),
    ),
    "depthwise conv by its kernel": (
        lambda x: tf.nn.depthwise_conv2d(const(x, 1, 3, 3, 2), x, [1] * 4, "SAME"),
        (2, 2, 2, 1),
    ),
    "transposed conv by its kernel": (
        lambda x: tf.nn.conv2d_transpose(const(x, 1, 2, 2, 1), x, [1, 4, 4, 1], 2, "SAME"),
        (2, 2, 1, 1),
    ),
    "conv by itself": (
        lambda x: tf.nn.conv2d(x[None], tf.reshape(x[:2, :2], [2, 2, 1, 1]), 1, "SAME"),
        (3, 3, 1),
    ),
    "dilation": (in_single(dilated), (1, 3, 3, 1)),
    "bias of a layer": (lambda x: tf.tanh(tf.nn.bias_add(const(x, 2, 3), x)), (3,)),
    "kernel of a layer": (lambda x: tf.tanh(const(x, 2, 3) @ x), (3, 2)),
    "kernel used twice": (lambda x: tf.tanh(tf.tanh(const(x, 2, 3) @ x) @ x), (3, 3)),
    "meshgrid": (lambda x: tf.multiply(*tf.meshgrid(x, tf.sin(x))), (3,)),
    "polynomial": (lambda x: tf.math.polyval([x[0], x[1], x[2]], x), (3,)),
    "vectorized gradient inside": (
        lambda x: tfjac.jacobian(tf.sin(x) * x[0], x, "vectorized") @ x[:, None],
        (3,),
    ),
    "Jacobian inside": (lambda x: tfjac.jacobian(layer(x[None], 2)[0], x, "cross_country"), (3,)),
    "cond on x": (
        lambda x: tf.cond(x[0] > 0, lambda: tf.sin(x) * x[0], lambda: x * x[1]),
        (3,),
    ),
    "cond with a branch of zeros": (
        lambda x: tf.cond(x[0] > 99, lambda: x * x, lambda: tf.zeros_like(x)) + x,
        (3,),
    ),
    "switch_case": (
        lambda x: tf.switch_case(tf.constant(1), [lambda: x, lambda: x * x[0]]) * x,
        (3,),
    ),
    "scan": (scanned, (3, 2)),
    "loop with as many turns as x says": (
        lambda x: tf.while_loop(
            lambda s: tf.reduce_sum(s * s) < 50, lambda s: (s * 2 + x[0],), (x,)
        )[0],
        (3,),
    ),
    "TensorArray": (
        lambda x: (
            tf.TensorArray(x.dtype, 3).unstack(x * x).write(0, x[2]).stack()
            if False
            else tf.TensorArray(x.dtype, 3).unstack(x * x).stack()
        ),
        (3, 2),
    ),
    "no entries": (lambda x: tf.sin(x), (0, 3)),
    "no entries after a slice": (lambda x: x[:0] * 2, (3,)),
    "sum of no entries": (lambda x: tf.reduce_sum(x[:, :0], 1) + x[:, 0], (2, 3)),
    "SVD values": (lambda x: tf.linalg.svd(x, compute_uv=False), (3, 2)),
    "eigenvalues": (lambda x: tf.linalg.eigvalsh(x + tf.transpose(x)), (3, 3)),
    "matrix exponential": (lambda x: tf.linalg.expm(x), (2, 2)),
    "triangular solve": (
        lambda x: tf.linalg.triangular_solve(x + 3 * tf.eye(2, dtype=x.dtype), x),
        (2, 2),
    ),
    "global norm clip": (lambda x: tf.clip_by_norm(x * 3, 1.0), (2, 3)),
    "the same op as many inputs": (lambda x: tf.add_n([x, x, tf.transpose(x), x * 2]), (2, 2)),
    "stack with itself": (lambda x: tf.stack([x, x, tf.transpose(x)], 2), (2, 2)),
}


# Computed in float32 in the middle.
SINGLE = {
    "FFT there and back",
    "average pool, 3d",
    "dilation",
    "max pool of a function, 3d",
    "max pool, 3d",
    "mixed precision",
    "resize, bilinear",
}


def in_rows(fn, x, what="jacobian"):
    """Returns what both strategies give for one graph."""

    @in_graph
    def run(x):
        y = fn(x)
        return [getattr(tfjac, what)(y, x, s) for s in STRATEGIES]

    return run(x)


def tolerance_of(name):
    return 1e-6 if name in SINGLE else 1e-12


# Their gradients have none in TensorFlow, and so no forward derivative.
REVERSE_ALONE = {"dilation", "recompute_grad"}


@pytest.mark.parametrize("name", [*WHOLE, *EXAMPLES])
def test_the_jacobian_and_its_product_are_those_of_rows(name):
    fn, shape = WHOLE.get(name) or EXAMPLES[name]
    tangent = tf.constant(array(*shape, seed=7))

    @in_graph
    def run(x):
        y = fn(x)
        found, rows = [tfjac.jacobian(y, x, s) for s in STRATEGIES]
        if name in REVERSE_ALONE:
            return [(found, rows)]
        try:
            along = tfjac.jvp(y, x, tangent)
        except tfjac.errors.UnsupportedError:
            assert name.startswith("max pool")  # its second gradient is wrong in TensorFlow
            return [(found, rows)]
        return [(found, rows), (along, tf.tensordot(rows, tangent, len(shape)))]

    for found, wanted in run(array(*shape)):
        agree(found, wanted, tolerance_of(name))


# Built for so many examples, or with sizes that are told only at run time.
KNOWN_BATCH = {
    "broadcast_to",
    "constant of higher rank",
    "sparse cross entropy",
    "concat with a constant",
    "axes merged and split",
    "reverse sequences",
    "gather with batch dims",
    "LSTM",
    "conv, atrous",
    "conv, depthwise, dilated",
    "batch in the middle",
    "gradient inside",
    "map_fn",
    "conv of x by x",
    "vectorized_map",
    "depth to space",
    "conv, transposed",
    "conv, transposed, one stride",
    "unstack of a middle axis",
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_jacobian_of_each_example_is_that_of_rows(name):
    fn, shape = EXAMPLES[name]
    x = tf.constant(array(*shape))

    def run(x):
        y = fn(x)
        return [tfjac.batch_jacobian(y, x, s) for s in STRATEGIES]

    size = shape[0] if name in KNOWN_BATCH or not shape[0] else None
    spec = tf.TensorSpec([size, *shape[1:]], x.dtype)
    agree(*in_graph(run, input_signature=[spec])(x), tolerance_of(name))


# Other ways of asking.


def example(name, batch=3, dtype=np.float64):
    fn, shape = EXAMPLES[name]
    return fn, array(batch, *shape[1:], dtype=dtype)


# Without ops that know of the batch or that only one precision has.
MIXTURE = (
    "neck of one",
    "ladder of necks with skips",
    "neck by a sum",
    "attention",
    "layer norm with a residual",
    "softmax of rank 4",
    "log_softmax of rank 2",
    "batch merged, with a neck",
    "batch inside, softmax",
    "concat with itself",
    "max pool, padded",
    "average pool, overlapping",
    "conv of conv",
    "conv, depthwise",
    "while loop",
    "slice with strides",
    "identity and transpose",
    "cumsum",
    "gather with repeats",
    "where, broadcast",
    "custom gradient",
    "mirror pad",
    "norm",
)
ROUNDING = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        *(("float32", name) for name in MIXTURE),
        *(("float16", name) for name in MIXTURE[::3]),
        *(("bfloat16", name) for name in MIXTURE[::3]),
    ],
)
def test_in_low_precision_entries_agree_to_a_few_ulps_of_the_largest(dtype, name):
    fn, x = example(name)
    spec = tf.TensorSpec([None, *x.shape[1:]], dtype)

    def run(x):
        y = fn(x)
        return [tfjac.batch_jacobian(y, x, s) for s in STRATEGIES]

    found, wanted = in_graph(run, input_signature=[spec])(tf.cast(x, dtype))
    agree(found, wanted, 32 * ROUNDING[dtype])


@pytest.mark.parametrize(
    "name", [*(n for n in MIXTURE if n != "while loop"), "max pool of a function"]
)
def test_compiled_by_xla_it_is_the_same(name):
    fn, x = example(name)

    def run(x):
        return tfjac.batch_jacobian(fn(x), x, "cross_country")

    wanted = in_rows(fn, x, "batch_jacobian")[1]
    agree(in_graph(run, jit_compile=True)(x), wanted)


@pytest.mark.parametrize("name", MIXTURE)
def test_in_a_session_it_is_the_same(name):
    fn, x = example(name)
    with tf.Graph().as_default() as graph, tf.compat.v1.Session() as session:
        fed = tf.compat.v1.placeholder(x.dtype, [None, *x.shape[1:]])
        y = fn(fed)
        both = [tfjac.batch_jacobian(y, fed, s) for s in STRATEGIES]
        operations = len(graph.get_operations())
        assert tfjac.batch_jacobian(y, fed, "cross_country") is both[0]
        assert len(graph.get_operations()) == operations
        agree(*session.run(both, {fed: x}))


@pytest.mark.parametrize("name", MIXTURE)
def test_a_loss_of_the_jacobian_has_the_gradient_of_that_of_rows(name):
    fn, x = example(name)

    def loss(y, x, strategy):
        j = tfjac.batch_jacobian(y, x, strategy)
        return tf.reduce_sum(
            tf.sin(3 * j) * tf.reshape(tf.range(tf.size(j), dtype=j.dtype), j.shape)
        )

    @in_graph
    def by_gradients(x):
        y = fn(x)
        return [tf.gradients(loss(y, x, s), x, unconnected_gradients="zero")[0] for s in STRATEGIES]

    def by_tape(strategy):
        @in_graph
        def run(x):
            before = tfjac.batch_jacobian(fn(x), x, strategy)
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = fn(x)
                value = loss(y, x, strategy) + loss(y, x, strategy)
            return tape.gradient(value, x, unconnected_gradients="zero") + 0 * tf.reduce_sum(before)

        return run(x) / 2

    found, wanted = by_gradients(x)
    agree(found, wanted, 1e-11)
    agree(by_tape("cross_country"), wanted, 1e-11)


@pytest.mark.parametrize("name", MIXTURE)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_stays_in_its_example(name, bad):
    fn, x = example(name)
    x[1].flat[0] = bad
    found, wanted = in_rows(fn, x, "batch_jacobian")
    agree(found[0::2], wanted[0::2])
    found, wanted = in_rows(fn, x)
    finite = np.isfinite(wanted)
    agree(found[0::2][finite[0::2]], wanted[0::2][finite[0::2]])


IN_PARTS = {
    "concat": lambda x: tf.concat([tf.sin(x[:1]), tf.exp(x[1:])], 0),
    "pad": lambda x: tf.pad(tf.sin(x[:2]), [[0, 1], [0, 0]]) + x,
    "roll": lambda x: tf.roll(tf.sin(x), 1, 0) + x,
    "cut and joined": lambda x: tf.concat([tf.sin(x)[2:], tf.tanh(x)[:2]], 0),
}


@pytest.mark.parametrize("name", IN_PARTS)
def test_what_is_not_finite_stays_in_its_part_of_the_batch(name):
    x = array(3, 3)
    x[1, 0] = np.nan
    found, wanted = (j.numpy() for j in in_rows(IN_PARTS[name], x))
    finite = np.isfinite(wanted)
    agree(found[finite], wanted[finite])


ENTRIES = {
    "divided by nought": lambda x: x / tf.constant([0.0, 1, 2], x.dtype),
    "log in a where": lambda x: tf.where(x > 0, tf.math.log(tf.abs(x)), x),
    "reshaped": lambda x: tf.reshape(tf.reshape(x, [3, 1]) / [[0.0], [1], [2]], [3]) * 2,
    "transposed": lambda x: tf.transpose(x[:, None] / [[0.0, 1.0], [1, 1], [1, 1]]),
    "gathered": lambda x: tf.gather(x / [0.0, 1, 2], [2, 1, 0, 0]),
}


@pytest.mark.parametrize("name", ENTRIES)
def test_entries_that_are_finite_in_rows_stay_so(name):
    found, wanted = in_rows(ENTRIES[name], array(3) ** 2 + 0.1)
    finite = np.isfinite(wanted.numpy())
    agree(found.numpy()[finite], wanted.numpy()[finite])


@pytest.mark.parametrize("seed", range(12))
def test_a_random_graph_has_the_jacobian_of_rows(seed):
    fn, shape = random_graph(seed), (2, 4)
    agree(*in_rows(fn, array(*shape)))
    agree(*in_rows(fn, array(*shape), "batch_jacobian"))


UNARY = (
    tf.tanh,
    tf.nn.softmax,
    lambda h: h[:, ::-1],
    lambda h: tf.cumsum(h, 1),
    lambda h: h - tf.reduce_mean(h, 1, keepdims=True),
    lambda h: layer(layer(h, 1), 4),
    lambda h: dense(h, 4),
    lambda h: tf.reshape(tf.transpose(tf.reshape(h, [-1, 2, 2]), [0, 2, 1]), [-1, 4]),
    lambda h: tf.reshape(tf.einsum("bij,bjk->bki", *2 * [tf.reshape(h, [-1, 2, 2])]), [-1, 4]),
    lambda h: tf.pad(h[:, 1:3], [[0, 0], [0, 2]]),
    lambda h: tf.gather(h, [3, 3, 0, 1], axis=1),
    lambda h: tf.tile(tf.reduce_max(h, 1, keepdims=True), [1, 4]),
    lambda h: tf.reshape(tf.transpose(h[:, :2, None] * h[:, None, 2:], [0, 2, 1]), [-1, 4]),
    lambda h: tf.nn.relu(h),
    lambda h: tf.concat([h[:, 2:], h[:, :2]], 1),
    lambda h: tf.transpose(const(h, 4, 4) @ tf.transpose(h)),
    lambda h: tf.nn.avg_pool1d(h[..., None], 2, 1, "SAME")[..., 0],
    lambda h: tf.nn.conv1d(h[..., None], const(h, 2, 1, 1), 1, "SAME")[..., 0],
)
BINARY = (
    tf.add,
    tf.subtract,
    tf.multiply,
    tf.maximum,
    lambda a, b: a * b[:, :1],
    lambda a, b: tf.reduce_sum(a, 1, keepdims=True) + b,
    lambda a, b: tf.reshape(tf.stack([a, b], 2), [-1, 8])[:, 1:5],
    lambda a, b: tf.einsum("bi,bj->bj", a, b),
    lambda a, b: tf.linalg.matvec(a[:, :, None] * b[:, None], b),
)


def random_graph(seed):
    def fn(x):
        random = np.random.default_rng(seed)
        made = [x]
        for _ in range(6):
            picked = [made[-1 - random.integers(min(3, len(made)))] for _ in range(2)]
            if random.random() < 0.6:
                made.append(UNARY[random.integers(len(UNARY))](picked[0]))
            else:
                made.append(BINARY[random.integers(len(BINARY))](*picked))
        return made[-1] + made[-2]

    return fn


# Sources and targets.


def test_a_variable_is_a_source_however_often_it_is_read():
    kernel = tf.Variable(array(3, 3))
    bias = tf.Variable(array(3))
    table = tf.Variable(array(4, 3))

    @in_graph
    def run(x):
        h = tf.tanh(x @ kernel + bias)
        y = h @ kernel * bias + tf.gather(table, [1, 3]) + tf.nn.embedding_lookup(table, [1, 1])
        sources = [kernel, bias, table, x]
        return [tfjac.jacobian(y, sources, s) for s in STRATEGIES]

    for found, wanted in zip(*run(tf.constant(array(2, 3)))):
        agree(found, wanted)


def test_a_variable_that_is_assigned_between_reads_is_a_source_by_each_value():
    kernel = tf.Variable(array(3, 3))

    @in_graph
    def run(x):
        h = tf.tanh(x @ kernel)
        kernel.assign(array(3, 3, seed=5))
        y = h @ kernel
        return [tfjac.jacobian(y, kernel, s) for s in STRATEGIES]

    agree(*run(tf.constant(array(2, 3))))


def test_several_targets_by_several_sources_are_those_of_rows():
    @in_graph
    def run(x, z):
        h = layer(x, 4)
        targets = {"a": h * z, "b": [tf.reduce_sum(h, 1), x, tf.constant(2.0, x.dtype), z[0]]}
        sources = (x, z, h, tf.identity(z))
        return [tfjac.jacobian(targets, sources, s) for s in STRATEGIES]

    found, wanted = run(array(2, 3), array(2, 4))
    tf.nest.assert_same_structure(found, wanted)
    for one, other in zip(tf.nest.flatten(found), tf.nest.flatten(wanted)):
        agree(one, other)


def test_sources_on_each_other_s_way_are_those_of_rows():
    @in_graph
    def run(x):
        a = layer(x, 3)
        b = layer(a, 2) + x[:, :2]
        y = tf.concat([a * b[:, :1], b], 1)
        parts = [tfjac.batch_jacobian([y, b], [x, a, b], s) for s in STRATEGIES]
        return [*parts, tfjac.jvp([y, b], [x, a], [x, a])]

    found, wanted, along = run(array(2, 3))
    for one, other in zip(tf.nest.flatten(found), tf.nest.flatten(wanted)):
        agree(one, other)
    assert [t.shape for t in along] == [(2, 5), (2, 2)]


@pytest.mark.parametrize("zeros", ["zero", "none"])
def test_what_x_does_not_reach_has_no_derivative(zeros):
    @in_graph
    def run(x):
        y = {
            "other": tf.ones([2, 2], x.dtype),
            "stopped": tf.stop_gradient(x),
            "rounded": tf.round(x),
        }
        found = tfjac.jacobian(y, x, "cross_country", unconnected_gradients=zeros)
        rows = tfjac.jacobian(y, x, "unstack", unconnected_gradients=zeros)
        assert [f is None for f in found.values()] == [r is None for r in rows.values()]
        return [[t for t in j.values() if t is not None] for j in (found, rows)]

    for found, wanted in zip(*run(array(2, 3))):
        agree(found, wanted)


def test_asking_twice_gives_the_same_tensor_and_adds_no_op():
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float64, [2, 4])
        y = ladder(x)
        first = [f(y, x, "cross_country") for f in (tfjac.jacobian, tfjac.batch_jacobian)]
        operations = len(graph.get_operations())
        again = [f(y, x, "cross_country") for f in (tfjac.jacobian, tfjac.batch_jacobian)]
        assert all(a is b for a, b in zip(first, again))
        assert len(graph.get_operations()) == operations


@pytest.mark.parametrize("outer", [1.0, 100.0])
@pytest.mark.parametrize("bent", [clipped, norm_of_gradient])
def test_a_gradient_that_is_not_linear_is_asked_for_what_rows_ask(outer, bent):
    def fn(x):
        return dense(bent(dense(x, 3) * 2), 3, 2) * outer

    agree(*in_rows(fn, array(2, 3)))


def test_what_it_does_not_serve_is_refused():
    def refused(fn, x, options=None, **how):
        def run(x):
            return tfjac.jacobian(fn(x), x, "cross_country", **options or {})

        with pytest.raises(tfjac.errors.UnsupportedError):
            in_graph(run, **how)(x)

    refused(tf.signal.fft, tf.complex(array(3), array(3)), {"holomorphic": True})
    refused(looped, array(2, 3), jit_compile=True)
    spec = tf.TensorSpec([2, None], tf.float64)
    refused(lambda x: tf.boolean_mask(x, x > 0) * 2, array(2, 3), input_signature=[spec])


def test_a_wrong_product_would_be_noticed(monkeypatch):
    right = contraction._times
    monkeypatch.setattr(contraction, "_times", lambda *a: right(*a) * (1 + 1e-9))
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        agree(*in_rows(EXAMPLES["ladder of necks with skips"][0], array(2, 6)))
