"""Examples are shown to stay apart, or it is said where they mix, on every model."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import tensorflow as tf
from models import MODELS, numerical_batch_mixing

import tfjac

pytestmark = pytest.mark.filterwarnings("ignore::tfjac.errors.LoopFallbackWarning")

EXAMPLES = 3
BY_NAME = {model.name: model for model in MODELS}
APART = [m.name for m in MODELS if m.apart]
MIXED = [m.name for m in MODELS if m.apart is False]


def dependence(fn, x, batch=EXAMPLES):
    """Returns what `explain_dependence` says, and whether reading left the graph alone."""
    found = []

    def traced(x):
        y = fn(x)
        before = len(y.graph.get_operations())
        found.append(tfjac.explain_dependence(y, x))
        assert len(y.graph.get_operations()) == before
        return y

    spec = tf.TensorSpec([batch, *x.shape[1:]], x.dtype)
    tf.function(traced, autograph=False).get_concrete_function(spec)
    return found[-1]


@functools.cache
def made(name):
    return BY_NAME[name].make()


@functools.cache
def whole_jacobian(name):
    """Returns dy/dx by TensorFlow's tape, row by row."""
    x = tf.constant(BY_NAME[name].inputs(EXAMPLES))
    fn = made(name)

    @tf.function(autograph=False)
    def jacobian(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = fn(x)
        return tape.jacobian(
            y, x, experimental_use_pfor=False, unconnected_gradients=tf.UnconnectedGradients.ZERO
        )

    return jacobian(x).numpy()


def skip_if_drawn(name):
    """Skips a model that draws at each evaluation: no two evaluations can be compared."""
    x = tf.constant(BY_NAME[name].inputs(EXAMPLES))
    evaluate = tf.function(made(name), autograph=False)
    first, *others = (evaluate(x).numpy() for _ in range(6))
    if not all(np.array_equal(first, other, equal_nan=True) for other in others):
        pytest.skip("draws anew at each evaluation")


def blocks_of(whole, y_rank):
    return np.stack([np.take(whole[b], b, axis=y_rank - 1) for b in range(len(whole))])


# Models whose examples stay apart without this being seen, with a known batch or an unknown one:
# they ask for independence="assume". A row that is seen after all fails, so that it is taken out.
NOT_SEEN = {
    "flow.vectorized_map_of_product": {None},
    "keras.RandomElasticTransform": {EXAMPLES, None},
    "op.random_gamma": {EXAMPLES, None},
    "op.repeat_features": {EXAMPLES, None},
    "stack.force_of_recurrence": {EXAMPLES, None},
    "stack.own_jacobian": {None},
}


@pytest.mark.parametrize("batch", [EXAMPLES, None])
@pytest.mark.parametrize("name", APART)
def test_examples_that_stay_apart_are_seen_to(name, batch):
    model = BY_NAME[name]
    found = dependence(made(name), model.inputs(EXAMPLES), batch)
    assert found.independent == (batch not in NOT_SEEN.get(name, ())), found.reason


@pytest.mark.parametrize("batch", [EXAMPLES, None])
@pytest.mark.parametrize("name", MIXED)
def test_examples_that_mix_are_refused_by_name(name, batch):
    model = BY_NAME[name]
    found = dependence(made(name), model.inputs(EXAMPLES), batch)
    assert not found.independent
    if model.why and batch:  # with a batch of unknown size an op before it may have to be named
        assert f"of type {model.why} " in found.reason
    with pytest.raises(tfjac.errors.ExamplesMixError) as error:
        tfjac.prepare(made(name), batch=True)(model.inputs(EXAMPLES))
    assert "do not depend" in str(error.value) or "could not prove" in str(error.value)
    assert "tfjac.jacobian" in str(error.value)


@pytest.mark.parametrize("name", [m.name for m in MODELS if m.apart is None])
def test_where_either_answer_will_do_none_is_wrong(name):
    model = BY_NAME[name]
    found = dependence(made(name), model.inputs(EXAMPLES))
    if found.independent and model.oracle:
        assert numerical_batch_mixing(made(name), model.inputs(EXAMPLES)) < 1e-4


@pytest.mark.parametrize("name", [m.name for m in MODELS if m.apart is not None and m.oracle])
def test_the_table_is_right_about_mixing(name):
    model = BY_NAME[name]
    mixing = numerical_batch_mixing(made(name), model.inputs(EXAMPLES))
    assert (mixing < 1e-4) == model.apart


@pytest.mark.parametrize("name", [m.name for m in MODELS if m.apart and m.oracle])
def test_the_jacobian_of_each_example_is_right(name):
    skip_if_drawn(name)
    whole = whole_jacobian(name)
    x = BY_NAME[name].inputs(EXAMPLES)
    proof = "assume" if EXAMPLES in NOT_SEEN.get(name, ()) else "prove"
    found = tfjac.prepare(made(name), batch=True, independence=proof)(x).numpy()
    expected = blocks_of(whole, whole.ndim - x.ndim)
    scale = max(1.0, np.abs(expected).max(initial=0.0))
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5 * scale)
    if name in VALUES_MEET:
        return
    # An example that is not a number leaves the others as they are.
    spoilt = x.copy()
    spoilt[0] = np.nan
    found = tfjac.prepare(made(name), batch=True, independence=proof)(spoilt).numpy()
    np.testing.assert_allclose(found[1:], expected[1:], rtol=0, atol=2e-5 * scale)


