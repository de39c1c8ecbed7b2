"""Trace, norms and singular values against NumPy's of finite differences; the estimates."""

import gc
import weakref

import numpy as np
import pytest
import tensorflow as tf
from maps import OTHER, SQUARE, W4, blocks_of, const, differences, net, whole_of
from scenarios import array

import tfjac
from tfjac.errors import ExamplesMixError, InvalidTypeError, InvalidValueError

ALL = {**SQUARE, **OTHER}
U = array(3, 3, seed=3)
QUANTITIES = [tfjac.trace, tfjac.frobenius_norm, tfjac.spectral_norm, tfjac.singular_values]
QUANTITIES += [tfjac.condition_number]


def in_graph(body, **options):
    return tf.function(body, autograph=False, **options)


def run(body, *args, **options):
    return in_graph(body, **options)(*args)


def spectrum(y, x, batch):
    found = {
        "frobenius": tfjac.frobenius_norm(y, x, batch),
        "spectral": tfjac.spectral_norm(y, x, batch),
        "values": tfjac.singular_values(y, x, batch),
    }
    found["condition"] = tfjac.condition_number(y, x, batch)
    return found


def check_spectrum(found, matrices):
    values = np.linalg.svd(matrices, compute_uv=False)
    np.testing.assert_allclose(found["values"], values, atol=1e-8)
    np.testing.assert_allclose(found["spectral"], values[..., 0], rtol=1e-8)
    np.testing.assert_allclose(found["frobenius"], np.sqrt((matrices**2).sum((-2, -1))), rtol=1e-8)
    if np.all(values[..., -1] > 1e-6):
        np.testing.assert_allclose(found["condition"], values[..., 0] / values[..., -1], rtol=1e-6)
    else:
        assert np.all(np.asarray(found["condition"]) > 1e7)


@pytest.mark.parametrize("name", [*list(SQUARE)[::3], *OTHER])
def test_norms_and_singular_values_are_those_of_the_matrix(name):
    fn, shape = ALL[name]
    x = array(2, *shape, seed=1)
    blocks = blocks_of(fn, x)
    found = run(lambda x: spectrum(fn(x), x, True), x)
    check_spectrum(found, blocks)
    if name in OTHER:
        check_spectrum(run(lambda x: spectrum(fn(x), x, False), x), whole_of(blocks))


# The gradient of tf.sort scatters, which tf.vectorized_map does row by row.
@pytest.mark.filterwarnings("ignore::tfjac.errors.LoopFallbackWarning")
@pytest.mark.parametrize("name", list(SQUARE)[::2])
def test_the_trace_is_that_of_the_matrix(name):
    fn, shape = SQUARE[name]
    x = array(2, *shape, seed=1)
    wanted = np.trace(blocks_of(fn, x), axis1=1, axis2=2)
    spec = tf.TensorSpec([None, *shape], tf.float64)
    each = run(lambda x: tfjac.trace(fn(x), x, True), x, input_signature=[spec])
    np.testing.assert_allclose(each, wanted, atol=1e-8)


@pytest.mark.parametrize("name", list(SQUARE)[2::5])
def test_the_trace_of_the_whole_is_the_sum(name):
    fn, shape = SQUARE[name]
    x = array(2, *shape, seed=1)
    each, whole = run(lambda x: [tfjac.trace(fn(x), x, batch) for batch in (True, False)], x)
    np.testing.assert_allclose(whole, np.sum(each), atol=1e-12)


