"""The private layouts of TensorFlow that `tf_internals` relies on, and who needs each."""

import contextlib
import logging
import warnings

import numpy as np
import pytest
import registered
import tensorflow as tf
from tensorflow.python.ops.parallel_for import pfor

import tfjac
from tfjac import tf_internals
from tfjac.graph import subgraph
from tfjac.strategies import forward, mapping


def test_ops_registered_without_a_derivative_are_told_from_unregistered_ones():
    """Needed by subgraph.check_differentiable."""
    assert tf_internals.has_no_derivative("PyFunc")
    assert tf_internals.has_no_derivative("StopGradient")
    assert not tf_internals.has_no_derivative("Tanh")
    assert not tf_internals.has_no_derivative("NoSuchOp")


def test_a_variable_of_keras_holds_one_of_tensorflow_also_where_its_value_is_cast():
    """Needed by sources."""
    import keras

    variable = keras.Variable(np.ones(2, "float32"))
    assert isinstance(tf_internals.variable_of(variable), tf.Variable)
    assert tf_internals.variable_of(variable) is variable.value
    assert tf_internals.variable_of(tf.Variable(1.0)) is None
    assert tf_internals.variable_of(tf.ones([2])) is None


def test_a_tape_goes_by_what_was_recorded_of_a_tensor_last():
    """Needed by tapes, which record a branch anew once it has other outputs."""
    x = tf.constant(2.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x * 3.0
        tf_internals.record_operation("Again", [y], [x], lambda dy: [dy * 7.0])
        z = y * 1.0
    assert tape.gradient(z, x).numpy() == 7.0


def test_an_extension_type_is_put_together_again_without_validation():
    """Needed by nests."""

    class Pair(tf.experimental.ExtensionType):
        a: tf.Tensor
        n: int

        def __validate__(self):
            self.a.shape.assert_is_compatible_with([2])

    pair = Pair(tf.ones([2]), 3)
    (found,) = tf.nest.flatten(pair, expand_composites=True)
    assert found is pair.a
    made = tf.nest.pack_sequence_as(pair, [tf.ones([2, 2])], expand_composites=True)
    assert made.a.shape == [2, 2] and made.n == 3


def test_the_registry_tells_its_op_types_and_custom_gradients_apart():
    """Needed by the audit."""
    tf.function(lambda x: tf.nn.swish(x)).get_concrete_function(tf.TensorSpec([2]))
    found = registered.registered_op_types()
    assert {"Tanh", "StopGradient", "TensorListStack", "SparseMatrixAdd"} <= found
    assert "NoSuchOp" not in found
    assert not [name for name in found if "CustomGradient" in name or "Call" in name]


def test_an_active_tape_is_seen_and_a_finished_or_stopped_one_is_not():
    """Needed by graph_memo and tapes."""
    assert not tf_internals.is_recording()
    with tf.GradientTape():
        assert tf_internals.is_recording()
        with tf_internals.stop_recording():
            assert not tf_internals.is_recording()
    assert not tf_internals.is_recording()


def test_an_operation_can_be_recorded_on_a_tape():
    """Needed by tapes."""
    x = tf.constant(2.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        with tf_internals.stop_recording():
            y = x * x
        tf_internals.record_operation("test", [y], [x], lambda dy: [dy * 7.0])
    assert tape.gradient(y, x).numpy() == 7.0


def test_a_tape_sees_a_variable_through_what_was_captured_before_it():
    """Needed by rewriting: a copy reads a handle that the graph has captured already."""
    v = tf.Variable(3.0)

    @tf.function(autograph=False)
    def gradient(x):
        handle = (v * x).graph.capture(v.handle)
        with tf.GradientTape() as tape:
            tape.watch(v)
            tf_internals.record_captures(handle.graph)
            y = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32) * x
        return tape.gradient(y, v)

    assert gradient(tf.constant(5.0)).numpy() == 5.0


def test_determinism_is_asked_of_tensorflow():
    """Needed by autotune. What it is after it was asked for, faults_test has in a process."""
    assert tf_internals.is_deterministic() is False


def test_eager_mode_leaves_a_default_graph():
    """Needed by compiled."""
    with tf.Graph().as_default():
        assert not tf.executing_eagerly()
        with tf_internals.eager_mode():
            assert tf.executing_eagerly()


def test_function_graphs_know_what_is_around_them_and_what_they_captured():
    """Needed by subgraph, sources and tapes."""
    v = tf.Variable(1.0)
    seen = {}

    @tf.function(autograph=False)
    def outer(x):
        def body(i, h):
            seen["inner"] = tf.compat.v1.get_default_graph()
            return i + 1, h * x * v

        seen["x"] = x
        seen["outer"] = tf.compat.v1.get_default_graph()
        return tf.while_loop(lambda i, h: i < 2, body, (0, x))[1]

    outer.get_concrete_function(tf.TensorSpec([2]))
    inner, around = seen["inner"], seen["outer"]
    assert tf_internals.is_function_graph(inner)
    assert list(tf_internals.graph_and_outer_graphs(inner))[:2] == [inner, around]
    assert any(t is seen["x"] for t in tf_internals.captures(inner).values())
    assert tf_internals.known_in_graph(around, v.handle) is not None
    assert tf_internals.captures(tf.Graph()) == {}


@pytest.mark.parametrize("in_function", [True, False])
def test_the_nodes_of_all_bodies_within_are_found(in_function):
    """Needed by the vectorized and forward strategies."""

    @tf.custom_gradient
    def same(x):
        return tf.identity(x), lambda upstream: upstream

    @tf.function
    def inner(x):
        return tf.while_loop(lambda i, h: i < 2, lambda i, h: (i + 1, same(h)), (0, x))[1]

    def outer(x):
        return tf.cond(tf.reduce_sum(x) > 0, lambda: inner(x), lambda: tf.sin(x))

    with tf.Graph().as_default():
        x = tf.compat.v1.placeholder(tf.float32, [2])
        y = tf.function(outer)(x) if in_function else outer(x)
        ops = subgraph.ops_between(y, [x])
        nodes = [node for op in ops for node in tf_internals.nodes_within(op)]
        assert {"Sin", "StatelessWhile"} <= {node.op for node in nodes}
        assert any("_gradient_op_type" in node.attr for node in nodes)
        assert tf_internals.nodes_within(x.op) == []


def test_a_graph_takes_an_attribute_and_tells_its_control_flow_scope():
    """Needed by graph_memo."""
    graph = tf.Graph()
    graph._tfjac_test = 1
    assert isinstance(tf_internals.control_flow_scope(graph), int)


def test_tracing_for_xla_is_seen():
    """Needed by problems."""
    seen = []

    def fn(x):
        seen.append(tf_internals.is_compiled_by_xla(tf.compat.v1.get_default_graph()))
        return x

    for jit in (True, None):
        tf.function(fn, jit_compile=jit, autograph=False).get_concrete_function(tf.TensorSpec([1]))
    assert seen == [True, False]


def test_a_keras_model_tells_its_layers_and_what_graphs_take_for_granted_of_them():
    """Needed by compiled."""
    inner = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(3)])
    model = tf.keras.Sequential([tf.keras.Input((2,)), inner])
    before = tf_internals.layers_of(model)
    assert tf_internals.layers_of(model) == tf_internals.layers_of(model.call) == before
    assert inner.layers[0] in [reference() for reference, _, _ in before]
    inner.layers[0].trainable = False
    assert tf_internals.layers_of(model) != before
    assert tf_internals.layers_of(tf.sin) == tf_internals.layers_of(len) == ()


