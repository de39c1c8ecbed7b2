"""Hessians: of scalars and of each example, against closed forms and finite differences."""

import numpy as np
import pytest
import tensorflow as tf
from scenarios import array

import tfjac
from tfjac.errors import ExamplesMixError, InvalidValueError

W, V = array(4, 5, seed=5), array(5, 3, seed=6)


def in_graph(body):
    return tf.function(body, autograph=False)


def energy(x):
    return tf.reduce_sum(tf.tanh(tf.sin(x @ tf.constant(W)) @ tf.constant(V)) ** 2, 1)


def differences(gradient, x, step=1e-4):
    """Returns the derivative of a function of an array, by fourth-order central differences."""
    rows = []
    for k in range(x.size):
        unit = np.zeros(x.size)
        unit[k] = step
        unit = unit.reshape(x.shape)
        near = gradient(x + unit) - gradient(x - unit)
        far = gradient(x + 2 * unit) - gradient(x - 2 * unit)
        rows.append((8 * near - far) / (12 * step))
    return np.moveaxis(np.stack(rows), 0, -1).reshape(x.shape + x.shape)


@in_graph
def gradient(x):
    return tf.gradients(tf.reduce_sum(energy(x)), x)[0]


@pytest.mark.parametrize("strategy", ["auto", "unstack", "forward", "cross_country"])
def test_the_hessian_is_that_of_finite_differences(strategy):
    x = array(2, 4)
    found = in_graph(lambda x: tfjac.hessian(tf.reduce_sum(energy(x)), x, strategy))(x).numpy()
    wanted = differences(lambda x: gradient(tf.constant(x)).numpy(), x)
    np.testing.assert_allclose(found, wanted, atol=1e-8)
    matrix = found.reshape(8, 8)
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-13)


@pytest.mark.parametrize("strategy", ["auto", "unstack", "forward", "cross_country"])
@pytest.mark.parametrize("examples", [3, None])
def test_hessians_of_examples_are_the_blocks_of_the_whole(strategy, examples):
    if strategy == "unstack" and examples is None:
        pytest.skip("goes row by row of one example, whose number is known")
    x = array(3, 4)
    spec = tf.TensorSpec([examples, 4], tf.float64)
    each = tf.function(
        lambda x: tfjac.batch_hessian(energy(x), x, strategy),
        autograph=False,
        input_signature=[spec],
    )
    whole = in_graph(lambda x: tfjac.hessian(tf.reduce_sum(energy(x)), x))(x).numpy()
    found = each(x).numpy()
    assert found.shape == (3, 4, 4)
    for b in range(3):
        np.testing.assert_allclose(found[b], whole[b, :, b], atol=1e-13)


def test_several_sources_give_every_pair():
    a, b = array(2), array(3, seed=1)

    @in_graph
    def run(a, b):
        y = tf.reduce_sum(a**3) + tf.reduce_sum(a) * tf.reduce_sum(b)
        return tfjac.hessian(y, {"a": a, "b": b})

    found = run(a, b)
    np.testing.assert_allclose(found["a"]["a"], np.diag(6 * a), atol=1e-14)
    np.testing.assert_allclose(found["a"]["b"], np.ones((2, 3)), atol=1e-14)
    np.testing.assert_allclose(found["b"]["a"], np.ones((3, 2)), atol=1e-14)
    np.testing.assert_array_equal(found["b"]["b"], np.zeros((3, 3)))


def test_a_source_that_y_does_not_depend_on_has_zeros():
    x = array(3)
    found = in_graph(lambda x: tfjac.hessian(tf.constant(1.0, tf.float64), x))(x)
    np.testing.assert_array_equal(found, np.zeros((3, 3)))


def test_the_hessian_is_differentiable():
    x = array(3)

    @in_graph
    def third(x):
        h = tfjac.hessian(tf.reduce_sum(x**4), x)
        return tf.gradients(tf.reduce_sum(h), x)[0]

    np.testing.assert_allclose(third(x), 24 * x, atol=1e-12)


def test_it_works_in_a_session():
    with tf.Graph().as_default():
        x = tf.compat.v1.placeholder(tf.float64, [2])
        h = tfjac.hessian(tf.reduce_prod(x), x)
        with tf.compat.v1.Session() as session:
            found = session.run(h, {x: [3.0, 5.0]})
    np.testing.assert_allclose(found, [[0, 1], [1, 0]], atol=1e-14)


def test_another_shape_of_y_is_refused():
    with pytest.raises(InvalidValueError, match="`y` must be a scalar"):
        in_graph(lambda x: tfjac.hessian(x**2, x))(array(3))
    with pytest.raises(InvalidValueError, match="one number for each example"):
        in_graph(lambda x: tfjac.batch_hessian(tf.reduce_sum(x), x))(array(3, 2))


