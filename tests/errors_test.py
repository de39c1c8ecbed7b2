"""Bad input: an error of the package that says what was wanted, what came and what to do."""

import numpy as np
import pytest
import tensorflow as tf
from scenarios import array

import tfjac
from tfjac.errors import (
    InvalidTypeError,
    InvalidValueError,
    NotDifferentiableError,
    UnsupportedError,
)

X = tf.constant([[1.0, 2.0], [3.0, 4.0]])


def round_to_grid(x):
    return tf.cast(tf.quantization.fake_quant_with_min_max_args(tf.cast(x, tf.float32)), x.dtype)


def in_function(body, *args):
    return lambda: tf.function(body, autograph=False)(*args)


def two_graphs():
    with tf.Graph().as_default():
        a = tf.compat.v1.placeholder(tf.float32, [2], name="first")
    with tf.Graph().as_default():
        b = tf.compat.v1.placeholder(tf.float32, [2], name="second")
        tfjac.jacobian(b * 2.0, a)


def two_targets_of_two_graphs():
    with tf.Graph().as_default():
        a = tf.compat.v1.placeholder(tf.float32, [2], name="first")
    with tf.Graph().as_default():
        b = tf.compat.v1.placeholder(tf.float32, [2], name="second")
        tfjac.jacobian([b * 2.0, a * 1.0], b)


def no_gradient(x):
    y = tf.reshape(tf.numpy_function(np.sinh, [x], tf.float32), [2, 2])
    return tfjac.jacobian(y * 3.0 + x, x)


