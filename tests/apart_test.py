"""Examples that stay apart where indices, sparse matrices, custom gradients or sizes tell it.

The oracle is TensorFlow's tape, row by row; and each kind has near relatives that mix, which must
be refused.
"""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfjac

pytestmark = pytest.mark.filterwarnings("ignore::tfjac.errors.LoopFallbackWarning")


def count(x):
    return tf.shape(x)[0]


def weights(*shape, seed=7):
    values = np.random.default_rng(seed).uniform(-1, 1, shape)
    return tf.constant(values)


ADJACENCY = np.array([[0.5, 0.5, 0, 0], [0.3, 0.4, 0.3, 0], [0, 0.2, 0.6, 0.2], [0, 0, 0.7, 0.3]])


def sparse():
    return tf.sparse.from_dense(ADJACENCY)


def labels_of(x):
    return tf.tile(tf.constant([[1, 2]]), [count(x), 1])


def ctc(*, major, blank, is_sparse=False):
    def fn(x):
        labels, lengths = labels_of(x), tf.fill([count(x)], 2)
        logits = tf.transpose(x, [1, 0, 2]) if major else x
        if is_sparse:
            labels, lengths = tf.sparse.from_dense(labels), None
        return tf.nn.ctc_loss(
            labels,
            logits,
            lengths,
            tf.fill([count(x)], 4),
            logits_time_major=major,
            blank_index=blank,
        )

    return fn


def ctc_first(x):
    labels = tf.sparse.from_dense(labels_of(x))
    return tf.compat.v1.nn.ctc_loss(labels, x, tf.fill([count(x)], 4), time_major=False)


def ctc_second(x):
    return tf.compat.v1.nn.ctc_loss_v2(
        labels_of(x),
        x,
        tf.fill([count(x)], 2),
        tf.fill([count(x)], 4),
        logits_time_major=False,
        blank_index=0,
    )


def ctc_keras(x):
    four = tf.fill([count(x)], 4)
    return keras.ops.ctc_loss(labels_of(x), x, tf.fill([count(x)], 2), four, 0)


def spread(h):
    """Returns a graph convolution of features `[B, nodes, features]`, side by side in columns."""
    b, features = count(h), h.shape[2]
    flat = tf.reshape(tf.transpose(h, [1, 0, 2]), [4, -1])
    mixed = tf.sparse.sparse_dense_matmul(sparse(), flat)
    return tf.transpose(tf.reshape(mixed, [4, b, features]), [1, 0, 2])


def round_trip(x):
    return tf.sparse.to_dense(tf.sparse.map_values(tf.square, tf.sparse.from_dense(x))) * x


def own_matrix(x):
    """Returns a sparse matrix of the examples, times a dense one."""
    return tf.sparse.sparse_dense_matmul(tf.sparse.from_dense(x), weights(4, 2))


def own_matrix_turned(x):
    matrix = tf.sparse.from_dense(tf.transpose(x))
    return tf.sparse.sparse_dense_matmul(matrix, weights(4, 2), adjoint_a=True)


def bands(x):
    return tf.stack([x, 3.0 + x * x, x], 1)


def right_sides(x):
    return x[:, :, None] * weights(4, 2)


def rows(x):
    return tf.range(count(x))


def columns(x):
    return tf.argmax(x, 1, tf.int32)


def boxes(x):
    return tf.tile([[0.1, 0.1, 0.8, 0.9]], [count(x), 1])


def own_rows_scaled(x):
    """Returns some rows of the batch, computed by themselves and put back where they were."""
    places = tf.where(x[:, 0] > 0.0)
    return tf.tensor_scatter_nd_update(x, places, tf.sin(tf.gather_nd(x, places)))


def parted(x):
    side = rows(x) % 2
    places = tf.dynamic_partition(rows(x), side, 2)
    even, odd = tf.dynamic_partition(x, side, 2)
    return tf.dynamic_stitch(places, [tf.sin(even), tf.cos(odd)]) * x


def chosen_row(row):
    return tf.cond(tf.reduce_sum(row) > 0.0, lambda: tf.sin(row), lambda: row * row)


def quantized(x):
    return tf.quantization.quantize_and_dequantize_v2(x, -1.0, 1.0, range_given=True)