def test_a_concrete_function_takes_flat_tensors():
    """Needed by compiled."""
    w = tf.Variable(3.0)
    concrete = tf.function(lambda x, y: {"z": x * y * w}).get_concrete_function(
        tf.TensorSpec([]), tf.TensorSpec([])
    )
    found = tf_internals.call_concrete(concrete, [tf.constant(2.0), tf.constant(5.0)])
    assert found["z"].numpy() == 30.0


def test_autograph_converts_what_it_is_asked_to():
    """Needed by compiled."""

    @tf.autograph.experimental.do_not_convert
    def ours(x):
        return tf_internals.converted_by_autograph(absolute)(x)

    def absolute(x):
        if x > 0:
            return x
        return -x

    traced = tf.function(ours, autograph=False)
    assert traced(tf.constant(-2.0)).numpy() == 2.0


def test_tensorflow_logs_the_ops_that_a_vectorized_map_loops_over():
    """Needed by sweeps: the text, and the logger."""
    lines = []
    logger = tf.get_logger()

    def keep(record):
        lines.append(record.getMessage())
        return False

    logger.addFilter(keep)
    try:
        tf.function(
            lambda x: tf.vectorized_map(
                lambda row: (
                    tf.scatter_nd([[1]], row[:1], [3]) * tf.linalg.det(row[None] * row[:, None])
                ),
                x,
            )
        ).get_concrete_function(tf.TensorSpec([4, 3]))
    finally:
        logger.removeFilter(keep)
    assert any(line.startswith("Using a while_loop for converting ScatterNd") for line in lines)
    assert logger is logging.getLogger("tensorflow")


