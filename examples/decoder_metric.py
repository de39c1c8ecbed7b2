"""Shows how much a decoder of digits stretches its latent plane, by J^T J at each point of it.

    python examples/decoder_metric.py

A variational autoencoder with two latent numbers lays a surface among the images. An area of the
latent plane becomes sqrt(det J^T J) times as large on it (G. Arvanitidis et al., "Latent Space
Oddity", arXiv:1710.11379): little where all looks alike, much on the borders between digits.
Writes `output/decoder_metric.png`.
"""

from __future__ import annotations

import numpy as np
import program
import tensorflow as tf
from absl import flags
from matplotlib import colormaps
from matplotlib.colors import ListedColormap, LogNorm
from matplotlib.figure import Figure

import tfjac

PICTURE = "decoder_metric.png"
PIXELS = 784
HIDDEN = 256
REACH = 3.2
SCATTERED = 1500
CHECKED = 8


def build_encoder() -> tf.keras.Model:
    """Returns the encoder, which gives means and logarithms of variances, `[n, 4]`."""
    return _net(PIXELS, tf.keras.layers.Dense(4), "float32")


def build_decoder(dtype: str = "float32") -> tf.keras.Model:
    """Returns the decoder, of points of the plane `[n, 2]`."""
    return _net(2, tf.keras.layers.Dense(PIXELS, "sigmoid", dtype=dtype), dtype)


def _net(inputs: int, last: tf.keras.layers.Layer, dtype: str) -> tf.keras.Model:
    hidden = [tf.keras.layers.Dense(HIDDEN, "tanh", dtype=dtype) for _ in range(2)]
    return tf.keras.Sequential([tf.keras.Input([inputs], dtype=dtype), *hidden, last])