@pytest.mark.parametrize("name", ["net", "tokens", "sum"])
def test_no_example_or_one(name):
    fn, shape = ALL[name]
    spec = tf.TensorSpec([None, *shape], tf.float64)

    def body(x):
        y = fn(x)
        found = [tfjac.frobenius_norm(y, x, True), tfjac.frobenius_norm(y, x, True, probes=2)]
        found += [tfjac.spectral_norm(y, x, True, iterations=30)]
        return found + ([tfjac.trace(y, x, True)] if name in SQUARE else [])

    call = in_graph(body, input_signature=[spec])
    assert all(each.shape == [0] for each in call(array(0, *shape)))
    x = array(1, *shape, seed=1)
    (block,) = blocks_of(fn, x)
    found = call(x)
    np.testing.assert_allclose(found[0], [np.linalg.norm(block)], rtol=1e-8)
    np.testing.assert_allclose(found[2], [np.linalg.norm(block, 2)], rtol=1e-6)
    known = run(lambda x: spectrum(fn(x), x, True), array(0, *shape))
    assert known["frobenius"].shape == [0] and known["spectral"].shape == [0]
    assert known["values"].shape == [0, min(block.shape)]


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16])
def test_the_dtype_is_that_of_y(dtype):
    def body(x):
        y = tf.tanh(x @ tf.cast(W4, x.dtype))
        found = {**spectrum(y, x, True), "trace": tfjac.trace(y, x, True)}
        found["estimated"] = tfjac.trace(y, x, True, probes=3)
        found["norm"] = tfjac.frobenius_norm(y, x, True, probes=3)
        found["power"] = tfjac.spectral_norm(y, x, True, iterations=20)
        return found

    x = array(2, 4)
    exact, found = run(body, x), run(body, tf.constant(x, dtype))
    tolerance = {tf.float16: 2e-2, tf.bfloat16: 0.15}.get(dtype, 1e-4)
    for name, each in found.items():
        assert each.dtype == dtype
        if name != "condition":
            got = tf.cast(each, tf.float64)
            np.testing.assert_allclose(got, exact[name], rtol=tolerance, atol=tolerance)


def test_scalars_variables_and_constants():
    w = tf.Variable(array(2, 3, seed=2))

    def body(s, x):
        y = tf.sin(x @ w)
        constant = tf.constant([1.0, 2.0], tf.float64)
        return (
            [tfjac.trace(-(s**3), s), tfjac.trace(-(s**3), s, probes=1)],
            spectrum(-(s**3), s, False),
            spectrum(y, w, False),
            spectrum(constant, s, False),
            spectrum(constant, x, False),
        )

    s, x = array(seed=3), array(4, 2, seed=4)
    traces, of_s, of_w, of_constant, of_matrix = run(body, s, x)
    np.testing.assert_allclose(traces, -3 * s**2, rtol=1e-12)
    check_spectrum(of_s, np.array([[-3 * s**2]]))
    j = differences(lambda w: np.sin(x @ w), w.numpy()).reshape(12, 6)
    check_spectrum(of_w, j)
    for found in (of_constant, of_matrix):
        assert found["frobenius"] == 0 and found["spectral"] == 0
        np.testing.assert_array_equal(found["values"], 0)


@pytest.mark.parametrize("name", ["net", "tokens", "wider", "narrower", "dense of 3", "relu"])
def test_one_bad_example_leaves_the_others_as_they_are(name):
    fn, shape = ALL[name]
    x = array(3, *shape, seed=1)
    bad = x.copy()
    bad.reshape(3, -1)[1, 0] = np.nan

    def body(x):
        y = fn(x)
        found = [tfjac.frobenius_norm(y, x, True), tfjac.frobenius_norm(y, x, True, probes=2)]
        found += [tfjac.spectral_norm(y, x, True, iterations=3)]
        found += [tfjac.singular_values(y, x, True)]
        return found + ([tfjac.trace(y, x, True, probes=2)] if name in SQUARE else [])

    for a, b in zip(run(body, x), run(body, bad)):
        np.testing.assert_allclose(np.asarray(b)[[0, 2]], np.asarray(a)[[0, 2]], rtol=1e-12)


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_misuse_is_refused(quantity):
    x = array(2, 3)
    with pytest.raises((InvalidTypeError, InvalidValueError), match="prepare|linearize"):
        quantity(tf.constant(x), tf.constant(x))
    with pytest.raises(ExamplesMixError):
        run(lambda x: quantity(x - tf.reduce_mean(x, 0) * 0.5, x, True), x)
    with pytest.raises(InvalidTypeError):
        run(lambda x: quantity(tf.cast(x, tf.float64) ** 2, x), tf.constant([1, 2]))
    with pytest.raises((InvalidTypeError, InvalidValueError)):
        run(lambda x: quantity(x**2, x), tf.constant([1j, 2.0]))


