"""What is planned and built for many sources grows with the depth of a net, not with its square."""

import functools

import numpy as np
import pytest
import tensorflow as tf

import tfjac
from tfjac import sweeps
from tfjac.accumulation import contraction, pieces
from tfjac.graph import paths, subgraph

layers = tf.keras.layers

# Twice the depth may take so many times as much: a little more than twice, for what does not depend
# on it makes it less and what is rounded more.
DOUBLE = 2.3

# Tangents are carried on until they cost more than reverse mode does for the whole way: through few
# layers where there are many of them.
WIDTH = 40


def squared(logits, labels):
    return tf.reduce_sum((logits - tf.one_hot(labels, 3, dtype=logits.dtype)) ** 2, 1)


def cross_entropy(logits, labels):
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)


def cross_entropy_of_shares(logits, labels):
    shares = tf.one_hot(labels, 3, dtype=logits.dtype)
    return tf.nn.softmax_cross_entropy_with_logits(shares, logits)


LOSSES = [squared, cross_entropy, cross_entropy_of_shares]


def plain(depth, dtype="float32"):
    inner = [layers.Dense(WIDTH, "tanh", dtype=dtype) for _ in range(depth)]
    return tf.keras.Sequential(
        [tf.keras.Input((5,), dtype=dtype), *inner, layers.Dense(3, dtype=dtype)]
    )


def residual(depth, dtype="float32"):
    given = tf.keras.Input((5,), dtype=dtype)
    x = layers.Dense(WIDTH, dtype=dtype)(given)
    for _ in range(depth):
        inner = layers.Dense(WIDTH, "tanh", dtype=dtype)(x)
        x = layers.Add(dtype=dtype)([x, layers.Dense(WIDTH, dtype=dtype)(inner)])
    return tf.keras.Model(given, layers.Dense(3, dtype=dtype)(x))


def of_pictures(dtype):
    return tf.keras.Sequential(
        [
            tf.keras.Input((6, 6, 2), dtype=dtype),
            layers.Conv2D(3, 3, dtype=dtype),
            layers.BatchNormalization(dtype=dtype),
            layers.ReLU(dtype=dtype),
            layers.Conv2D(4, 2, strides=2, dtype=dtype),
            layers.Flatten(dtype=dtype),
            layers.Dense(3, dtype=dtype),
        ]
    )


def inverted_bottlenecks(dtype):
    given = tf.keras.Input((5, 5, 2), dtype=dtype)
    x = layers.Conv2D(2, 1, dtype=dtype)(given)
    for _ in range(2):
        inner = layers.Conv2D(6, 1, use_bias=False, dtype=dtype)(x)
        inner = layers.ReLU(6.0, dtype=dtype)(layers.BatchNormalization(dtype=dtype)(inner))
        inner = layers.DepthwiseConv2D(3, padding="same", use_bias=False, dtype=dtype)(inner)
        inner = layers.ReLU(6.0, dtype=dtype)(layers.BatchNormalization(dtype=dtype)(inner))
        inner = layers.Conv2D(2, 1, use_bias=False, dtype=dtype)(inner)
        x = layers.Add(dtype=dtype)([x, layers.BatchNormalization(dtype=dtype)(inner)])
    pooled = layers.GlobalAveragePooling2D(dtype=dtype)(x)
    return tf.keras.Model(given, layers.Dense(3, dtype=dtype)(pooled))


def recurrent(make):
    def net(dtype):
        return tf.keras.Sequential(
            [tf.keras.Input((3, 2), dtype=dtype), make(dtype), layers.Dense(3, dtype=dtype)]
        )

    return net


RECURRENT = {
    "lstm": recurrent(lambda dtype: layers.LSTM(2, dtype=dtype)),
    "gru": recurrent(lambda dtype: layers.GRU(2, dtype=dtype)),
    "bidirectional": recurrent(
        lambda dtype: layers.Bidirectional(layers.GRU(2, dtype=dtype), dtype=dtype)
    ),
}
NETS = {
    "plain": lambda dtype: plain(2, dtype),
    "residual": lambda dtype: residual(2, dtype),
    "of pictures": of_pictures,
    "inverted bottlenecks": inverted_bottlenecks,
    **RECURRENT,
}


def traced(net, loss, build):
    """Returns the graph of `build(losses, weights)`."""
    x = tf.TensorSpec([4, *net.input_shape[1:]], net.dtype)
    return (
        tf.function(lambda x, labels: build(loss(net(x), labels), net.trainable_weights))
        .get_concrete_function(x, tf.TensorSpec([4], tf.int32))
        .graph
    )


def ops_of(net, loss, build):
    return len(traced(net, loss, build).get_operations())


def count_calls(monkeypatch, owner, name):
    """Returns a list that gains an entry at each call of `owner.name`."""
    calls, function = [], getattr(owner, name)

    def counted(*args, **options):
        calls.append(name)
        return function(*args, **options)

    monkeypatch.setattr(owner, name, counted)
    return calls


@pytest.mark.parametrize("make", [plain, residual])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("build", [tfjac.per_example_gradient_norms, tfjac.per_example_gradients])
def test_twice_the_depth_takes_twice_the_ops(make, loss, build):
    few, many = (ops_of(make(depth), loss, build) for depth in (6, 12))
    assert many <= DOUBLE * few


