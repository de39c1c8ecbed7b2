"""All rows at once: the pullback under a vectorized map."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from tfjac import sweeps
from tfjac.strategies import base, mapping


@dataclasses.dataclass(frozen=True)
class Vectorized:
    """Maps the pullback over the rows with `tf.vectorized_map`, `chunk_size` rows at a time.

    Args:
      chunk_size: rows carried at once; None for all, "auto" for as many as fit
        `base.CHUNK_BYTES`.
    """

    chunk_size: int | str | None | base.MemoryBudget = "auto"
    name = "vectorized"

    def supports(self, problem: base.Problem) -> base.Support:
        """Says no where XLA is to compile a loop that TensorFlow cannot vectorize for it."""
        return mapping.supports_vectorized_map(problem)

    def cost(self, problem: base.Problem) -> base.Cost:
        """Counts one product per row; carried together they cost less each."""
        loops = tuple(sorted({op.type for op in problem.ops} & mapping.LOOPS))
        found, rows = problem.kernels, problem.expected_rows
        return base.Cost(
            problem.rows,
            base.value_seconds(problem)
            + mapping.mapped_seconds(found.reverse, rows, found.turns)
            + base.written_seconds(problem, transposed=bool(problem.apart)),
            graph_ops=10 * len(problem.ops) + 20,
            chunk_size=self._chunk(problem),
            loops=loops,
        )

    def build(self, problem: base.Problem) -> list[tf.Tensor | None]:
        """Adds the map."""
        pull = sweeps.pullback(problem.y, problem.sources)
        if pull.function is None:
            return [None] * len(problem.sources)
        units = base.reverse_units(problem)
        chunk = base.chunk_size_at_run_time(problem, self.chunk_size, units.size)
        rows = pull.spread(mapping.mapped(problem, pull, units, chunk))
        return [
            stack if stack is None else base.from_rows(problem, source, stack)
            for source, stack in zip(problem.sources, rows)
        ]

    def _chunk(self, problem: base.Problem) -> int | None:
        return base.chunk_size_for(problem, self.chunk_size)
