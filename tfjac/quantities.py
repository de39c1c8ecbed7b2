"""One y and one x, and how to have what is made of dy/dx without forming more than it takes."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Hashable, Sequence

import numpy as np
import tensorflow as tf

from tfjac import (
    blocks,
    construction,
    errors,
    graph_memo,
    matrices,
    problems,
    products,
    shapes,
    tapes,
)
from tfjac import independence as independence_lib
from tfjac.accumulation import memo, order
from tfjac.accumulation.factors import Factor
from tfjac.accumulation.terms import Refused, Stack
from tfjac.strategies import Problem


@dataclasses.dataclass(frozen=True, eq=False)
class Quantity:
    """What a quantity is made from.

    Args:
      problem: target and source, `apart` as many leading axes as the graph shows to stay apart.
      kept: number of leading axes that the quantity has: 1 where it is one of each example.
    """

    problem: Problem
    kept: int

    @property
    def y(self) -> tf.Tensor:
        """The target."""
        return self.problem.y

    @property
    def x(self) -> tf.Tensor | tf.Variable:
        """The source."""
        return self.problem.sources[0].value

    def y_shape(self) -> shapes.Shape:
        """Returns the shape of y."""
        return shapes.shape_of(self.y)

    def x_shape(self) -> shapes.Shape:
        """Returns the shape of x."""
        return self.problem.sources[0].run_time_shape()

    @property
    def rows(self) -> int | None:
        """Rows of a block, None if unknown."""
        return shapes.static_size(self.y.shape[self.problem.apart :])

    @property
    def columns(self) -> int | None:
        """Columns of a block, None if unknown."""
        return shapes.static_size(self.problem.sources[0].shape[self.problem.apart :])

    def check_square(self) -> int:
        """Returns the number of rows and columns of a block, or raises."""
        if self.rows is None or self.rows != self.columns:
            raise errors.InvalidValueError(
                errors.message(
                    "y",
                    "of as many entries as x, so that the Jacobian is square",
                    f"{self.y.name!r} of shape {self.y.shape} by a source of shape "
                    f"{self.problem.sources[0].shape}"
                    + (", one Jacobian for each example" if self.kept else ""),
                    "Use gramian, whose determinant is the squared volume, or trace a function of "
                    "known sizes.",
                )
            )
        return self.rows

    def square_checks(self) -> list[tf.Operation]:
        """Returns the assertions that it is square, of y and x of one shape, or raises."""
        y_shape, x_shape = self.y.shape, self.problem.sources[0].shape
        if y_shape.rank is None or y_shape.as_list() != x_shape.as_list():
            self.check_square()
        if self.rows is not None or self.is_diagonal:
            return []
        return [
            tf.debugging.assert_equal(
                tf.shape(self.y),
                tf.shape(self.x),
                message=f"`y` {self.y.name!r} must have the shape of x, so that the Jacobian is "
                "square.",
            )
        ]

    @property
    def is_diagonal(self) -> bool:
        """Whether the graph shows that the Jacobian is a diagonal."""
        x_rank = self.problem.sources[0].shape.rank
        return self.problem.apart == self.y.shape.rank == x_rank and x_rank > 0

    def diagonal(self) -> tf.Tensor:
        """Returns the diagonal, `[positions]`."""
        d = products.vjp(self.y, self.x, tf.ones_like(self.y))
        return tf.reshape(matrices.widened(d), [-1])

    def jacobian(self) -> blocks.BlockDiagonal:
        """Returns the Jacobian in blocks."""
        options = construction.options_of(structured=True)
        return construction.operate(self.y, self.x, bool(self.kept), options, "jacobian")

    def matrices(self) -> tf.Tensor:
        """Returns the blocks, `[positions, rows, columns]`."""
        found = self.jacobian().matrices()
        found.set_shape([None, self.rows, self.columns])
        return matrices.widened(found)

    def slogdet(self, values: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns sign and logarithm of the determinants of matrices, in float32 of half ones."""
        return matrices.slogdet(matrices.widened(values), self.problem.compiled)

    def each_row(self) -> list[tf.Tensor]:
        """Returns the rows of the blocks one by one, `[positions, columns]` each."""
        if self.problem.compiled:
            return tf.unstack(self.matrices(), axis=1)  # which XLA does not write
        shape, found = self.y.shape[self.problem.apart :].as_list(), []
        for unit in np.eye(self.rows):
            cotangent = tf.constant(unit.reshape(shape), self.y.dtype)
            cotangent = tf.broadcast_to(cotangent, self.y_shape())
            row = products.vjp(self.y, self.x, cotangent)
            found.append(matrices.widened(tf.reshape(row, [-1, self.columns])))
        return found

    def accumulated(
        self, wanted: Hashable, finish: Callable[[Stack], tuple[Factor, ...]]
    ) -> tuple[Factor, ...] | None:
        """Returns what `finish` makes of the Jacobian, in the cheapest order.

        Empty where y does not depend on x, or one has no entries; None where the Jacobian has no
        structure to be used.
        """
        if shapes.are_empty(self.y.shape, self.problem.sources[0].shape):
            return ()
        problem = dataclasses.replace(self.problem, apart=self.kept)
        try:
            return order.accumulated(
                problem, problem.sources[0], (wanted, self.kept), finish
            ).factors
        except Refused:
            return None

    def over_blocks(self, reduce: Callable[..., tf.Tensor], values: tf.Tensor) -> tf.Tensor:
        """Returns the quantity, `reduced` from `values`."""
        return self.finished(self.reduced(reduce, values))

    def reduced(self, reduce: Callable[..., tf.Tensor], values: tf.Tensor) -> tf.Tensor:
        """Returns `values`, `[positions]`, reduced over the positions of one example, or of all."""
        if reduce is tf.reduce_prod and self.problem.apart == self.kept and values.shape.rank == 1:
            return values  # one block each: the gradient of a product is dear
        lead = self.y_shape()[: self.kept]
        return reduce(tf.reshape(values, shapes.join(lead, [-1])), -1)

    def finished(self, value: tf.Tensor) -> tf.Tensor:
        """Returns a quantity with its dtype and static shape."""
        value = tf.cast(value, self.y.dtype)
        value = tf.reshape(value, self.y_shape()[: self.kept])
        value.set_shape(self.y.shape[: self.kept])
        return value


