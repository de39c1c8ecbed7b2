"""Determinants and Gram matrices against NumPy's of finite differences."""

import gc
import weakref

import numpy as np
import pytest
import tensorflow as tf
from maps import OTHER, SQUARE, W3, blocks_of, const, differences, net, whole_of
from scenarios import array

import tfjac
from tfjac import elimination
from tfjac.errors import ExamplesMixError, InvalidTypeError, InvalidValueError


def in_graph(body, **options):
    return tf.function(body, autograph=False, **options)


def run(body, *args, **options):
    return in_graph(body, **options)(*args)


def family(y, x, batch):
    sign, log = tfjac.slogdet(y, x, batch)
    return tfjac.det(y, x, batch), sign, log, tfjac.logdet(y, x, batch)


def check_family(found, matrices):
    det, sign, log, logdet = (each.numpy() for each in found)
    wanted_sign, wanted_log = np.linalg.slogdet(matrices)
    np.testing.assert_array_equal(sign, wanted_sign)
    np.testing.assert_allclose(log, wanted_log, atol=1e-7)
    np.testing.assert_allclose(logdet, wanted_log, atol=1e-7)
    np.testing.assert_allclose(det, np.linalg.det(matrices), rtol=1e-7)


# The gradient of tf.sort scatters, which tf.vectorized_map does row by row.
@pytest.mark.filterwarnings("ignore::tfjac.errors.LoopFallbackWarning")
@pytest.mark.parametrize("name", SQUARE)
def test_the_determinant_is_that_of_the_matrix(name):
    fn, shape = SQUARE[name]
    x = array(3, *shape, seed=1)
    blocks = blocks_of(fn, x)
    spec = tf.TensorSpec([None, *shape], tf.float64)
    check_family(run(lambda x: family(fn(x), x, True), x, input_signature=[spec]), blocks)


@pytest.mark.parametrize("name", list(SQUARE)[1::3])
def test_the_determinant_of_the_whole_is_that_of_the_block_diagonal_matrix(name):
    fn, shape = SQUARE[name]
    x = array(3, *shape, seed=1)
    check_family(run(lambda x: family(fn(x), x, False), x), whole_of(blocks_of(fn, x)))


@pytest.mark.parametrize("name", [*list(SQUARE)[::6], *OTHER])
def test_the_gramian_is_that_of_the_matrix(name):
    fn, shape = {**SQUARE, **OTHER}[name]
    x = array(2, *shape, seed=1)
    blocks = blocks_of(fn, x)
    y_shape = fn(tf.constant(x)).shape[1:]

    def body(x, batch):
        y = fn(x)
        return [tfjac.gramian(y, x, batch, of=of) for of in ("rows", "columns")]

    spec = tf.TensorSpec([None, *shape], tf.float64)
    rows, columns = run(lambda x: body(x, True), x, input_signature=[spec])
    assert rows.shape == [2, *y_shape, *y_shape]
    assert columns.shape == [2, *shape, *shape]
    m, n = blocks.shape[1:]
    turned = np.swapaxes(blocks, 1, 2)
    np.testing.assert_allclose(rows.numpy().reshape(2, m, m), blocks @ turned, atol=1e-8)
    np.testing.assert_allclose(columns.numpy().reshape(2, n, n), turned @ blocks, atol=1e-8)
    rows, columns = run(lambda x: body(x, False), x)
    assert rows.shape == [2, *y_shape, 2, *y_shape]
    whole = whole_of(blocks)
    np.testing.assert_allclose(rows.numpy().reshape(2 * m, 2 * m), whole @ whole.T, atol=1e-8)
    np.testing.assert_allclose(columns.numpy().reshape(2 * n, 2 * n), whole.T @ whole, atol=1e-8)


@pytest.mark.parametrize("examples", [0, 1])
@pytest.mark.parametrize("name", ["net", "tokens", "coupling", "reversal of 3", "layer norm"])
def test_no_example_or_one(name, examples):
    fn, shape = SQUARE[name]
    x = array(examples, *shape, seed=2)
    spec = tf.TensorSpec([None, *shape], tf.float64)
    for options in ({}, {"input_signature": [spec]}):
        found = run(lambda x: family(fn(x), x, True), x, **options)
        assert all(each.shape == [examples] for each in found)
        if examples:
            check_family(found, blocks_of(fn, x))
    if not examples:
        det, sign, log, _ = run(lambda x: family(fn(x), x, False), x)
        assert (det, sign, log) == (1.0, 1.0, 0.0)


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32, tf.float64])
def test_the_dtype_is_that_of_y(dtype):
    def body(x, batch):
        y = tf.tanh(x @ tf.cast(const(4, 4, seed=4), dtype))
        return *family(y, x, batch), tfjac.gramian(y, x, batch)

    x = tf.constant(array(2, 4), dtype)
    exact = run(lambda x: family(tf.tanh(x @ const(4, 4, seed=4)), x, True), array(2, 4))
    found = run(lambda x: body(x, True), x)
    assert {each.dtype for each in found} == {dtype}
    assert {each.dtype for each in run(lambda x: body(x, False), x)} == {dtype}
    tolerance = {tf.float16: 2e-2, tf.bfloat16: 0.15, tf.float32: 1e-5}.get(dtype, 1e-12)
    for a, b in zip(found, exact):
        np.testing.assert_allclose(tf.cast(a, tf.float64), b, rtol=tolerance, atol=tolerance / 4)


