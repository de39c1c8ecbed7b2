"""`prepare`: built once, freed with its owner, thread-safe, on the device that was asked for."""

import collections
import gc
import threading
import weakref

import numpy as np
import pytest
import tensorflow as tf
from scenarios import array

import tfjac
from tfjac import function_cache


def graph_ops(function):
    definition = function.graph.as_graph_def()
    return [*definition.node, *(n for f in definition.library.function for n in f.node_def)]


class Counted:
    """A function that counts how often Python runs it."""

    def __init__(self, fn=tf.sin):
        self.fn, self.traces = fn, 0

    def __call__(self, x, **kwargs):
        self.traces += 1
        return self.fn(x, **kwargs)


def test_the_first_call_with_a_signature_builds_and_later_ones_build_nothing():
    fn = Counted()
    jac = tfjac.prepare(fn)
    for n in (2, 3):
        for seed in range(4):
            x = array(n, seed=seed)
            np.testing.assert_allclose(jac(x), np.diag(np.cos(x)))
    assert fn.traces == 2
    info = jac.cache_info()
    assert (info.misses, info.hits, info.currsize) == (2, 6, 2)
    assert info.build_seconds > 0


def test_dtype_and_constants_are_part_of_the_signature():
    fn = Counted(lambda x, double=False: x * (2.0 if double else 1.0))
    jac = tfjac.prepare(fn)
    for double in (True, False, True):
        for dtype in (np.float32, np.float64):
            j = jac(array(2, dtype=dtype), double=double)
            np.testing.assert_allclose(j, np.eye(2) * (2 if double else 1))
            assert j.dtype == dtype
    assert fn.traces == 4


def test_preparing_the_same_function_again_finds_what_was_built():
    fn = Counted()
    for _ in range(3):
        tfjac.prepare(fn)(array(2))
    assert fn.traces == 1
    tfjac.prepare(fn, strategy="forward")(array(2))
    assert fn.traces == 2
    assert tfjac.prepare(fn).cache_info().hits == 2


def test_two_methods_and_two_equal_objects_are_not_confused():
    class Scale:
        def __init__(self, k):
            self.k = k

        def __eq__(self, other):
            return True

        def __hash__(self):
            return 1

        def times(self, x):
            return self.k * x

        def __call__(self, x):
            return self.k * x

    two, three = Scale(2.0), Scale(3.0)
    x = array(2)
    np.testing.assert_allclose(tfjac.prepare(two)(x), 2 * np.eye(2))
    np.testing.assert_allclose(tfjac.prepare(three)(x), 3 * np.eye(2))
    np.testing.assert_allclose(tfjac.prepare(two.times)(x), 2 * np.eye(2))
    np.testing.assert_allclose(tfjac.prepare(three.times)(x), 3 * np.eye(2))
    info = tfjac.prepare(two.times).cache_info()
    assert (info.misses, info.currsize) == (1, 1)


def test_a_cleared_cache_builds_again():
    fn = Counted()
    jac = tfjac.prepare(fn)
    jac(array(2))
    jac.cache_clear()
    assert jac.cache_info()[:2] == (0, 0) and jac.cache_info().currsize == 0
    jac(array(2))
    assert fn.traces == 2


def test_the_cache_is_bounded_and_drops_what_was_not_used_for_longest():
    cache = function_cache.Cache(maxsize=2)
    for key in "abacb":
        cache.get(key, key.upper)
    assert cache.info()[:4] == (1, 4, 2, 2)
    assert cache.get("c", lambda: "built again") == "C"


def test_an_error_while_building_leaves_nothing_behind():
    fail = [True]

    def fn(x):
        if fail[0]:
            raise RuntimeError("not yet")
        return x * 2.0

    jac = tfjac.prepare(fn)
    with pytest.raises(RuntimeError, match="not yet"):
        jac(array(2))
    assert jac.cache_info().currsize == 0
    fail[0] = False
    np.testing.assert_allclose(jac(array(2)), 2 * np.eye(2))


