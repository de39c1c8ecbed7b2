"""The laws that every strategy keeps, whatever the function."""

import numpy as np
import pytest
import tensorflow as tf
from scenarios import array

import tfjac

# Those that take any model; structure_test.py is about the other.
STRATEGIES = [name for name in tfjac.strategies.names() if name != "structural"]
W = array(4, 3, seed=5)


def net(x):
    return tf.tanh(x @ tf.constant(W, x.dtype)) * tf.reduce_sum(x, 1, keepdims=True)


def in_graph(body):
    return tf.function(body, autograph=False)


@pytest.mark.parametrize("batch", [False, True])
def test_all_strategies_agree_in_float64(batch):
    found = [tfjac.prepare(net, batch=batch, strategy=s)(array(3, 4)).numpy() for s in STRATEGIES]
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], rtol=0, atol=1e-12 * np.abs(found[0]).max())


@pytest.mark.parametrize("batch", [False, True])
def test_all_strategies_agree_in_float32_to_a_few_ulps_of_the_largest_entry(batch):
    x = array(3, 4, dtype=np.float32)
    found = [tfjac.prepare(net, batch=batch, strategy=s)(x).numpy() for s in STRATEGIES]
    for other in found[1:]:
        ulp = np.spacing(np.abs(found[0]).max())
        np.testing.assert_allclose(other, found[0], rtol=0, atol=4 * ulp)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_adjoint_identity_holds_between_jvp_vjp_and_the_jacobian(strategy):
    u, v = array(3, 3, seed=8), array(3, 4, seed=9)

    @in_graph
    def products(x):
        y = net(x)
        return (
            tfjac.jvp(y, x, tf.constant(v)),
            tfjac.vjp(y, x, tf.constant(u)),
            tfjac.jacobian(y, x, strategy),
        )

    jv, ju, j = (t.numpy() for t in products(array(3, 4)))
    matrix = j.reshape(9, 12)
    np.testing.assert_allclose((u * jv).sum(), (ju * v).sum(), rtol=1e-12)
    np.testing.assert_allclose(matrix @ v.reshape(-1), jv.reshape(-1), atol=1e-13)
    np.testing.assert_allclose(matrix.T @ u.reshape(-1), ju.reshape(-1), atol=1e-13)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_jacobian_of_a_composition_is_the_product(strategy):
    @in_graph
    def chain(x):
        h = tf.sin(x @ tf.constant(W))
        y = tf.exp(h) * h
        return (
            tfjac.batch_jacobian(y, x, strategy),
            tfjac.batch_jacobian(y, h, strategy),
            tfjac.batch_jacobian(h, x, strategy),
        )

    whole, outer, inner = (j.numpy() for j in chain(array(3, 4)))
    np.testing.assert_allclose(whole, outer @ inner, atol=1e-13)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_permuting_the_batch_permutes_the_result(strategy):
    x, order = array(5, 4), [3, 0, 4, 1, 2]
    jac = tfjac.prepare(net, batch=True, strategy=strategy)
    np.testing.assert_allclose(jac(x[order]).numpy(), jac(x).numpy()[order], atol=1e-14)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_batch_jacobian_is_the_block_diagonal_of_the_full_one(strategy):
    x = array(3, 4)
    full = tfjac.prepare(net, strategy=strategy)(x).numpy()
    blocks = tfjac.prepare(net, batch=True, strategy=strategy)(x).numpy()
    for b in range(3):
        np.testing.assert_allclose(full[b, :, b], blocks[b], atol=1e-14)
        full[b, :, b] = 0
    assert not full.any()


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("batch", [False, True])
def test_random_ops_draw_once_for_value_and_all_rows(strategy, batch):
    jac = tfjac.prepare(
        lambda x: tf.nn.dropout(x, 0.5) @ tf.constant(W), batch=batch, strategy=strategy
    )
    draws = set()
    for _ in range(5):
        x = np.ones((3, 4))
        y, j = (t.numpy() for t in jac.value_and_jacobian(x))
        blocks = j if batch else np.stack([j[b, :, b] for b in range(3)])
        kept = np.abs(blocks).sum(1) > 0
        np.testing.assert_allclose(blocks, 2 * W.T * kept[:, None, :])
        np.testing.assert_allclose(y, 2 * kept @ W)
        draws.add(kept.tobytes())
    assert len(draws) > 1


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_side_effects_happen_once_a_call(strategy):
    count = tf.Variable(0)

    def counted(x):
        count.assign_add(1)
        return tf.sin(x)

    jac = tfjac.prepare(counted, strategy=strategy)
    for calls in (1, 2, 3):
        jac(array(4))
        assert count.numpy() == calls


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("jit", [False, True])
def test_a_loss_on_the_jacobian_trains(strategy, jit):
    """d/dw of sum J^2 with y = tanh(x w) has a closed form; by tf.gradients and by a tape."""
    x, w = array(3, 4), W
    t = np.tanh(x @ w)
    s = 1 - t**2
    # sum_bij (s_bj w_ij)^2 by w_ij: 2 s^2 w + 2 s (ds/dw) w^2 summed.
    wanted = 2 * w * (s**2).sum(0) + np.einsum(
        "bj,bj,bi,j->ij", 2 * s, -2 * t * s, x, (w**2).sum(0)
    )

    @tf.function(jit_compile=jit, autograph=False)
    def by_gradients(x, w):
        loss = tf.reduce_sum(tfjac.batch_jacobian(tf.tanh(x @ w), x, strategy) ** 2)
        return tf.gradients(loss, w)[0]

    @tf.function(jit_compile=jit, autograph=False)
    def by_tape(x, w):
        with tf.GradientTape() as tape:
            tape.watch(w)
            loss = tf.reduce_sum(tfjac.batch_jacobian(tf.tanh(x @ w), x, strategy) ** 2)
        return tape.gradient(loss, w)

    for gradient in (by_gradients, by_tape):
        np.testing.assert_allclose(gradient(tf.constant(x), tf.constant(w)), wanted, rtol=1e-10)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_prepared_jacobian_can_be_differentiated_by_an_eager_tape(strategy):
    jac = tfjac.prepare(lambda x: x**3, strategy=strategy)
    x = tf.constant([1.0, 2.0], tf.float64)
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(jac(x))
    np.testing.assert_allclose(tape.gradient(loss, x), 6 * x.numpy())


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_custom_gradients_are_honoured_also_in_the_loss_of_a_jacobian(strategy):
    @tf.custom_gradient
    def clipped(x):
        return x, lambda upstream: 5.0 * upstream

    j = tfjac.prepare(lambda x: clipped(x * x), strategy=strategy)(np.array([1.0, 2.0]))
    np.testing.assert_allclose(j, np.diag([10.0, 20.0]))


