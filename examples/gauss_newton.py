"""Fits two peaks on a slope to noisy data by Levenberg-Marquardt with a Jacobian never formed.

    python examples/gauss_newton.py

Each step solves min |J s + r|^2 + |d s|^2 by LSMR of SciPy, which asks for products with J and its
transpose only: `tfjac.linearize` gives both, of residuals that are written in TensorFlow once.
`scipy.optimize.least_squares` with differences finds the same. Writes `output/gauss_newton.png`.
"""

from __future__ import annotations

import numpy as np
import program
import tensorflow as tf
from absl import flags
from matplotlib.figure import Figure
from scipy import optimize
from scipy.sparse import linalg

import tfjac

PICTURE = "gauss_newton.png"
NAMES = ("height 1", "center 1", "width 1", "height 2", "center 2", "width 2", "decay", "offset")
TRUE = np.array([1.0, 2.0, 0.35, 0.7, 3.1, 0.6, 1.4, 0.25])
START = np.array([0.6, 1.6, 0.5, 0.5, 3.6, 0.4, 0.8, 0.0])
POINTS = 400
NOISE = 0.03
T = np.linspace(0, 5, POINTS)


def curve(p: tf.Tensor) -> tf.Tensor:
    """Returns two Gaussians and an exponential at the times T, for parameters as in NAMES."""
    first, second = (p[i] * tf.exp(-(((T - p[i + 1]) / p[i + 2]) ** 2) / 2) for i in (0, 3))
    return first + second + tf.exp(-p[6] * T) + p[7]


def levenberg_marquardt(residuals, p: np.ndarray, most_steps: int) -> list[np.ndarray]:
    """Returns the parameters after each step that made the residuals smaller, the start first.

    Args:
      residuals: a function from parameters to a tensor of any number of residuals.
      p: the start.
      most_steps: to try.
    """
    damping, path = 1e-1, [p]
    r, jacobian = tfjac.linearize(residuals, p)
    for _ in range(most_steps):
        step = linalg.lsmr(
            jacobian.to_scipy(), -r.numpy(), damp=np.sqrt(damping), atol=1e-12, btol=1e-12
        )[0]
        new_r, new_jacobian = tfjac.linearize(residuals, path[-1] + step)
        if np.sum(new_r**2) > np.sum(r**2):
            damping *= 4
            continue
        path.append(path[-1] + step)
        r, jacobian, damping = new_r, new_jacobian, damping / 10
        if np.linalg.norm(step) < 1e-9 * np.linalg.norm(path[-1]):
            break
    return path


def draw(data: np.ndarray, path: list[np.ndarray], found: np.ndarray) -> None:
    """Writes the data with the fit, and how the steps come to what SciPy found."""
    figure = Figure(figsize=(11, 4), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1.5, 1])
    left.plot(T, data, ".", color="#aaaaaa", markersize=4, label="data")
    left.plot(T, curve(path[0]), ":", color="#2a6f97", label="start")
    left.plot(T, curve(TRUE), color="#222222", linewidth=3.5, alpha=0.35, label="truth")
    left.plot(T, curve(path[-1]), color="#d1495b", label=f"fit, {len(path) - 1} steps")
    left.set(xlabel="t", ylabel="y")
    left.legend(frameon=False)
    distances = [np.linalg.norm(p - found) / np.linalg.norm(found) for p in path]
    right.semilogy(distances, "o-", color="#d1495b")
    right.set(xlabel="step", ylabel="relative distance from SciPy's parameters")
    right.xaxis.get_major_locator().set_params(integer=True)
    right.grid(alpha=0.3)
    file = program.picture_path(PICTURE)
    figure.savefig(file, dpi=120)
    print(f"picture: {file}")


def example() -> None:
    """Makes the data, fits them both ways, prints the parameters and draws the fit."""
    noise = np.random.default_rng(flags.FLAGS.seed).normal(scale=NOISE, size=POINTS)
    data = curve(TRUE).numpy() + noise

    def residuals(p: tf.Tensor) -> tf.Tensor:
        return curve(p) - data

    path = levenberg_marquardt(residuals, START, flags.FLAGS.steps)
    reference = optimize.least_squares(
        lambda p: residuals(p).numpy(), START, jac="3-point", xtol=1e-12, ftol=1e-12, gtol=1e-12
    )
    # The inverse of J^T J says how far noise alone moves the parameters.
    _, jacobian = tfjac.linearize(residuals, path[-1])
    j = jacobian.to_dense().numpy()
    deviations = NOISE * np.sqrt(np.diag(np.linalg.inv(j.T @ j)))
    print(f"{'':<10}{'true':>9}{'fitted':>9}{'SciPy':>9}{'deviation':>11}")
    for row in zip(NAMES, TRUE, path[-1], reference.x, deviations, strict=True):
        print("{:<10}{:9.4f}{:9.4f}{:9.4f}{:11.4f}".format(*row))
    print(
        f"{len(path) - 1} steps, {reference.njev} Jacobians of scipy.optimize.least_squares; "
        f"root mean square of the residuals {np.sqrt(np.mean(residuals(path[-1]) ** 2)):.4f}"
    )
    difference = np.max(np.abs(path[-1] / reference.x - 1))
    program.check("parameters by least_squares, relative", difference, 1e-6)
    away = np.max(np.abs(path[-1] - TRUE) / deviations)
    program.check("parameters by the true ones, in standard deviations", away, 6)
    draw(data, path, reference.x)


if __name__ == "__main__":
    program.define_flags(PICTURE, steps=60)
    program.run(example)