def checked(checks: Sequence[tf.Operation], found: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Returns tensors that are to be had only where the assertions hold."""
    if not checks:
        return list(found)
    with tf.control_dependencies(checks):
        return [tf.identity(tensor) for tensor in found]


def made(
    kind: Hashable,
    y: tf.Tensor,
    x: tf.Tensor,
    batch: bool,
    independence: str,
    name: str,
    build: Callable[[Quantity], Sequence[tf.Tensor]],
) -> list[tf.Tensor]:
    """Returns what `build` makes of dy/dx, the same tensors when asked again.

    Args:
      kind: tells what is built, options included.
      y: the target.
      x: the source.
      batch: whether it is one of each example.
      independence: "prove" or "assume" that examples stay apart.
      name: name scope.
      build: adds the ops.
    """
    independence_lib.check_option(independence)
    with problems.building([y], "y", name) as (target,):
        problem = problems.problem(target, [x], bool(batch))
        (source,) = problem.sources
        problems.check_real(problem)
        if batch and independence == independence_lib.PROVE:
            independence_lib.check(target, source)
        shown = independence_lib.apart(target, source)
        apart = max(problem.apart, shown)
        quantity = Quantity(dataclasses.replace(problem, apart=apart), int(bool(batch)))

        def build_all() -> list[tf.Tensor]:
            checks = problems.check_example_counts(problem) if batch and not shown else []
            with memo.seen_by_tapes():
                return checked(checks, build(quantity))

        key = ("quantity", kind, target.ref(), source.value.ref(), bool(batch))
        return graph_memo.memoized_unless_recording(
            key, functools.partial(tapes.recorded, build_all, target, problem.ops)
        )