def raw_quantized(x):
    one = tf.ones([], x.dtype)
    return tf.raw_ops.QuantizeAndDequantizeV3(
        input=x, input_min=-one, input_max=one, num_bits=8, range_given=True
    )


def by_neighbor(x):
    grid = tf.meshgrid(tf.range(count(x)), tf.range(2), indexing="ij")
    return tf.gather_nd(x, tf.stack(grid, -1))


SINGLE = {"ctc", "crop", "fake"}  # kinds whose ops are of float32
APART = {
    "ctc: time first": (ctc(major=True, blank=0), (4, 3)),
    "ctc: batch first": (ctc(major=False, blank=0), (4, 3)),
    "ctc: last blank": (ctc(major=False, blank=-1), (4, 4)),
    "ctc: sparse labels": (ctc(major=False, blank=-1, is_sparse=True), (4, 4)),
    "ctc: sparse labels, time first": (ctc(major=True, blank=0, is_sparse=True), (4, 4)),
    "ctc: TensorFlow 1": (ctc_first, (4, 4)),
    "ctc: TensorFlow 1, second version": (ctc_second, (4, 3)),
    "ctc: keras": (ctc_keras, (4, 3)),
    "sparse: graph convolution": (
        lambda x: spread(tf.tanh(spread(x) @ weights(3, 2))), (4, 3)),
    "sparse: columns": (
        lambda x: tf.transpose(tf.sparse.sparse_dense_matmul(sparse(), tf.transpose(x))), (4,)),
    "sparse: columns of an adjoint": (
        lambda x: tf.transpose(tf.sparse.sparse_dense_matmul(sparse(), x, adjoint_b=True)), (4,)),
    "sparse: adjoint": (
        lambda x: tf.transpose(tf.sparse.sparse_dense_matmul(
            sparse(), tf.transpose(x), adjoint_a=True)), (4,)),
    "sparse: from the right": (lambda x: tf.sparse.sparse_dense_matmul(x, sparse()), (4,)),
    "sparse: round trip": (round_trip, (4,)),
    "sparse: matrix of examples": (own_matrix, (4,)),
    "sparse: matrix of examples, turned": (own_matrix_turned, (4,)),
    "fake: by arguments": (tf.quantization.fake_quant_with_min_max_args, (4,)),
    "fake: by variables": (
        lambda x: tf.quantization.fake_quant_with_min_max_vars(x, -1.0, 1.0), (4,)),
    "fake: by channel": (
        lambda x: tf.quantization.fake_quant_with_min_max_vars_per_channel(
            x, -tf.ones(4), tf.ones(4)), (4,)),
    "quantize: second version": (quantized, (4,)),
    "quantize: third": (raw_quantized, (4,)),
    "recomputed": (lambda x: tf.recompute_grad(lambda a: tf.tanh(a) * a)(x), (4,)),
    "recomputed: of matrices": (
        lambda x: tf.recompute_grad(
            lambda a: tf.nn.softmax(a @ weights(4, 3)) * a[:, :1])(x), (4,)),
    "solve: tridiagonal": (
        lambda x: tf.linalg.tridiagonal_solve(
            bands(x), right_sides(x), partial_pivoting=False), (4,)),
    "solve: tridiagonal product": (
        lambda x: tf.linalg.tridiagonal_matmul(bands(x), right_sides(x)), (4,)),
    "solve: banded": (
        lambda x: tf.linalg.banded_triangular_solve(
            tf.stack([3.0 + x * x, x], 1), right_sides(x)), (4,)),
    "isotonic": (lambda x: tf.nn.isotonic_regression(x)[0], (4,)),
    "patches: of volumes": (
        lambda x: tf.extract_volume_patches(x, [1, 2, 2, 2, 1], [1] * 5, "VALID"), (3, 3, 3, 1)),
    "roll: fftshift": (lambda x: tf.signal.fftshift(x, axes=[1]) * x, (4,)),
    "roll: ifftshift": (lambda x: tf.signal.ifftshift(x, axes=[1, 2]) * x, (4, 3)),
    "average": (lambda x: keras.ops.average(x * x, axis=1), (4,)),
    "gather: batch_dims": (
        lambda x: tf.gather_nd(x, tf.zeros([count(x), 2, 1], tf.int32), batch_dims=1), (4,)),
    "gather: row and column": (
        lambda x: tf.gather_nd(x, tf.stack([rows(x), columns(x)], 1)) * x[:, 0], (4,)),
    "gather: row and column of another": (
        lambda x: tf.gather_nd(tf.nn.softmax(x), tf.stack([rows(x), columns(x)], -1)) * x[:, 1],
        (4,)),
    "gather: grid": (by_neighbor, (4,)),
    "gather: rows put back": (own_rows_scaled, (4,)),
    "gather: parted and stitched": (parted, (4,)),
    "crop: own picture": (
        lambda x: tf.image.crop_and_resize(x, boxes(x), rows(x), [2, 2]), (4, 4, 1)),
    "map: of rows": (lambda x: tf.vectorized_map(
        lambda row: tf.tanh(row) * tf.reduce_sum(row), x), (4,)),
    "map: of pairs": (lambda x: tf.vectorized_map(
        lambda pair: pair[0] * tf.reduce_sum(pair[1]), (x, tf.sin(x))), (4,)),
    "map: cond": (lambda x: tf.vectorized_map(chosen_row, x) * x, (4,)),
    "map: product": (lambda x: tf.vectorized_map(
        lambda row: tf.linalg.matvec(weights(3, 4), row), x), (4,)),
    "map: one by one": (lambda x: tf.map_fn(lambda row: tf.tanh(row) * row[0], x), (4,)),
    "map: one by one, cond": (lambda x: tf.map_fn(chosen_row, x), (4,)),
    "frames": (lambda x: tf.signal.frame(x * x, 4, 2), (8,)),
    "sliced to its size": (lambda x: tf.sin(x[: count(x)]), (4,)),
}  # fmt: skip