def test_asking_twice_in_one_graph_returns_the_same_tensor():
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [3])
        y = tf.sin(x)
        first = tfjac.jacobian(y, x)
        ops = len(graph.get_operations())
        assert tfjac.jacobian(y, x) is first
        assert tfjac.jacobian([y], {"x": x})[0]["x"] is first
        assert len(graph.get_operations()) == ops
        assert tfjac.jacobian(y, x, "forward") is not first
        assert tfjac.batch_jacobian(y, x) is not first


def test_a_jacobian_from_before_a_tape_is_not_handed_to_it():
    @in_graph
    def late_tape(x):
        tfjac.jacobian(x**3, x)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = x**3
            before = tfjac.jacobian(y, x)
            again = tfjac.jacobian(y, x)
            loss = tf.reduce_sum(before + again)
        return tape.gradient(loss, x)

    @in_graph
    def known_target(x):
        y = x**3
        outside = tfjac.jacobian(y, x)
        with tf.GradientTape() as tape:
            tape.watch(x)
            inside = tfjac.jacobian(y, x)
        assert inside is not outside
        return inside

    x = tf.constant([1.0, 2.0])
    np.testing.assert_allclose(late_tape(x), [12.0, 24.0])
    np.testing.assert_allclose(known_target(x), np.diag([3.0, 12.0]))


