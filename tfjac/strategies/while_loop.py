"""One vector-Jacobian product per row, in a loop of the graph."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from tfjac import sweeps
from tfjac.strategies import base


@dataclasses.dataclass(frozen=True)
class WhileLoop:
    """Calls the pullback in a `tf.while_loop` that writes to a `TensorArray`.

    Takes any problem that has a gradient. The graph has the same size for ten rows as for a
    thousand, and memory holds a few passes at a time.
    """

    name = "while_loop"

    def supports(self, problem: base.Problem) -> base.Support:
        """Says yes to everything."""
        del problem
        return base.SUPPORTED

    def cost(self, problem: base.Problem) -> base.Cost:
        """Counts one product per row, and the loop's own turn for each."""
        turns = problem.kernels.turns + 1
        each = base.pass_seconds(problem.kernels.reverse, turns)
        return base.Cost(
            problem.rows,
            base.value_seconds(problem)
            + problem.expected_rows * each
            + base.written_seconds(problem, transposed=bool(problem.apart)),
            graph_ops=len(problem.ops) + 20,
            chunk_size=1,
            under_way=sweeps.TURNS_AT_ONCE,
        )

    def build(self, problem: base.Problem) -> list[tf.Tensor | None]:
        """Adds the loop."""
        pull = sweeps.pullback(problem.y, problem.sources)
        if pull.function is None:
            return [None] * len(problem.sources)
        rows = pull.spread(sweeps.map_in_loop(pull, base.reverse_units(problem)))
        return [
            stack if stack is None else base.from_rows(problem, source, stack)
            for source, stack in zip(problem.sources, rows)
        ]