def test_a_dropped_function_is_freed_with_its_graph():
    graphs, functions = [], []

    def once(k):
        def fn(x):
            graphs.append(weakref.ref(tf.compat.v1.get_default_graph()))
            return tf.sin(x) * k

        functions.append(weakref.ref(fn))
        np.testing.assert_allclose(tfjac.prepare(fn)(np.zeros(2)), k * np.eye(2))

    known = len(function_cache._by_owner)
    for k in range(1, 11):
        once(float(k))
    gc.collect()
    assert not any(reference() for reference in functions)
    assert not any(reference() for reference in graphs)
    assert len(function_cache._by_owner) <= known


def test_a_dropped_model_is_freed():
    model = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(2)])
    jac = tfjac.prepare(model, batch=True)
    assert jac(array(4, 3)).shape == (4, 2, 3)
    reference = weakref.ref(model)
    del model, jac
    gc.collect()
    assert reference() is None


def test_a_graph_that_holds_jacobians_is_freed():
    graph = tf.Graph()
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.float32, [2])
        tfjac.jacobian(tf.sin(x), x)
    reference = weakref.ref(graph)
    del graph, x
    gc.collect()
    assert reference() is None


def test_weights_that_change_are_seen():
    model = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(2, use_bias=False)])
    jac = tfjac.prepare(model, batch=True)
    for seed in (1, 2):
        w = array(3, 2, seed=seed, dtype=np.float32)
        model.set_weights([w])
        np.testing.assert_allclose(jac(array(1, 3, dtype=np.float32))[0], w.T)
    assert jac.cache_info().misses == 1


def test_a_model_that_is_not_built_yet_builds_its_weights():
    model = tf.keras.Sequential([tf.keras.layers.Dense(2), tf.keras.layers.Dense(1)])
    jac = tfjac.prepare(model, batch=True)
    w = lambda: model.layers[0].kernel.numpy() @ model.layers[1].kernel.numpy()  # noqa: E731
    j = jac(array(2, 3, dtype=np.float32))
    np.testing.assert_allclose(j[0, 0], w()[:, 0], rtol=1e-5)


def test_threads_that_call_at_once_build_once_and_get_the_right_values():
    fn = Counted(lambda x: tf.tanh(x) * x)
    jac, wrong, gate = tfjac.prepare(fn), [], threading.Barrier(8)

    def work(k):
        x = array(3, seed=k)
        gate.wait()
        for _ in range(5):
            t = np.tanh(x)
            if not np.allclose(jac(x), np.diag(t + x * (1 - t**2))):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert fn.traces == 1
    assert jac.cache_info()[:2] == (39, 1)


def test_the_value_comes_with_the_jacobian_from_one_evaluation():
    count = tf.Variable(0)

    def fn(x):
        count.assign_add(1)
        return {"y": tf.sin(x)}

    x = array(3)
    value, j = tfjac.prepare(fn).value_and_jacobian(x)
    np.testing.assert_allclose(value["y"], np.sin(x))
    np.testing.assert_allclose(j["y"], np.diag(np.cos(x)))
    assert count.numpy() == 1


def test_several_argnums_and_nested_arguments():
    fn = lambda a, n, b: a["u"] * n + b  # noqa: E731
    a, b = {"u": array(2), "v": array(3)}, array(2, seed=2)
    by_a, by_b = tfjac.prepare(fn, argnums=(0, 2))(a, 3, b)
    np.testing.assert_allclose(by_a["u"], 3 * np.eye(2))
    np.testing.assert_allclose(by_a["v"], np.zeros((2, 3)))
    np.testing.assert_allclose(by_b, np.eye(2))
    np.testing.assert_allclose(tfjac.prepare(fn, argnums=2)(a, 3, b), np.eye(2))


def test_an_input_signature_serves_every_batch_size_with_one_graph():
    fn = Counted(lambda x: x**2)
    jac = tfjac.prepare(fn, batch=True, input_signature=[tf.TensorSpec([None, 2], tf.float32)])
    for n in (0, 1, 5):
        x = array(n, 2)
        assert jac(x).shape == (n, 2, 2)
        np.testing.assert_allclose(
            jac(x), np.einsum("bi,ij->bij", 2 * x.astype(np.float32), np.eye(2))
        )
    assert fn.traces == 1


