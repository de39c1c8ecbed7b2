"""`python -m tfjac calibrate`: measures what the kernels of this machine reach, and keeps it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from tfjac import rates
from tfjac.rates import Rates

# A kernel is timed so often, and as long; the least counts, for other work on the machine adds.
_CALLS = 30
_SECONDS = 0.6
_CHAIN = 200


def measured() -> Rates:
    """Returns the rates of this machine, in about 20 seconds.

    Run it while nothing else runs.
    """
    call = _time(lambda a: a + 1.0, _random(1))
    op = max((_time(_chained(lambda a: a @ a, _CHAIN), _random(4, 4)) - call) / _CHAIN, 1e-7)
    found = {"call": call, "op": op, "turn": _turn(call)}
    return Rates(**found, **_traffic(call), **_products(call), **_windows(call), built=_built())


def main(path: str | None) -> None:
    """Measures, prints and writes.

    Args:
      path: of the file; None for the one that is read by itself.
    """
    found = measured()
    for field in dataclasses.fields(found):
        print(f"{field.name:<15} {getattr(found, field.name):.3g}")
    print(f"written to {rates.write(found, path)}")


def _random(*shape: int) -> tf.Tensor:
    return tf.constant(np.random.default_rng(0).normal(size=shape), tf.float32)


def _time(fn: Callable[..., tf.Tensor], *args: tf.Tensor) -> float:
    """Returns the least seconds of a call, once it is warm."""
    function = tf.function(fn, autograph=False)
    function(*args)
    best, begun = float("inf"), time.perf_counter()
    for _ in range(_CALLS):
        start = time.perf_counter()
        function(*args)
        tf.test.experimental.sync_devices()
        best = min(best, time.perf_counter() - start)
        if time.perf_counter() - begun > _SECONDS:
            break
    return best


def _chained(step: Callable[[tf.Tensor], tf.Tensor], count: int) -> Callable:
    def run(a: tf.Tensor) -> tf.Tensor:
        for _ in range(count):
            a = step(a)
        return a

    return run


def _beyond(call: float, fn: Callable[..., tf.Tensor], *args: tf.Tensor) -> float:
    """Returns the seconds of a kernel without those of the call, some at least."""
    return max(_time(fn, *args) - call, 1e-6)


def _turn(call: float) -> float:
    """Returns the seconds of a turn as strategies have it: a unit vector, a call, a row kept."""
    row = tf.function(lambda a, unit: a @ unit, autograph=False)

    def loop(a: tf.Tensor) -> tf.Tensor:
        def body(i: tf.Tensor, rows: tf.TensorArray):
            unit = tf.broadcast_to(tf.reshape(tf.one_hot(i, _CHAIN), [_CHAIN, 1]), [_CHAIN, 4])
            return i + 1, rows.write(i, row(a, unit))

        rows = tf.TensorArray(tf.float32, _CHAIN)
        return tf.while_loop(lambda i, _: i < _CHAIN, body, (0, rows))[1].stack()

    return _beyond(call, loop, _random(4, _CHAIN)) / _CHAIN


def _traffic(call: float) -> dict[str, float]:
    large, small = _random(2000, 2000), _random(64, 8, 8)
    size = 4.0 * 2000 * 2000
    moved = _beyond(call, _chained(lambda a: tf.transpose(a, [0, 2, 1]) * 1.1, 20), small)
    return {
        "transpose_start": moved / 20,
        "read": size / _beyond(call, tf.reduce_sum, large),
        "written": size / _beyond(call, lambda a: a * 2.0, large),
        "transposed": size / _beyond(call, tf.transpose, large),
        "function": 2000.0 * 2000 / _beyond(call, tf.tanh, large),
    }


def _products(call: float) -> dict[str, float]:
    def rate(rows: int, side: int) -> float:
        seconds = _beyond(call, tf.matmul, _random(rows, side), _random(side, side))
        return 2.0 * rows * side * side / seconds

    large, small = rate(1024, 1024), rate(20_000, 32)

    def batch(count: int) -> float:
        # One after the other, as they come: by itself one waits for threads to wake.
        a = _random(count, 8, 8) * 0.1
        return _beyond(call, _chained(lambda x: x @ a, 20), a) / 20

    few, many = batch(8), batch(8000)
    return {
        "product": large,
        "half_side": max(32.0 * (large / small - 1.0), 1.0),
        "batched_start": few,
        "batched_each": max((many - few) / 8000, 1e-9),
    }


def _windows(call: float) -> dict[str, float]:
    def seconds(images: int, size: int, channels: int, count: int = 1) -> float:
        w = _random(3, 3, channels, channels) * 0.01
        step = _chained(lambda x: tf.nn.conv2d(x, w, 1, "SAME"), count)
        return _beyond(call, step, _random(images, size, size, channels)) / count

    def rate(channels: int) -> float:
        spent = max(seconds(20, 32, channels) - start, 1e-6)
        return 2.0 * 20 * 32 * 32 * 9 * channels**2 / spent

    def each(x: tf.Tensor) -> tf.Tensor:
        return tf.nn.depthwise_conv2d(x, single, [1, 1, 1, 1], "SAME")

    def pooled(x: tf.Tensor) -> tf.Tensor:
        return tf.gradients(tf.nn.max_pool2d(x, 3, 1, "SAME"), x)[0]

    start = seconds(1, 2, 8, 10)
    single, images = _random(3, 3, 64, 1), _random(20, 32, 32, 64)
    many, few = rate(64), rate(16)
    apart = max(_beyond(call, each, images) - start, 1e-6)
    heavy = max(seconds(20, 2, 512) - start, 1e-6)
    entries = 20.0 * 32 * 32 * 64
    return {
        "convolution": many,
        "half_channels": max(16.0 * (many / few - 1.0), 1.0),
        "depthwise": 2.0 * 9 * entries / apart,
        "window_start": start,
        "weights": 4.0 * 9 * 512 * 512 / heavy,
        "pooling": 2.0 * entries / _beyond(call, pooled, images),
    }


def _built() -> float:
    """Returns the seconds that an op takes to trace, optimize and run for the first time."""
    start = time.perf_counter()
    tf.function(_chained(lambda a: tf.sin(a @ a), _CHAIN), autograph=False)(_random(4, 4))
    return (time.perf_counter() - start) / (2 * _CHAIN)
