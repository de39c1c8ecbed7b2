"""Tapes through results of tfjac, composite tensors among them, where a net has a body on the way.

The oracle is the same net written inline, whose ops a tape sees one by one, and beside it central
differences of the loss along a direction.
"""

import numpy as np
import pytest
import tensorflow as tf
from scenarios import array

import tfjac
import tfjac.keras

WEIGHTS = [0.5 * array(2, 4, seed=1), 0.5 * array(4, 4, seed=2), 0.5 * array(4, 2, seed=3)]
X = array(3, 2, seed=4)
V = array(3, 2, seed=5)


class Net(tf.Module):
    """Two layers of the same weights between a layer before and one after."""

    def __init__(self, how="inline"):
        self.weights = [tf.Variable(w) for w in WEIGHTS]
        self._how = how

    @tf.function(autograph=False)
    def called(self, x):
        return self(x, how="inline")

    @tf.function(autograph=False)
    def layer(self, h):
        return tf.tanh(h @ self.weights[1])

    @tf.function(autograph=False)
    def called_within(self, x):
        return self(x, how="called layers")

    def _middle(self, h, how):
        if how == "called layers":
            return self.layer(self.layer(h))
        if how == "loop":
            step = lambda i, h: (i + 1, tf.tanh(h @ self.weights[1]))  # noqa: E731
            return tf.while_loop(lambda i, h: i < 2, step, (0, h), maximum_iterations=2)[1]

        def twice():
            return tf.tanh(tf.tanh(h @ self.weights[1]) @ self.weights[1])

        if how == "branch":
            return tf.cond(tf.reduce_sum(h) > -1e3, twice, lambda: h)
        return twice()

    def __call__(self, x, how=None):
        how = how or self._how
        if how == "called":
            return self.called(x)
        if how == "called within a called one":
            return self.called_within(x)
        return tf.sin(self._middle(tf.tanh(x @ self.weights[0]), how) @ self.weights[2])


def reloaded(path):
    net = Net()
    net.called(tf.constant(X))
    tf.saved_model.save(net, path)
    loaded = tf.saved_model.load(path)
    weights = [
        next(v for v in loaded.weights if v.shape == w.shape and np.array_equal(v, w))
        for w in net.weights
    ]
    return loaded.called, weights


BODIES = ("called", "called layers", "called within a called one", "loop", "branch", "reloaded")


def net_of(how, tmp_path):
    if how == "reloaded":
        return reloaded(str(tmp_path))
    net = Net(how)
    return net, net.weights


def weighed(t):
    """A number in which each entry of `t` counts differently."""
    numbers = tf.cast(tf.reshape(tf.range(1, tf.size(t) + 1), tf.shape(t)), t.dtype)
    return tf.reduce_sum(tf.sin(t) * numbers)


def each(y):
    return tf.reduce_sum(y, 1)


QUANTITIES = {
    "structured to_dense": lambda y, x, w: weighed(
        tfjac.jacobian(y, x, structured=True).to_dense()
    ),
    "structured matvec": lambda y, x, w: weighed(
        tfjac.jacobian(y, x, structured=True).matvec(tf.constant(V))
    ),
    "structured blocks by all": lambda y, x, w: tf.add_n(
        [weighed(j.blocks) for j in tfjac.jacobian(y, [x, *w], structured=True)]
    ),
    "diag_jacobian beside y": lambda y, x, w: weighed(y) * weighed(tfjac.diag_jacobian(y, x)),
    "diag_jacobian twice": lambda y, x, w: weighed(
        tfjac.diag_jacobian(tfjac.diag_jacobian(y, x), x) + y**2
    ),
    "laplacian": lambda y, x, w: weighed(tfjac.laplacian(each(y), x, batch=True)),
    "laplacian, estimated": lambda y, x, w: weighed(
        tfjac.laplacian(each(y), x, batch=True, probes=2, independence="assume")
    ),
    "hessian": lambda y, x, w: weighed(tfjac.hessian(tf.reduce_sum(y), x)),
    "batch_hessian": lambda y, x, w: weighed(tfjac.batch_hessian(each(y), x)),
    "hvp, eager vector": lambda y, x, w: weighed(tfjac.hvp(tf.reduce_sum(y), x, EAGER)),
    "hvp along a weight": lambda y, x, w: weighed(tfjac.hvp(tf.reduce_sum(y), w[0], w[0])),
    "operator": lambda y, x, w: weighed(tfjac.jacobian_operator(y, x).matvec(tf.reshape(V, [-1]))),
    "per_example_gradients": lambda y, x, w: tf.add_n(
        [weighed(g) for g in tfjac.per_example_gradients(each(y), w)]
    ),
    "slogdet": lambda y, x, w: weighed(tfjac.slogdet(y, x, batch=True).log_abs_determinant),
}
EAGER = tf.constant(V)


def in_graph(fn):
    return tf.function(fn, autograph=False)


def loss_of(net, weights, kind, x):
    return QUANTITIES[kind](net(x), x, weights)