def inputs_of(name, shape, examples):
    values = np.random.default_rng(3).uniform(-0.9, 0.9, (examples, *shape))
    return values.astype(np.float32 if name.split(":")[0] in SINGLE else np.float64)


def by_tape(fn, x):
    """Returns the block of each example, by TensorFlow's tape row by row."""

    @tf.function(autograph=False)
    def whole(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = fn(x)
        return tape.jacobian(y, x, experimental_use_pfor=False)

    found = whole(tf.constant(x)).numpy()
    rank = found.ndim - x.ndim
    return np.stack([np.take(found[b], b, axis=rank - 1) for b in range(len(x))])


def traced(fn, x, known, strategy):
    """Returns the batch Jacobian as a function of the batch, of a known size or not."""
    spec = tf.TensorSpec([len(x) if known else None, *x.shape[1:]], x.dtype)

    @tf.function(autograph=False, input_signature=[spec])
    def jacobian(x):
        return tfjac.batch_jacobian(fn(x), x, strategy=strategy)

    return jacobian


# With a batch of unknown size TensorFlow has no gradient of the one, and turns the axes of the
# other by a number that it computes when the graph runs.
KNOWN_ONLY = {"isotonic", "map: product"}


@pytest.mark.parametrize("examples, known", [(3, False), (3, True), (1, True)])
@pytest.mark.parametrize("name", APART)
def test_examples_that_stay_apart_have_their_blocks(name, examples, known):
    if name in KNOWN_ONLY and not known:
        pytest.skip("is for a batch of known size")
    fn, shape = APART[name]
    x = inputs_of(name, shape, examples)
    expected = by_tape(fn, x)
    tolerance = 1e-4 if x.dtype == np.float32 else 1e-10
    for strategy in ("auto", "unstack"):
        found = traced(fn, x, known, strategy)(tf.constant(x))
        np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)


def reversed_rows(x):
    return tf.reverse(rows(x), [0])


@tf.custom_gradient
def turned_without_derivative(x):
    return tf.identity(x), lambda dy: tf.stop_gradient(tf.reverse(dy, [0]))


@tf.custom_gradient
def signs_of_others(x):
    return tf.identity(x), lambda dy: tf.sign(tf.reverse(dy, [0]))


