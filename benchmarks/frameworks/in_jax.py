"""The vocabulary of the nets in JAX."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

einsum = jnp.einsum
exp = jnp.exp
gelu = functools.partial(jax.nn.gelu, approximate=False)
matvec = jnp.matmul
mean = jnp.mean
relu = jax.nn.relu
sigmoid = jax.nn.sigmoid
softmax = jax.nn.softmax
tanh = jnp.tanh


def tensor(array: np.ndarray) -> jax.Array:
    """Returns an array as a float32 tensor."""
    return jnp.asarray(array, jnp.float32)


weight = tensor


def layer_norm(x: jax.Array, gain: jax.Array, offset: jax.Array) -> jax.Array:
    """Returns x normalized over its last axis."""
    average = jnp.mean(x, -1, keepdims=True)
    variance = jnp.var(x, -1, keepdims=True)
    return (x - average) * jax.lax.rsqrt(variance + 1e-3) * gain + offset


def reshape(x: jax.Array, old: tuple[int, ...], new: tuple[int, ...]) -> jax.Array:
    """Returns x with its last axes, of sizes `old`, as axes of sizes `new`."""
    return jnp.reshape(x, (*x.shape[: x.ndim - len(old)], *new))


def as_image(x: jax.Array) -> jax.Array:
    """Returns pictures with an axis of channels, where the framework has it."""
    return x[..., None]


def flatten_image(x: jax.Array) -> jax.Array:
    """Returns pictures as vectors: height, width, channel."""
    return jnp.reshape(x, (*x.shape[:-3], -1))


def picture(x: jax.Array, height: int, width: int, channels: int) -> jax.Array:
    """Returns vectors as pictures: the inverse of `flatten_image`."""
    return jnp.reshape(x, (*x.shape[:-1], height, width, channels))


def enlarge(x: jax.Array) -> jax.Array:
    """Returns pictures of twice the height and width, each pixel repeated."""
    return jnp.repeat(jnp.repeat(x, 2, axis=-3), 2, axis=-2)


def join(x: jax.Array, other: jax.Array) -> jax.Array:
    """Returns the channels of both."""
    return jnp.concatenate([x, other], axis=-1)


def convolve(x: jax.Array, kernel: jax.Array, padded: bool) -> jax.Array:
    """Returns x convolved with a kernel of height, width, input and output channels."""
    batch = x if x.ndim == 4 else x[None]
    convolved = jax.lax.conv_general_dilated(
        batch,
        kernel,
        (1, 1),
        "SAME" if padded else "VALID",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    return convolved if x.ndim == 4 else convolved[0]


def max_pool(x: jax.Array) -> jax.Array:
    """Returns the maxima of windows of 2x2."""
    window = (1,) * (x.ndim - 3) + (2, 2, 1)
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, window, "VALID")


def pad_last(x: jax.Array) -> jax.Array:
    """Returns x with a zero before and after it, along the last axis."""
    return jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(1, 1)])


def zeros_per_example(x: jax.Array, trailing: int, size: int) -> jax.Array:
    """Returns zeros of that size for each example of x, which has so many axes besides."""
    return jnp.zeros((*x.shape[: x.ndim - trailing], size), x.dtype)


def scan(step: Callable[[Any, Any], Any], state: Any, x: jax.Array, steps: int) -> Any:
    """Returns the state after `step(state, x[..., t, :])` for each t of the last axis but one."""
    along = jnp.moveaxis(x, -2, 0)
    return jax.lax.scan(lambda state, x: (step(state, x), None), state, along, steps)[0]