def test_options_that_cannot_be_used_are_refused():
    x = array(2, 3)
    for probes in (0, -1, 1.5, True, "many"):
        for quantity in (tfjac.trace, tfjac.frobenius_norm):
            with pytest.raises((InvalidTypeError, InvalidValueError), match="probes"):
                run(lambda x, q=quantity, p=probes: q(x**2, x, True, probes=p), x)
        with pytest.raises((InvalidTypeError, InvalidValueError), match="iterations"):
            run(lambda x, p=probes: tfjac.spectral_norm(x**2, x, iterations=p), x)
    for seed in (1.5, "one", [1, 2, 3]):
        with pytest.raises((InvalidTypeError, InvalidValueError), match="seed"):
            run(lambda x, s=seed: tfjac.trace(x**2, x, probes=1, seed=s), x)
    with pytest.raises(InvalidValueError, match=r"5, 2.*5, 3|square"):
        run(lambda x: tfjac.trace(x @ const(3, 2, seed=0), x, True), array(5, 3))
    spec = [tf.TensorSpec([None, None], tf.float64)]
    with pytest.raises(InvalidValueError):
        run(lambda x: tfjac.singular_values(tf.cumsum(x, 1), x, True), x, input_signature=spec)


def test_examples_that_mix_can_be_assumed_not_to():
    def body(x):
        order = tf.argsort(x[:, 0])
        y = tf.gather(tf.tanh(tf.gather(x, order)), tf.argsort(order))
        return [q(y, x, True, independence="assume") for q in QUANTITIES]

    x = array(4, 3)
    slope = 1 - np.tanh(x) ** 2
    found = run(body, x)
    np.testing.assert_allclose(found[0], slope.sum(1), rtol=1e-12)
    np.testing.assert_allclose(found[3], -np.sort(-slope, 1), rtol=1e-12)


def draws(quantity, fn, x, batch, probes, count=600):
    """Returns estimates of many seeds, in one graph that is built once."""

    @in_graph
    def one(x, seed):
        return quantity(fn(x), x, batch, probes=probes, seed=seed)

    seeds = np.random.default_rng(0).integers(0, 1 << 30, (count, 2)).astype(np.int32)
    many = in_graph(lambda x: tf.map_fn(lambda s: one(x, s), seeds, fn_output_signature=x.dtype))
    return many(x).numpy()


@pytest.mark.parametrize(("batch", "probes"), [(True, 1), (True, 4), (False, 2)])
def test_estimates_are_unbiased_and_vary_as_they_say(batch, probes):
    x = array(2, 4, seed=3)
    blocks = blocks_of(net, x)
    matrices = blocks if batch else whole_of(blocks)[None]
    wanted = {tfjac.trace: [], tfjac.frobenius_norm: []}
    for j in matrices:
        s, g = (j + j.T) / 2, j @ j.T
        for quantity, mean, m in (
            (tfjac.trace, np.trace(j), s),
            (tfjac.frobenius_norm, g.trace(), g),
        ):
            off = 2 * (np.sum(m**2) - np.sum(np.diag(m) ** 2)) / probes
            wanted[quantity].append((mean, off))
    for quantity, pairs in wanted.items():
        found = draws(quantity, net, x, batch, probes).reshape(600, -1)
        found = found if quantity is tfjac.trace else found**2
        for k, (mean, variance) in enumerate(pairs):
            assert abs(found[:, k].mean() - mean) < 4 * np.sqrt(variance / 600)
            assert 0.7 < found[:, k].var() / variance < 1.4


def test_the_vectors_of_two_examples_are_independent():
    x = np.tile(array(1, 4, seed=3), [2, 1])
    found = draws(tfjac.trace, net, x, True, 1)
    assert abs(np.corrcoef(found.T)[0, 1]) < 0.15


def test_the_estimate_is_exact_of_a_diagonal():
    x = array(2, 4)
    found = run(lambda x: [tfjac.trace(tf.sin(x), x, b, probes=1) for b in (True, False)], x)
    np.testing.assert_allclose(found[0], np.cos(x).sum(1), rtol=1e-12)
    np.testing.assert_allclose(found[1], np.cos(x).sum(), rtol=1e-12)


