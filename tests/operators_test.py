"""Operators and linearizations: as matrices, within loops, in SciPy; what they keep alive."""

import gc
import weakref

import numpy as np
import pytest
import scipy.sparse.linalg
import tensorflow as tf
from maps import OTHER, SQUARE, W3, blocks_of, differences, whole_of
from scenarios import array

import tfjac
from tfjac.errors import ExamplesMixError, InvalidTypeError, InvalidValueError, UnsupportedError

ALL = {**SQUARE, **OTHER}


def in_graph(body, **options):
    return tf.function(body, autograph=False, **options)


def run(body, *args, **options):
    return in_graph(body, **options)(*args)


@pytest.mark.parametrize("name", ["net", "wider", "sum", "strided convolution"])
@pytest.mark.parametrize("batch", [True, False])
def test_products_are_those_of_the_matrix(name, batch):
    fn, shape = ALL[name]
    x = array(2, *shape, seed=1)
    blocks = blocks_of(fn, x)
    matrices = blocks if batch else whole_of(blocks)
    m, n = matrices.shape[-2:]
    lead = matrices.shape[:-2]
    v, u = array(*lead, n, seed=2), array(*lead, m, seed=3)
    many, back = array(*lead, n, 3, seed=4), array(*lead, m, 2, seed=5)
    across = array(*lead, 2, n, seed=6)

    def body(x):
        j = tfjac.jacobian_operator(fn(x), x, batch)
        assert j.shape == matrices.shape and j.range_dimension == m and j.domain_dimension == n
        return (
            j.matvec(v),
            j.matvec(u, adjoint=True),
            j.matmul(many),
            j.matmul(back, adjoint=True),
            j.H.matvec(u),
            j.adjoint().to_dense(),
            j.to_dense(),
            j.matmul(across, adjoint_arg=True),
            (j.H @ j).to_dense(),
            (j.H @ j).matvec(v),
            (j @ many),
            j.shape_tensor(),
        )

    t = np.swapaxes(matrices, -1, -2)
    wanted = [
        np.einsum("...ij,...j->...i", matrices, v),
        np.einsum("...ij,...j->...i", t, u),
        matrices @ many,
        t @ back,
        np.einsum("...ij,...j->...i", t, u),
        t,
        matrices,
        matrices @ np.swapaxes(across, -1, -2),
        t @ matrices,
        np.einsum("...ij,...j->...i", t @ matrices, v),
        matrices @ many,
        matrices.shape,
    ]
    for a, b in zip(run(body, x), wanted):
        np.testing.assert_allclose(a, b, atol=1e-8)


def test_more_axes_of_examples_are_broadcast():
    fn, shape = SQUARE["net"]
    x = array(2, *shape, seed=1)
    blocks = blocks_of(fn, x)
    many, few = array(5, 2, 4, 3, seed=1), array(4, 3, seed=2)
    whole = array(5, 8, 3, seed=3)

    def body(x):
        y = fn(x)
        j = tfjac.jacobian_operator(y, x, True)
        flat = tfjac.jacobian_operator(y, x)
        return j.matmul(many), j.matmul(few), flat.matmul(whole), flat.matmul(whole, adjoint=True)

    found = run(body, x)
    np.testing.assert_allclose(found[0], blocks @ many, atol=1e-8)
    np.testing.assert_allclose(found[1], blocks @ few, atol=1e-8)
    np.testing.assert_allclose(found[2], whole_of(blocks) @ whole, atol=1e-8)
    np.testing.assert_allclose(found[3], whole_of(blocks).T @ whole, atol=1e-8)


@pytest.mark.parametrize("examples", [0, 1, 3])
def test_the_number_of_examples_may_be_unknown(examples):
    fn, shape = ALL["wider"]
    spec = tf.TensorSpec([None, *shape], tf.float64)

    def body(x):
        j = tfjac.jacobian_operator(fn(x), x, True)
        assert j.shape.as_list() == [None, 5, 3]
        ones = tf.ones([tf.shape(x)[0], 3], x.dtype)
        return j.matvec(ones), j.to_dense(), j.shape_tensor(), j.batch_shape_tensor()

    x = array(examples, *shape)
    product, dense, shape_tensor, batch_shape = run(body, x, input_signature=[spec])
    assert list(shape_tensor) == [examples, 5, 3] and list(batch_shape) == [examples]
    assert dense.shape == [examples, 5, 3]
    np.testing.assert_allclose(product, np.sum(dense, 2), atol=1e-12)


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32])
def test_the_dtype_is_that_of_y(dtype):
    def body(x):
        j = tfjac.jacobian_operator(tf.sin(x), x)
        assert j.dtype == dtype
        return j.matvec(tf.ones_like(x)), j.to_dense()

    product, dense = run(body, tf.constant([0.0, 1.0], dtype))
    assert product.dtype == dense.dtype == dtype
    np.testing.assert_allclose(tf.cast(product, tf.float32), np.cos([0.0, 1.0]), rtol=1e-2)