def test_scalars_and_whole_tensors_without_examples():
    def body(s, m):
        found = [family(-(s**3), s, False), family(tf.reshape(s, [1]), s, False)]
        return [*found, family(tf.transpose(W3 @ m @ W3), m, False)]

    s, m = array(seed=3), array(3, 3, seed=4)
    a, b, c = run(body, s, m)
    check_family(a, np.array([[-3 * s**2]]))
    check_family(b, np.array([[1.0]]))
    w = W3.numpy()
    check_family(c, differences(lambda m: (w @ m @ w).T, m).reshape(9, 9))


@pytest.mark.parametrize("batch", [True, False])
@pytest.mark.parametrize("n", [1, 2, 3, 4, 7])
def test_a_singular_matrix_has_sign_zero_and_minus_infinity(n, batch):
    def body(x):
        ys = [x * 0.0, tf.zeros_like(x), tf.concat([x[:, 1:], x[:, :1] * 0.0], 1)]
        ys += [tf.tile(tf.reduce_sum(x**2, 1, keepdims=True), [1, n])] if n > 1 else []
        return [family(y, x, batch) for y in ys]

    for det, sign, log, logdet in run(body, array(2, n)):
        np.testing.assert_array_equal(det, 0)
        np.testing.assert_array_equal(sign, 0)
        np.testing.assert_array_equal(log, -np.inf)
        np.testing.assert_array_equal(logdet, -np.inf)


@pytest.mark.parametrize("n", [2, 3, 4])
def test_softmax_is_singular_but_for_rounding(n):
    x = array(3, n)
    found = run(lambda x: family(tf.nn.softmax(x), x, True), x)
    assert np.all(np.abs(found[0]) < 1e-16)
    assert np.all(found[2] < np.log(1e-16))


@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_gradient_of_a_singular_determinant_is_finite_up_to_three_rows(n):
    w = tf.zeros([n, n], tf.float64)
    for fn in (lambda x, w: x @ w, lambda x, w: tf.tanh(x @ w), lambda x, w: tf.sin(x) @ w):

        def body(x, w, fn=fn):
            whole = tf.reduce_sum(tfjac.det(fn(x, w), x, True))
            return tf.gradients(whole, w)[0]

        found = run(body, array(2, n), w)
        assert np.all(np.isfinite(found))
        np.testing.assert_allclose(found, 0 if n > 1 else found, atol=0)


@pytest.mark.parametrize("n", [2, 3])
def test_the_gradient_at_rank_n_minus_one_is_the_adjugate(n):
    w = np.diag([0.0] + [2.0] * (n - 1))
    found = run(
        lambda x, w: tf.gradients(tf.reduce_sum(tfjac.det(x @ w, x, True)), w)[0], array(2, n), w
    )
    wanted = np.zeros((n, n))
    wanted[0, 0] = 2 * 2.0 ** (n - 1)
    np.testing.assert_allclose(found, wanted, atol=1e-14)


def test_the_gradient_of_a_diagonal_determinant_with_a_zero_is_finite():
    scale = np.array([0.0, 2.0, 3.0])
    found = run(
        lambda x, s: tf.gradients(tf.reduce_sum(tfjac.det(x * s, x, True)), s)[0],
        array(2, 3),
        scale,
    )
    np.testing.assert_allclose(found, [12.0, 0.0, 0.0], atol=1e-14)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["net", "tokens", "coupling", "layer norm", "elementwise"])
def test_one_bad_example_leaves_the_others_as_they_are(name, bad):
    fn, shape = SQUARE[name]
    x = array(3, *shape, seed=1)
    x.reshape(3, -1)[1, 0] = bad

    def body(x):
        y = fn(x)
        return *family(y, x, True), tfjac.gramian(y, x, True)

    good, found = run(body, x[[0, 2]]), run(body, x)
    for a, b in zip(good, found):
        np.testing.assert_allclose(np.asarray(b)[[0, 2]], a, rtol=1e-12)
    # TensorFlow 2.16 has a determinant of zero for a whole matrix of NaN.
    tells = name != "layer norm" or tf.__version__ >= "2.17"
    if np.isnan(bad) and name != "coupling" and tells:
        assert np.isnan(found[0][1]) and np.isnan(found[2][1])