def test_a_seed_that_changes_draws_others_and_the_same_draws_the_same():
    def body(x, seed):
        y = net(x)
        return [
            tfjac.trace(y, x, True, probes=1, seed=seed),
            tfjac.frobenius_norm(y, x, True, probes=1, seed=seed),
            tfjac.spectral_norm(y, x, True, iterations=1, seed=seed),
        ]

    x, call = array(5, 4), in_graph(body)
    a, b, again = (call(x, tf.constant(s)) for s in ([1, 2], [3, 4], [1, 2]))
    for first, second, third in zip(a, b, again):
        assert np.any(np.abs(first - second) > 1e-9)
        np.testing.assert_array_equal(first, third)
    ints = [
        run(lambda x, s=s: tfjac.trace(net(x), x, True, probes=1, seed=s), x) for s in (0, 0, 1)
    ]
    np.testing.assert_array_equal(ints[0], ints[1])
    assert np.any(np.abs(ints[0] - ints[2]) > 1e-9)


@pytest.mark.parametrize("name", ["net", "wider"])
def test_power_iteration_rises_from_below_to_the_norm(name):
    fn, shape = ALL[name]
    x = array(2, *shape, seed=1)
    top = np.linalg.svd(blocks_of(fn, x), compute_uv=False)[:, 0]
    steps = (1, 4, 30)
    found = run(lambda x: [tfjac.spectral_norm(fn(x), x, True, iterations=k) for k in steps], x)
    for each in found:
        assert np.all(each <= top * (1 + 1e-7))
    assert np.all(found[0] <= found[1] * (1 + 1e-12)) and np.all(found[1] <= found[2] + 1e-12)
    np.testing.assert_allclose(found[2], top, rtol=1e-4)


def test_power_iteration_of_a_zero_jacobian_is_zero_with_a_finite_gradient():
    def body(x, w):
        y = tf.tanh(x @ w)
        norms = [tfjac.spectral_norm(y, x, True, iterations=3), tfjac.frobenius_norm(y, x, True)]
        norms += [tfjac.frobenius_norm(y, x, True, probes=2)]
        return [*norms, *[tf.gradients(norm, w)[0] for norm in norms]]

    found = run(body, array(2, 3), tf.zeros([3, 3], tf.float64))
    for each in found[:3]:
        np.testing.assert_array_equal(each, 0)
    for each in found[3:]:
        assert np.all(np.isfinite(each))


def numbers(x, w):
    y, z = tf.tanh(x @ w) @ tf.constant(U) + x, tf.sin(x) @ w
    parts = [tfjac.trace(y, x, True), tfjac.frobenius_norm(z, x, True)]
    parts += [tfjac.spectral_norm(y, x, True), tfjac.condition_number(z, x, True)]
    parts += [tfjac.trace(z, x, True, probes=2), tfjac.frobenius_norm(y, x, True, probes=2)]
    return tf.stack([tf.reduce_sum(part) for part in parts])


@pytest.mark.parametrize("how", ["gradients", "tape", "xla", "session"])
def test_gradients_by_weights_are_those_of_finite_differences(how):
    x, w = array(1, 3, seed=5), np.eye(3) + 0.5 * array(3, 3, seed=2)

    def body(x, w):
        if how == "tape":
            with tf.GradientTape() as tape:
                tape.watch(w)
                value = tf.reduce_sum(numbers(x, w))
            return tape.gradient(value, w)
        return tf.gradients(tf.reduce_sum(numbers(x, w)), w)[0]

    if how == "session":
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            fed = [tf.compat.v1.placeholder(tf.float64, a.shape) for a in (x, w)]
            found = session.run(body(*fed), dict(zip(fed, (x, w))))
    else:
        found = run(body, x, w, jit_compile=how == "xla")
    value = in_graph(numbers)
    wanted = differences(lambda w: value(x, w).numpy(), w)
    np.testing.assert_allclose(found, wanted.sum(0), rtol=1e-5, atol=1e-5)