def test_the_gradient_of_one_op_gives_one_for_each_of_its_inputs():
    with tf.Graph().as_default():
        x = tf.compat.v1.placeholder(tf.float32, [2])
        op, one, none = tf.multiply(x, 3.0).op, tf.sin(x).op, tf.round(x).op
        by_both = tf_internals.gradient_of(op, [tf.ones([2])])
        assert len(by_both) == 2
        assert [g.shape.as_list() for g in by_both] == [[2], []]
        assert len(tf_internals.gradient_of(one, [tf.ones([2])])) == 1
        assert tf_internals.gradient_of(none, [tf.ones([2])]) == [None]
        assert tf_internals.gradient_of(tf.argmax(x).op, [None]) == [None, None]


def test_a_missing_gradient_is_reported_with_name_and_type():
    """Needed by sweeps: the text of the LookupError."""
    with tf.Graph().as_default():
        x = tf.compat.v1.placeholder(tf.float32, [2])
        v = tf.zeros_like(x)
        (g,) = tf.gradients(tf.nn.softsign(x), x, grad_ys=v)
        with pytest.raises(LookupError, match=r"operation ?'.+' \(op type: SoftsignGrad\)"):
            tf.gradients(g, v)


def _one_way_ops():
    image = tf.ones([1, 4, 4, 1])
    rows = tf.ones([3, 2])
    yield (
        "CropAndResize",
        image,
        lambda x: tf.image.crop_and_resize(x, [[0.0, 0.0, 1.0, 1.0]], [0], [2, 2]),
    )
    yield (
        "Dilation2D",
        image,
        lambda x: tf.nn.dilation2d(x, tf.ones([2, 2, 1]), [1] * 4, "VALID", "NHWC", [1] * 4),
    )
    yield "FakeQuantWithMinMaxArgs", rows, tf.quantization.fake_quant_with_min_max_args
    yield (
        "FakeQuantWithMinMaxVars",
        rows,
        lambda x: tf.quantization.fake_quant_with_min_max_vars(x, -1.0, 1.0),
    )
    yield (
        "FakeQuantWithMinMaxVarsPerChannel",
        rows,
        lambda x: tf.quantization.fake_quant_with_min_max_vars_per_channel(
            x, [-1.0, -1.0], [1.0, 1.0]
        ),
    )
    yield "FractionalAvgPool", image, lambda x: tf.nn.fractional_avg_pool(x, [1, 1.5, 1.5, 1])[0]
    yield "FractionalMaxPool", image, lambda x: tf.nn.fractional_max_pool(x, [1, 1.5, 1.5, 1])[0]
    yield "LRN", image, tf.nn.local_response_normalization
    yield "MaxPoolWithArgmax", image, lambda x: tf.nn.max_pool_with_argmax(x, 2, 2, "VALID")[0]
    yield "ResizeBicubic", image, lambda x: tf.image.resize(x, [2, 2], "bicubic")
    yield "ResizeBilinear", image, lambda x: tf.image.resize(x, [2, 2], "bilinear")
    yield "ResizeNearestNeighbor", image, lambda x: tf.image.resize(x, [2, 2], "nearest")
    yield (
        "ScaleAndTranslate",
        image,
        lambda x: tf.image.resize(x, [2, 2], "lanczos3", antialias=True),
    )
    yield "Softsign", rows, tf.nn.softsign
    for kind in ("mean", "sqrt_n", "sum"):
        name = "SparseSegment" + {"mean": "Mean", "sqrt_n": "SqrtN", "sum": "Sum"}[kind]
        op = getattr(tf.sparse, "segment_" + kind)
        yield name, rows, lambda x, op=op: op(x, [0, 2], [0, 0])