def train(encoder: tf.keras.Model, decoder: tf.keras.Model, x: np.ndarray, steps: int) -> None:
    """Trains both on the evidence lower bound, and prints it."""
    variables = encoder.trainable_variables + decoder.trainable_variables
    optimizer = tf.keras.optimizers.Adam(tf.keras.optimizers.schedules.CosineDecay(2e-3, steps))
    optimizer.build(variables)

    @tf.function
    def step(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            mean, log_variance = tf.split(encoder(x), 2, axis=1)
            z = mean + tf.exp(log_variance / 2) * tf.random.normal(tf.shape(mean))
            error = PIXELS * tf.keras.losses.binary_crossentropy(x, decoder(z))
            surplus = tf.reduce_sum(mean**2 + tf.exp(log_variance) - 1 - log_variance, 1) / 2
            loss = tf.reduce_mean(error + surplus)
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    batches = tf.data.Dataset.from_tensor_slices(x).shuffle(len(x), flags.FLAGS.seed).repeat()
    losses = [step(batch).numpy() for batch in batches.batch(128).take(steps)]
    print(f"evidence lower bound, last 50 steps: {-np.mean(losses[-50:]):.1f} nats a digit")


def volumes(decoder: tf.keras.Model, z: np.ndarray) -> np.ndarray:
    """Returns sqrt(det J^T J) of a decoder in float64 at each point z, `[n, 2]`."""

    @tf.function
    def metric(z: tf.Tensor) -> tf.Tensor:
        return tfjac.gramian(decoder(z), z, batch=True, of="columns")

    g = metric(tf.constant(z)).numpy()
    return np.sqrt(g[:, 0, 0] * g[:, 1, 1] - g[:, 0, 1] * g[:, 1, 0])


def check(decoder: tf.keras.Model, z: np.ndarray) -> None:
    """Checks volumes of a decoder in float64 by central differences and by singular values."""
    weights = decoder.get_weights()

    def decode(z: np.ndarray) -> np.ndarray:
        h = np.tanh(np.tanh(z @ weights[0] + weights[1]) @ weights[2] + weights[3])
        return 1 / (1 + np.exp(-(h @ weights[4] + weights[5])))

    @tf.function
    def singular_values(z: tf.Tensor) -> tf.Tensor:
        return tfjac.singular_values(decoder(z), z, batch=True)

    step = 1e-5
    columns = [(decode(z + step * e) - decode(z - step * e)) / (2 * step) for e in np.eye(2)]
    by_differences = np.prod(np.linalg.svd(np.stack(columns, -1), compute_uv=False), 1)
    by_values = np.prod(singular_values(tf.constant(z)).numpy(), 1)
    found = volumes(decoder, z)
    for what, other in (("differences", by_differences), ("singular values", by_values)):
        program.check(f"volume by {what}, relative", np.abs(found / other - 1).max(), 1e-5)


def draw(volume: np.ndarray, z: np.ndarray, labels: np.ndarray, images: np.ndarray) -> None:
    """Writes the volume over the plane with encoded digits on it, and what the plane decodes to.

    Args:
      volume: `[n, n]`, rows by the second latent number.
      z: encoded digits, `[n, 2]`.
      labels: theirs, `[n]`.
      images: decoded, `[k, k, 28, 28]`, the first row at the top.
    """
    figure = Figure(figsize=(12.6, 6), layout="constrained")
    axes = figure.subplots(1, 2, width_ratios=[1.16, 1])
    extent = (-REACH, REACH, -REACH, REACH)
    norm = LogNorm(*np.percentile(volume, [5, 99.8]))
    shown = axes[0].imshow(volume, origin="lower", extent=extent, cmap="gray", norm=norm)
    figure.colorbar(shown, ax=axes[0], label="sqrt det JᵀJ", extend="both", shrink=0.9)
    colors = [*colormaps["tab10"].colors[:7], "white", *colormaps["tab10"].colors[8:]]  # its gray
    dots = axes[0].scatter(
        *z.T,
        c=labels,
        s=11,
        cmap=ListedColormap(colors),
        vmin=-0.5,
        vmax=9.5,
        edgecolors="black",
        linewidths=0.3,
    )
    key = dots.legend_elements(num=range(10), markeredgecolor="black", markeredgewidth=0.3)
    figure.legend(*key, ncols=10, loc="outside lower left", frameon=False, handletextpad=0)
    axes[0].set(title="volume of the decoder, test digits on it", xlim=extent[:2], ylim=extent[2:])
    axes[1].imshow(np.concatenate(np.concatenate(images, 1), 1), cmap="gray_r", extent=extent)
    axes[1].set(title="the digits decoded")
    path = program.picture_path(PICTURE)
    figure.savefig(path, dpi=110)
    print(f"picture: {path}")


def grid(n: int) -> np.ndarray:
    """Returns n x n points, `[n * n, 2]`, by rows from below."""
    at = (np.arange(n) + 0.5) * (2 * REACH / n) - REACH
    return np.stack(np.meshgrid(at, at), -1).reshape([-1, 2])


def example() -> None:
    """Trains, computes the volume over the plane, checks it and draws it."""
    data = program.load_digits()
    encoder, decoder = build_encoder(), build_decoder()
    train(encoder, decoder, data.x_train, flags.FLAGS.steps)
    # Where the plane is stretched one way only, the determinant is a difference of near equals.
    exact = build_decoder("float64")
    exact.set_weights(decoder.get_weights())
    check(exact, np.random.default_rng(flags.FLAGS.seed).normal(size=[CHECKED, 2]))
    side = flags.FLAGS.side
    volume = volumes(exact, grid(side))
    low, middle, high = np.percentile(volume, [5, 50, 95])
    z = encoder.predict(data.x_test[:SCATTERED], verbose=0)[:, :2].astype(np.float64)
    print(
        f"volume over the plane: median {middle:.3g}, a twentieth below {low:.3g}, a twentieth "
        f"above {high:.3g}; median at test digits {np.median(volumes(exact, z)):.3g}"
    )
    images = decoder.predict(grid(16), verbose=0).reshape([16, 16, 28, 28])[::-1]
    draw(volume.reshape([side, side]), z, data.y_test[:SCATTERED], images)


if __name__ == "__main__":
    program.define_flags(PICTURE, steps=1500, takes_data=True)
    flags.DEFINE_integer("side", 160, "Points along a side of the plane.", lower_bound=2)
    program.run(example)
