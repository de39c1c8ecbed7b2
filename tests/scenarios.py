"""The table of problems: each is run under every strategy and in every way of calling.

The oracle is a closed form where there is one, else fourth-order central differences of the
function's values in float64. Shapes are awkward on purpose: not square, odd, of one, of none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

ALL_MODES = ("session", "function", "xla", "prepared")


@dataclasses.dataclass(frozen=True)
class Scenario:
    """One problem.

    Args:
      name: its name in test ids.
      fn: from the inputs to one target. Builds all it needs, so that it works in any graph.
      inputs: the sources.
      expected: full Jacobian by each source, from the inputs; None for central differences.
      batch: whether examples are independent.
      signature: shapes for the tf.function and Session modes; None for those of the inputs.
      modes: ways of calling that work.
      refused: strategies that must refuse.
      tolerance: relative to the largest entry.
      independence: as in `batch_jacobian`.
      options: further keyword arguments.
    """

    name: str
    fn: Callable[..., Any]
    inputs: tuple[np.ndarray, ...]
    expected: Callable[..., Sequence[np.ndarray]] | None = None
    batch: bool = True
    signature: tuple[Any, ...] | None = None
    modes: tuple[str, ...] = ALL_MODES
    refused: frozenset[str] = frozenset()
    tolerance: float = 1e-12
    independence: str = "prove"
    options: dict[str, Any] = dataclasses.field(default_factory=dict)

    def specs(self) -> list[tf.TensorSpec]:
        """Returns the signature of the inputs."""
        shapes = self.signature or [x.shape for x in self.inputs]
        return [tf.TensorSpec(s, x.dtype) for s, x in zip(shapes, self.inputs)]

    def oracle(self) -> list[np.ndarray]:
        """Returns the full Jacobian by each source, `y.shape + x.shape`."""
        if self.expected is not None:
            return list(self.expected(*self.inputs))
        return [central_differences(self.fn, self.inputs, i) for i in range(len(self.inputs))]


def central_differences(fn, inputs: Sequence[np.ndarray], index: int, h: float = 1e-3):
    """Returns dy/dx by a fourth-order stencil in float64, `y.shape + x.shape`."""
    evaluate = tf.function(fn, autograph=False)
    x = inputs[index]

    def at(flat_x):
        moved = list(inputs)
        moved[index] = flat_x.reshape(x.shape).astype(x.dtype)
        return np.asarray(evaluate(*map(tf.constant, moved))).astype(np.float64)

    columns = []
    for j in range(x.size):
        e = np.zeros(x.size)
        e[j] = h
        flat = x.reshape(-1).astype(np.float64)
        columns.append(
            (8 * (at(flat + e) - at(flat - e)) - (at(flat + 2 * e) - at(flat - 2 * e))) / (12 * h)
        )
    return np.stack(columns, axis=-1).reshape(columns[0].shape + x.shape)


def block_diagonal(full: np.ndarray, y_rank: int) -> np.ndarray:
    """Returns the per-example blocks `[B] + y.shape[1:] + x.shape[1:]` of a full Jacobian."""
    return (
        np.stack([np.take(full[b], b, axis=y_rank - 1) for b in range(full.shape[0])])
        if (full.shape[0])
        else np.zeros((0,) + full.shape[1:y_rank] + full.shape[y_rank + 1 :])
    )


def array(*shape: int, seed: int = 0, dtype=np.float64) -> np.ndarray:
    """Returns numbers in [-1, 1) that no kink or tie lies near."""
    return (np.random.default_rng(seed).uniform(-1, 1, shape)).astype(dtype)


def _weights(*shape: int, seed: int = 7) -> np.ndarray:
    return array(*shape, seed=seed)


def _mlp(x):
    for n, m, activation in ((4, 5, tf.sigmoid), (5, 3, tf.sigmoid), (3, 1, tf.identity)):
        x = activation(x @ tf.constant(_weights(n, m, seed=n), x.dtype))
    return x


def _linear_jacobian(x):
    w = _weights(4, 2)
    full = np.zeros((x.shape[0], 2) + x.shape)
    for b in range(x.shape[0]):
        full[b, :, b] = w.T
    return [full]


def _diagonal(values: np.ndarray) -> np.ndarray:
    return np.diag(values.reshape(-1)).reshape(values.shape * 2)


@tf.custom_gradient
def _triple_gradient(x):
    # Wrong on purpose, and linear in the cotangent: only who honours it finds 3 x^2.
    return tf.identity(x), lambda upstream: 3.0 * tf.square(x) * upstream


def _conv(x):
    y = tf.nn.conv2d(x, tf.constant(_weights(2, 2, 1, 2), x.dtype), 1, "SAME")
    return tf.nn.avg_pool2d(tf.nn.softplus(y), 2, 2, "VALID")


def _moved(x):
    y = tf.transpose(tf.pad(x, [[0, 0], [1, 0], [0, 2]]), [0, 2, 1])
    return tf.concat([y[:, ::2], 2.0 * tf.reverse(y, [1])[:, 1:3]], axis=1)


def _layer_norm(x):
    mean, variance = tf.nn.moments(x, [1], keepdims=True)
    return (x - mean) * tf.math.rsqrt(variance + 1e-3)


def _bounded_loop(x):
    return tf.while_loop(
        lambda i, h: i < 3, lambda i, h: (i + 1, tf.tanh(h * x) + h), (0, x), maximum_iterations=3
    )[1]


def _branch(x):
    return tf.cond(tf.reduce_sum(x) > -100.0, lambda: tf.sin(x) * x, lambda: tf.zeros_like(x))


def _called(x):
    @tf.function
    def inner(z):
        return tf.exp(z) * z[:, :1]

    return inner(x) + inner(2.0 * x)


def _mapped(x):
    return tf.map_fn(lambda row: tf.stack([row[0] * row[1], tf.exp(row[0])]), x)


def _variable_size(x):
    return tf.boolean_mask(x, x > -0.2) ** 2


def _solve(x):
    spd = tf.matmul(x, x, transpose_a=True) + 2.0 * tf.eye(3, dtype=x.dtype)
    return tf.linalg.cholesky_solve(tf.linalg.cholesky(spd), tf.ones([2, 3, 1], x.dtype))


def _dtype_jacobian(x):
    return [_diagonal(2 * x.astype(np.float64))]


def _centred_jacobian(x):
    b, n = x.shape
    return [np.einsum("bc,ij->bicj", np.eye(b) - 1.0 / b, np.eye(n))]


def _holomorphic_jacobian(z):
    return [np.diag(2 * z * np.exp(z * z))]


def _spectrum_jacobian(x):
    n = np.arange(6)
    return [np.exp(-2j * np.pi * np.outer(n[:4], n) / 6).astype(np.complex64)]


def _modulus_jacobian(z):
    # dy/d Re z + i dy/d Im z of |z|^2.
    return [np.diag(2 * z)]


_COMPLEX = array(3, seed=1) + 1j * array(3, seed=2)
_NO_XLA = ("session", "function", "prepared")

SCENARIOS = (
    Scenario("matmul", lambda x: x @ tf.constant(_weights(4, 2)), (array(3, 4),), _linear_jacobian),
    Scenario(
        "matmul_unknown_batch",
        lambda x: x @ tf.constant(_weights(4, 2)),
        (array(3, 4),),
        _linear_jacobian,
        signature=([None, 4],),
        modes=("session", "function"),
    ),
    Scenario(
        "matmul_unknown_rank",
        lambda x: x @ tf.constant(_weights(4, 2)),
        (array(3, 4),),
        _linear_jacobian,
        signature=(None,),
        modes=("session", "function"),
        refused=frozenset({"unstack/full", "unstack/batch"}),
        independence="assume",  # nothing is shown of unknown ranks
    ),
    Scenario(
        "batch_of_none", lambda x: x @ tf.constant(_weights(4, 2)), (array(0, 4),), _linear_jacobian
    ),
    Scenario(
        "batch_of_none_unknown",
        lambda x: x @ tf.constant(_weights(4, 2)),
        (array(0, 4),),
        _linear_jacobian,
        signature=([None, 4],),
        modes=("session", "function"),
    ),
    Scenario(
        "batch_of_one", lambda x: x @ tf.constant(_weights(4, 2)), (array(1, 4),), _linear_jacobian
    ),
    Scenario("sigmoid_net", _mlp, (array(3, 4),), tolerance=1e-9),
    Scenario(
        "target_of_shape_B",
        lambda x: tf.reduce_sum(x**3, axis=1),
        (array(3, 2),),
        lambda x: [np.einsum("bc,cj->bcj", np.eye(3), 3 * x**2)],
    ),
    Scenario(
        "source_of_shape_B",
        lambda x: tf.stack([x, x * x], 1),
        (array(3),),
        lambda x: [np.einsum("bc,ci->bic", np.eye(3), np.stack([1 + 0 * x, 2 * x], 1))],
    ),
    Scenario("elementwise", lambda x: tf.tanh(tf.sin(x) * 2.0), (array(2, 3),), tolerance=1e-9),
    Scenario("scalar_scalar", lambda x: tf.exp(x), (array(),), lambda x: [np.exp(x)], batch=False),
    Scenario(
        "vector_scalar", lambda x: tf.reduce_sum(x**2), (array(5),), lambda x: [2 * x], batch=False
    ),
    Scenario(
        "scalar_vector",
        lambda x: x * tf.constant([1.0, -2.0, 3.0], x.dtype),
        (array(),),
        lambda x: [np.array([1.0, -2.0, 3.0])],
        batch=False,
    ),
    Scenario("rank_4", _conv, (array(2, 4, 3, 1),), tolerance=1e-9),
    Scenario(
        "rank_3_to_2",
        lambda x: tf.einsum("btn,nm->bm", tf.sin(x), _weights(2, 3)),
        (array(2, 3, 2),),
        tolerance=1e-9,
    ),
    Scenario("movement", _moved, (array(2, 3, 2),), tolerance=1e-9),
    Scenario(
        "gather_repeated",
        lambda x: tf.gather(x, [2, 0, 2]) * tf.gather(x, [0, 1, 1]),
        (array(3, 2),),
        batch=False,
        tolerance=1e-9,
    ),
    Scenario("softmax", lambda x: tf.nn.softmax(x), (array(2, 4),), tolerance=1e-9),
    Scenario("layer_norm", _layer_norm, (array(2, 4),), tolerance=1e-8),
    Scenario(
        "relu_and_max",
        lambda x: tf.nn.relu(x) + tf.reduce_max(x, 1, keepdims=True),
        (array(3, 4, seed=3),),
        tolerance=1e-9,
    ),
    Scenario(
        "cumulative",
        lambda x: tf.concat([tf.cumsum(x, 1), tf.math.cumprod(x, 1)], 1),
        (array(2, 3),),
        tolerance=1e-9,
    ),
    Scenario(
        "custom_gradient",
        lambda x: _triple_gradient(x) * 2.0,
        (array(2, 3),),
        lambda x: [_diagonal(6 * x**2)],
    ),
    Scenario(
        "stop_gradient", lambda x: x * tf.stop_gradient(x), (array(2, 3),), lambda x: [_diagonal(x)]
    ),
    Scenario(
        "sign_and_floor",
        lambda x: tf.sign(x) + x * tf.floor(3.0 * x),
        (array(2, 3),),
        lambda x: [_diagonal(np.floor(3.0 * x))],
    ),
    Scenario("sign_alone", lambda x: tf.sign(x), (array(2, 3),), lambda x: [_diagonal(0 * x)]),
    Scenario("loop", _bounded_loop, (array(2, 3),), tolerance=1e-9, modes=_NO_XLA),
    Scenario("branch", _branch, (array(2, 3),), tolerance=1e-9),
    Scenario("nested_function", _called, (array(2, 3),), tolerance=1e-9),
    Scenario("map_fn", _mapped, (array(3, 2),), tolerance=1e-9, modes=_NO_XLA),
    Scenario(
        "size_known_when_run",
        _variable_size,
        (array(2, 3),),
        batch=False,
        tolerance=1e-9,
        modes=_NO_XLA,
        refused=frozenset({"unstack/full"}),
    ),
    Scenario("linear_algebra", _solve, (array(2, 3, 3),), tolerance=1e-8),
    Scenario("target_is_source", lambda x: x, (array(2, 3),), lambda x: [_diagonal(1 + 0 * x)]),
    Scenario(
        "constant",
        lambda x: tf.ones([3, 1], tf.float64),
        (array(3, 2),),
        lambda x: [np.zeros((3, 1, 3, 2))],
    ),
    Scenario(
        "two_sources",
        lambda a, b: tf.sin(a) * b[:, :1],
        (array(2, 3), array(2, 2, seed=1)),
        tolerance=1e-9,
    ),
    Scenario(
        "second_source_unconnected",
        lambda a, b: tf.sin(a),
        (array(2, 3), array(2, 2)),
        lambda a, b: [_diagonal(np.cos(a)), np.zeros((2, 3, 2, 2))],
    ),
    Scenario(
        "examples_mix",
        lambda x: x - tf.reduce_mean(x, 0),
        (array(3, 2),),
        _centred_jacobian,
        batch=False,
    ),
    Scenario(
        "softsign",
        lambda x: tf.nn.softsign(x),
        (array(2, 3),),
        lambda x: [_diagonal(1 / (1 + np.abs(x)) ** 2)],
    ),
    Scenario(
        "one_way_op",
        lambda x: tf.quantization.fake_quant_with_min_max_args(x, -9.0, 9.0),
        (array(2, 3, dtype=np.float32),),
        lambda x: [_diagonal(np.ones_like(x))],
        refused=frozenset({"forward/full", "forward/batch"}),
    ),
    Scenario(
        "float32",
        lambda x: x * x,
        (array(2, 3, dtype=np.float32),),
        _dtype_jacobian,
        tolerance=1e-6,
    ),
    Scenario(
        "float16",
        lambda x: x * x,
        (array(2, 3, dtype=np.float16),),
        _dtype_jacobian,
        tolerance=2e-3,
    ),
    Scenario(
        "bfloat16",
        lambda x: x * x,
        (array(2, 3, dtype=tf.bfloat16.as_numpy_dtype),),
        _dtype_jacobian,
        tolerance=2e-2,
    ),
    Scenario(
        "bfloat16_inside",
        lambda x: tf.cast(tf.cast(x, tf.bfloat16) ** 2, tf.float32),
        (array(2, 3, dtype=np.float32),),
        _dtype_jacobian,
        tolerance=2e-2,
    ),
    Scenario(
        "float32_target_float64_source",
        lambda x: tf.cast(x * x, tf.float32),
        (array(2, 3),),
        _dtype_jacobian,
        tolerance=1e-6,
    ),
    Scenario(
        "holomorphic",
        lambda z: tf.exp(z * z),
        (_COMPLEX,),
        _holomorphic_jacobian,
        tolerance=1e-12,
        options={"holomorphic": True},
    ),
    # float32, because XLA of TensorFlow 2.16 has no float64 transform.
    Scenario(
        "real_to_complex",
        lambda x: tf.signal.rfft(x),
        (array(6, dtype=np.float32),),
        _spectrum_jacobian,
        batch=False,
        tolerance=1e-6,
    ),
    Scenario(
        "complex_to_real",
        lambda z: tf.math.real(z * tf.math.conj(z)),
        (_COMPLEX,),
        _modulus_jacobian,
        refused=frozenset({"forward/full", "forward/batch"}),
    ),
)