@pytest.mark.parametrize("strategy", ["while_loop"])
def test_the_while_loop_graph_does_not_grow_with_the_number_of_rows(strategy):
    def ops(rows):
        w = tf.TensorSpec([4, rows], tf.float32)
        concrete = in_graph(
            lambda x, w: tfjac.jacobian(tf.tanh(x @ w), x, strategy)
        ).get_concrete_function(tf.TensorSpec([1, 4]), w)
        definition = concrete.graph.as_graph_def()
        return len(definition.node) + sum(len(f.node_def) for f in definition.library.function)

    assert ops(10) == ops(1000)


def test_the_vectorized_graph_does_not_grow_with_the_number_of_rows():
    def ops(rows, chunk):
        concrete = in_graph(
            lambda x: tfjac.jacobian(tf.tile(x, [rows]), x, "vectorized", chunk_size=chunk)
        ).get_concrete_function(tf.TensorSpec([1]))
        definition = concrete.graph.as_graph_def()
        return len(definition.node) + sum(len(f.node_def) for f in definition.library.function)

    assert ops(10, 5) == ops(1000, 5)
    assert ops(10, None) == ops(1000, None)


@pytest.mark.parametrize("strategy", ["vectorized", "forward"])
@pytest.mark.parametrize("chunk_size", [1, 2, 3, 4, 5, 7, 100, None])
@pytest.mark.parametrize("shape", [[3, 4], [None, 4]])
def test_every_chunk_size_gives_the_same(strategy, chunk_size, shape):
    def run(chunk):
        return tf.function(
            lambda x: tfjac.jacobian(net(x), x, strategy, chunk_size=chunk),
            autograph=False,
            input_signature=[tf.TensorSpec(shape, tf.float64)],
        )(array(3, 4))

    np.testing.assert_allclose(run(chunk_size), run(None), rtol=0, atol=1e-13)


def test_an_op_that_falls_back_to_a_loop_is_named_in_a_warning():
    def picked(x):
        return tf.gather_nd(x, [[1, 0], [0, 1]]) ** 2

    with pytest.warns(tfjac.errors.LoopFallbackWarning, match="ScatterNd"):
        j = tfjac.prepare(picked, strategy="vectorized")(np.array([[1.0, 2.0], [3.0, 4.0]]))
    np.testing.assert_allclose(j, [[[0, 0], [6, 0]], [[0, 4], [0, 0]]])


@pytest.mark.parametrize("name", ["SegmentMax", "SegmentMean", "SegmentMin", "UnsortedSegmentMax"])
@pytest.mark.parametrize("strategy", ["auto", "forward"])
def test_rows_of_empty_segments_are_zero(name, strategy):
    op = getattr(tf.raw_ops, name)
    arguments = {"num_segments": 3} if name.startswith("Unsorted") else {}

    def fn(x):
        return op(data=x, segment_ids=tf.constant([0, 2, 2]), **arguments)

    jac = tfjac.prepare(fn, strategy=strategy)
    np.testing.assert_array_equal(jac(array(3))[1], np.zeros(3))


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("unknown_size", [False, True])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_one_sequence_through_a_dense_layer_is_right(strategy, batch, unknown_size):
    """TensorFlow 2.21's own batched product is wrong for what a vectorized map makes of this."""
    w = array(2, 4, dtype=np.float32)

    def fn(x):
        return tf.matmul(x, tf.constant(w))

    shape = [None if unknown_size else 1, 3, 2]
    jac = tfjac.prepare(
        fn, batch=batch, strategy=strategy, input_signature=[tf.TensorSpec(shape, tf.float32)]
    )
    x = array(1, 3, 2, dtype=np.float32)
    if strategy == "vectorized" and not unknown_size:
        with pytest.raises(tfjac.errors.UnsupportedError):
            jac(x)
        return
    wanted = np.einsum("tu,ij->tjui", np.eye(3), w).reshape(jac(x).shape)
    for _ in range(3):
        np.testing.assert_allclose(jac(x), wanted, atol=1e-6)


def _in_call(fn, x):
    return tf.function(fn)(x)


