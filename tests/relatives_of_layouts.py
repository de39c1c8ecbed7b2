"""The other relatives: indices, segments, sequences, layers, sizes not known, dtypes, constants."""

from __future__ import annotations

import functools
import tempfile

import numpy as np
import tensorflow as tf
from relatives import Relative
from scenarios import array

X = array(3, 4)
ROWS = np.array([[1, 1], [0, 3], [2, 0]])


def put(op, updates_scale=2.0):
    """Returns a function that scatters z[0] into the rows of z by an op of `tf`."""
    indices = [[2, 1], [0, 0], [1, 3], [2, 2]]
    return lambda z: op(z**2, indices, updates_scale * z[0])


INDICES = [
    Relative(
        "gather: batch_dims", lambda z: tf.gather(z, ROWS, axis=1, batch_dims=1) ** 2, X, batch=True
    ),  # fmt: skip
    Relative(
        "gather: batch_dims in the middle",
        lambda z: tf.gather(z, [[0, 0], [1, 0]], axis=2, batch_dims=1) ** 2,
        array(2, 2, 2),
    ),  # fmt: skip
    Relative(
        "gather: gather_nd with batch_dims",
        lambda z: tf.gather_nd(z, ROWS[..., np.newaxis], batch_dims=1) ** 2,
        X,
    ),  # fmt: skip
    Relative("gather: the same row often", lambda z: tf.gather(z, [1, 1, 1, 0]) ** 2, X),
    Relative(
        "gather: by where", lambda z: tf.gather_nd(z**2, tf.where(tf.constant(X) > 0.2)), X
    ),  # fmt: skip
    Relative("scatter: update", put(tf.tensor_scatter_nd_update), X),
    Relative("scatter: add", put(tf.tensor_scatter_nd_add), X),
    Relative("scatter: sub", put(tf.tensor_scatter_nd_sub), X),
    Relative("scatter: max", put(tf.tensor_scatter_nd_max), X),
    Relative(
        "scatter: scatter_nd, doubled", lambda z: tf.scatter_nd([[1], [1], [0]], z**2, [3, 4]), X
    ),  # fmt: skip
    Relative("gather: strided slice", lambda z: z[::-2, 1::2] ** 2, X),
    Relative("segment: sum", lambda z: tf.math.segment_sum(z**2, [0, 0, 2]), X),
    Relative("segment: prod", lambda z: tf.math.segment_prod(z, [0, 0, 1]), X),
    Relative(
        "segment: unsorted mean", lambda z: tf.math.unsorted_segment_mean(z**2, [1, 0, 1], 2), X
    ),  # fmt: skip
    Relative(
        "segment: unsorted sqrt_n", lambda z: tf.math.unsorted_segment_sqrt_n(z**2, [1, 0, 1], 2), X
    ),  # fmt: skip
    Relative(
        "segment: unsorted prod with a zero",
        lambda z: tf.math.unsorted_segment_prod(z, [0, 0, 0], 1),
        np.array([[0.0], [2.0], [3.0]]),
        np.array([[6.0, 0.0, 0.0]]).reshape(1, 1, 3, 1),
    ),  # fmt: skip
    Relative(
        "segment: sparse mean", lambda z: tf.sparse.segment_mean(z**2, [2, 0, 2], [0, 0, 1]), X
    ),  # fmt: skip
    Relative(
        "segment: dropped by a negative id",
        lambda z: tf.math.unsorted_segment_sum(z**2, [0, -1, 1], 2),
        X,
    ),  # fmt: skip
]


def ragged(z):
    return tf.RaggedTensor.from_row_lengths(tf.reshape(z, [-1]), [5, 0, 3, 4])


RAGGED = [
    Relative(
        "ragged: mean of rows that are not empty",
        lambda z: tf.reduce_mean(ragged(z**2)[::2], axis=1),
        X,
    ),  # fmt: skip
    Relative("ragged: to dense", lambda z: ragged(z).to_tensor(0.5) ** 2, X),
    Relative("ragged: largest", lambda z: tf.reduce_max(ragged(z)[2:], axis=1), X),
    Relative(
        "ragged: product of flat values", lambda z: (ragged(z) * ragged(tf.sin(z))).flat_values, X
    ),  # fmt: skip
]


