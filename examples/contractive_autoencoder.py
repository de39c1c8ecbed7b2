"""Trains an autoencoder of digits with and without a penalty on the Jacobian of its encoder.

    python examples/contractive_autoencoder.py

The contractive autoencoder of S. Rifai et al. (ICML 2011): the mean of ||dh/dx||_F^2 is added to
the reconstruction error, so that the code follows the few directions in which digits differ and
neglects the others. The singular values of dh/dx fall faster for it. Writes
`output/contractive_autoencoder.png`.
"""

from __future__ import annotations

import numpy as np
import program
import tensorflow as tf
from absl import flags
from matplotlib.figure import Figure

import tfjac
import tfjac.keras

PICTURE = "contractive_autoencoder.png"
SIDE = 28
UNITS = 128
EXAMPLES = 100
SHOWN = 8


def build(weight: float) -> tuple[tf.keras.Model, tf.keras.Model]:
    """Returns an autoencoder and the encoder within it, one layer of sigmoids.

    Args:
      weight: of the penalty; without it for 0.
    """
    encoder = tf.keras.Sequential(
        [tf.keras.Input([SIDE * SIDE]), tf.keras.layers.Dense(UNITS, "sigmoid")]
    )
    if weight:
        first = tfjac.keras.JacobianPenalty(encoder, "contractive", weight=weight)
    else:
        first = encoder
    decoder = tf.keras.layers.Dense(SIDE * SIDE, "sigmoid")
    return tf.keras.Sequential([tf.keras.Input([SIDE * SIDE]), first, decoder]), encoder


def train(autoencoder: tf.keras.Model, x: np.ndarray) -> None:
    """Trains the autoencoder for --steps batches."""
    # Keras takes the mean over the pixels, the paper the sum: weights are smaller by 784 here.
    autoencoder.compile(tf.keras.optimizers.Adam(3e-3), "binary_crossentropy", jit_compile=False)
    batches = tf.data.Dataset.from_tensor_slices((x, x))
    batches = batches.shuffle(len(x), flags.FLAGS.seed).repeat().batch(64)
    autoencoder.fit(batches, steps_per_epoch=flags.FLAGS.steps, verbose=0)


def of_encoder(encoder: tf.keras.Model, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns for each digit ||J||_F^2 and the singular values of J, by tfjac."""

    @tf.function
    def quantities(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        h = encoder(x)
        norms = tfjac.frobenius_norm(h, x, batch=True)
        return norms**2, tfjac.singular_values(h, x, batch=True)

    return tuple(found.numpy() for found in quantities(tf.constant(x)))


def closed_form(encoder: tf.keras.Model, x: np.ndarray) -> np.ndarray:
    """Returns ||J||_F^2 = sum_j (h_j (1 - h_j))^2 sum_i W_ij^2 for each digit, as in the paper."""
    weights, bias = (np.float64(w) for w in encoder.get_weights())
    h = 1 / (1 + np.exp(-(x @ weights + bias)))
    return (h * (1 - h)) ** 2 @ (weights**2).sum(0)


def draw(x: np.ndarray, autoencoders: dict[str, tf.keras.Model], spectra: dict) -> None:
    """Writes digits, their reconstructions and the mean singular values."""
    figure = Figure(figsize=(12, 3.5), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=[1.5, 1])
    rows = {"digit": x} | {name: net.predict(x, verbose=0) for name, net in autoencoders.items()}
    axes = left.subplots(len(rows), len(x))
    for (name, images), row in zip(rows.items(), axes, strict=True):
        row[0].set_ylabel(name, rotation=0, ha="right", va="center")
        for image, ax in zip(images, row, strict=True):
            ax.imshow(image.reshape([SIDE, SIDE]), cmap="gray_r", vmin=0, vmax=1)
            ax.set(xticks=[], yticks=[])
            ax.spines[:].set(color="#cccccc")
    ax = right.subplots()
    for (name, values), color in zip(spectra.items(), ("#888888", "#d1495b"), strict=True):
        ax.semilogy(np.arange(1, 1 + len(values)), values, color=color, label=name)
    ax.set(
        xlabel="rank",
        ylabel="singular value",
        title="dh/dx, mean over test digits",
        ylim=(1e-3, None),
    )
    ax.legend(frameon=False)
    path = program.picture_path(PICTURE)
    figure.savefig(path, dpi=120)
    print(f"picture: {path}")


def example() -> None:
    """Trains both, checks ||J||_F^2 by the closed form, prints and draws the spectra."""
    data = program.load_digits()
    x = data.x_test[:EXAMPLES]
    autoencoders, spectra = {}, {}
    for name, weight in (("plain", 0.0), ("contractive", flags.FLAGS.weight)):
        tf.keras.utils.set_random_seed(flags.FLAGS.seed)
        autoencoder, encoder = build(weight)
        train(autoencoder, data.x_train)
        squares, values = of_encoder(encoder, x)
        mean, error = values.mean(0), np.mean((autoencoder.predict(x, verbose=0) - x) ** 2)
        print(
            f"{name}: squared error of a pixel {error:.4f}, ||J||_F^2 {squares.mean():.3f}, "
            f"{np.sum(mean > mean[0] / 10)} of {UNITS} singular values above a tenth of the first"
        )
        expected = closed_form(encoder, x)
        program.check("||J||_F^2 by its closed form", np.max(np.abs(squares / expected - 1)), 1e-4)
        by_values = np.sum(np.float64(values) ** 2, 1)
        program.check("... by the singular values", np.max(np.abs(by_values / expected - 1)), 1e-4)
        autoencoders[name], spectra[name] = autoencoder, mean
    draw(x[:SHOWN], autoencoders, spectra)


if __name__ == "__main__":
    program.define_flags(PICTURE, steps=1000, takes_data=True)
    flags.DEFINE_float("weight", 3e-3, "Weight of the penalty.", lower_bound=0)
    program.run(example)