# Models in which the values of examples meet where no derivative passes, or whose ops refuse NaN.
VALUES_MEET = {
    "flow.cond",
    "flow.loop_until_batch_large",
    "op.checked",
    "op.eigenvalues",
    "op.gradient_passed_through",
    "op.inverse",
    "op.kalman_gain",
    "op.mask_by_batch",
    "op.matrix_exponential",
    "op.ranks_in_batch",
    "op.solve",
    "op.stopped_keys",
    "stack.fixed_point",
}


def draws_in(graph):
    """Returns the ops of a graph that draw anew at each evaluation."""
    ops = graph.get_operations()
    return [op for op in ops if op.op_def.is_stateful and "Random" in op.type]


@pytest.mark.parametrize("name", [m.name for m in MODELS if m.apart and m.oracle])
def test_the_whole_jacobian_costs_that_of_each_example_and_zeros(name):
    fn, x = made(name), BY_NAME[name].inputs(EXAMPLES)
    plans = []

    def traced(x):
        y = fn(x)
        draws = draws_in(y.graph)
        plans[:] = tfjac.plan(y, x)
        jacobian = tfjac.jacobian(y, x)
        assert draws_in(y.graph) == draws  # the function is evaluated once
        return jacobian

    function = tf.function(traced, autograph=False)
    function.get_concrete_function(tf.TensorSpec(x.shape, x.dtype))
    if EXAMPLES not in NOT_SEEN.get(name, ()):
        assert all(p.problem.apart >= 1 or None in p.problem.y.shape[:1] for p in plans)
    skip_if_drawn(name)
    whole = whole_jacobian(name)
    scale = max(1.0, np.abs(whole).max(initial=0.0))
    np.testing.assert_allclose(function(tf.constant(x)), whole, rtol=0, atol=2e-5 * scale)


@pytest.mark.parametrize("name", [m.name for m in MODELS if m.oracle and m.apart is not None])
def test_the_pattern_covers_the_nonzeros(name):
    if name == "keras.AugMix":
        pytest.skip("draws in Python, so that each trace is another function")
    fn, x, patterns = made(name), BY_NAME[name].inputs(EXAMPLES), []

    def traced(x):
        patterns.append(tfjac.jacobian_sparsity(fn(x), x))
        return x

    try:
        tf.function(traced, autograph=False).get_concrete_function(tf.TensorSpec(x.shape, x.dtype))
    except tfjac.errors.InvalidValueError as error:
        assert "tensor of known sizes" in str(error)
        return
    whole = whole_jacobian(name)
    pattern = patterns[-1].to_dense()
    assert not np.any((whole.reshape(pattern.shape) != 0) & ~pattern)


def test_the_table_is_as_large_as_it_should_be():
    assert len(APART) >= 60 and len(MIXED) >= 15
    assert len(BY_NAME) == len(MODELS)


def test_what_is_assumed_goes_ahead():
    def mixes(x):
        return x - tf.reduce_mean(x, axis=0)

    x = np.ones((3, 2))
    found = tfjac.prepare(mixes, batch=True, independence="assume")(x)
    assert found.shape == (3, 2, 2)
    with pytest.raises(tfjac.errors.InvalidValueError, match="`independence` must be"):
        tfjac.prepare(mixes, batch=True, independence="hope")


def test_a_rule_of_the_users_own_makes_an_op_understood(monkeypatch):
    from tfjac import rules

    table = dict(rules._TABLE)
    monkeypatch.setattr(rules, "_TABLE", table)
    x = np.ones((3, 2))
    rule = table.pop("Erfc")
    assert "Erfc has no rule" in dependence(tf.math.erfc, x).reason
    assert not dependence(tf.math.erfc, x).understood
    tfjac.rules.register_rule("Erfc", rule)
    assert dependence(tf.math.erfc, x).independent
    with pytest.raises(tfjac.errors.InvalidValueError, match="one without a rule"):
        tfjac.rules.register_rule("Erfc", rule)


def test_a_size_that_may_be_broadcast_is_not_taken_for_apart():
    """x of one example broadcast to three: the whole Jacobian has a row for each of the three."""
    offsets = tf.constant([[1.0], [2.0], [3.0]])

    @tf.function(input_signature=[tf.TensorSpec([None, 1])])
    def whole(x):
        return tfjac.jacobian(x * offsets, x)

    np.testing.assert_array_equal(whole(tf.ones([1, 1])).numpy().reshape(3), [1, 2, 3])
    by_three = whole(tf.ones([3, 1])).numpy().reshape(3, 3)
    np.testing.assert_array_equal(by_three, np.diag([1.0, 2.0, 3.0]))


def test_a_graph_of_twenty_thousand_ops_is_read_without_recursion():
    with tf.Graph().as_default():
        x = y = tf.compat.v1.placeholder(tf.float32, [3, 2])
        for _ in range(20_000):
            y = tf.tanh(y)
        assert tfjac.explain_dependence(y, x).apart == 2
        (plan,) = tfjac.plan(y, x)
        assert len(plan.problem.ops) == 20_000 and len(plan.problem.chain) == 20_000