def masked(kind, **options):
    """Returns a recurrent layer whose second sequence begins late and whose third is empty."""
    tf.keras.utils.set_random_seed(3)
    layer = getattr(tf.keras.layers, kind)(1, dtype="float64", **options)
    layer.build((None, 2, 1))
    mask = tf.constant([[True, False], [False, True], [False, False]])
    return lambda z: layer(z, mask=mask)


# A loop within a vectorized map is slow to build: those that carry one row at a time and auto.
LOOPS = ("auto", "while_loop", "forward")
SEQUENCES = [
    Relative(
        f"masked: {kind}", masked(kind, **options), array(3, 2, 1), batch=True, strategies=LOOPS
    )  # fmt: skip
    for kind, options in [
        ("SimpleRNN", {"go_backwards": True}),
        ("LSTM", {"return_sequences": True}),
        ("GRU", {"reset_after": False}),
    ]
]


def summed(z):
    steps = tf.transpose(z)
    return tf.scan(lambda s, a: tf.tanh(s + a), steps, initializer=tf.zeros([3], z.dtype))


SHORT = array(3, 2)
SCANS = [
    Relative("scan: forward", summed, SHORT, strategies=LOOPS),
    Relative(
        "scan: reverse",
        lambda z: tf.scan(lambda s, a: s * a, z, reverse=True),
        SHORT,
        strategies=LOOPS,
    ),  # fmt: skip
    Relative(
        "scan: foldl", lambda z: tf.foldl(lambda s, a: tf.sin(s) * a, z), SHORT, strategies=LOOPS
    ),  # fmt: skip
    Relative(
        "scan: of two states",
        lambda z: tf.scan(lambda s, a: (s[0] + a, s[1] * a), z, (z[0], z[1]))[1],
        SHORT,
        strategies=LOOPS,
    ),  # fmt: skip
]

IMAGE = array(2, 5, 5, 1)
KERNEL = array(3, 3, 1, 1, seed=4)
WINDOWS = [
    Relative(
        "window: strided", lambda z: tf.nn.conv2d(z, KERNEL, 2, "SAME") ** 2, IMAGE, batch=True
    ),  # fmt: skip
    Relative(
        "window: dilated",
        lambda z: tf.nn.convolution(z, KERNEL, 1, "SAME", dilations=2) ** 2,
        IMAGE,
        batch=True,
    ),  # fmt: skip
    Relative(
        "window: other strides each way",
        lambda z: tf.nn.conv2d(z, KERNEL, [1, 2, 1, 1], "VALID") ** 2,
        IMAGE,
    ),  # fmt: skip
    Relative(
        "window: explicit padding",
        lambda z: tf.nn.conv2d(z, KERNEL, 3, [[0, 0], [1, 2], [0, 1], [0, 0]]) ** 2,
        IMAGE,
    ),  # fmt: skip
    Relative(
        "window: dilated depthwise",
        lambda z: tf.nn.depthwise_conv2d(z, KERNEL, [1, 1, 1, 1], "VALID", dilations=[2, 2]) ** 2,
        IMAGE,
    ),  # fmt: skip
    Relative(
        "window: strided transpose",
        lambda z: tf.nn.conv2d_transpose(z, KERNEL, [2, 9, 9, 1], 2, "SAME")[:, ::3, ::3] ** 2,
        IMAGE,
    ),  # fmt: skip
    Relative(
        "window: dilated in one dimension",
        lambda z: tf.nn.conv1d(z[:, 0], KERNEL[0], 1, "SAME", dilations=2) ** 2,
        IMAGE,
    ),  # fmt: skip
]


def made_unknown(z):
    """Returns z with a rank that the graph does not tell."""
    return tf.raw_ops.PlaceholderWithDefault(input=z, shape=None)


UNKNOWN = [
    Relative("unknown: rank between", lambda z: tf.reshape(made_unknown(z) ** 2, [3, 4]), X),
    Relative(
        "unknown: rank of the source", lambda z: z**2 + tf.reduce_sum(z), X, signature="unknown"
    ),  # fmt: skip
    Relative(
        "unknown: number of examples",
        lambda z: tf.nn.softmax(z**2),
        X,
        batch=True,
        signature=[None, 4],
    ),  # fmt: skip
    Relative(
        "unknown: all sizes", lambda z: tf.nn.softmax(z**2), X, batch=True, signature=[None, None]
    ),  # fmt: skip
    Relative(
        "unknown: rows that were kept",
        lambda z: tf.boolean_mask(z**2, tf.reduce_sum(z, 1) > 0.0),
        X,
    ),  # fmt: skip
    Relative(
        "unknown: no examples",
        lambda z: z**2,
        np.zeros([0, 4]),
        np.zeros([0, 4, 0, 4]),
        batch=True,
        signature=[None, 4],
    ),  # fmt: skip
]

