"""Maps over products of matrices in batches of unknown size, of which one example is unsafe."""

import maps
import numpy as np
import pytest
import tensorflow as tf

import tfjac

W = np.random.default_rng(0).normal(size=(3, 3))


def _attended(x):
    # The loop keeps the product out of what is carried by its own local Jacobians.
    h = tf.while_loop(
        lambda i, _: i < 2,
        lambda i, h: (i + 1, tf.tanh(h * tf.constant(W[0], h.dtype))),
        (0, x),
        maximum_iterations=2,
    )[1]
    return tf.matmul(tf.nn.softmax(tf.matmul(h, h, transpose_b=True)), x)


@pytest.mark.parametrize("strategy", ["auto", "vectorized", "forward", "cross_country"])
@pytest.mark.parametrize("jit_compile", [False, True])
def test_one_example_or_several_found_when_it_runs(strategy, jit_compile):
    if jit_compile and strategy != "auto":
        pytest.skip("XLA does not map a loop")
    jac = tfjac.prepare(
        _attended,
        batch=True,
        strategy=strategy,
        jit_compile=jit_compile,
        input_signature=[tf.TensorSpec([None, 4, 3])],
    )
    for examples in (1, 3, 1):
        x = tf.random.stateless_normal([examples, 4, 3], [1, examples])
        expected = maps.blocks_of(_attended, np.asarray(x, np.float64)).reshape(
            examples, 4, 3, 4, 3
        )
        np.testing.assert_allclose(jac(x), expected, rtol=1e-3, atol=1e-4)
    assert jac.cache_info().misses == 1


def test_of_one_example_that_is_known_the_map_is_refused():
    with pytest.raises(tfjac.errors.UnsupportedError, match="may have a batch of one"):
        tfjac.prepare(_attended, batch=True, strategy="vectorized")(tf.ones([1, 4, 3]))
