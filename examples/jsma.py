"""Has a small convolutional net take digits for others, by the Jacobian of its logits.

    python examples/jsma.py

The attack of N. Papernot et al., "The Limitations of Deep Learning in Adversarial Settings"
(arXiv:1511.07528), algorithm 3: of all pairs of pixels, blacken the one that speaks most for the
target and against the other classes, and look again, until the net gives in or 14.5 % of the pixels
are changed. Every digit is made every other one, all of them at once. Writes `output/jsma.png`.
"""

from __future__ import annotations

import time

import numpy as np
import program
import tensorflow as tf
from absl import flags
from matplotlib.figure import Figure

import tfjac

PICTURE = "jsma.png"
SIDE, CLASSES = 28, 10


def build() -> tf.keras.Model:
    """Returns a net like the paper's LeNet, which takes `[n, 784]` and gives logits `[n, 10]`."""
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            tf.keras.Input([SIDE * SIDE]),
            layers.Reshape([SIDE, SIDE, 1]),
            layers.Conv2D(8, 5, activation="tanh"),
            layers.MaxPooling2D(),
            layers.Conv2D(24, 5, activation="tanh"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(96, activation="tanh"),
            layers.Dense(CLASSES),
        ]
    )


def train(net: tf.keras.Model, data) -> None:
    """Trains the net and prints its accuracy."""
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    net.compile(tf.keras.optimizers.Adam(2e-3), loss, metrics=["accuracy"], jit_compile=False)
    batches = tf.data.Dataset.from_tensor_slices((data.x_train, data.y_train))
    batches = batches.shuffle(len(data.x_train), flags.FLAGS.seed).repeat().batch(64)
    net.fit(batches, steps_per_epoch=flags.FLAGS.steps, verbose=0)
    print(f"test accuracy {net.evaluate(data.x_test, data.y_test, verbose=0)[1]:.2%}")


def best_pairs(jacobian: np.ndarray, targets: np.ndarray, free: np.ndarray) -> np.ndarray:
    """Returns the two pixels of the largest saliency for each image, `[n, 2]`; -1 where none.

    The saliency of p and q is -a b where a > 0 > b, with a what the target's logit gains by both,
    and b what those of the other classes do.

    Args:
      jacobian: d logit / d pixel, `[n, 10, 784]`.
      targets: the class wanted, `[n]`.
      free: which pixels may be changed, `[n, 784]`.
    """
    gain = np.take_along_axis(jacobian, targets[:, None, None], 1)[:, 0]
    loss = gain - jacobian.sum(1)  # of the other classes
    found = np.full([len(gain), 2], -1)
    for k in range(len(gain)):
        at = candidates(gain[k], loss[k], np.flatnonzero(free[k]))
        a, b = (v[at][:, None] + v[at] for v in (gain[k], loss[k]))
        saliency = np.where((a > 0) & (b > 0) & ~np.eye(len(at), dtype=bool), a * b, 0)
        if saliency.max(initial=0) > 0:
            found[k] = at[list(np.unravel_index(saliency.argmax(), saliency.shape))]
    return found


def candidates(gain: np.ndarray, loss: np.ndarray, free: np.ndarray) -> np.ndarray:
    """Returns those of the pixels that can be in the best pair.

    Each of the pair is the best partner of the other, so that no third pixel beats it in both gain
    and loss: it is on the front of them all, or on that of those behind the front. This leaves some
    twenty pixels, and 400 pairs of 300,000.
    """
    found = []
    for _ in range(2):
        order = free[np.lexsort((-loss[free], -gain[free]))]
        before = np.maximum.accumulate(np.append(-np.inf, loss[order]))[:-1]
        on_front = loss[order] > before
        found.append(order[on_front])
        free = order[~on_front]
    return np.concatenate(found)