def test_a_matrix_that_is_not_square_is_named_and_gramian_offered():
    for quantity in (tfjac.det, tfjac.slogdet, tfjac.logdet):
        for batch in (True, False):
            with pytest.raises(InvalidValueError) as caught:
                run(lambda x, q=quantity, b=batch: q(x @ const(3, 2, seed=0), x, b), array(5, 3))
            text = str(caught.value)
            assert "gramian" in text
            assert "(5, 2)" in text or "[5, 2]" in text
            assert "(5, 3)" in text or "[5, 3]" in text


def test_misuse_is_refused():
    x = array(2, 3)
    for quantity in (tfjac.det, tfjac.slogdet, tfjac.logdet, tfjac.gramian):
        with pytest.raises((InvalidTypeError, InvalidValueError), match="prepare|linearize"):
            quantity(tf.constant(x), tf.constant(x))
        with pytest.raises(ExamplesMixError):
            run(lambda x, q=quantity: q(x - tf.reduce_mean(x, 0) * 0.5, x, True), x)
        with pytest.raises(InvalidTypeError):
            run(lambda x, q=quantity: q(tf.cast(x, tf.float64) ** 2, x), tf.constant([1, 2]))
        with pytest.raises((InvalidTypeError, InvalidValueError)):
            run(lambda x, q=quantity: q(x**2, x), tf.constant([1j, 2.0]))
        with pytest.raises(InvalidValueError, match="independence"):
            run(lambda x, q=quantity: q(x, x, True, independence="guess"), x)
    with pytest.raises(InvalidValueError, match="of"):
        run(lambda x: tfjac.gramian(x, x, of="diagonal"), x)


def test_independence_can_be_assumed():
    def body(x):
        order = tf.argsort(x[:, 0])
        y = tf.gather(tf.tanh(tf.gather(x, order)), tf.argsort(order))
        return (
            tfjac.det(y, x, True, independence="assume"),
            tfjac.gramian(y, x, True, independence="assume"),
        )

    x = array(4, 3)
    det, gram = run(body, x)
    slope = 1 - np.tanh(x) ** 2
    np.testing.assert_allclose(det, np.prod(slope, 1), rtol=1e-12)
    np.testing.assert_allclose(gram, np.stack([np.diag(s**2) for s in slope]), atol=1e-12)


def test_constants_and_unconnected_sources_have_a_zero_determinant():
    def body(x, z):
        y = tf.constant(array(2, 3)) + 0.0 * z
        return family(y, x, True), family(y, x, False), tfjac.gramian(y, x, True)

    each, whole, gram = run(body, array(2, 3), array(2, 3))
    for det, sign, log, _ in (each, whole):
        assert np.all(det.numpy() == 0) and np.all(sign.numpy() == 0)
        assert np.all(log.numpy() == -np.inf)
    np.testing.assert_array_equal(gram, np.zeros((2, 3, 3)))


def test_a_variable_is_a_source():
    w = tf.Variable(array(2, 2, seed=3))
    x = array(2, 2)

    def body():
        y = tf.sin(x @ w)
        return family(y, w, False), tfjac.gramian(y, w), tfjac.gramian(y, w, of="columns")

    found, rows, columns = run(body)
    j = differences(lambda w: np.sin(x @ w), w.numpy()).reshape(4, 4)
    check_family(found, j)
    np.testing.assert_allclose(rows.numpy().reshape(4, 4), j @ j.T, atol=1e-10)
    np.testing.assert_allclose(columns.numpy().reshape(4, 4), j.T @ j, atol=1e-10)


def quantities(x, w):
    """Returns numbers that depend on w through the quantities of Jacobians by x."""
    y, z = tf.tanh(x @ w) @ w + x, tf.exp(x) @ w
    sign, log = tfjac.slogdet(y, x, True)
    gram = tfjac.gramian(y, x, True)
    parts = [sign * tf.exp(log), tfjac.det(z, x, True), tfjac.logdet(z, x, True) ** 2]
    return tf.reduce_sum(tf.stack(parts)) + tf.reduce_sum(gram**2) + tfjac.logdet(y, x)