@tf.custom_gradient
def chosen_by_first(x):
    return tf.identity(x), lambda dy: tf.where(dy[:1] > 0.0, dy, 2.0 * dy)


@tf.custom_gradient
def doubled_by_first(x):
    def gradient(dy):
        return tf.while_loop(lambda g: g[0, 0] < 1.0, lambda g: 2.0 * g, [dy + 0.1])[0]

    return tf.identity(x), gradient


def swapped_parts(x):
    side = rows(x) % 2
    places = tf.dynamic_partition(rows(x), side, 2)
    even, odd = tf.dynamic_partition(x, 1 - side, 2)
    return tf.dynamic_stitch(places, [tf.sin(even), tf.cos(odd)])


@tf.function(autograph=False)
def taken_and_places(x, places):
    return tf.gather(x, places + 0)


@tf.function(autograph=False)
def put_back(taken, places, x):
    return tf.tensor_scatter_nd_update(x, (places + 0)[:, None], taken)


def by_indices_of_a_function(x):
    """Takes by one list and puts by another, each made in the body of a function."""
    taken = taken_and_places(x, reversed_rows(x))
    return put_back(taken, rows(x), x)


@tf.function(autograph=False)
def taken_or_put(x, taken, places, puts):
    inner = places + 0
    return tf.cond(
        puts,
        lambda: tf.tensor_scatter_nd_update(x, inner[:, None], taken),
        lambda: tf.gather(taken, inner),
    )


def one_function_called_twice(x):
    taken = taken_or_put(x, x, reversed_rows(x), tf.constant(False))
    return taken_or_put(x, taken, rows(x), tf.constant(True))


def elements_of_a_function(x):
    """Reads row n-1-i and writes row i, both by an index of one and the same called function."""

    @tf.function(autograph=False)
    def access(array, i, item, writes):
        del writes
        return array.write(i, item)

    source = tf.TensorArray(x.dtype, count(x)).unstack(x)
    out = tf.TensorArray(x.dtype, count(x), clear_after_read=False)

    def body(i, out):
        return i + 1, out.write(i, source.read(count(x) - 1 - i))

    return tf.while_loop(lambda i, _: i < count(x), body, (0, out))[1].stack()


def repeated_first_row(x):
    """Rows by a list that counts, but is broadcast from a single entry where there are several."""
    return tf.gather(x, tf.broadcast_to(tf.range(1), [count(x)]))


def repeated_by_ones(x):
    return tf.gather(x, tf.range(count(x[:1])) * tf.ones([count(x)], tf.int32))