def attack(
    net: tf.keras.Model, x: np.ndarray, targets: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the images changed, and which of them the net takes for their targets.

    Args:
      net: gives logits.
      x: `[n, 784]`.
      targets: `[n]`.
    """
    # One graph for any number of images: those that are done are left out.
    spec = tf.TensorSpec([None, SIDE * SIDE], tf.float32)
    jac = tfjac.prepare(net, batch=True, input_signature=[spec])
    x, free = x.copy(), x < 1
    going, won = np.arange(len(x)), np.zeros(len(x), bool)
    for left in range(int(flags.FLAGS.most_changed * SIDE * SIDE / 2), -1, -1):
        logits, jacobian = jac.value_and_jacobian(x[going])
        won[going] = logits.numpy().argmax(1) == targets[going]
        pairs = best_pairs(jacobian.numpy(), targets[going], free[going])
        further = ~won[going] & (pairs[:, 0] >= 0)
        going, pairs = going[further], pairs[further]
        if not left or not len(going):
            break
        x[going[:, None], pairs], free[going[:, None], pairs] = 1, False
    return x, won


def check(net: tf.keras.Model, before: np.ndarray, after: np.ndarray, targets: np.ndarray) -> None:
    """Checks the Jacobian by TensorFlow's tape, and what the attack claims by the net itself."""
    x = tf.constant(after[:16])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = net(x)
    expected = tape.batch_jacobian(y, x).numpy()
    difference = np.abs(tfjac.prepare(net, batch=True)(x).numpy() - expected).max()
    program.check("Jacobian by that of a tape, relative", difference / np.abs(expected).max(), 1e-5)
    missed = np.sum(net.predict(after, verbose=0).argmax(1) != targets)
    program.check("changed images not taken for their targets", missed, 0)
    program.check(
        "most changed, fraction of pixels",
        np.mean(after != before, 1).max(),
        flags.FLAGS.most_changed,
    )


def draw(images: np.ndarray, won: np.ndarray) -> None:
    """Writes a row for each source digit and a column for each target.

    Args:
      images: `[10, 10, 784]`, the unchanged ones on the diagonal.
      won: which are taken for their target, `[10, 10]`.
    """
    figure = Figure(figsize=(7.6, 8), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.02, h_pad=0.02, wspace=0, hspace=0)
    axes = figure.subplots(CLASSES, CLASSES)
    for (row, column), ax in np.ndenumerate(axes):
        ax.imshow(images[row, column].reshape([SIDE, SIDE]), cmap="gray_r", vmin=0, vmax=1)
        ax.set(xticks=[], yticks=[])
        color = "#d1495b" if not won[row, column] else "#2a6f97" if row == column else "#cccccc"
        ax.spines[:].set(color=color, linewidth=0.8 if color == "#cccccc" else 2.5)
        if row == 0:
            ax.set_title(f"{column}", fontsize=10)
        if column == 0:
            ax.set_ylabel(f"{row}", rotation=0, ha="right", va="center", fontsize=10)
    figure.suptitle(
        "Digits (rows) changed to be taken for others (columns)\n"
        "blue: unchanged, red: not taken for it",
        fontsize=11,
    )
    path = program.picture_path(PICTURE)
    figure.savefig(path, dpi=120)
    print(f"picture: {path}")


def example() -> None:
    """Trains, attacks, checks and draws."""
    data = program.load_digits()
    net = build()
    train(net, data)
    each = flags.FLAGS.each
    sources = np.concatenate([np.flatnonzero(data.y_test == c)[:each] for c in range(CLASSES)])
    true = np.repeat(data.y_test[sources], CLASSES)
    targets = np.tile(np.arange(CLASSES), len(sources))
    before = np.repeat(data.x_test[sources], CLASSES, 0)
    other = targets != true
    after, won = before.copy(), ~other
    start = time.perf_counter()
    after[other], won[other] = attack(net, before[other], targets[other])
    seconds = time.perf_counter() - start
    adversarial = other & won
    distortion = np.mean(after[adversarial] != before[adversarial])
    print(
        f"{other.sum()} attacks in {seconds:.1f} s: success {won[other].mean():.2%} (the paper: "
        f"97.10%), {distortion:.2%} of the pixels changed where it succeeds (4.02%)"
    )
    check(net, before[adversarial], after[adversarial], targets[adversarial])
    shown = np.arange(0, len(sources), each)
    draw(after.reshape([-1, CLASSES, SIDE * SIDE])[shown], won.reshape([-1, CLASSES])[shown])


if __name__ == "__main__":
    program.define_flags(PICTURE, steps=900, takes_data=True)
    flags.DEFINE_float("most_changed", 0.145, "Fraction of the pixels that may be.", 0, 1)
    flags.DEFINE_integer("each", 5, "Test digits of each class to attack.", lower_bound=1)
    program.run(example)