def _in_branch(fn, x):
    return tf.cond(tf.reduce_sum(x) > -99.0, lambda: fn(x), lambda: 2.0 * fn(x))


@pytest.mark.parametrize("within", [_in_call, _in_branch])
def test_what_is_unsafe_is_found_within_bodies(within):
    """The product of one example, a clipping custom gradient, and a one-way op."""
    w = array(2, 4, dtype=np.float32)
    x = array(1, 3, 2, dtype=np.float32)

    def product(z):
        return within(lambda v: v @ tf.constant(w), z)

    wanted = np.einsum("tu,ij->tjui", np.eye(3), w).reshape(1, 3, 4, 1, 3, 2)
    np.testing.assert_allclose(tfjac.prepare(product)(x), wanted, atol=1e-6)
    np.testing.assert_allclose(tfjac.prepare(product, strategy="forward")(x), wanted, atol=1e-6)
    with pytest.raises(tfjac.errors.UnsupportedError, match="BatchMatMulV2"):
        tfjac.prepare(product, strategy="vectorized")(x)

    @tf.custom_gradient
    def clipped(z):
        return tf.identity(z), lambda upstream: tf.clip_by_value(upstream, -0.5, 0.5)

    def clips(z):
        return within(clipped, z * tf.ones([50]))

    np.testing.assert_allclose(tfjac.prepare(clips)(tf.constant(2.0)), np.full(50, 0.5))
    one_way = tf.quantization.fake_quant_with_min_max_args
    with pytest.raises(tfjac.errors.UnsupportedError, match="FakeQuantWithMinMaxArgs"):
        tfjac.prepare(lambda z: within(one_way, z), strategy="forward")(x)


def test_many_sequences_are_still_carried_together():
    jac = tfjac.prepare(lambda x: x @ tf.ones([2, 4]), batch=True, strategy="vectorized")
    assert jac(array(5, 3, 2, dtype=np.float32)).shape == (5, 3, 4, 3, 2)


def _called(x, w):
    @tf.function
    def inner(z):
        return tf.tanh(z * w) * z

    return inner(x) + inner(2.0 * x)


def _looped(x, w):
    return tf.while_loop(lambda i, h: i < 3, lambda i, h: (i + 1, tf.tanh(h * x * w)), (0, x))[1]


def _branched(x, w):
    return tf.cond(tf.reduce_sum(x) > -9.0, lambda: tf.sin(x * w) * x, lambda: tf.zeros_like(x))


def _mapped(x, w):
    return tf.map_fn(lambda row: tf.sin(row * w) * row, x)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("fn", [_called, _looped, _branched, _mapped])
@pytest.mark.parametrize("as_variable", [False, True])
def test_a_tape_in_the_graph_sees_through_functions_loops_and_branches(fn, strategy, as_variable):
    """TensorFlow alone gives None or too small a gradient here; the oracle is a difference."""
    variable = tf.Variable(0.7, dtype=tf.float64)

    def loss_of(x, w):
        y = fn(tf.sin(x), w)
        return (
            tf.reduce_sum(tfjac.jacobian(y, x, strategy) ** 2)
            + tf.reduce_sum(tfjac.vjp(y, x, tf.ones_like(y)) ** 3)
            + tf.reduce_sum(tfjac.jvp(y, x, tf.ones_like(x)) ** 3)
        )

    @in_graph
    def by_tape(x, w):
        with tf.GradientTape() as tape:
            tape.watch([x, w])
            loss = loss_of(x, variable if as_variable else w)
        return tape.gradient(loss, [x, variable if as_variable else w])

    x, w, h = tf.constant([0.3, 0.5], tf.float64), tf.constant(0.7, tf.float64), 1e-5
    loss = in_graph(loss_of)
    by_x, by_w = by_tape(x, w)
    np.testing.assert_allclose(by_w, (loss(x, w + h) - loss(x, w - h)) / (2 * h), rtol=1e-7)
    e = np.array([1.0, -1.0]) * h
    np.testing.assert_allclose(np.dot(by_x, e), (loss(x + e, w) - loss(x - e, w)) / 2, rtol=1e-7)