MIXED = {
    "ctc: time and batch swapped": (lambda x: tf.nn.ctc_loss(
        tf.tile([[1, 2]], [4, 1]), x, tf.fill([4], 2), tf.fill([4], 3), logits_time_major=True,
        blank_index=0)[:3], (4, 3)),
    "sparse: among the rows": (
        lambda x: tf.sparse.sparse_dense_matmul(tf.sparse.from_dense(ADJACENCY[:3, :3]), x), (4,)),
    "sparse: rows of an adjoint": (lambda x: tf.sparse.sparse_dense_matmul(
        tf.sparse.from_dense(ADJACENCY[:3, :3]), x, adjoint_a=True), (4,)),
    "sparse: matrix of examples, its columns": (lambda x: tf.sparse.sparse_dense_matmul(
        tf.sparse.from_dense(x), weights(3, 2), adjoint_a=True)[:3], (4,)),
    "sparse: put at other rows": (lambda x: tf.sparse.to_dense(tf.sparse.reorder(tf.SparseTensor(
        tf.stack([2 - tf.where(x != 0)[:, 0], tf.where(x != 0)[:, 1]], 1),
        tf.gather_nd(x, tf.where(x != 0)), [3, 4]))), (4,)),
    "recomputed": (lambda x: tf.recompute_grad(lambda a: a - tf.reduce_mean(a, 0))(x), (4,)),
    "custom: turned by a gradient without derivative": (turned_without_derivative, (4,)),
    "custom: sign of others": (signs_of_others, (4,)),
    "custom: chosen by the first": (chosen_by_first, (4,)),
    "custom: as many turns as the first asks for": (doubled_by_first, (4,)),
    "isotonic": (lambda x: tf.transpose(tf.nn.isotonic_regression(tf.transpose(x))[0]), (4,)),
    "solve: examples as rows": (lambda x: tf.linalg.tridiagonal_solve(
        tf.stack([tf.ones(3, x.dtype), 3.0 * tf.ones(3, x.dtype), tf.ones(3, x.dtype)]), x,
        partial_pivoting=False), (4,)),
    "patches: along the examples": (lambda x: tf.extract_volume_patches(
        tf.transpose(x, [3, 0, 1, 2])[..., None], [1, 2, 1, 1, 1], [1] * 5, "SAME")[0], (3, 3, 1)),
    "roll: along the examples": (lambda x: tf.signal.fftshift(x, axes=[0]), (4,)),
    "roll: along all": (tf.signal.fftshift, (4,)),
    "gather: other rows": (lambda x: tf.gather_nd(
        x, tf.stack([reversed_rows(x), columns(x)], 1)), (4,)),
    "gather: next rows": (lambda x: tf.gather_nd(
        x, tf.stack([(rows(x) + 1) % count(x), columns(x)], 1)), (4,)),
    "gather: columns as rows": (lambda x: tf.gather_nd(
        x, tf.stack([columns(x) % 3, rows(x)], 1)), (4,)),
    "gather: rows put elsewhere": (lambda x: tf.tensor_scatter_nd_update(
        x, tf.where(x[:, 0] > -2.0), tf.gather_nd(x, tf.reverse(tf.where(x[:, 0] > -2.0), [0]))),
        (4,)),
    "gather: a broadcast list": (repeated_first_row, (4,)),
    "gather: a list times ones": (repeated_by_ones, (4,)),
    "gather: parts swapped": (swapped_parts, (4,)),
    "gather: within functions": (by_indices_of_a_function, (4,)),
    "gather: one function twice": (one_function_called_twice, (4,)),
    "gather: elements": (elements_of_a_function, (4,)),
    "crop: another picture": (lambda x: tf.image.crop_and_resize(
        x, boxes(x), reversed_rows(x), [2, 2]), (4, 4, 1)),
    "crop: the first picture": (lambda x: tf.image.crop_and_resize(
        x, boxes(x), tf.zeros_like(rows(x)), [2, 2]), (4, 4, 1)),
    "map: with another's sum": (lambda x: tf.vectorized_map(
        lambda row: row * tf.reduce_sum(x, 0), x), (4,)),
    "map: of another row": (lambda x: tf.vectorized_map(
        lambda i: x[count(x) - 1 - i], rows(x)), (4,)),
    "sliced and shifted": (lambda x: tf.concat([x[1 : count(x)], x[:1]], 0), (4,)),
}  # fmt: skip


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("name", MIXED)
def test_near_relatives_that_mix_are_refused(name, known):
    fn, shape = MIXED[name]
    x = inputs_of(name, shape, 3)
    with pytest.raises(tfjac.errors.ExamplesMixError):
        traced(fn, x, known, "auto").get_concrete_function()


def explained(fn, x, known=True):
    found = []

    def read(x):
        found.append(tfjac.explain_dependence(fn(x), x))
        return x

    spec = tf.TensorSpec([len(x) if known else None, *x.shape[1:]], x.dtype)
    tf.function(read, autograph=False).get_concrete_function(spec)
    return found[-1]


@pytest.mark.parametrize(
    "fn, surely",
    [
        (lambda x: x - tf.reduce_mean(x, 0), True),
        (lambda x: tf.linalg.matmul(x, x, transpose_b=True), True),
        (lambda x: tf.cumsum(x, 0), True),
        (lambda x: x[:, None] - x[None], True),
        (lambda x: tf.roll(tf.sin(tf.roll(x, 1, 0)), -1, 0), False),
        (lambda x: tf.reverse(tf.sin(tf.reverse(x, [0])), [0]), False),
        (lambda x: tf.gather(x, tf.argsort(x[:, 0])), False),
        (lambda x: tf.math.segment_sum(x, columns(x)), False),
        (lambda x: tf.sparse.sparse_dense_matmul(tf.sparse.eye(3, dtype=x.dtype), x), False),
        (lambda x: tf.concat([x[:1], tf.sin(x[1:])], 0), False),
    ],
)
def test_it_is_said_that_examples_mix_only_where_an_op_surely_mixes_them(fn, surely):
    x = inputs_of("", (4,), 3)
    found = explained(fn, x)
    assert not found.independent and found.understood == surely, found.reason
    with pytest.raises(tfjac.errors.ExamplesMixError) as error:
        traced(fn, x, True, "auto").get_concrete_function()
    assert ("could not prove that example b" in str(error.value)) == (not surely)


