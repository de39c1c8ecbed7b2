"""One vector-Jacobian product per row, written out, and the results stacked."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from tfjac import sweeps
from tfjac.strategies import base


@dataclasses.dataclass(frozen=True)
class Unstack:
    """Calls the pullback once for each row and stacks the results.

    The plainest way, and the fastest to run where there are few rows: nothing stands between the
    passes and TensorFlow's scheduler. The graph grows by a few ops per row.
    """

    name = "unstack"

    def supports(self, problem: base.Problem) -> base.Support:
        """Says no where the number of rows is not known while building."""
        if problem.rows is None:
            return base.Support(
                False,
                f"y has shape {problem.y.shape}, so the number of rows is "
                "not known while the graph is built",
            )
        return base.SUPPORTED

    def cost(self, problem: base.Problem) -> base.Cost:
        """Counts one product per row."""
        passes = problem.rows
        each = base.pass_seconds(problem.kernels.reverse, problem.kernels.turns)
        return base.Cost(
            passes,
            seconds=base.value_seconds(problem) + passes * each + base.written_seconds(problem),
            graph_ops=passes * (len(problem.ops) + 4),
            chunk_size=1,
            under_way=passes,  # TensorFlow may begin all of them
        )

    def build(self, problem: base.Problem) -> list[tf.Tensor | None]:
        """Adds one call of the pullback for each row."""
        pull = sweeps.pullback(problem.y, problem.sources)
        units = base.reverse_units(problem)
        rows = [pull(units[i]) for i in range(problem.rows)]
        return [
            None if parts[0] is None else _stacked(problem, source, parts)
            for source, parts in zip(problem.sources, zip(*rows))
        ]


def _stacked(problem: base.Problem, source: base.Source, rows) -> tf.Tensor:
    rows = tf.stack(rows, axis=problem.apart)
    rows = tf.reshape(rows, base.jacobian_shape(problem, source))
    return base.conjugated(problem, source, rows)
