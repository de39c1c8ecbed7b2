"""Random graphs drawn from the ops that have rules: what is claimed of them is never wrong."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import tfjac

hypothesis = pytest.importorskip("hypothesis")
strategies = hypothesis.strategies

EXAMPLES = 3
LARGEST = 48

pytestmark = pytest.mark.filterwarnings("ignore::tfjac.errors.LoopFallbackWarning")


def constant(shape, seed):
    return tf.constant(np.random.default_rng(seed).uniform(0.3, 1.2, shape))


def permuted(draw, x):
    return tf.transpose(x, draw(strategies.permutations(range(x.shape.rank))))


def reshaped(draw, x):
    size, wanted = x.shape.num_elements(), []
    while size > 1 and len(wanted) < 3:
        factor = draw(strategies.sampled_from([f for f in range(1, size + 1) if size % f == 0]))
        wanted.append(factor)
        size //= factor
    return tf.reshape(x, [*wanted, size] if size > 1 or not wanted else wanted)


def axis_of(draw, x):
    return draw(strategies.integers(0, x.shape.rank - 1))


def sliced(draw, x):
    axis = axis_of(draw, x)
    size = x.shape[axis]
    begin = draw(strategies.integers(0, size - 1))
    step = draw(strategies.sampled_from([1, 2, -1]))
    picked = [slice(None)] * x.shape.rank
    picked[axis] = slice(None, None, step) if step != 1 else slice(begin, None)
    return x[tuple(picked)]


def gathered(draw, x):
    axis = axis_of(draw, x)
    position = strategies.integers(0, x.shape[axis] - 1)
    indices = draw(strategies.lists(position, min_size=1, max_size=4))
    return tf.gather(x, indices, axis=axis)


def padded(draw, x):
    paddings = [[0, 0]] * x.shape.rank
    paddings[axis_of(draw, x)] = [draw(strategies.integers(0, 1)), 1]
    return tf.pad(x, paddings)


def multiplied(draw, x):
    width = draw(strategies.integers(1, 3))
    return tf.matmul(x, constant([x.shape[-1], width], width)) if x.shape.rank > 1 else x * 2.0


def multiplied_from_left(draw, x):
    if x.shape.rank < 2:
        return x
    height = draw(strategies.integers(1, 3))
    return tf.matmul(constant([height, x.shape[-2]], height), x)


def with_itself(draw, x):
    other = draw(strategies.sampled_from([tf.sin, lambda x: tf.reverse(x, [0]), tf.identity]))
    return x * other(x)


def summed(draw, x):
    axis, keeps = axis_of(draw, x), draw(strategies.booleans())
    return draw(strategies.sampled_from([tf.reduce_sum, tf.reduce_mean, tf.reduce_max]))(
        x, axis=axis, keepdims=keeps
    )


def normalized(draw, x):
    return x - tf.reduce_mean(x, axis=axis_of(draw, x), keepdims=True)


def called(draw, x):
    return tf.function(draw(strategies.sampled_from(POINTWISE)))(x)


def joined(draw, x):
    return tf.concat([x, tf.cos(x)], axis_of(draw, x))


def stacked(draw, x):
    return tf.stack([x, x * 2.0], draw(strategies.integers(0, x.shape.rank)))


def taken_apart(draw, x):
    return tf.unstack(x, axis=axis_of(draw, x))[-1] if x.shape.rank > 1 else x


def looped(draw, x):
    body = draw(strategies.sampled_from([tf.sin, lambda a: a * 0.5, lambda a: tf.roll(a, 1, 0)]))
    return tf.while_loop(lambda i, _: i < 2, lambda i, a: (i + 1, body(a)), (0, x))[1]


POINTWISE = [tf.sin, tf.exp, tf.tanh, tf.square, tf.nn.relu, tf.nn.silu, tf.stop_gradient, tf.sign]
MOVES = [permuted, reshaped, sliced, gathered, padded, joined, stacked, taken_apart, looped, called]
MOVES += [multiplied, multiplied_from_left, with_itself, summed, normalized]
MOVES += [
    lambda draw, x: draw(strategies.sampled_from(POINTWISE))(x),
    lambda draw, x: x + constant(x.shape[-1:], 5),
    lambda draw, x: tf.cumsum(x, axis_of(draw, x), reverse=draw(strategies.booleans())),
    lambda draw, x: tf.nn.softmax(x, axis_of(draw, x)),
    lambda draw, x: tf.sort(x, axis_of(draw, x)),
    lambda draw, x: tf.roll(x, 1, axis_of(draw, x)),
    lambda draw, x: tf.reverse(x, [axis_of(draw, x)]),
    lambda draw, x: tf.expand_dims(x, draw(strategies.integers(0, x.shape.rank))),
    lambda draw, x: tf.tile(x, [1] * (x.shape.rank - 1) + [2]),
    lambda draw, x: tf.where(x > 0.5, x, constant([], 1) * x),
    lambda draw, x: tf.einsum("...i,i->...", x, constant([x.shape[-1]], 2)),
    lambda draw, x: tf.linalg.diag(x) if x.shape.rank < 3 else x,
]


class Recorded:
    """Plays the draws of one graph again, so that it can be built more than once."""

    def __init__(self, draw):
        self._draw, self._made, self._next = draw, [], 0

    def __call__(self, strategy):
        if self._next == len(self._made):
            self._made.append(self._draw(strategy))
        self._next += 1
        return self._made[self._next - 1]

    def rewind(self):
        self._next = 0


def graph_of(recorded):
    def fn(x):
        recorded.rewind()
        for _ in range(recorded(strategies.integers(1, 6))):
            move = MOVES[recorded(strategies.integers(0, len(MOVES) - 1))]
            y = move(recorded, x)
            if y.shape.rank and y.shape.rank <= 4 and y.shape.num_elements() <= LARGEST:
                x = y
        return tf.identity(x)

    return fn


def whole_jacobian(fn, x):
    @tf.function(autograph=False)
    def jacobian(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = fn(x)
        return y, tape.jacobian(
            y, x, experimental_use_pfor=False, unconnected_gradients=tf.UnconnectedGradients.ZERO
        )

    return [t.numpy() for t in jacobian(tf.constant(x))]


def check_claims(fn, x):
    y, whole = whole_jacobian(fn, x)
    found = {}

    @tf.function(autograph=False)
    def claims(x):
        target = fn(x)
        found["pattern"] = tfjac.jacobian_sparsity(target, x).to_dense()
        if target.shape.rank:
            found["dependence"] = tfjac.explain_dependence(target, x)
        return tfjac.jacobian(target, x)

    ours = claims(tf.constant(x)).numpy()
    nonzero = whole.reshape(y.size, x.size) != 0
    assert not np.any(nonzero & ~found["pattern"]), "the pattern misses a nonzero"
    scale = max(1.0, np.abs(whole).max(initial=0.0))
    np.testing.assert_allclose(ours, whole, rtol=0, atol=1e-12 * scale)
    if "dependence" not in found:
        return
    apart = found["dependence"].apart
    assert y.shape[:apart] == x.shape[:apart]
    for a in range(apart):
        ours_apart = np.moveaxis(whole, (a, y.ndim + a), (0, 1))
        off = ~np.eye(y.shape[a], dtype=bool)
        assert not np.any(ours_apart[off]), f"axis {a} is claimed to stay apart"
    if found["dependence"].independent and len(y) == EXAMPLES:
        blocks = np.stack([np.take(whole[b], b, axis=y.ndim - 1) for b in range(EXAMPLES)])
        each = tfjac.prepare(fn, batch=True)(x).numpy()
        np.testing.assert_allclose(each, blocks, rtol=0, atol=1e-12 * scale)


# Five lots of a hundred, so that they can run side by side.
@pytest.mark.parametrize("lot", range(5))
def test_what_is_claimed_of_a_random_graph_holds(lot):
    @hypothesis.seed(lot)
    @hypothesis.settings(
        max_examples=100,
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(strategies.data())
    def run(data):
        shape = (EXAMPLES, *data.draw(strategies.lists(strategies.integers(1, 3), max_size=2)))
        x = np.random.default_rng(lot).uniform(0.2, 1.0, shape)
        check_claims(graph_of(Recorded(data.draw)), x)

    run()


def test_a_wrong_claim_would_be_seen(monkeypatch):
    from tfjac import rules
    from tfjac.rules.pointwise import TABLE

    table = {**rules._TABLE, "Cumsum": TABLE["Tanh"]}
    monkeypatch.setattr(rules, "_TABLE", table)
    with pytest.raises(AssertionError):
        check_claims(lambda x: tf.cumsum(x), np.ones((3, 2)))