def test_it_runs_within_loops_and_conjugate_gradients():
    w = array(4, 4, seed=4)
    spd = tf.constant(w @ w.T + np.eye(4))
    b = array(4, seed=5)

    def body(x):
        y = 0.5 * tf.reduce_sum(x * tf.linalg.matvec(spd, x)) + tf.reduce_sum(x**4)
        gradient = tf.gradients(y, x)[0]
        h = tfjac.jacobian_operator(gradient, x, is_self_adjoint=True, is_positive_definite=True)
        solved = tf.linalg.experimental.conjugate_gradient(h, tf.constant(b), tol=1e-12).x
        powered = tf.while_loop(
            lambda k, v: k < 3, lambda k, v: (k + 1, h.matvec(v)), (0, tf.constant(b))
        )[1]
        return solved, powered

    x = array(4, seed=6)
    h = spd.numpy() + np.diag(12 * x**2)
    solved, powered = run(body, x)
    np.testing.assert_allclose(solved, np.linalg.solve(h, b), atol=1e-9)
    np.testing.assert_allclose(powered, h @ h @ h @ b, rtol=1e-10)


def test_conjugate_gradients_on_normal_equations_of_each_example():
    fn, shape = ALL["wider"]
    x = array(2, *shape, seed=1)
    blocks, b = blocks_of(fn, x), array(2, 3, seed=2)

    def body(x):
        j = tfjac.jacobian_operator(fn(x), x, True)
        normal = tf.linalg.LinearOperatorComposition(
            [j.H, j], is_self_adjoint=True, is_positive_definite=True
        )
        return tf.linalg.experimental.conjugate_gradient(normal, tf.constant(b), tol=1e-12).x

    wanted = np.linalg.solve(np.swapaxes(blocks, 1, 2) @ blocks, b[..., None])[..., 0]
    np.testing.assert_allclose(run(body, x), wanted, atol=1e-7)


@pytest.mark.parametrize("how", ["gradients", "tape", "xla", "session"])
def test_products_are_differentiable(how):
    x, w, v = array(1, 3, seed=1), array(3, 3, seed=2), array(3, seed=3)

    def value(x, w):
        j = tfjac.jacobian_operator(tf.tanh(x @ w), x)
        return tf.reduce_sum(j.matvec(v) ** 2) + tf.reduce_sum(j.matvec(v, adjoint=True) ** 3)

    def body(x, w):
        if how == "tape":
            with tf.GradientTape() as tape:
                tape.watch(w)
                found = value(x, w)
            return tape.gradient(found, w)
        return tf.gradients(value(x, w), w)[0]

    if how == "session":
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            fed = [tf.compat.v1.placeholder(tf.float64, a.shape) for a in (x, w)]
            found = session.run(body(*fed), dict(zip(fed, (x, w))))
    else:
        found = run(body, x, w, jit_compile=how == "xla")
    call = in_graph(value)
    wanted = differences(lambda w: call(x, w).numpy(), w)
    np.testing.assert_allclose(found, wanted, atol=1e-8)


def test_a_variable_and_a_constant_are_sources_and_targets():
    w = tf.Variable(array(2, 3, seed=2))
    x = array(4, 2, seed=4)

    def body():
        j = tfjac.jacobian_operator(tf.sin(x @ w), w)
        zero = tfjac.jacobian_operator(tf.constant([1.0, 2.0], tf.float64), w)
        ones = tf.ones([6], tf.float64)
        return j.matvec(ones), j.to_dense(), zero.matvec(ones), zero.matvec(ones[:2], adjoint=True)

    product, dense, zero, back = run(body)
    wanted = differences(lambda w: np.sin(x @ w), w.numpy()).reshape(12, 6)
    np.testing.assert_allclose(dense, wanted, atol=1e-9)
    np.testing.assert_allclose(product, wanted.sum(1), atol=1e-9)
    assert not np.any(zero) and not np.any(back) and zero.shape == [2] and back.shape == [6]


