"""Bends a square with a small net, once as told and once so that no part changes its area.

    python examples/unit_determinant.py

A net 2-5-5-2 learns to bend the square [-1, 1]^2 about a point beside it. Bent as told, the inner
side is compressed and the outer one stretched. With (|det J| - 1)^2 added to the loss it comes to a
bend that preserves area everywhere. Writes `output/unit_determinant.png`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np
import program
import tensorflow as tf
from absl import flags
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

import tfjac

PICTURE = "unit_determinant.png"
RADIUS = 1.8
POINTS = 512
CELLS = 20
MARGIN = 1.1  # trained a little beyond the square, or its edge would be worst
WEIGHT = 100.0  # of the penalty: no area-preserving map is the bend as told, and that must yield
LEARNING_RATE = 0.02


def bend(x: tf.Tensor) -> tf.Tensor:
    """Returns where a bend about (-RADIUS, 0) brings the points `[n, 2]`: det J = 1 + x0 / R."""
    radius, angle = RADIUS + x[:, 0], x[:, 1] / RADIUS
    return tf.stack([radius * tf.cos(angle) - RADIUS, radius * tf.sin(angle)], 1)


def build() -> tf.keras.Model:
    """Returns a net 2-5-5-2."""
    dense = tf.keras.layers.Dense
    return tf.keras.Sequential([tf.keras.Input([2]), dense(5, "tanh"), dense(5, "tanh"), dense(2)])


def step_of(net: tf.keras.Model, steps: int, weight: float) -> Callable[[], tf.Tensor]:
    """Returns a function that trains the net by one step, and gives the loss.

    Args:
      net: to be trained.
      steps: how many there will be.
      weight: of the penalty; without it for 0.
    """
    optimizer = tf.keras.optimizers.Adam(
        tf.keras.optimizers.schedules.CosineDecay(LEARNING_RATE, steps)
    )
    optimizer.build(net.trainable_variables)

    @tf.function
    def step() -> tf.Tensor:
        x = tf.random.uniform([POINTS, 2], -MARGIN, MARGIN)
        with tf.GradientTape() as tape:
            y = net(x)
            loss = tf.reduce_mean(tf.reduce_sum((y - bend(x)) ** 2, 1))
            if weight:
                det = tfjac.det(y, x, batch=True)
                loss += weight * tf.reduce_mean((tf.abs(det) - 1) ** 2)
        gradients = tape.gradient(loss, net.trainable_variables)
        optimizer.apply_gradients(zip(gradients, net.trainable_variables, strict=True))
        return loss

    return step


def train(net: tf.keras.Model, steps: int, weight: float) -> float:
    """Trains the net; returns the median time of a step in milliseconds."""
    step = step_of(net, steps, weight)
    times = []
    for _ in range(steps):
        start = time.perf_counter()
        step().numpy()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def grid() -> np.ndarray:
    """Returns the corners of the cells, counterclockwise, `[cells, 4, 2]`."""
    edges = np.linspace(-1, 1, CELLS + 1)
    low = np.stack(np.meshgrid(edges[:-1], edges[:-1], indexing="ij"), -1).reshape([-1, 1, 2])
    return low + (2 / CELLS) * np.array([[0, 0], [1, 0], [1, 1], [0, 1]])


def areas(corners: np.ndarray) -> np.ndarray:
    """Returns the areas of polygons `[cells, corners, 2]` by the shoelace formula."""
    x, y = corners[..., 0], corners[..., 1]
    return np.sum(x * np.roll(y, -1, -1) - y * np.roll(x, -1, -1), -1) / 2


def draw(drawn: dict[str, np.ndarray], ratios: dict[str, np.ndarray]) -> None:
    """Writes the picture: the grids, and how the areas of their cells are distributed."""
    figure = Figure(figsize=(13, 3.6), layout="constrained")
    axes = figure.subplots(1, 4)
    place = (drawn["the square"].mean(1) + 1) / 2
    colors = np.stack([0.15 + 0.8 * place[:, 0], 0.25 + 0.6 * place[:, 1], 1 - place[:, 0]], -1)
    for ax, (title, corners) in zip(axes[:3], drawn.items(), strict=True):
        ax.add_collection(
            PolyCollection(corners, facecolors=colors, edgecolors="w", linewidths=0.4)
        )
        ax.set(title=title, xlim=(-1.7, 1.3), ylim=(-1.5, 1.5), aspect="equal")
    bins = np.linspace(0.3, 1.7, 36)  # one of them is centered at 1
    for (title, ratio), color in zip(ratios.items(), ("#888888", "#d1495b"), strict=True):
        axes[3].hist(np.clip(ratio, 0.3, 1.7), bins, color=color, label=title, alpha=0.85)
    axes[3].set(title="cells by area", xlabel="area after / before", ylabel="cells")
    axes[3].set_yscale("log")
    axes[3].set_ylim(0.7, 3000)
    axes[3].set_box_aspect(1)
    axes[3].legend(loc="upper left", frameon=False)
    path = program.picture_path(PICTURE)
    figure.savefig(path, dpi=120)
    print(f"picture: {path}")


def example() -> None:
    """Trains the net on both losses, prints areas and determinants, and draws the grids."""
    net = build()
    corners = grid()
    drawn, ratios, milliseconds = {"the square": corners}, {}, []

    @tf.function
    def determinants(x: tf.Tensor) -> tf.Tensor:
        return tfjac.det(net(x), x, batch=True)

    # First as told: a net that starts mirrored would otherwise stay so, for |det J| is 1 there too.
    for title, weight in (("bent as told", 0.0), ("bent, |det J| = 1", WEIGHT)):
        milliseconds.append(train(net, flags.FLAGS.steps, weight))
        mapped = net(corners.reshape([-1, 2])).numpy().reshape(corners.shape)
        det = determinants(tf.constant(corners.mean(1), tf.float32)).numpy()
        ratio = areas(mapped) / areas(corners)
        size, off = np.abs(det), np.abs(ratio - 1)
        print(
            f"{title}: |det J| {size.mean():.4f} on average, {size.min():.4f} to {size.max():.4f}; "
            f"area {np.sum(areas(mapped)):.4f} of {np.sum(areas(corners)):.4f}, that of a cell off "
            f"by {off.mean():.2%} on average, {off.max():.2%} at most"
        )
        program.check("det J by areas of cells", np.abs(det - ratio).max(), 1e-2)
        drawn[title], ratios[title] = mapped, ratio
    mse, with_det = milliseconds
    print(
        f"median step: {with_det:.2f} ms with the determinant, {mse:.2f} ms without: "
        f"{with_det / mse:.2f} times"
    )
    draw(drawn, ratios)


if __name__ == "__main__":
    program.define_flags(PICTURE, steps=4000)
    program.run(example)