def net(kind):
    keras.utils.set_random_seed(0)
    layers = keras.layers
    if kind == "cell":
        cell = layers.LSTMCell(3)
        return lambda x: cell(x, [tf.zeros([count(x), 3], x.dtype)] * 2)[0]
    if kind == "attention":
        attention = layers.MultiHeadAttention(2, 2)
        return lambda x: attention(x, x)
    return keras.Sequential(
        {
            "tanh": [layers.Dense(4, "tanh"), layers.Dense(2)],
            "normalized": [layers.Dense(4), layers.LayerNormalization(), layers.Dense(2, "tanh")],
            "convolution": [
                layers.Conv2D(2, 2, activation="tanh"), layers.Flatten(), layers.Dense(2)],
        }[kind]
    )  # fmt: skip


NETS = {
    "tanh": (3,),
    "normalized": (3,),
    "convolution": (3, 3, 1),
    "cell": (2,),
    "attention": (2, 3),
}


@pytest.mark.parametrize("strategy", [s for s in tfjac.strategies.names() if s != "structural"])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("kind", NETS)
def test_a_batch_jacobian_of_tfjac_is_read(kind, known, strategy):
    if (kind, known, strategy) == ("attention", False, "forward"):
        pytest.skip("a broadcast product of matrices is differentiated twice, with unknown ranks")
    x, fn = inputs_of("ctc", NETS[kind], 3), net(kind)

    def jacobian(x):
        try:
            return tfjac.batch_jacobian(fn(x), x, strategy=strategy)
        except tfjac.errors.UnsupportedError as error:
            pytest.skip(str(error)[:80])

    found = explained(jacobian, x, known)
    assert found.independent, found.reason


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("kind", ["tanh", "cell"])
def test_a_jacobian_of_a_jacobian_is_right(kind, known):
    x, fn = inputs_of("ctc", NETS[kind], 3), net(kind)
    spec = tf.TensorSpec([3 if known else None, *x.shape[1:]], x.dtype)

    @tf.function(autograph=False, input_signature=[spec])
    def second(x):
        return tfjac.batch_jacobian(tfjac.batch_jacobian(fn(x), x), x)

    def first_by_tape(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = fn(x)
        return tape.batch_jacobian(y, x, experimental_use_pfor=False)

    expected = by_tape(first_by_tape, x)
    np.testing.assert_allclose(second(tf.constant(x)), expected, atol=1e-4)


def squares(y):
    return tf.reduce_sum(y * y, list(range(1, y.shape.rank)))


QUANTITIES = {
    "det": lambda fn, x: tfjac.det(fn(x)[..., :1] * x, x, batch=True),
    "trace": lambda fn, x: tfjac.trace(fn(x)[..., :1] * x, x, batch=True),
    "gramian": lambda fn, x: tfjac.gramian(fn(x), x, batch=True),
    "frobenius": lambda fn, x: tfjac.frobenius_norm(fn(x), x, batch=True),
    "spectral": lambda fn, x: tfjac.spectral_norm(fn(x), x, batch=True),
    "hessian": lambda fn, x: tfjac.batch_hessian(squares(fn(x)), x),
    "force": lambda fn, x: tf.gradients(squares(fn(x)), x)[0],
}


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("kind", ["tanh", "normalized", "cell"])
@pytest.mark.parametrize("quantity", QUANTITIES)
def test_what_is_made_of_a_jacobian_is_read(quantity, kind, known):
    fn = net(kind)
    x = inputs_of("ctc", NETS[kind], 3)
    found = explained(lambda x: QUANTITIES[quantity](fn, x), x, known)
    assert found.independent, found.reason