def test_examples_that_mix_are_refused():
    with pytest.raises(ExamplesMixError):
        in_graph(lambda x: tfjac.batch_hessian(tf.reduce_sum(x**2, 1) * tf.reduce_sum(x), x))(
            array(3, 2)
        )


@pytest.mark.parametrize("examples", [0, 1, 3])
def test_products_with_the_hessian_are_those_of_it(examples):
    x, v = array(examples, 4), array(examples, 4, seed=1)
    spec = tf.TensorSpec([None, 4], tf.float64)

    def body(x, v):
        y = tf.reduce_sum(energy(x))
        return tfjac.hvp(y, x, v), tfjac.hessian(y, x), tfjac.batch_hessian(energy(x), x)

    product, whole, each = tf.function(body, autograph=False, input_signature=[spec] * 2)(x, v)
    n = x.size
    assert product.shape == x.shape and each.shape == (examples, 4, 4)
    np.testing.assert_allclose(
        product.numpy().ravel(), whole.numpy().reshape(n, n) @ v.ravel(), atol=1e-12
    )
    np.testing.assert_allclose(product, np.einsum("bij,bj->bi", each, v), atol=1e-12)


def test_products_with_the_hessian_by_several_sources_and_variables():
    w = tf.Variable(array(4, 2, seed=3))
    x, vx, vw = array(3, 4), array(3, 4, seed=1), array(4, 2, seed=2)

    def loss(x, w):
        return tf.reduce_sum(tf.tanh(x @ w) ** 3)

    found = in_graph(lambda x: tfjac.hvp(loss(x, w), {"x": x, "w": w}, {"x": vx, "w": vw}))(x)
    direction = in_graph(lambda x, w: tf.gradients(loss(x, w), [x, w]))
    h = 1e-4
    ends = [direction(x + s * h * vx, w + s * h * vw) for s in (-2, -1, 1, 2)]
    for k, name in enumerate("xw"):
        a, b, c, d = (end[k].numpy() for end in ends)
        np.testing.assert_allclose(found[name], (8 * (c - b) - (d - a)) / (12 * h), atol=1e-8)


def test_a_linear_or_constant_y_has_zero_products():
    def body(x):
        found = [tfjac.hvp(y, x, tf.ones_like(x)) for y in (tf.reduce_sum(x), 0 * x[0] + 1.0)]
        found += [tfjac.hvp(tf.constant(1.0, tf.float64), x, tf.ones_like(x))]
        return [*found, tfjac.laplacian(tf.reduce_sum(x), x)]

    for found in in_graph(body)(array(3)):
        assert not np.any(found)


