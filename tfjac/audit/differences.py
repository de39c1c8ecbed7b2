"""First and second derivatives by central differences, extrapolated, with what they are worth."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

# A function of a real vector that gives a real vector.
Function = Callable[[np.ndarray], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Estimate:
    """What differences tell of some derivatives, all arrays of one shape.

    At a kink the derivatives from both sides differ, and whatever lies between them is right.

    Args:
      low: the least that is right; NaN where differences tell nothing.
      high: the greatest.
      doubt: how far either may be off.
    """

    low: np.ndarray
    high: np.ndarray
    doubt: np.ndarray

    @property
    def known(self) -> np.ndarray:
        """Where differences tell something."""
        return np.isfinite(self.low) & np.isfinite(self.high)


@dataclasses.dataclass(frozen=True)
class Steps:
    """Steps of differences.

    Args:
      starts: the first steps tried, from large to small.
      levels: how often each is halved.
      enough: the relative doubt at which the next start is not tried.
    """

    starts: tuple[float, ...]
    levels: int
    enough: float


# A value of n digits gives two thirds of them in a difference, half in a second one, and more by
# extrapolation from larger steps.
FIRST = {8: Steps((0.03, 1e-3, 3e-5), 5, 1e-8), 4: Steps((0.2, 0.03, 5e-3), 3, 1e-3)}
SECOND = {8: Steps((0.06, 4e-3), 4, 1e-7), 4: Steps((0.4, 0.15), 3, 1e-2)}


def jacobian(function: Function, x: np.ndarray, width: int = 8) -> Estimate:
    """Returns dy/dx.

    Args:
      function: of x, shape `[n]`, to y, shape `[m]`.
      x: where.
      width: bytes of the numbers that `function` computes with, 8 or 4.

    Returns:
      An estimate of shape `[m, n]`.
    """
    middle = function(x)
    columns = [_column(function, x, middle, k, width) for k in range(x.size)]
    if not columns:
        nothing = np.zeros([middle.size, 0])
        return Estimate(nothing, nothing, nothing)
    return Estimate(*(np.stack([getattr(c, f) for c in columns], 1) for f in _FIELDS))


_FIELDS = [field.name for field in dataclasses.fields(Estimate)]


def mixed(
    function: Function,
    x: np.ndarray,
    first: np.ndarray,
    second: np.ndarray,
    width: int = 8,
    steps: Steps | None = None,
) -> Estimate:
    """Returns the derivative along one direction of the derivative along another.

    Args:
      function: of x, shape `[n]`, to one number, shape `[1]`.
      x: where.
      first: a direction, shape `[n]`.
      second: another.
      width: bytes of the numbers that `function` computes with, 8 or 4.
      steps: if not the usual ones.

    Returns:
      An estimate of shape `[1]`.
    """
    steps = steps or SECOND[width]
    lengths = [np.max(np.abs(d), initial=0.0) for d in (first, second)]
    length = lengths[0] * lengths[1]
    if not length:
        return Estimate(*(np.zeros(1) for _ in _FIELDS))
    a, b = (d / size for d, size in zip((first, second), lengths))

    def quotient(h):
        corners = [function(x + h * (p * a + q * b)) for p in (1, -1) for q in (1, -1)]
        noise = np.max(np.abs(corners)) * _epsilon(width) / h**2
        value = (corners[0] - corners[1] - corners[2] + corners[3]) / (4 * h**2)
        return value * length, np.full(1, noise * length)

    value, doubt = _extrapolated(quotient, steps)
    # Where the second derivative does not exist, quotients grow as steps shrink.
    exists = np.isfinite(function(x)) & (doubt <= 0.02 * (1 + np.abs(value)))
    value = np.where(exists, value, np.nan)
    return Estimate(value, value, doubt)


def _column(function: Function, x: np.ndarray, middle: np.ndarray, k: int, width: int) -> Estimate:
    def moved(h):
        shifted = x.copy()
        shifted[k] += h
        return function(shifted)

    def quotient(h):
        right, left = moved(h), moved(-h)
        noise = _epsilon(width) * np.maximum(np.abs(right), np.abs(left)) / h
        return (right - left) / (2 * h), noise

    value, doubt = _extrapolated(quotient, FIRST[width])
    small = FIRST[width].starts[-1]
    left, right, ok = _sides(moved, middle, small)
    smooth = doubt <= 1e-3 * (1 + np.abs(value))
    kink = ok & (np.abs(right - left) > 0.01 * (1 + np.abs(right) + np.abs(left)))
    sides_doubt = 4 * small + 2 * _epsilon(width) * np.abs(middle) / small
    use_sides = kink | (~smooth & ok)
    smooth &= np.isfinite(middle)
    low = np.where(use_sides, np.minimum(left, right), np.where(smooth, value, np.nan))
    high = np.where(use_sides, np.maximum(left, right), np.where(smooth, value, np.nan))
    return Estimate(low, high, np.where(use_sides, sides_doubt * (1 + np.abs(low)), doubt))


@np.errstate(all="ignore")
def _sides(moved, middle, h):
    """Returns the derivatives from the left and right, and where both exist or one does alone.

    From one side alone, at the edge of a domain, it counts for both.
    """
    sides, exist = [], []
    for sign in (-1, 1):
        far, near = (sign * (moved(sign * step) - middle) / step for step in (h, h / 4))
        sides.append((4 * near - far) / 3)
        exist.append(np.isfinite(near) & (np.abs(far - near) <= 0.01 * (1 + np.abs(near))))
    left, right = (
        np.where(exist[a], sides[a], np.where(np.isfinite(sides[a]), np.nan, sides[1 - a]))
        for a in (0, 1)
    )
    return left, right, np.isfinite(left) & np.isfinite(right) & (exist[0] | exist[1])


def _extrapolated(quotient, steps: Steps):
    """Returns (value, doubt) by Ridders's method, from the start that leaves the least doubt."""
    best = None
    with np.errstate(all="ignore"):
        for start in steps.starts:
            value, doubt = _ridders(quotient, start, steps.levels)
            doubt = np.where(np.isfinite(value + doubt), doubt, np.inf)
            if best is None:
                best = value, doubt
            else:
                better = doubt < best[1]
                best = np.where(better, value, best[0]), np.where(better, doubt, best[1])
            if np.all(best[1] <= steps.enough * (1 + np.abs(best[0]))):
                break
    return best


def _ridders(quotient, start: float, levels: int):
    """Returns what quotients at start, start / 2, ... tend to, and how far that may be off."""
    row, noise = quotient(start)
    row = [row]
    value, doubt = row[0], np.full_like(row[0], np.inf)
    for level in range(1, levels):
        newest, noise = quotient(start / 2**level)
        before, row = row, [newest]
        for order in range(level):
            factor = 4.0 ** (order + 1)
            row.append((factor * row[order] - before[order]) / (factor - 1))
            off = np.maximum(np.abs(row[-1] - row[-2]), np.abs(row[-1] - before[order])) + noise
            better = off < doubt
            value, doubt = np.where(better, row[-1], value), np.where(better, off, doubt)
    return value, doubt


def _epsilon(width: int) -> float:
    return float(np.finfo(np.float64 if width == 8 else np.float32).eps)