X32 = X.astype(np.float32)
DTYPES = [
    Relative(
        "dtype: float16 within",
        lambda z: tf.cast(tf.cast(z, tf.float16) ** 2, tf.float32),
        X32,
        np.einsum("ij,ik,jl->ijkl", 2 * X32, np.eye(3), np.eye(4)),
        2e-3,
    ),  # fmt: skip
    Relative(
        "dtype: float64 target",
        lambda z: tf.cast(z, tf.float64) ** 2,
        X32,
        np.einsum("ij,ik,jl->ijkl", 2 * X32.astype(float), np.eye(3), np.eye(4)),
        1e-6,
    ),  # fmt: skip
    Relative(
        "dtype: bfloat16 source",
        lambda z: tf.cast(z, tf.float32) * 3.0,
        X.astype(tf.bfloat16.as_numpy_dtype),
        3.0 * np.einsum("ik,jl->ijkl", np.eye(3), np.eye(4)),
        1e-2,
    ),  # fmt: skip
    Relative(
        "dtype: through integers and back",
        lambda z: z * tf.cast(tf.cast(z * 10.0, tf.int32), z.dtype),
        X32,
        np.einsum("ij,ik,jl->ijkl", np.trunc(X32 * 10.0), np.eye(3), np.eye(4)),
        1e-6,
    ),  # fmt: skip
]


def reloaded(fn, shape):
    """Returns a function that was saved and loaded again, with what it is a method of."""
    module = tf.Module()
    module.scale = tf.Variable(1.5, dtype=tf.float64)
    module.fn = tf.function(
        lambda z: fn(z) * module.scale, input_signature=[tf.TensorSpec(shape, tf.float64)]
    )
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(module, folder)
        return tf.saved_model.load(folder)


def called(module):
    return lambda z: module.fn(z)


RELOADED = [
    Relative(
        "reloaded: rows", called(reloaded(lambda z: tf.tanh(z) ** 2, [None, 4])), X, batch=True
    ),  # fmt: skip
    Relative(
        "reloaded: a product",
        called(reloaded(lambda z: z @ tf.constant(X.T), [3, 4])),
        X,
        batch=True,
    ),  # fmt: skip
    Relative(
        "reloaded: a branch",
        called(reloaded(lambda z: tf.cond(z[0, 0] > 9.0, lambda: z, lambda: z**2), [3, 4])),
        X,
    ),  # fmt: skip
]


@functools.cache
def zeros(*shape):
    return np.zeros(shape)


CONSTANTS = [
    Relative("constant: nothing of x", lambda z: tf.ones([2], z.dtype), X, zeros(2, 3, 4)),
    Relative(
        "constant: its shape only", lambda z: tf.cast(tf.shape(z), z.dtype), X, zeros(2, 3, 4)
    ),  # fmt: skip
    Relative("constant: stopped", lambda z: tf.stop_gradient(z) ** 2, X, zeros(3, 4, 3, 4)),
    Relative("constant: times zero", lambda z: 0.0 * z, X, zeros(3, 4, 3, 4), batch=True),
    Relative("constant: of ones like", lambda z: tf.ones_like(z) * 2.0, X, zeros(3, 4, 3, 4)),
    Relative("constant: rounded", tf.round, X, zeros(3, 4, 3, 4)),
    Relative(
        "constant: argmax picked",
        lambda z: tf.one_hot(tf.argmax(z, 1), 4, dtype=z.dtype) * z,
        X,
        np.einsum("bi,bc,ij->bicj", np.eye(4)[X.argmax(1)], np.eye(3), np.eye(4)),
        batch=True,
    ),  # fmt: skip
]

ALL = [*INDICES, *RAGGED, *SEQUENCES, *SCANS, *WINDOWS, *UNKNOWN, *DTYPES, *RELOADED, *CONSTANTS]