@pytest.mark.parametrize("shape", [(3, 4), (1, 4), (0, 4), (2, 2, 2)])
def test_the_laplacian_is_the_trace_of_the_hessian(shape):
    def each(x):
        return energy(tf.reshape(x, [-1, 4]))

    def body(x):
        y = each(x)
        whole = tf.reduce_sum(y)
        return tfjac.laplacian(y, x, True), tfjac.laplacian(whole, x), tfjac.hessian(whole, x)

    x = array(*shape)
    found, total, h = in_graph(body)(x)
    h = h.numpy().reshape(x.size, x.size).diagonal().reshape(shape[0], x.size // max(shape[0], 1))
    np.testing.assert_allclose(found, h.sum(1), atol=1e-12)
    np.testing.assert_allclose(total, h.sum(), atol=1e-12)


def test_the_estimated_laplacian_is_unbiased():
    x = array(2, 4)

    @in_graph
    def many(x):
        y = energy(x)
        return tfjac.laplacian(y, x, True, probes=4000), tfjac.laplacian(y, x, True)

    estimate, exact = many(x)
    np.testing.assert_allclose(estimate, exact, atol=0.15)
    cubes = in_graph(lambda x: tfjac.laplacian(tf.reduce_sum(x**3), x, probes=1))(x)
    np.testing.assert_allclose(cubes, 6 * x.sum(), rtol=1e-12)


def test_a_laplacian_of_another_shape_is_refused():
    with pytest.raises(InvalidValueError, match="`y`"):
        in_graph(lambda x: tfjac.laplacian(x**2, x))(array(3))
    with pytest.raises(InvalidValueError, match="`y`"):
        in_graph(lambda x: tfjac.laplacian(tf.reduce_sum(x**2), x, True))(array(3, 2))
    with pytest.raises(ExamplesMixError):
        in_graph(lambda x: tfjac.laplacian(tf.reduce_sum(x**2, 1) * tf.reduce_sum(x), x, True))(
            array(3, 2)
        )
    for call in (tfjac.hvp, tfjac.ntk):
        with pytest.raises((InvalidValueError, TypeError), match="scalar|shape|cotangents"):
            in_graph(lambda x, c=call: c(x**2, x, tf.ones([5], x.dtype)))(array(3))


def test_gauss_newton_and_tangent_kernel_products_are_those_of_the_matrices():
    w, b = tf.Variable(array(4, 3, seed=3)), tf.Variable(array(3, seed=4))
    x, u = array(2, 4), array(2, 3, seed=5)
    vectors = [array(4, 3, seed=6), array(3, seed=7)]

    def body(x):
        y = tf.tanh(x @ w + b) @ tf.constant(array(3, 3, seed=8))
        loss = tf.reduce_sum(tf.nn.softmax_cross_entropy_with_logits(tf.nn.softmax(u), y))
        jacobians = [tf.reshape(j, [6, -1]) for j in tfjac.jacobian(y, [w, b])]
        return (
            tfjac.ggn(loss, y, [w, b], vectors),
            tfjac.ntk(y, [w, b], u),
            tf.concat(jacobians, 1),
            tf.reshape(tfjac.hessian(loss, y), [6, 6]),
            tfjac.ggn(tf.reduce_sum(y), y, [w, b], vectors),
        )

    ggn, ntk, j, h, zero = in_graph(body)(x)
    v = np.concatenate([vector.ravel() for vector in vectors])
    found = np.concatenate([part.numpy().ravel() for part in ggn])
    np.testing.assert_allclose(found, j.numpy().T @ h.numpy() @ j.numpy() @ v, atol=1e-12)
    np.testing.assert_allclose(ntk.numpy().ravel(), j.numpy() @ j.numpy().T @ u.ravel(), atol=1e-12)
    assert not any(np.any(part) for part in zero)


@pytest.mark.parametrize("how", ["tape", "xla", "session"])
def test_products_of_second_order_are_differentiable(how):
    v = array(2, 4, seed=1)

    def value(x):
        y = tf.tanh(x) ** 2
        loss = tf.reduce_sum(y**3)
        found = [tfjac.hvp(tf.reduce_sum(energy(x)), x, v), tfjac.ggn(loss, y, x, v)]
        found += [tfjac.ntk(y, x, v), tfjac.laplacian(energy(x), x, True)]
        return tf.add_n([tf.reduce_sum(part**2) for part in found])

    def body(x):
        if how == "tape":
            with tf.GradientTape() as tape:
                tape.watch(x)
                found = value(x)
            return tape.gradient(found, x)
        return tf.gradients(value(x), x)[0]

    x = array(2, 4)
    if how == "session":
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            fed = tf.compat.v1.placeholder(tf.float64, x.shape)
            found = session.run(body(fed), {fed: x})
    else:
        found = tf.function(body, autograph=False, jit_compile=how == "xla")(tf.constant(x))
    call, rows = in_graph(value), []
    for k in range(8):
        unit = 1e-4 * np.eye(8)[k].reshape(2, 4)
        ends = [call(x + s * unit).numpy() for s in (-2, -1, 1, 2)]
        rows.append((8 * (ends[2] - ends[1]) - (ends[3] - ends[0])) / 12e-4)
    np.testing.assert_allclose(found, np.reshape(rows, (2, 4)), rtol=1e-6, atol=1e-7)


def test_asking_twice_for_products_adds_no_op():
    def body(x):
        y, v, each = tf.tanh(x) ** 2, tf.ones_like(x), energy(x)
        loss = tf.reduce_sum(y**3)

        def ask():
            found = [tfjac.hvp(loss, x, v), tfjac.ggn(loss, y, x, v), tfjac.ntk(y, x, v)]
            found += [tfjac.laplacian(loss, x), tfjac.laplacian(loss, x, probes=2)]
            return [*found, tfjac.hessian(loss, x), tfjac.batch_hessian(each, x)]

        first = ask()
        ops = len(x.graph.get_operations())
        second = ask()
        assert len(x.graph.get_operations()) == ops
        assert all(a is b for a, b in zip(first, second))
        return first[0]

    in_graph(body)(array(2, 4))


def in_a_loop(x, w):
    return tf.while_loop(
        lambda i, h: i < 2,
        lambda i, h: (i + 1, h + 0.3 * tf.tanh(h @ w)),
        (0, x),
        maximum_iterations=2,
    )[1]


def in_a_branch(x, w):
    return tf.cond(tf.reduce_sum(w) < 1e9, lambda: tf.tanh(x @ w) + x, lambda: x)


@tf.function(autograph=False)
def called(x, w):
    return tf.sin(x @ w) + x


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (body, kind)
        for body in (in_a_loop, in_a_branch, called)
        for kind in ("hvp", "ggn", "ntk", "whole")
    ],
)
def test_a_tape_sees_through_loops_branches_and_calls(body, kind):
    x, w, v = array(2, 3), np.eye(3) + 0.3 * array(3, 3, seed=2), array(2, 3, seed=9)

    def value(x, w):
        y = body(x, w)
        if kind == "whole":
            sign, log = tfjac.slogdet(y, x)
            found = sign * tf.exp(log) + tfjac.trace(y, x) ** 2 + tfjac.frobenius_norm(y, x)
        elif kind == "hvp":
            found = tfjac.hvp(tf.reduce_sum(y**2), x, v)
        elif kind == "ggn":
            found = tfjac.ggn(tf.reduce_sum(y**3), y, x, v)
        else:
            found = tfjac.ntk(y, x, v)
        return tf.reduce_sum(found**2)

    @in_graph
    def by_tape(x, w):
        with tf.GradientTape() as tape:
            tape.watch(w)
            found = value(x, w)
        return tape.gradient(found, w)

    wanted = in_graph(lambda x, w: tf.gradients(value(x, w), w)[0])(x, w)
    np.testing.assert_allclose(by_tape(tf.constant(x), tf.constant(w)), wanted, rtol=1e-9)
    h, move = 1e-5, array(3, 3, seed=4)
    call = in_graph(value)
    slope = (call(x, w + h * move) - call(x, w - h * move)) / (2 * h)
    np.testing.assert_allclose(slope, np.sum(wanted * move), rtol=1e-5)