BAD = {
    "eager target": (
        lambda: tfjac.jacobian(X, X),
        InvalidTypeError,
        ["`ys`", "eager tensor", "tfjac.prepare"],
    ),
    "eager batch target": (
        lambda: tfjac.batch_jacobian(X, X),
        InvalidTypeError,
        ["`ys`", "tfjac.prepare"],
    ),
    "eager source": (
        in_function(lambda x: tfjac.jacobian(x * 2.0, X), X),
        InvalidTypeError,
        ["`xs`", "eager tensor", "tfjac.prepare"],
    ),
    "eager variable": (
        lambda: tfjac.jacobian(tf.Variable(1.0), X),
        InvalidTypeError,
        ["`ys`", "tfjac.prepare"],
    ),
    "eager vjp": (lambda: tfjac.vjp(X, X, X), InvalidTypeError, ["`ys`", "tfjac.prepare"]),
    "eager jvp": (lambda: tfjac.jvp(X, X, X), InvalidTypeError, ["`ys`", "tfjac.prepare"]),
    "source of another graph": (two_graphs, InvalidValueError, ["`xs`", "first", "graph"]),
    "target of another graph": (
        two_targets_of_two_graphs,
        InvalidValueError,
        ["`ys`", "another graph"],
    ),
    "integer source": (
        in_function(lambda x: tfjac.jacobian(tf.cast(x, tf.float32), x), tf.constant([1, 2])),
        InvalidTypeError,
        ["`xs`", "int32", "Cast"],
    ),
    "integer target": (
        in_function(lambda x: tfjac.jacobian(tf.argsort(x), x), X),
        InvalidTypeError,
        ["`ys`", "int32", "Cast"],
    ),
    "unknown strategy": (
        in_function(lambda x: tfjac.jacobian(x, x, "reverse"), X),
        InvalidValueError,
        ["`strategy`", "'reverse'", *tfjac.strategies.names()],
    ),
    "strategy of another kind": (
        in_function(lambda x: tfjac.jacobian(x, x, 3), X),
        InvalidTypeError,
        ["`strategy`", "3", "supports"],
    ),
    "source that is no tensor": (
        in_function(lambda x: tfjac.jacobian(x, "x"), X),
        InvalidTypeError,
        ["`xs`", "'x'", "str"],
    ),
    "source that is an array": (
        in_function(lambda x: tfjac.jacobian(x, np.ones(2)), X),
        InvalidTypeError,
        ["`xs`", "ndarray"],
    ),
    "ragged target": (
        in_function(lambda x: tfjac.jacobian(tf.RaggedTensor.from_tensor(x), x), X),
        InvalidTypeError,
        ["`ys`", "Ragged", "flat_values"],
    ),
    "chunk size of none": (
        in_function(lambda x: tfjac.jacobian(x, x, chunk_size=0), X),
        InvalidValueError,
        ["`chunk_size`", "at least 1", "0"],
    ),
    "chunk size of a float": (
        in_function(lambda x: tfjac.jacobian(x, x, chunk_size=2.0), X),
        InvalidTypeError,
        ["`chunk_size`", "2.0"],
    ),
    "chunk size of a bool": (
        in_function(lambda x: tfjac.jacobian(x, x, chunk_size=True), X),
        InvalidTypeError,
        ["`chunk_size`", "True"],
    ),
    "chunk size without chunks": (
        in_function(lambda x: tfjac.jacobian(x, x, "unstack", chunk_size=4), X),
        InvalidValueError,
        ["`chunk_size`", "unstack"],
    ),
    "unknown unconnected": (
        in_function(lambda x: tfjac.jacobian(x, x, unconnected_gradients="nan"), X),
        InvalidValueError,
        ["`unconnected_gradients`", "'nan'", "zero"],
    ),
    "holomorphic but real": (
        in_function(lambda x: tfjac.jacobian(x, x, holomorphic=True), X),
        InvalidValueError,
        ["`holomorphic`", "float32"],
    ),
    "complex but not holomorphic": (
        in_function(lambda x: tfjac.jacobian(x * x, x), tf.cast(X, tf.complex64)),
        InvalidValueError,
        ["`holomorphic`", "complex64", "holomorphic=True"],
    ),
    "scalar target per example": (
        in_function(lambda x: tfjac.batch_jacobian(tf.reduce_sum(x), x), X),
        InvalidValueError,
        ["`ys`", "scalar", "jacobian"],
    ),
    "other number of examples": (
        in_function(lambda x: tfjac.batch_jacobian(x[:1], x), X),
        InvalidValueError,
        ["`xs`", "(2, 2)", "(1, 2)"],
    ),
    "variable per example": (
        lambda: tfjac.prepare(Model().per_example)(X),
        InvalidValueError,
        ["`xs`", "variable"],
    ),
    "cotangent of another shape": (
        in_function(lambda x: tfjac.vjp(x, x, tf.ones([3])), X),
        InvalidValueError,
        ["`cotangents`", "(2, 2)", "(3,)"],
    ),
    "tangent of another dtype": (
        in_function(lambda x: tfjac.jvp(x, x, tf.ones([2, 2], tf.float64)), X),
        InvalidTypeError,
        ["`tangents`", "float32", "float64"],
    ),
    "tangents of another structure": (
        in_function(lambda x: tfjac.jvp(x, [x], x), X),
        InvalidValueError,
        ["`tangents`"],
    ),
    "tangents of one source twice": (
        in_function(lambda x: tfjac.jvp(x, [x, x], [x, x]), X),
        InvalidValueError,
        ["`xs`", "twice"],
    ),
    "no gradient on the way": (
        in_function(no_gradient, X),
        NotDifferentiableError,
        ["PyFunc", "custom_gradient"],
    ),
    "prepare no function": (lambda: tfjac.prepare(X), InvalidTypeError, ["`fn`", "tfjac.jacobian"]),
    "prepare unknown strategy": (
        lambda: tfjac.prepare(tf.sin, strategy="x"),
        InvalidValueError,
        ["`strategy`"],
    ),
    "prepare bad chunk": (
        lambda: tfjac.prepare(tf.sin, chunk_size=-1),
        InvalidValueError,
        ["`chunk_size`"],
    ),
    "prepare bad argnums": (
        lambda: tfjac.prepare(tf.sin, argnums=-1),
        InvalidValueError,
        ["`argnums`", "-1"],
    ),
    "prepare argnums twice": (
        lambda: tfjac.prepare(tf.sin, argnums=(0, 0)),
        InvalidValueError,
        ["`argnums`"],
    ),
    "prepare argnums of another type": (
        lambda: tfjac.prepare(tf.sin, argnums="x"),
        InvalidValueError,
        ["`argnums`", "'x'"],
    ),
    "fewer arguments than argnums": (
        lambda: tfjac.prepare(tf.add, argnums=2)(X, X),
        InvalidValueError,
        ["`argnums`", "2"],
    ),
    "prepared integer source": (
        lambda: tfjac.prepare(tf.abs)(np.array([1, 2])),
        InvalidTypeError,
        ["`args[0]`", "int", "Cast"],
    ),
    "prepared source that is no tensor": (
        lambda: tfjac.prepare(tf.abs)("x"),
        InvalidTypeError,
        ["`args[0]`", "'x'"],
    ),
    "prepared ragged source": (
        lambda: tfjac.prepare(tf.abs)(tf.ragged.constant([[1.0], [2.0, 3.0]])),
        InvalidTypeError,
        ["`args[0]`", "RaggedTensor"],
    ),
    "prepared unhashable": (
        lambda: tfjac.prepare(lambda x, s: x)(X, {1, 2}),
        InvalidTypeError,
        ["`args[1]`", "set"],
    ),
    "function without a target": (
        lambda: tfjac.prepare(lambda x: None)(X),
        InvalidTypeError,
        ["`fn`", "None"],
    ),
    "no such device": (
        lambda: tfjac.prepare(tf.sin, device="/GPU:7")(X),
        InvalidValueError,
        ["`device`", "GPU:7", "CPU:0"],
    ),
    "no device at all": (
        lambda: tfjac.prepare(tf.sin, device="gpu!")(X),
        InvalidValueError,
        ["`device`", "gpu!"],
    ),
    "signature of another shape": (
        lambda: tfjac.prepare(tf.sin, input_signature=[tf.TensorSpec([3], tf.float32)])(X),
        InvalidValueError,
        ["`args[0]`", "(3,)", "(2, 2)"],
    ),
    "signature of another length": (
        lambda: tfjac.prepare(tf.sin, input_signature=[tf.TensorSpec([2, 2])])(X, X),
        InvalidValueError,
        ["`args`", "2 arguments"],
    ),
    "signature that is no list": (
        lambda: tfjac.prepare(tf.sin, input_signature=tf.TensorSpec([3])),
        InvalidTypeError,
        ["`input_signature`", "TensorSpec"],
    ),
    "signature of numbers": (
        lambda: tfjac.prepare(tf.sin, input_signature=[3]),
        InvalidTypeError,
        ["`input_signature`", "[3]"],
    ),
    "text where a tensor is due": (
        lambda: tfjac.prepare(tf.sin, input_signature=[tf.TensorSpec([])])("abc"),
        InvalidTypeError,
        ["`args[0]`", "'abc'"],
    ),
    "nothing where a tensor is due": (
        lambda: tfjac.prepare(tf.sin, input_signature=[tf.TensorSpec([])])(None),
        InvalidTypeError,
        ["`args[0]`", "None"],
    ),
    "array of objects": (
        lambda: tfjac.prepare(tf.sin)(np.array([[1.0], [1.0, 2.0]], dtype=object)),
        InvalidTypeError,
        ["`args[0]`", "tensor"],
    ),
    "argnums of nothing": (
        lambda: tfjac.prepare(tf.sin, argnums=None),
        InvalidValueError,
        ["`argnums`", "None"],
    ),
    "device of a number": (
        lambda: tfjac.prepare(tf.sin, device=0),
        InvalidTypeError,
        ["`device`", "0"],
    ),
    "strategy that cannot be hashed": (
        lambda: tfjac.prepare(tf.sin, strategy=Unhashable()),
        InvalidTypeError,
        ["`strategy`", "hashable"],
    ),
    "forward of a one-way op": (
        lambda: tfjac.prepare(tf.quantization.fake_quant_with_min_max_args, strategy="forward")(X),
        UnsupportedError,
        ["forward", "FakeQuantWithMinMaxArgs", "auto"],
    ),
}