def test_ragged_arguments_that_are_not_sources_pass_through():
    def fn(x, weights):
        return x * tf.reduce_sum(weights, axis=1)

    ragged = tf.ragged.constant([[1.0, 2.0], [4.0]], dtype=tf.float64)
    np.testing.assert_allclose(tfjac.prepare(fn)(array(2), ragged), np.diag([3.0, 4.0]))


def test_python_control_flow_is_converted_as_tf_function_does():
    def fn(x):
        if tf.reduce_sum(x) > 0:
            return x * 2.0
        return x * 3.0

    jac = tfjac.prepare(fn)
    np.testing.assert_allclose(jac(np.ones(2)), 2 * np.eye(2))
    np.testing.assert_allclose(jac(-np.ones(2)), 3 * np.eye(2))


def test_inside_a_function_it_adds_to_the_graph_and_captures():
    jac = tfjac.prepare(lambda x: x**3)

    @tf.function
    def outer(x, k):
        inner = tfjac.prepare(lambda z: z**2 * k)
        return jac(x) + inner(x)

    np.testing.assert_allclose(
        outer(tf.constant([1.0, 2.0]), tf.constant(10.0)), np.diag([3 + 20.0, 12 + 40.0])
    )
    assert jac.cache_info().currsize == 0


def test_values_given_while_a_graph_is_the_default_come_back_as_values():
    with tf.Graph().as_default():
        j = tfjac.prepare(lambda z: z**3)(np.array([1.0, 2.0]))
        assert isinstance(j.numpy(), np.ndarray)
        x = tf.compat.v1.placeholder(tf.float32, [2])
        assert tf.is_symbolic_tensor(tfjac.prepare(lambda z: z**3)(x))


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("strategy", tfjac.strategies.names())
def test_the_device_that_was_asked_for_evaluates(strategy, jit_compile):
    x = array(3, 2)
    for number in (0, 1):
        jac = tfjac.prepare(
            lambda x: tf.tanh(x @ tf.ones([2, 2], x.dtype)),
            batch=True,
            device=f"/CPU:{number}",
            strategy=strategy,
            jit_compile=jit_compile,
        )
        assert jac(x).device.endswith(f"CPU:{number}")


def test_every_op_of_the_graph_is_placed_on_the_device():
    places = []

    def fn(x):
        y = tf.sin(x)
        places.append(y.op.device)
        return y

    tfjac.prepare(fn, device="/CPU:1")(array(2))
    assert places and all(place.upper().endswith("CPU:1") for place in places)


def test_without_a_device_tensorflow_places():
    assert tfjac.prepare(tf.sin)(array(2)).device.endswith(
        "GPU:0" if tf.config.list_physical_devices("GPU") else "CPU:0"
    )


def test_xla_compiles_when_asked():
    x = array(2, 3)
    concrete = {}

    def spy(x):
        concrete["compiled"] = tfjac.tf_internals.is_compiled_by_xla(
            tf.compat.v1.get_default_graph()
        )
        return tf.sin(x)

    np.testing.assert_allclose(
        tfjac.prepare(spy, jit_compile=True)(x), tfjac.prepare(tf.sin)(x), atol=1e-15
    )
    assert concrete["compiled"]


def test_auto_does_not_pick_what_xla_cannot_compile():
    layer = tf.keras.layers.LSTM(2, dtype="float64")
    x = array(2, 3, 2)
    plain = tfjac.prepare(lambda z: layer(z), batch=True)(x)
    compiled = tfjac.prepare(lambda z: layer(z), batch=True, jit_compile=True)(x)
    np.testing.assert_allclose(compiled, plain, atol=1e-12)