def test_the_gradient_of_power_iteration_is_exact_where_it_has_converged():
    x, w = array(1, 3, seed=5), np.eye(3) + 0.5 * array(3, 3, seed=2)

    def body(x, w):
        y = tf.sin(x) @ w
        norms = [tfjac.spectral_norm(y, x, iterations=k) for k in (None, 30)]
        return [tf.gradients(norm, w)[0] for norm in norms]

    np.testing.assert_allclose(*run(body, x, w), rtol=1e-5, atol=1e-6)


def test_second_derivatives_are_those_of_finite_differences():
    x, w = array(1, 3, seed=5), np.eye(3) + 0.5 * array(3, 3, seed=2)

    def value(x, w):
        y, z = tf.tanh(x @ w) @ tf.constant(U) + x, tf.sin(x) @ w
        parts = [tfjac.trace(y, x, True) ** 2, tfjac.frobenius_norm(z, x, True)]
        parts += [tfjac.trace(z, x, True, probes=2), tfjac.frobenius_norm(y, x, True, probes=2)]
        return tf.reduce_sum(tf.stack(parts))

    first = in_graph(lambda x, w: tf.gradients(value(x, w), w)[0])

    @in_graph
    def second(x, w):
        gradient = tf.gradients(value(x, w), w)[0]
        return tf.gradients(tf.reduce_sum(gradient**2), w)[0] / 2

    h = differences(lambda w: first(x, w).numpy(), w).reshape(9, 9)
    wanted = h @ first(x, w).numpy().reshape(-1)
    np.testing.assert_allclose(second(x, w).numpy().reshape(-1), wanted, rtol=1e-5)


def test_asking_twice_adds_no_op_and_gives_the_same_tensors():
    def body(x):
        y = net(x)

        def ask():
            found = [quantity(y, x, batch) for quantity in QUANTITIES for batch in (True, False)]
            found += [tfjac.trace(y, x, probes=2, seed=3), tfjac.frobenius_norm(y, x, probes=2)]
            return [*found, tfjac.spectral_norm(y, x, True, iterations=2)]

        first = ask()
        ops = len(x.graph.get_operations())
        assert all(a is b for a, b in zip(first, ask()))
        assert len(x.graph.get_operations()) == ops
        return first[0]

    run(body, array(2, 4))


def test_nothing_keeps_a_dead_graph_alive():
    def build():
        with tf.Graph().as_default() as graph:
            x = tf.compat.v1.placeholder(tf.float64, [2, 4])
            y = tf.tanh(x @ tf.constant(array(4, 4, seed=4)))
            for quantity in QUANTITIES:
                quantity(y, x, True)
            tfjac.trace(y, x, True, probes=2)
            tfjac.spectral_norm(y, x, True, iterations=2)
        return weakref.ref(graph)

    graph = build()
    gc.collect()
    assert graph() is None


@pytest.mark.parametrize("batch", [False, True])
def test_the_norm_of_no_matrix_is_zero(batch):
    found = run(lambda x: tfjac.spectral_norm(tf.exp(x), x, batch), tf.zeros([0, 3]))
    np.testing.assert_array_equal(found, np.zeros([0] * batch))


@pytest.mark.parametrize("probes", [None, 2])
@pytest.mark.parametrize(
    "fn", [lambda x, c: tf.concat([2 * x, x], 0), lambda x, c: 2 * x[1:], lambda x, c: x * c]
)
def test_a_trace_of_unknown_sizes_that_is_not_of_a_square_is_refused(fn, probes):
    spec = tf.TensorSpec([None])
    body = lambda x, c: tfjac.trace(fn(x, c), x, probes=probes)  # noqa: E731
    with pytest.raises(tf.errors.InvalidArgumentError, match="square"):
        run(body, tf.ones([1]), tf.ones([3]), input_signature=[spec, spec])


@pytest.mark.parametrize("quantity", [tfjac.trace, tfjac.frobenius_norm, tfjac.slogdet])
def test_examples_that_are_repeated_on_the_way_are_refused(quantity):
    spec = tf.TensorSpec([None, 2])
    body = lambda x, c: quantity(tf.reverse(tf.tanh(x * c), [1]), x, True)  # noqa: E731
    body = in_graph(body, input_signature=[spec, spec])
    with pytest.raises(tf.errors.InvalidArgumentError, match="as many examples"):
        body(tf.ones([1, 2]), tf.ones([3, 2]))
