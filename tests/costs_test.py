"""Predicted seconds: unknown sizes are guessed, and nothing that is built is by the guess."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfjac
from tfjac import calibration, nominal, rates
from tfjac.graph import by_hand, kernels
from tfjac.rates import Kernel, Rates

RANDOM = np.random.default_rng(0)
W = [tf.constant(RANDOM.normal(size=s), tf.float32) for s in ((60, 20), (20, 4), (4, 20), (20, 60))]


def autoencoder(x):
    for w in W:
        x = tf.tanh(x @ w)
    return x


def plan_of(fn, spec, **options):
    plans = []

    def traced(x):
        y = fn(x)
        plans[:] = tfjac.plan(y, x, **options)
        return y

    tf.function(traced, autograph=False).get_concrete_function(spec)
    return plans[0]


# Nominal sizes


def in_graph(fn, *specs):
    """Returns the tensors that a function gives in a graph."""
    found = []
    tf.function(lambda *xs: found.append(fn(*xs)), autograph=False).get_concrete_function(*specs)
    return found[0]


@pytest.mark.parametrize(
    ("fn", "wanted"),
    [
        (lambda x: x, [32, 6]),
        (lambda x: tf.sin(x) @ tf.ones([6, 5]), [32, 5]),
        (lambda x: tf.sin(tf.reshape(x, [-1, 3])), [64, 3]),
        (lambda x: tf.reshape(tf.reshape(x, [-1, 3]), [-1, 2, 3])[..., 0], [32, 2]),
        (lambda x: tf.transpose(x), [6, 32]),
        (lambda x: tf.tensordot(tf.reshape(x, [-1, 2, 3]), tf.ones([3, 5]), 1), [32, 2, 5]),
        (lambda x: tf.reduce_sum(x), []),
    ],
)
def test_an_unknown_size_is_guessed_alike_everywhere(fn, wanted):
    y = in_graph(fn, tf.TensorSpec([None, 6]))
    assert nominal.shape_of(y) == wanted
    assert nominal.entries(y) == np.prod(wanted)


def test_what_is_known_is_not_guessed():
    y = in_graph(lambda x: tf.sin(x), tf.TensorSpec([7, 6]))
    assert nominal.shape_of(y) == [7, 6]
    assert nominal.size_in_bytes(y) == 7 * 6 * 4


# Plans


def test_a_plan_of_an_unknown_batch_is_that_of_a_batch_of_the_nominal_size():
    known = plan_of(autoencoder, tf.TensorSpec([nominal.SIZE, 60]), batch=True)
    unknown = plan_of(autoencoder, tf.TensorSpec([None, 60]), batch=True)
    assert known.strategy.name == unknown.strategy.name == "cross_country"
    for one, other in zip(known.answers, unknown.answers):
        if one.support.ok and other.support.ok:
            assert other.seconds == pytest.approx(one.seconds), one.strategy.name
    assert f"taken to be {nominal.SIZE}" in unknown.explain()
    assert "taken to be" not in known.explain()


def test_whole_jacobians_of_an_unknown_batch_are_planned_by_blocks():
    plan = plan_of(autoencoder, tf.TensorSpec([None, 60]))
    assert plan.strategy.name == "cross_country"
    assert plan.problem.spread


@pytest.mark.parametrize("examples", [1, 3, 50])
def test_chunks_of_an_unknown_batch_are_counted_when_they_run(examples, monkeypatch):
    sizes = []
    real = tf.vectorized_map

    def seen(fn, elems, **options):
        with tf.control_dependencies([tf.py_function(sizes.append, [tf.size(elems)], [])]):
            elems = tf.identity(elems)
        return real(fn, elems, **options)

    monkeypatch.setattr(tf, "vectorized_map", seen)
    wide = tf.constant(RANDOM.normal(size=(3, 200)), tf.float32)
    jac = tfjac.prepare(
        lambda x: tf.nn.softmax(x @ wide),
        batch=True,
        strategy="vectorized",
        memory_budget=8_000_000,
        input_signature=[tf.TensorSpec([None, 3])],
    )
    x = tf.constant(RANDOM.normal(size=(examples, 3)), tf.float32)
    found = jac(x)
    s = tf.nn.softmax(x @ wide).numpy()
    wanted = s[:, :, None] * (wide.numpy().T[None] - (s @ wide.numpy().T)[:, None, :])
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    assert max(int(n) for n in sizes) * examples <= 8_000_000 / (4 * 200)


def test_predictions_so_close_are_a_tie_that_is_built_sooner():
    text = tfjac.prepare(autoencoder, batch=True).explain(tf.zeros([32, 60]))
    assert " ms: " in text and "graph ops in" in text


def test_auto_leaves_out_what_would_add_too_many_ops():
    wide = tf.ones([3, 5000])
    plan = plan_of(lambda x: tf.nn.softmax(x @ wide), tf.TensorSpec([2, 3]), batch=True)
    (unstack,) = [a for a in plan.answers if a.strategy.name == "unstack"]
    assert not unstack.support.ok
    assert "more than 20000 ops" in unstack.support.reason
    named = plan_of(
        lambda x: tf.nn.softmax(x @ wide), tf.TensorSpec([2, 3]), batch=True, strategy="unstack"
    )
    assert named.strategy.name == "unstack"


# Rates


def test_a_kernel_takes_its_arithmetic_or_its_traffic_and_its_start():
    here = Rates(product=1e9, half_side=1e-9, read=1e6, written=1e6, op=0.5)
    assert here.seconds(Kernel.PRODUCT, 2e9, 1e6, 0.0) == pytest.approx(0.5 + 2.0)
    assert here.seconds(Kernel.PRODUCT, 1e6, 2e6, 1e6) == pytest.approx(0.5 + 3.0)
    assert here.seconds(Kernel.PRODUCT, 2e9, 0.0, 0.0, width=8) == pytest.approx(0.5 + 4.0)
    assert here.seconds(Kernel.ELEMENTWISE, 0.0, 0.0, 0.0, side=0.0) == 0.5


def test_more_vectors_take_longer_but_not_as_much_longer():
    plan = plan_of(autoencoder, tf.TensorSpec([8, 60]), batch=True)
    runs = plan.problem.kernels.reverse
    one, ten = kernels.seconds(runs), kernels.seconds(runs, 10.0)
    assert one < ten < 10 * one


def test_turns_of_a_loop_are_read_off_its_bound():
    def looped(x):
        return tf.while_loop(lambda i, a: i < 7, lambda i, a: (i + 1, tf.sin(a)), (0, x))[1]

    y = in_graph(looped, tf.TensorSpec([3]))
    (op,) = [op for op in y.graph.get_operations() if "While" in op.type]
    assert kernels.turns_of(op) == 7


# Gradients by hand


@tf.custom_gradient
def scaled(x):
    return tf.sin(x), lambda dy: -(dy * 3.0) / tf.exp(x) + tf.identity(dy)


@tf.custom_gradient
def clipping(x):
    return tf.identity(x), lambda dy: tf.clip_by_value(dy, -1.0, 1.0)


@tf.custom_gradient
def mixing(x):
    return tf.identity(x), lambda dy: tf.reverse(dy, [1])


@tf.custom_gradient
def affine(x):
    return tf.identity(x), lambda dy: dy + 1.0


@pytest.mark.parametrize(
    ("fn", "wanted"),
    [(scaled, True), (tf.nn.silu, True), (clipping, False), (mixing, False), (affine, False)],
)
def test_a_gradient_by_hand_is_seen_to_be_a_diagonal(fn, wanted):
    y = in_graph(lambda x: fn(tf.identity(x)), tf.TensorSpec([None, 3]))
    reached = [by_hand.is_diagonal(y, i) for i in range(len(y.op.inputs))]
    assert any(reached) == wanted


@pytest.mark.parametrize("fn", [scaled, tf.nn.silu, mixing])
@pytest.mark.parametrize("strategy", ["auto", "cross_country", "unstack"])
def test_a_gradient_by_hand_is_what_is_carried(fn, strategy):
    w = tf.constant(RANDOM.normal(size=(3, 4)), tf.float32)
    x = tf.constant(RANDOM.normal(size=(2, 3)), tf.float32)

    def net(x):
        return tf.tanh(fn(x @ w))

    found = tfjac.prepare(net, batch=True, strategy=strategy)(x)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        rows = [tf.reduce_sum(net(x)[:, k]) for k in range(4)]
    wanted = tf.stack([tape.gradient(row, x) for row in rows], 1)
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_layers_with_silu_are_multiplied_by_structure():
    sizes = (256, 32, 256, 784)
    layers = [keras.layers.Dense(n, "silu") for n in sizes]
    model = keras.Sequential([keras.Input((784,)), *layers])
    plan = plan_of(lambda x: model(x), tf.TensorSpec([32, 784]), batch=True)
    (cross,) = [a for a in plan.answers if a.strategy.name == "cross_country"]
    assert "x (" in cross.cost.order, "a product at the narrow layer, for which tangents are needed"


# Calibration


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """The path of a file of rates that is read in this test alone."""
    path = tmp_path / "some" / "rates.json"
    monkeypatch.setenv("TFJAC_RATES", str(path))
    rates.current.cache_clear()
    yield path
    rates.current.cache_clear()


def test_rates_that_are_kept_are_used(kept):
    assert rates.current() == Rates()
    assert rates.write(Rates(op=0.25)) == kept
    assert rates.current().op == 0.25
    assert plan_of(tf.sin, tf.TensorSpec([3])).seconds > 0.25


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda text: text[:40], "damaged"),
        (lambda text: "[]", "damaged"),
        (lambda text: text.replace('"op"', '"pop"'), "damaged"),
        (lambda text: text.replace('"op": 2e-06', '"op": -1'), "damaged"),
        (lambda text: text.replace('"op": 2e-06', '"op": null'), "damaged"),
        (lambda text: text.replace('"machine": "', '"machine": "other '), "of another machine"),
    ],
)
def test_rates_of_another_machine_or_damaged_are_said_and_not_used(kept, damage, why):
    rates.write(Rates())
    kept.write_text(damage(kept.read_text()))
    with pytest.warns(tfjac.errors.RatesIgnoredWarning, match=why):
        assert rates.current() == Rates()


def test_calibration_measures_every_rate_and_keeps_it(kept, monkeypatch, capsys):
    monkeypatch.setattr(calibration, "_CALLS", 1)
    calibration.main(None)
    found, printed = rates.current(), capsys.readouterr().out
    for field in dataclasses.fields(Rates):
        assert getattr(found, field.name) > 0.0
        assert field.name in printed
    elsewhere = kept.with_name("other.json")
    calibration.main(str(elsewhere))
    assert elsewhere.exists()