def by_tape(net, weights, kind):
    @in_graph
    def run(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = loss_of(net, weights, kind, x)
        return tape.gradient(loss, [*weights, x], unconnected_gradients="zero")

    return run(tf.constant(X))


@pytest.mark.parametrize("kind", QUANTITIES)
def test_the_net_written_inline_has_the_gradient_of_differences(kind):
    net = Net()
    found, h = by_tape(net, net.weights, kind), 1e-5
    loss = in_graph(lambda x: loss_of(net, net.weights, kind, x))
    x, along = tf.constant(X), [array(*w.shape, seed=7 + i) for i, w in enumerate(WEIGHTS)]
    values = []
    for step in (h, -h):
        for variable, w, d in zip(net.weights, WEIGHTS, along):
            variable.assign(w + step * d)
        values.append(loss(x))
    slope = (values[0] - values[1]) / (2 * h)
    np.testing.assert_allclose(slope, sum(np.sum(g * d) for g, d in zip(found, along)), rtol=1e-6)


def check_same(found, wanted):
    assert len(found) == len(wanted)
    for g, expected in zip(found, wanted):
        np.testing.assert_allclose(g, expected, rtol=1e-9, atol=1e-9)


# All through a call and a branch, which a tape takes in different ways; through others these.
THROUGH_ALL = ("diag_jacobian twice", "hessian")
PAIRS = [
    (how, kind)
    for how in BODIES
    for kind in QUANTITIES
    if how in ("called", "branch") or kind in THROUGH_ALL
]


@pytest.mark.filterwarnings("ignore::tfjac.errors.LoopFallbackWarning")  # maps of branches
@pytest.mark.parametrize(("how", "kind"), PAIRS)
def test_a_tape_sees_the_same_through_a_body_as_written_inline(how, kind, tmp_path):
    inline = Net()
    check_same(by_tape(*net_of(how, tmp_path), kind), by_tape(inline, inline.weights, kind))


def several_times(net, weights, x):
    """A tape asked twice, for a loss that holds the other one and y itself too."""
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = net(x)
        loss = weighed(tfjac.diag_jacobian(y, x))
        more = weighed(y) * loss
    sources = [*weights, x]
    return tape.gradient(loss, sources) + tape.gradient(more, sources)


def within_another(net, weights, x):
    """The gradient of a gradient, and that of the outer tape alone."""
    sources = [*weights, x]
    with tf.GradientTape(persistent=True) as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            loss = weighed(tfjac.jacobian(net(x), x, structured=True).to_dense())
        gradients = inner.gradient(loss, sources)
        again = tf.add_n([weighed(g) for g in gradients])
    return gradients + outer.gradient(again, sources) + outer.gradient(loss, sources)


def watching_two_weights_only(net, weights, x):
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(weights[:2])
        loss = weighed(tfjac.diag_jacobian(net(x), x))
    found = tape.gradient(loss, weights)
    assert found[2] is None
    return found[:2]


@pytest.mark.parametrize("ask", [several_times, within_another, watching_two_weights_only])
@pytest.mark.parametrize("how", BODIES)
def test_tapes_of_each_kind_see_the_same_through_a_body(how, ask, tmp_path):
    net, weights = net_of(how, tmp_path)
    inline = Net()
    found = in_graph(lambda x: ask(net, weights, x))(tf.constant(X))
    check_same(found, in_graph(lambda x: ask(inline, inline.weights, x))(tf.constant(X)))


@pytest.mark.parametrize("strategy", ["vectorized", "cross_country"])
def test_a_jacobian_of_a_jacobian_has_no_input_that_the_first_made_within(strategy):
    """What the first one multiplied was never seen by the tape, and counts by its inputs."""

    def gradient(net, weights):
        @in_graph
        def run(x):
            with tf.GradientTape() as tape:
                first = tfjac.batch_jacobian(net(x), x, strategy)
                second = tfjac.batch_jacobian(first, x, "vectorized", independence="assume")
                loss = weighed(second)
            return tape.gradient(loss, weights)

        return run(tf.constant(X))

    net, inline = Net("called layers"), Net()
    check_same(gradient(net, net.weights), gradient(inline, inline.weights))


def test_forward_mode_of_tensorflow_sees_through_a_call():
    def along(net):
        @in_graph
        def run(x):
            with tf.autodiff.ForwardAccumulator(x, EAGER) as forward:
                y = net(x)
                loss = weighed(tfjac.jacobian(y, x, structured=True).to_dense())
                more = tf.add_n([weighed(j) for j in tfjac.jacobian(y, [x, *net.weights])])
            return forward.jvp(loss), forward.jvp(more)

        return run(tf.constant(X))

    check_same(along(Net("called")), along(Net()))


def test_a_keras_penalty_trains_a_net_that_calls_a_function_as_one_written_inline():
    net, inline = Net("called"), Net()

    def gradients(net):
        layer = tfjac.keras.JacobianPenalty(
            tf.keras.layers.Lambda(net, dtype="float64"), "contractive", dtype="float64"
        )

        @in_graph
        def run(x):
            with tf.GradientTape() as tape:
                y = layer(x, training=True)
                loss = weighed(y) + tf.add_n(layer.losses)
            return tape.gradient(loss, net.weights)

        return run(tf.constant(X))

    check_same(gradients(net), gradients(inline))