def test_misuse_is_refused():
    x = array(2, 3)
    with pytest.raises((InvalidTypeError, InvalidValueError), match="linearize|prepare"):
        tfjac.jacobian_operator(tf.constant(x), tf.constant(x))
    with pytest.raises(ExamplesMixError):
        run(lambda x: tfjac.jacobian_operator(x - tf.reduce_mean(x, 0), x, True).to_dense(), x)
    with pytest.raises((InvalidTypeError, InvalidValueError)):
        run(lambda x: tfjac.jacobian_operator(x**2, x).to_dense(), tf.constant([1, 2]))
    with pytest.raises(InvalidTypeError):
        run(lambda x: tfjac.jacobian_operator(x**2, x).to_dense(), tf.constant([1j, 2.0]))
    with pytest.raises(UnsupportedError):
        run(lambda x: tfjac.jacobian_operator(x**2, x).to_scipy() and x, x)
    with pytest.raises(InvalidTypeError, match="jacobian_operator"):
        run(lambda x: tfjac.linearize(tf.sin, x)[0], x)
    for fn in (3, lambda x: [x, x], lambda x: tf.cast(x, tf.complex128), lambda x: "y"):
        with pytest.raises(InvalidTypeError):
            tfjac.linearize(fn, x)
    with pytest.raises(InvalidTypeError):
        tfjac.linearize(tf.identity, np.array([1, 2]))


def test_asking_twice_adds_no_op():
    def body(x):
        y = tf.tanh(x @ W3)

        def ask():
            j = tfjac.jacobian_operator(y, x)
            return j.to_dense()

        first = ask()
        ops = len(x.graph.get_operations())
        second = ask()
        assert first is second or len(x.graph.get_operations()) <= ops + 3
        return first

    run(body, array(2, 3))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scipy_solves_with_a_linearization(dtype):
    w = array(3, 5, seed=1).astype(dtype)
    x = array(2, 3).astype(dtype)
    y, j = tfjac.linearize(lambda x: tf.tanh(x @ w), x)
    np.testing.assert_allclose(y, np.tanh(x @ w), rtol=1e-5)
    a = j.to_scipy()
    assert a.shape == (10, 6) and a.dtype == dtype
    dense = j.to_dense().numpy()
    tolerance = 1e-4 if dtype == np.float32 else 1e-8
    np.testing.assert_allclose(a @ np.eye(6, dtype=dtype), dense, atol=tolerance)
    np.testing.assert_allclose(a.T @ np.eye(10, dtype=dtype), dense.T, atol=tolerance)
    b = array(10, seed=3).astype(dtype)
    wanted = np.linalg.lstsq(dense, b, rcond=None)[0]
    found = scipy.sparse.linalg.lsmr(a, b, atol=1e-12, btol=1e-12)[0]
    np.testing.assert_allclose(found, wanted, atol=100 * tolerance)
    top = scipy.sparse.linalg.svds(a, k=2, return_singular_vectors=False)
    np.testing.assert_allclose(
        np.sort(top)[::-1], np.linalg.svd(dense, compute_uv=False)[:2], rtol=10 * tolerance
    )
    solution, failed = scipy.sparse.linalg.cg(a.T @ a, dense.T @ b, rtol=1e-6)
    assert not failed
    np.testing.assert_allclose(solution, wanted, atol=1e-2)


def test_a_function_is_traced_once_for_two_points_and_both_stay_valid():
    traces = []

    def fn(x):
        traces.append(x)
        return tf.sin(x) ** 2

    first, second = array(4), array(4, seed=1)
    (_, a), (_, b) = tfjac.linearize(fn, first), tfjac.linearize(fn, second)
    assert len(traces) == 1
    a.to_dense()
    count = len(traces)
    ones = np.ones(4)
    for _ in range(2):
        np.testing.assert_allclose(a.matvec(ones), np.sin(2 * first), rtol=1e-12)
        np.testing.assert_allclose(b.matvec(ones, adjoint=True), np.sin(2 * second), rtol=1e-12)
        np.testing.assert_allclose(a.to_dense(), np.diag(np.sin(2 * first)), atol=1e-12)
    assert len(traces) == count
    assert count <= 2


def test_the_function_is_freed_with_the_last_reference_to_it():
    class Function:
        def __call__(self, x):
            return tf.sin(x)

    fn = Function()
    y, j = tfjac.linearize(fn, array(3))
    j.matvec(np.ones(3))
    j.to_dense()
    alive = weakref.ref(fn)
    del fn, y, j
    gc.collect()
    assert alive() is None


def test_random_ops_draw_once_for_the_value_and_all_products():
    def fn(x):
        return x * tf.random.uniform(tf.shape(x), dtype=x.dtype)

    x = np.arange(1.0, 51.0)
    y, j = tfjac.linearize(fn, x)
    drawn = y.numpy() / x
    for _ in range(2):
        np.testing.assert_allclose(j.matvec(np.ones(50)), drawn, rtol=1e-12)
        np.testing.assert_allclose(j.matvec(np.ones(50), adjoint=True), drawn, rtol=1e-12)
        np.testing.assert_allclose(np.diag(j.to_dense()), drawn, rtol=1e-12)
    again, _ = tfjac.linearize(fn, x)
    assert np.any(np.abs(again - y) > 1e-9)