@pytest.mark.parametrize("make", [plain, residual])
@pytest.mark.parametrize("loss", LOSSES)
def test_twice_the_depth_takes_twice_the_planning(make, loss, monkeypatch):
    counts = [
        count_calls(monkeypatch, pieces.Piece, "_swept_back"),
        count_calls(monkeypatch, contraction, "_multiplied"),
        count_calls(monkeypatch, pieces, "nodes_of"),
    ]
    found = []
    for depth in (6, 12):
        for calls in counts:
            calls.clear()
        traced(make(depth), loss, tfjac.per_example_gradient_norms)
        found.append([len(calls) for calls in counts])
    few, many = np.array(found)
    assert few.all()
    assert (many <= DOUBLE * few).all(), found


@pytest.mark.parametrize("build", [tfjac.per_example_gradient_norms, tfjac.jacobian])
def test_the_graph_before_a_target_is_read_once_for_all_weights(build, monkeypatch):
    net, reads = plain(6), count_calls(monkeypatch, paths, "Paths")
    traced(net, cross_entropy, build)
    assert len(reads) == 1


@pytest.mark.parametrize("name", RECURRENT)
def test_weights_within_loops_share_one_map(name, monkeypatch):
    traces = count_calls(monkeypatch, sweeps, "_traced")
    traced(RECURRENT[name]("float32"), squared, tfjac.per_example_gradient_norms)
    assert len(traces) == 1


def inputs_of(net, seed):
    random = np.random.default_rng(seed)
    for weight in net.weights:  # no symmetric start, and no variance below zero
        weight.assign(random.uniform(0.2, 1.0, weight.shape))
    x = tf.constant(random.normal(size=[4, *net.input_shape[1:]]))
    return x, tf.constant(random.integers(0, 3, 4), tf.int32)


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("loss", LOSSES)
def test_norms_are_those_of_one_tape_for_each_example(name, loss):
    net = NETS[name]("float64")
    x, labels = inputs_of(net, 1)
    found = tf.function(
        lambda x: tfjac.per_example_gradient_norms(loss(net(x), labels), net.trainable_weights)
    )(x)
    for b in range(4):
        with tf.GradientTape() as tape:
            value = loss(net(x[b : b + 1]), labels[b : b + 1])
        parts = tape.gradient(value, net.trainable_variables)
        np.testing.assert_allclose(found[b], tf.linalg.global_norm(parts), rtol=1e-9)


def by_one(net, weight, x):
    return tfjac.jacobian(net(x), weight)


@pytest.mark.parametrize("name", NETS)
def test_jacobians_by_all_weights_are_those_of_a_tape_and_those_of_each_alone(name):
    net = NETS[name]("float64")
    x, _ = inputs_of(net, 2)
    together = tf.function(lambda x: tfjac.jacobian(net(x), net.trainable_weights))(x)
    for weight, found in zip(net.trainable_variables, together):
        with tf.GradientTape(persistent=True) as tape:
            y = net(x)
        wanted = tape.jacobian(y, weight.value, experimental_use_pfor=False)
        alone = tf.function(functools.partial(by_one, net, weight))(x)
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(alone, wanted, rtol=1e-9, atol=1e-11)


def random_graph(seed):
    """Returns tensors, each made of one or two before it; `split` has two outputs."""
    random = np.random.default_rng(seed)
    with tf.Graph().as_default():
        tensors = [tf.compat.v1.placeholder(tf.float32, [4]) for _ in range(2)]
        for _ in range(14):
            first, second = (tensors[k] for k in random.integers(max(0, len(tensors) - 5),
                                                                 len(tensors), 2))  # fmt: skip
            kind = random.integers(3)
            if kind == 2:
                tensors += [tf.tile(part, [2]) for part in tf.split(first, 2)]
            else:
                tensors.append(first + second if kind else tf.tanh(first))
    return tensors


def is_cut_by(tensor, source, target):
    """Returns whether no path from the source to the target avoids a tensor, by a plain search."""
    waiting, seen = [source], set()
    while waiting:
        now = waiting.pop()
        if now is target:
            return False
        for op in now.consumers():
            for following in op.outputs:
                if following is not tensor and following.name not in seen:
                    seen.add(following.name)
                    waiting.append(following)
    return True


@pytest.mark.parametrize("seed", range(20))
def test_paths_are_those_of_a_search_for_each_source(seed):
    tensors = random_graph(seed)
    target = tensors[-1]
    read = paths.Paths(target)
    behind = {subgraph.key_of(t): t for t in subgraph.tensors_behind(target)}
    for source in behind.values():
        ops = subgraph.ops_between(target, [source])
        assert {op.name for op in read.ops([source])} == {op.name for op in ops}
        if not ops:
            continue
        between = [t for op in ops for t in op.outputs]
        wanted = {t.name for t in between if t is not target and is_cut_by(t, source, target)}
        chain = read.chain([source])
        assert {t.name for t in chain} == wanted | {target.name}
        for end in chain:
            inner = subgraph.ops_between(end, [source])
            assert {op.name for op in read.ops([source], end)} == {op.name for op in inner}


@pytest.mark.parametrize("seed", range(5))
def test_paths_from_several_sources_end_where_one_of_them_begins(seed):
    tensors = random_graph(seed)
    read = paths.Paths(tensors[-1])
    for sources in ([tensors[0], tensors[1]], [tensors[0], tensors[-4]], tensors[2:7]):
        known = [t for t in sources if subgraph.ops_between(tensors[-1], [t])]
        wanted = subgraph.ops_between(tensors[-1], known)
        assert {op.name for op in read.ops(known)} == {op.name for op in wanted}