def test_second_derivatives_of_products_are_right_at_zeros():
    @in_graph
    def run(x):
        y = tf.reduce_prod(x, 1)
        return tfjac.batch_hessian(y, x), tfjac.hvp(tf.reduce_sum(y), x, tf.ones_like(x))

    found, product = run(tf.constant([[0.0, 2.0, 3.0], [0.0, 0.0, 5.0]]))
    np.testing.assert_allclose(found[0], [[0, 3, 2], [3, 0, 0], [2, 0, 0]], atol=1e-12)
    np.testing.assert_allclose(found[1], [[0, 5, 0], [5, 0, 0], [0, 0, 0]], atol=1e-12)
    np.testing.assert_allclose(product, np.sum(found, -1), atol=1e-12)


def test_the_laplacian_of_a_product_of_a_large_and_a_small_factor_is_right():
    found = in_graph(lambda x: tfjac.laplacian(tf.reduce_sum((1e5 * x**2) * tf.sin(1e-4 * x)), x))
    np.testing.assert_allclose(found(tf.ones([3])), 180, rtol=1e-5)


@pytest.mark.parametrize("inner", [tf.float16, tf.float32])
@pytest.mark.parametrize("outer", [tf.float16, tf.float64])
def test_the_laplacian_goes_through_other_dtypes(inner, outer):
    def energy(x):
        a = tf.tanh(x)
        b = tf.cast(a, outer)
        return tf.reduce_sum(tf.cast(tf.sin(a) * a, outer) + tf.exp(b) * b, 1)

    def body(x):
        wide = tf.cast(x, tf.float64)
        hessians = tfjac.batch_hessian(tf.cast(energy(wide), tf.float64), wide)
        return tfjac.laplacian(energy(x), x, True), tf.linalg.trace(hessians)

    found, wanted = in_graph(body)(tf.cast([[0.1, -0.4], [0.5, 0.2]], inner))
    assert found.dtype == outer
    np.testing.assert_allclose(found, wanted, rtol=1e-2)


def test_the_laplacian_of_no_examples_has_none():
    def body(x):
        return tfjac.laplacian(tf.reduce_sum(tf.nn.softmax(x @ tf.eye(4)) ** 2, 1), x, True)

    assert in_graph(body)(tf.zeros([0, 4])).shape == [0]


def test_what_lies_behind_a_stopped_gradient_is_not_on_the_way():
    @tf.function(autograph=False)
    def body(x):
        y = tf.exp(x) * tf.stop_gradient(tf.cumsum(x))
        (plan,) = tfjac.plan(y, x)
        assert [op.type for op in plan.problem.ops] == ["Exp", "Mul"]
        return tfjac.jacobian(y, x)

    np.testing.assert_allclose(body(tf.constant([0.0, 1.0])), np.diag([0, np.e]), rtol=1e-6)
