"""From the Jacobian that has an axis once to the one that has it twice, zeros written."""

from __future__ import annotations

import tensorflow as tf

from tfjac import shapes


def spread(
    blocks: tf.Tensor, y_shape: shapes.Shape, x_shape: shapes.Shape, apart: int, wanted: int
) -> tf.Tensor:
    """Returns the Jacobian with `wanted` leading axes once, from one with `apart` of them once.

    Between different positions of the axes from `wanted` to `apart` it is zero, whatever is in the
    blocks: none of them is multiplied by zero.

    Args:
      blocks: `[*lead, *y_rest, *x_rest]`, with `apart` leading axes.
      y_shape: `[*lead, *y_rest]`.
      x_shape: `[*lead, *x_rest]`.
      apart: number of leading axes that `blocks` has once.
      wanted: how many of them the result has once.
    """
    if apart == wanted:
        return blocks
    head, middle = y_shape[:wanted], y_shape[wanted:apart]
    rows, columns = shapes.size_of(y_shape[apart:]), shapes.size_of(x_shape[apart:])
    outer, positions = shapes.size_of(head), shapes.size_of(middle)
    whole = shapes.join(y_shape, x_shape[wanted:])
    # Of no columns there are no rows to put anywhere: tf.scatter_nd refuses to.
    count = (
        outer
        * positions
        * rows
        * (min(columns, 1) if isinstance(columns, int) else tf.minimum(columns, 1))
    )
    flat = tf.reshape(blocks, [count, columns])
    row = tf.range(count)
    where = tf.stack([row, row // rows % positions], axis=1)
    spaced = tf.scatter_nd(where, flat, [outer * positions * rows, positions, columns])
    return tf.reshape(spaced, whole)


class BlockDiagonal(tf.experimental.ExtensionType):
    """A Jacobian that is zero between different positions of leading axes; zeros never written.

    Args:
      blocks: `[*lead, *y_rest, *x_rest]`, one block for each position of the leading axes.
      y_rank: rank of y, `[*lead, *y_rest]`.
      apart: number of leading axes; 0 where the Jacobian is one block.
    """

    blocks: tf.Tensor
    y_rank: int
    apart: int

    def to_dense(self) -> tf.Tensor:
        """Returns the whole Jacobian, `[*lead, *y_rest, *lead, *x_rest]`."""
        return spread(self.blocks, self._y_shape(), self._x_shape(), self.apart, 0)

    def matvec(self, v: tf.Tensor) -> tf.Tensor:
        """Returns J v of the shape of y, for v of the shape of x."""
        matrices = self.matrices()
        flat = tf.reshape(v, [tf.shape(matrices)[0], tf.shape(matrices)[2]])
        return tf.reshape(tf.linalg.matvec(matrices, flat), self._y_shape())

    def rmatvec(self, u: tf.Tensor) -> tf.Tensor:
        """Returns the transposed Jacobian times u, of the shape of x, for u of the shape of y."""
        matrices = self.matrices()
        flat = tf.reshape(u, [tf.shape(matrices)[0], tf.shape(matrices)[1]])
        found = tf.linalg.matvec(matrices, flat, transpose_a=True)
        return tf.reshape(found, self._x_shape())

    def matrices(self) -> tf.Tensor:
        """Returns the blocks as matrices, `[positions, rows, columns]`."""
        y_shape, x_shape = self._y_shape(), self._x_shape()
        sizes = (y_shape[: self.apart], y_shape[self.apart :], x_shape[self.apart :])
        return tf.reshape(self.blocks, [shapes.size_of(size) for size in sizes])

    def _y_shape(self) -> shapes.Shape:
        return shapes.shape_of(self.blocks)[: self.y_rank]

    def _x_shape(self) -> shapes.Shape:
        whole = shapes.shape_of(self.blocks)
        return shapes.join(whole[: self.apart], whole[self.y_rank :])