def test_variables_that_change_do_not_change_what_was_linearized():
    w = tf.Variable(array(3, 3, seed=2))
    x = array(1, 3)
    before = w.numpy()
    _, j = tfjac.linearize(lambda x: tf.sin(x @ w), x)
    wanted = differences(lambda x: np.sin(x @ before), x).reshape(3, 3)
    w.assign(2 * w)
    np.testing.assert_allclose(j.to_dense(), wanted, atol=1e-9)
    np.testing.assert_allclose(j.matvec(np.ones(3)), wanted.sum(1), atol=1e-9)
    np.testing.assert_allclose(j.matvec(np.ones(3), adjoint=True), wanted.sum(0), atol=1e-9)


@pytest.mark.parametrize("kind", ["dense", "lstm", "convolution"])
def test_a_keras_model_is_linearized_as_it_infers(kind):
    layers = tf.keras.layers
    stacks = {
        "dense": ((4,), [layers.Dense(3, "tanh"), layers.BatchNormalization()]),
        "lstm": ((3, 2), [layers.LSTM(2), layers.Dropout(0.5)]),
        "convolution": ((4, 4, 1), [layers.Conv2D(2, 3), layers.LayerNormalization()]),
    }
    shape, members = stacks[kind]
    model = tf.keras.Sequential([tf.keras.Input(shape), *members])
    x = array(2, *shape).astype(np.float32)
    y, j = tfjac.linearize(model, x)
    np.testing.assert_allclose(y, model(x, training=False), atol=1e-6)
    with tf.GradientTape() as tape:
        t = tf.constant(x)
        tape.watch(t)
        out = model(t, training=False)
    wanted = tape.jacobian(out, t).numpy().reshape(tf.size(out), x.size)
    np.testing.assert_allclose(j.to_dense(), wanted, atol=1e-5)
    v, u = array(x.size).astype(np.float32), array(wanted.shape[0], seed=1).astype(np.float32)
    np.testing.assert_allclose(j.matvec(v), wanted @ v, atol=1e-4)
    np.testing.assert_allclose(j.matvec(u, adjoint=True), wanted.T @ u, atol=1e-4)


def test_a_scalar_and_no_entries_are_linearized():
    y, j = tfjac.linearize(lambda x: x**3, np.float64(2.0))
    assert y == 8.0 and j.shape == [1, 1]
    np.testing.assert_allclose(j.matvec(np.ones(1)), [12.0])
    np.testing.assert_allclose(j.to_dense(), [[12.0]])
    y, j = tfjac.linearize(lambda x: x @ tf.ones([3, 2], x.dtype), np.zeros((0, 3)))
    assert j.shape == [0, 0] and j.to_dense().shape == [0, 0]


def test_products_with_no_column_have_none():
    def body(x):
        j = tfjac.jacobian_operator(tf.tanh(x @ W3)[:, :2], x, True)
        none = tf.zeros([2, 3, 0], x.dtype)
        return j.matmul(none), j.matmul(none[:, :2], adjoint=True)

    product, back = run(body, array(2, 3))
    assert product.shape == [2, 2, 0] and back.shape == [2, 3, 0]
    w = tf.Variable(array(3, 2))
    _, j = tfjac.linearize(lambda x: x @ w, np.zeros((0, 3)))
    assert j.to_dense().shape == [0, 0]


def test_a_linearization_is_used_within_another_function():
    _, j = tfjac.linearize(lambda x: x**2, array(3))
    product = run(lambda v: j.matvec(v), np.ones(3))
    np.testing.assert_allclose(product, 2 * array(3))


def test_a_model_with_other_layers_is_linearized_anew():
    layers = tf.keras.layers
    model = tf.keras.Sequential([tf.keras.Input([3]), layers.Dense(4), layers.Dense(2)])
    x = np.ones([1, 3], np.float32)
    assert tfjac.linearize(model, x)[1].shape == [2, 3]
    model.pop()
    y, j = tfjac.linearize(model, x)
    assert j.shape == [4, 3]
    np.testing.assert_allclose(y, model(x), rtol=1e-6)


@pytest.mark.parametrize("adjoint", [False, True])
def test_other_numbers_of_examples_are_refused_when_it_runs(adjoint):
    spec = tf.TensorSpec([None, 2], tf.float64)

    @tf.function(autograph=False, input_signature=[spec, spec])
    def run(x, c):
        y = x * c
        operator = tfjac.jacobian_operator(y, x, batch=True, independence="assume")
        return operator.matvec(tf.ones_like(y if adjoint else x), adjoint=adjoint)

    c = array(3, 2)
    np.testing.assert_allclose(run(array(3, 2), c), c)
    with pytest.raises(tf.errors.InvalidArgumentError, match="as many examples"):
        run(array(1, 2), c)
