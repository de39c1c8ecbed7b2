"""Pictures of Jacobians of a classifier: which pixels its outputs depend on."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

_INK = "#222222"
_HIGHLIGHT = "#d1495b"
_PERCENTILE = 99.5


def draw_classes(
    path: pathlib.Path,
    digits: np.ndarray,
    jacobian: np.ndarray,
    true: Sequence[int],
    predicted: Sequence[int],
    title: str,
) -> None:
    """Writes a grid: a row for each digit, beside it |d logit / d pixel| for each class.

    Args:
      path: the PNG file to write.
      digits: pixels, shape `[n, 28, 28]`.
      jacobian: d logit / d pixel, shape `[n, classes, 28, 28]`.
      true: the digits' labels.
      predicted: the classes of their largest logits.
      title: what stands above.
    """
    maps = np.abs(jacobian)
    rows, classes = maps.shape[:2]
    norm = Normalize(0, np.percentile(maps, _PERCENTILE))
    figure = Figure(figsize=(2.4 + 1.06 * (classes + 1), 0.85 + 1.06 * rows), layout="constrained")
    axes = figure.subplots(rows, classes + 1, squeeze=False)
    for row in range(rows):
        _draw_digit(axes[row, 0], digits[row], true[row], predicted[row])
        for c in range(classes):
            axes[row, c + 1].imshow(maps[row, c], cmap="magma", norm=norm)
            _frame(axes[row, c + 1], highlighted=c == predicted[row])
    axes[0, 0].set_title("digit", fontsize=10, color=_INK)
    for c in range(classes):
        axes[0, c + 1].set_title(f"class {c}", fontsize=10, color=_INK)
    _finish(
        figure,
        axes,
        path,
        norm,
        "magma",
        "|∂ logit / ∂ pixel|",
        "max",
        f"{title}\nframed: the class predicted",
    )


def draw_single(
    path: pathlib.Path,
    digits: np.ndarray,
    jacobian: np.ndarray,
    captions: Sequence[str],
    right: Sequence[bool],
    label: str,
    title: str,
) -> None:
    """Writes two rows: the digits, and below each of them d output / d pixel with its sign.

    Args:
      path: the PNG file to write.
      digits: pixels, shape `[n, 28, 28]`.
      jacobian: d output / d pixel, shape `[n, 28, 28]`.
      captions: what stands above each digit.
      right: whether the net says so too; the captions of the others are red.
      label: what the colors say.
      title: what stands above all.
    """
    most = np.percentile(np.abs(jacobian), _PERCENTILE)
    norm = Normalize(-most, most)
    figure = Figure(figsize=(1.5 + 1.5 * len(digits), 4.1), layout="constrained")
    axes = figure.subplots(2, len(digits), squeeze=False)
    for column, caption in enumerate(captions):
        axes[0, column].imshow(digits[column], cmap="gray_r", vmin=0, vmax=1)
        axes[0, column].set_title(
            caption, fontsize=9.5, color=_INK if right[column] else _HIGHLIGHT
        )
        axes[1, column].imshow(jacobian[column], cmap="RdBu_r", norm=norm)
        _frame(axes[0, column])
        _frame(axes[1, column])
    _finish(figure, axes, path, norm, "RdBu_r", label, "both", title)


def _draw_digit(axes: Axes, digit: np.ndarray, true: int, predicted: int) -> None:
    axes.imshow(digit, cmap="gray_r", vmin=0, vmax=1)
    axes.set_ylabel(
        f"true {true}\npredicted {predicted}",
        rotation=0,
        ha="right",
        va="center",
        fontsize=10,
        color=_INK if true == predicted else _HIGHLIGHT,
    )
    _frame(axes)


def _frame(axes: Axes, highlighted: bool = False) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set(
            visible=True,
            color=_HIGHLIGHT if highlighted else "#bbbbbb",
            linewidth=2.2 if highlighted else 0.6,
        )


def _finish(
    figure: Figure,
    axes: np.ndarray,
    path: pathlib.Path,
    norm: Normalize,
    cmap: str,
    label: str,
    extend: str,
    title: str,
) -> None:
    bar = figure.colorbar(
        ScalarMappable(norm, cmap), ax=axes, extend=extend, pad=0.01, aspect=30, fraction=0.03
    )
    figure.get_layout_engine().set(hspace=0.02, wspace=0.01)
    bar.set_label(
        f"{label}\none scale for all maps, to the {_PERCENTILE}th percentile",
        fontsize=9,
        color=_INK,
    )
    bar.outline.set_linewidth(0.6)
    bar.ax.tick_params(labelsize=8)
    figure.suptitle(title, fontsize=12, color=_INK)
    figure.savefig(path, dpi=150)