@pytest.mark.parametrize(
    ("n", "how"),
    [(n, how) for n in (2, 3, 4) for how in ("gradients", "tape", "session", "xla")],
)
def test_gradients_by_weights_are_those_of_finite_differences(how, n):
    x, w = array(2, n), np.eye(n) + 0.5 * array(n, n, seed=2)

    def body(x, w):
        if how == "tape":
            with tf.GradientTape() as tape:
                tape.watch(w)
                value = quantities(x, w)
            return value, tape.gradient(value, w)
        value = quantities(x, w)
        return value, tf.gradients(value, w)[0]

    if how == "session":
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            fed = [tf.compat.v1.placeholder(tf.float64, a.shape) for a in (x, w)]
            fetched = body(*fed)
            found = session.run(fetched, dict(zip(fed, (x, w))))
    else:
        found = run(body, tf.constant(x), tf.constant(w), jit_compile=how == "xla")
    value = in_graph(quantities)
    wanted = differences(lambda w: value(tf.constant(x), tf.constant(w)).numpy(), w)
    np.testing.assert_allclose(found[1], wanted, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found[0], value(x, w), rtol=1e-10)


@pytest.mark.parametrize("n", [2, 4])
def test_second_derivatives_are_those_of_finite_differences(n):
    x, w = array(1, n), np.eye(n) + 0.3 * array(n, n, seed=2)

    @in_graph
    def first(x, w):
        return tf.gradients(quantities(x, w), w)[0]

    @in_graph
    def second(x, w):
        gradient = tf.gradients(quantities(x, w), w)[0]
        return tf.gradients(tf.reduce_sum(gradient**2), w)[0] / 2

    h = differences(lambda w: first(x, tf.constant(w)).numpy(), w).reshape(n * n, n * n)
    wanted = h @ first(x, w).numpy().reshape(-1)
    np.testing.assert_allclose(second(x, w).numpy().reshape(-1), wanted, rtol=1e-5)


def test_asking_twice_adds_no_op_and_gives_the_same_tensors():
    def body(x):
        y = net(x)

        def ask():
            found = [family(y, x, batch) for batch in (True, False)]
            grams = [tfjac.gramian(y, x, b, of=of) for b in (True, False) for of in ("rows",)]
            return [*tf.nest.flatten(found), *grams]

        first = ask()
        ops = len(x.graph.get_operations())
        second = ask()
        assert len(x.graph.get_operations()) == ops
        assert all(a is b for a, b in zip(first, second))
        return first[0]

    run(body, array(2, 4))


def test_nothing_keeps_a_dead_graph_alive():
    def build():
        with tf.Graph().as_default() as graph:
            x = tf.compat.v1.placeholder(tf.float64, [None, 4])
            y = tf.tanh(x @ tf.constant(array(4, 4, seed=4)))
            family(y, x, True)
            tfjac.gramian(y, x, True)
        return weakref.ref(graph)

    graph = build()
    gc.collect()
    assert graph() is None


def test_elimination_keeps_a_small_row_beside_a_large_one():
    matrices = np.array([[[1e-12, 1], [1, 1e10]], [[0, np.nan], [1, 1]]], np.float32)
    sign, log = elimination.slogdet(tf.constant(matrices))
    np.testing.assert_allclose(sign, [-1, np.nan])
    np.testing.assert_allclose(log, [np.log(0.99), np.nan], rtol=1e-5)


def test_examples_may_be_split_on_the_way():
    first, last, scale = const(4, 4, seed=2), const(4, 4, seed=3), const(2, 3, 1, seed=4)

    def fn(x):
        return tf.reshape(tf.reshape(tf.tanh(x @ first), [2, 3, 4]) * scale, [6, 4]) @ last

    x = array(6, 4, seed=1)
    assumed = {"independence": "assume"}
    found = run(lambda x: tfjac.slogdet(fn(x), x, True, **assumed), x)
    sign, log = np.linalg.slogdet(run(lambda x: tfjac.batch_jacobian(fn(x), x, **assumed), x))
    np.testing.assert_array_equal(found.sign, sign)
    np.testing.assert_allclose(found.log_abs_determinant, log, atol=1e-6)


@pytest.mark.parametrize(("shape", "sign"), [((1026, 1023), -1), ((1025, 1024), 1), ((2, 3), -1)])
def test_a_transposition_has_its_sign_at_any_size(shape, sign):
    found = run(lambda x: tfjac.slogdet(tf.transpose(tf.exp(x)), x), tf.zeros(shape))
    assert [t.numpy() for t in found] == [sign, 0]


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16])
def test_logarithms_of_half_precision_are_not_added_in_it(dtype):
    scales = np.full(64, 1.25)
    scales[::2] = 0.8125

    def fn(x):
        return tf.reverse(x * tf.constant(scales, dtype), [1]) @ tf.eye(64, dtype=dtype)

    x = tf.ones([2, 64], dtype)
    found = run(lambda x: (tfjac.det(fn(x), x, True), tfjac.logdet(fn(x), x, True)), x)
    wanted = np.log(scales).sum()
    for each, exact in zip(found, (np.exp(wanted), wanted)):
        np.testing.assert_array_equal(each, tf.fill([2], tf.cast(exact, dtype)))
