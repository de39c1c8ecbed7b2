"""Rows of a Jacobian carried together, with what is known of their structure.

A stack belongs to a tensor of the graph: row r says how the r-th row of the result depends on the
entries of that tensor. Leading axes along which nothing mixes are merged into one of `positions`,
and a stack that is the same at all of them has one.

Some entries are `kept` and others not where an op chooses one of its inputs: the others stay zero
also times an infinite factor. None: no op has chosen.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import tensorflow as tf


@dataclasses.dataclass(frozen=True, eq=False)
class Scattered:
    """Rows with a single entry each.

    Args:
      columns: where the entry of each row is; -1 where the row is zero.
      values: `[positions or 1, rows]`, or one number for all.
      kept: `[positions or 1, rows]`.
    """

    columns: np.ndarray
    values: tf.Tensor | float = 1.0
    kept: tf.Tensor | None = None

    def scaled(self, scale: tf.Tensor, sources: np.ndarray, *, chooses: bool = False) -> Scattered:
        """Returns the stack of an input, from which each entry comes times a factor.

        Args:
          scale: `[positions or 1, entries of the output]`.
          sources: for each entry of the output, that of the input.
          chooses: whether it is one or zero, where the input is chosen or not.
        """
        if not _is_range(self.columns, scale.shape[1]):
            scale = tf.gather(scale, np.maximum(self.columns, 0), axis=1)
        kept = _both(self.kept, scale > 0) if chooses else self.kept
        values = _chosen(kept, _product(self.values, scale))
        return Scattered(self._through(sources), values, kept)

    def moved(self, sources: np.ndarray) -> Scattered:
        """Returns the stack of an input whose entries were moved, -1 standing for no entry."""
        return Scattered(self._through(sources), self.values, self.kept)

    def times(self, matrix: tf.Tensor) -> Dense:
        """Returns the stack of an input of which the tensor is a linear map.

        Args:
          matrix: `[positions or 1, entries of the tensor, entries of the input]`.
        """
        rows = matrix
        if not _is_range(self.columns, matrix.shape[1]):
            rows = tf.gather(matrix, np.maximum(self.columns, 0), axis=1)
        if (self.columns < 0).any():
            rows = tf.where((self.columns >= 0)[:, np.newaxis], rows, tf.zeros([], rows.dtype))
        values = self.values if isinstance(self.values, float) else self.values[:, :, tf.newaxis]
        kept = None if self.kept is None else self.kept[:, :, tf.newaxis]
        return Dense(_chosen(kept, _product(values, rows)), kept)

    def _through(self, sources: np.ndarray) -> np.ndarray:
        if not len(sources):
            return np.full_like(self.columns, -1)  # no entry to come from
        return np.where(self.columns >= 0, sources[np.maximum(self.columns, 0)], -1)


@dataclasses.dataclass(frozen=True, eq=False)
class Dense:
    """Rows written out.

    Args:
      rows: `[positions or 1, rows, entries of the tensor]`.
      kept: the same shape, or one where it is the same for all rows or entries.
    """

    rows: tf.Tensor
    kept: tf.Tensor | None = None

    def scaled(self, scale: tf.Tensor, sources: np.ndarray, *, chooses: bool = False) -> Dense:
        """Returns the stack of an input, from which each entry comes times a factor."""
        scale = scale[:, tf.newaxis, :]
        kept = _both(self.kept, scale > 0) if chooses else self.kept
        return Dense(_chosen(kept, self.rows * scale), kept).moved(sources)

    def moved(self, sources: np.ndarray) -> Dense:
        """Returns the stack of an input whose entries were permuted."""
        if _is_range(sources, len(sources)):
            return self
        order, kept = np.argsort(sources), self.kept
        if kept is not None and kept.shape[2] != 1:
            kept = tf.gather(kept, order, axis=2)
        return Dense(tf.gather(self.rows, order, axis=2), kept)


Stack = Scattered | Dense


def merged(found: Sequence[Stack]) -> list[Stack]:
    """Returns the stacks of one tensor with those added up that have their entries in one place."""
    by_place: dict[bytes, Stack] = {}
    for stack in found:
        place = stack.columns.tobytes() if isinstance(stack, Scattered) else b""
        known = by_place.get(place)
        by_place[place] = stack if known is None else _sum(known, stack)
    return list(by_place.values())


def _sum(one: Stack, other: Stack) -> Stack:
    kept = None if one.kept is None or other.kept is None else one.kept | other.kept
    if isinstance(one, Dense):
        return one if one.rows is None else Dense(one.rows + other.rows, kept)
    return Scattered(one.columns, one.values + other.values, kept)


def _both(kept: tf.Tensor | None, chosen: tf.Tensor) -> tf.Tensor:
    return chosen if kept is None else kept & chosen


def _chosen(kept: tf.Tensor | None, values: tf.Tensor) -> tf.Tensor:
    return values if kept is None else tf.where(kept, values, tf.zeros([], values.dtype))


def _product(values: tf.Tensor | float, factors: tf.Tensor) -> tf.Tensor:
    return factors if isinstance(values, float) and values == 1.0 else values * factors


def identity(size: int) -> Scattered:
    """Returns the rows of the identity, which are never written out."""
    return Scattered(np.arange(size))


def total(
    stacks: Sequence[Stack], entries: int, positions: tf.Tensor | int, dtype: tf.DType
) -> tf.Tensor:
    """Returns the sum of stacks of one tensor, written out: `[positions or 1, rows, entries]`.

    Args:
      stacks: at least one.
      entries: of the tensor.
      positions: how many there are.
      dtype: of the result.
    """
    dense = [stack.rows for stack in stacks if isinstance(stack, Dense)]
    scattered = [stack for stack in stacks if isinstance(stack, Scattered)]
    if scattered:
        dense.append(_written(scattered, entries, positions, dtype))
    return dense[0] if len(dense) == 1 else tf.add_n(_alike(dense, positions))


def _written(stacks: Sequence[Scattered], entries: int, positions, dtype) -> tf.Tensor:
    rows = len(stacks[0].columns)
    shared = all(isinstance(s.values, float) or s.values.shape[0] == 1 for s in stacks)
    count = 1 if shared else positions
    kept = [np.nonzero(stack.columns >= 0)[0] for stack in stacks]
    # All contributions to one row after the other, so that the result is written in order.
    places = np.concatenate([k * entries + s.columns[k] for s, k in zip(stacks, kept)])
    parts = [tf.gather(_all_values(s, count, dtype), k, axis=1) for s, k in zip(stacks, kept)]
    values = tf.transpose(tf.concat(parts, axis=1))
    written = tf.scatter_nd(places[:, np.newaxis], values, [rows * entries, count])
    return tf.reshape(tf.transpose(written), [count, rows, entries])


def _all_values(stack: Scattered, count, dtype) -> tf.Tensor:
    if isinstance(stack.values, float):
        return tf.fill([count, len(stack.columns)], tf.constant(stack.values, dtype))
    return tf.broadcast_to(stack.values, [count, len(stack.columns)])


def _alike(arrays: Sequence[tf.Tensor], positions) -> list[tf.Tensor]:
    if len({array.shape[0] for array in arrays}) == 1:
        return list(arrays)
    return [tf.broadcast_to(a, [positions, *a.shape[1:]]) for a in arrays]


def _is_range(columns: np.ndarray, size: int | None) -> bool:
    return len(columns) == size and np.array_equal(columns, np.arange(len(columns)))