def test_explain_names_the_choice_and_every_strategy_and_builds_nothing():
    quantized = tf.quantization.fake_quant_with_min_max_args
    jac = tfjac.prepare(lambda x: tf.cast(quantized(tf.cast(x, tf.float32)), x.dtype))
    text = jac.explain(array(2))
    for name in tfjac.strategies.names()[1:]:
        assert name in text
    assert "forward      refused: the gradient of op 'FakeQuantWithMinMaxArgs'" in text
    assert text.splitlines()[1].startswith("strategy: ")
    assert jac.cache_info().currsize == 0


@pytest.mark.parametrize("with_value", [False, True])
def test_explain_tells_of_what_was_built_without_tracing_again(with_value):
    traces = []

    def fn(x):
        traces.append(x)
        return tf.sin(x @ x)

    jac, x = tfjac.prepare(fn), array(2, 2)
    before = jac.explain(x)
    (jac.value_and_jacobian if with_value else jac)(x)
    known = len(traces)
    assert jac.explain(x) == before
    assert len(traces) == known
    jac.explain(array(3, 3))
    assert len(traces) == known + 1


def test_a_prepared_graph_has_no_more_ops_than_a_hand_written_one():
    w = tf.constant(array(4, 2))

    def fn(x):
        return tf.tanh(x @ w)

    spec = tf.TensorSpec([3, 4], tf.float64)
    by_hand = tf.function(lambda x: tfjac.batch_jacobian(fn(x), x), autograph=False)
    jac = tfjac.prepare(fn, batch=True)
    jac(array(3, 4))
    (built,) = jac._cache._entries.values()
    assert len(graph_ops(built.concrete)) == len(graph_ops(by_hand.get_concrete_function(spec)))


def _added(x, d):
    return x * (d["b"] if "b" in d else 100.0 * d["c"])


def test_arguments_of_another_structure_are_not_confused():
    x, one = array(2), tf.constant(1.0, tf.float64)
    for kind in (dict, collections.UserDict):
        jac = tfjac.prepare(_added)
        np.testing.assert_allclose(jac(x, kind(b=one)), np.eye(2))
        np.testing.assert_allclose(jac(x, kind(c=one)), 100 * np.eye(2))

    first = collections.namedtuple("Pair", ["a", "b"])
    second = collections.namedtuple("Pair", ["b", "a"])
    jac = tfjac.prepare(lambda x, pair: x * pair.a)
    np.testing.assert_allclose(jac(x, first(one, 2 * one)), np.eye(2))
    np.testing.assert_allclose(jac(x, second(one, 2 * one)), 2 * np.eye(2))


def test_constants_that_are_equal_but_not_the_same_are_not_confused():
    fn = Counted(lambda x, a: x * np.copysign(1.0, a))
    jac, x = tfjac.prepare(lambda x, a: fn(x, a=a)), array(2)
    for constant, sign in ((0.0, 1), (-0.0, -1), (1, 1), (True, 1), (float("nan"), 1)):
        np.testing.assert_allclose(jac(x, constant), sign * np.eye(2))
    traces = fn.traces
    jac(x, float("nan"))
    assert fn.traces == traces == 5


def test_an_input_signature_may_nest():
    spec = tf.TensorSpec([None], tf.float64)
    for nest in ({"a": spec}, [spec], (spec,)):
        fn = Counted(lambda d: d["a"] ** 2 if isinstance(d, dict) else d[0] ** 2)
        jac = tfjac.prepare(fn, input_signature=[nest])
        for n in (2, 3):
            x = array(n)
            j = jac(tf.nest.pack_sequence_as(nest, [x]))
            np.testing.assert_allclose(tf.nest.flatten(j)[0], np.diag(2 * x))
        assert fn.traces == 1


def test_auto_does_not_take_a_custom_gradient_forward():
    @tf.custom_gradient
    def clipped(x):
        return tf.identity(x), lambda upstream: tf.clip_by_value(upstream, -0.5, 0.5)

    def fn(x):
        return clipped(x * tf.ones([50]))

    j = tfjac.prepare(fn)(tf.constant(2.0))
    np.testing.assert_allclose(j, np.full(50, 0.5))
    assert "strategy: forward" not in tfjac.prepare(fn).explain(tf.constant(2.0))