ONE_WAY = {name: (x, fn) for name, x, fn in _one_way_ops()}


def test_every_one_way_op_type_has_a_check():
    assert set(ONE_WAY) == forward.ONE_WAY


@pytest.mark.parametrize("name", sorted(ONE_WAY))
def test_the_gradient_of_a_one_way_op_cannot_be_differentiated(name):
    """Needed by the forward strategy, which refuses these."""
    value, fn = ONE_WAY[name]
    with tf.Graph().as_default(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = tf.compat.v1.placeholder(value.dtype, value.shape)
        y = fn(x)
        assert name in {op.type for op in subgraph.ops_between(y, [x])}
        v = tf.ones_like(y)
        (g,) = tf.gradients(y, x, grad_ys=v)
        with contextlib.suppress(LookupError):
            assert tf.gradients(tf.convert_to_tensor(g), v)[0] is None


def _looping_ops():
    picture = np.linspace(0.1, 0.9, 32, dtype=np.float32).reshape(1, 4, 4, 2)
    kernel = tf.ones([2, 2, 2, 1])
    boxes = tf.constant([[0.0, 0.0, 1.0, 1.0]])
    yield (
        "Conv3D",
        picture[None],
        lambda x: tf.nn.conv3d(x, tf.ones([1, 2, 2, 2, 1]), [1] * 5, "SAME"),
    )
    yield "CropAndResize", picture, lambda x: tf.image.crop_and_resize(x, boxes, [0], [2, 2])
    yield (
        "DepthwiseConv2dNative",
        picture,
        lambda x: tf.nn.depthwise_conv2d(x, kernel, [1] * 4, "SAME"),
    )
    yield (
        "Dilation2D",
        picture,
        lambda x: tf.nn.dilation2d(x, kernel[..., 0], [1] * 4, "SAME", "NHWC", [1] * 4),
    )
    yield "GatherNd", picture[0], lambda x: tf.gather_nd(x, [[0, 1], [2, 2]])
    yield "MirrorPad", picture, lambda x: tf.pad(x, [[0, 0], [1, 1], [0, 0], [0, 0]], "REFLECT")
    for name in ("bicubic", "bilinear", "nearest"):
        op_type = "Resize" + {"nearest": "NearestNeighbor"}.get(name, name.title())
        yield op_type, picture, lambda x, name=name: tf.image.resize(x, [3, 3], name)
    yield "ReverseSequence", picture[0], lambda x: tf.reverse_sequence(x, [1, 2, 2, 1], 1, 0)
    yield "TopKV2", picture[0, 0], lambda x: tf.math.top_k(x, 2).values


LOOPING = {name: (x, fn) for name, x, fn in _looping_ops()}


def test_every_looping_op_type_has_a_check():
    assert set(LOOPING) == mapping.LOOPS


@pytest.mark.parametrize("name", sorted(LOOPING))
def test_a_looping_op_or_its_gradient_is_run_row_by_row(name):
    """Needed by the vectorized strategy, which tells of it and counts it dearer."""
    value, fn = LOOPING[name]

    def traced(x):
        y = fn(x)
        assert name in {op.type for op in subgraph.ops_between(y, [x])}
        return tfjac.jacobian(y, x, "vectorized")

    with pytest.warns(tfjac.errors.LoopFallbackWarning):
        tf.function(traced, autograph=False).get_concrete_function(
            tf.TensorSpec(value.shape, value.dtype)
        )


def _map_of_a_loop(x):
    """Returns the pullback of a loop for each row, under a vectorized map."""

    def body(i, h, kept):
        return i + 1, tf.tanh(h * x), kept.write(i, h)

    kept = tf.TensorArray(tf.float32, 3, element_shape=[2])
    _, h, kept = tf.while_loop(lambda i, *_: i < 3, body, (0, tf.ones([2]), kept))
    y = h + tf.reduce_sum(kept.stack(), 0)
    return tf.vectorized_map(lambda row: tf.gradients(y, x, row)[0], tf.eye(2))


def test_a_loop_is_converted_once_to_the_same_graph(monkeypatch):
    """Needed by sweeps.map_vectorized."""
    calls, call = [], pfor.WhileV2.__call__

    def counted(self):
        calls.append(self)
        return call(self)

    monkeypatch.setattr(pfor.WhileV2, "__call__", counted)
    spec, found = tf.TensorSpec([2]), []
    for context in (contextlib.nullcontext, tf_internals.loops_converted_once):
        calls.clear()
        with context():
            function = tf.function(_map_of_a_loop, autograph=False).get_concrete_function(spec)
        types = [n.op for f in function.graph.as_graph_def().library.function for n in f.node_def]
        found.append((len(calls), sorted(types), function(tf.constant([0.5, 2.0]))))
    (twice, types, values), (once, types_once, values_once) = found
    assert (twice, once) == (2, 1)
    assert types_once == types
    np.testing.assert_array_equal(values_once, values)


def test_numpy_knows_the_dtypes_of_the_tests():
    assert np.dtype(tf.bfloat16.as_numpy_dtype).itemsize == 2


def _loaded_loop(folder):
    module = tf.Module()
    module.weight = tf.Variable([[2.0]])
    module.run = tf.function(
        lambda x: tf.while_loop(
            lambda i, _: i < 2, lambda i, x: (i + 1, x @ module.weight), [0, x]
        ),
        input_signature=[tf.TensorSpec([None, 1])],
        autograph=False,
    )
    tf.saved_model.save(module, folder)
    loaded = tf.saved_model.load(folder)
    graph = tf.function(lambda x: loaded.run(x)).get_concrete_function(tf.ones([1, 1])).graph
    waiting = list(graph.get_operations())
    while waiting:
        op = waiting.pop()
        if op.type == "While":
            return op, loaded
        found = subgraph.bodies(op)
        waiting += found.graphs[0].get_operations() if found else []
    raise AssertionError("no loop")


def test_a_loop_that_was_loaded_lacks_what_tracing_it_notes(tmp_path):
    """Needed by graph.handles."""
    op, _ = _loaded_loop(str(tmp_path))
    (handle,) = (t for t in op.outputs if t.dtype == tf.resource)
    assert not tf_internals.held_by(handle)
    tf_internals.note_held(handle, op.inputs[handle.value_index])
    assert (
        tf_internals.held_by(handle) == tf_internals.held_by(op.inputs[handle.value_index]) != b""
    )
    known = tf_internals.body_of(op, "body")
    made = tf_internals.body_to_differentiate(op, "body")
    assert [o.name for o in made.get_operations()] == [o.name for o in known.get_operations()]
    assert tf_internals.body_to_differentiate(op, "body") is None


def test_a_loop_that_was_traced_keeps_the_graph_that_is_differentiated():
    """Needed by graph.handles."""

    @tf.function(autograph=False)
    def traced(x):
        y = tf.while_loop(lambda x: x[0] < 2.0, lambda x: [2.0 * x], [x])[0]
        (op,) = (op for op in y.graph.get_operations() if "While" in op.type)
        for attribute in ("body", "cond"):
            assert tf_internals.body_to_differentiate(op, attribute) is None
        return y

    traced.get_concrete_function(tf.TensorSpec([1]))