class Unhashable(tfjac.strategies.Unstack):
    __hash__ = None


class Model:
    def __init__(self):
        self.w = tf.Variable([[1.0, 2.0], [3.0, 4.0]])

    def per_example(self, x):
        return tfjac.batch_jacobian(x @ self.w, self.w)


@pytest.mark.parametrize("name", list(BAD))
def test_bad_input_raises_an_error_that_helps(name):
    provoke, kind, words = BAD[name]
    with pytest.raises(kind) as caught:
        provoke()
    assert isinstance(caught.value, tfjac.errors.TfjacError)
    assert isinstance(caught.value, (ValueError, TypeError))
    for word in words:
        assert word in str(caught.value)


def test_nothing_is_added_to_the_graph_by_a_refused_request():
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [2])
        y = tf.sin(x)
        before = len(graph.get_operations())
        for bad in (
            lambda: tfjac.jacobian(y, x, "x"),
            lambda: tfjac.jacobian(y, [x, "x"]),
            lambda: tfjac.jacobian(y, x, chunk_size=0),
            lambda: tfjac.jacobian(y, x, holomorphic=True),
        ):
            with pytest.raises((ValueError, TypeError)):
                bad()
        assert len(graph.get_operations()) == before


def test_the_message_of_a_prepared_function_starts_with_the_fact():
    with pytest.raises(UnsupportedError, match="^no strategy can build"):
        tfjac.prepare(tf.quantization.fake_quant_with_min_max_args, strategy="forward")(X)
    with pytest.raises(InvalidValueError, match="^`ys` must be of rank 1 or more"):
        tfjac.prepare(tf.reduce_sum, batch=True)(X)


def test_examples_that_differ_in_number_at_run_time_are_told():
    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float64)])
    def shrunk(x):
        return tfjac.batch_jacobian(x[1:] ** 2, x, independence="assume")

    with pytest.raises(tf.errors.InvalidArgumentError, match="as many examples"):
        shrunk(array(3, 2))


def test_an_op_without_any_gradient_is_named():
    def fn(x):
        boxes = tf.constant([[0.0, 0.0, 1.0, 1.0]])
        return tf.image.crop_and_resize(x, boxes, [0], [2, 2])

    jac = tfjac.prepare(fn, strategy="forward")
    with pytest.raises(UnsupportedError, match="CropAndResize"):
        jac(array(1, 3, 3, 1, dtype=np.float32))
    assert tfjac.prepare(fn)(array(1, 3, 3, 1, dtype=np.float32)).shape == (1, 2, 2, 1, 1, 3, 3, 1)
