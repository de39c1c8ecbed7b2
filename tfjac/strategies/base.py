"""What a strategy is given (a Problem) and what it must answer (the Strategy protocol)."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Protocol

import tensorflow as tf

from tfjac import graph_memo, nominal, rates, rules, shapes, sweeps, tf_internals
from tfjac.graph import by_hand, counting, kernels, paths, subgraph
from tfjac.graph.sources import Source


@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
    """One target, its sources, and what is wanted: facts about the graph, read when asked for.

    Args:
      y: the target, `[*lead, *y_rest]`.
      sources: the sources, `[*lead, *x_rest]` each.
      apart: number of leading axes along which nothing mixes, so that the Jacobian has them once,
        `[*lead, *y_rest, *x_rest]`: 0 for the whole one, 1 for one per example, more where the
        graph shows that more axes are kept apart.
      compiled: the graph will be compiled by XLA.
      asked: the target as it came, where y is a copy of it whose derivatives are right.
      spread: whether the Jacobian is written out whole afterwards, with zeros between those
        positions of the leading axes that are apart.
    """

    y: tf.Tensor
    sources: tuple[Source, ...]
    apart: int = 0
    compiled: bool = False
    asked: tf.Tensor | None = None
    spread: bool = False

    @property
    def target(self) -> tf.Tensor:
        """The target as it came, of which examples are shown to stay apart."""
        return self.y if self.asked is None else self.asked

    @functools.cached_property
    def ops(self) -> list[tf.Operation]:
        """The ops on the way from the sources to y, in topological order."""
        tensors = [t for s in self.sources for t in s.tensors]
        key = ("ops", self.y.ref(), *(t.ref() for t in tensors))
        return graph_memo.memoized(key, lambda: paths.to(self.y).ops(tensors))

    @functools.cached_property
    def chain(self) -> list[tf.Tensor]:
        """The tensors through which every path from the sources to y runs, in order."""
        return subgraph.chain(self.ops, [t for s in self.sources for t in s.tensors], self.y)

    @functools.cached_property
    def flops_per_pass(self) -> float:
        """FLOPs of a forward pass, which a product takes about once more."""
        return counting.flops_of(self.ops)

    @functools.cached_property
    def kernels(self) -> kernels.Kernels:
        """The kernels that a forward pass runs, and a product with a vector either way."""
        return kernels.kernels_of(self.ops, [t for s in self.sources for t in s.tensors])

    @property
    def is_sized(self) -> bool:
        """Whether the graph tells all sizes; where not, costs are those of nominal ones."""
        ends = [self.y.shape, *(s.shape for s in self.sources)]
        return all(shape.is_fully_defined() for shape in ends)

    @functools.cached_property
    def result_bytes(self) -> float:
        """Bytes of the Jacobian by all sources."""
        lead = math.prod(nominal.shape_of(self.y)[: self.apart])
        return lead * self.expected_rows * self.expected_columns * self.y.dtype.size

    @functools.cached_property
    def inner_nodes(self) -> list[tuple[tf.Operation, tf.compat.v1.NodeDef]]:
        """The nodes in the bodies of those ops, each with the op that it is in."""
        with_body = [op for op in self.ops if op.type in subgraph.WITH_BODY]
        return [(op, node) for op in with_body for node in tf_internals.nodes_within(op)]

    @functools.cached_property
    def is_by_hand(self) -> bool:
        """Whether a gradient on the way was written by hand, and is not seen to be linear."""
        reached = {subgraph.key_of(t) for s in self.sources for t in s.tensors}
        for op in self.ops:
            if rules.has_custom_gradient(op) and not by_hand.is_linear(op, reached):
                return True
            reached.update(subgraph.key_of(t) for t in op.outputs)
        return False

    @property
    def rows(self) -> int | None:
        """Passes that reverse mode needs: entries of y at one position of the leading axes."""
        return shapes.static_size(self.y.shape[self.apart :])

    @property
    def columns(self) -> int | None:
        """Passes that forward mode needs: entries of the sources, likewise."""
        sizes = [shapes.static_size(s.shape[self.apart :]) for s in self.sources]
        return None if None in sizes else sum(sizes)

    @functools.cached_property
    def expected_rows(self) -> float:
        """The rows, unknown sizes guessed."""
        return float(math.prod(nominal.shape_of(self.y)[self.apart :]))

    @functools.cached_property
    def expected_columns(self) -> float:
        """The columns, unknown sizes guessed."""
        return sum(math.prod(_expected(s.shape)[self.apart :]) for s in self.sources)

    @functools.cached_property
    def bytes_per_pass(self) -> float:
        """Bytes of the tensors on the way."""
        return sum(nominal.size_in_bytes(t) for op in self.ops for t in op.outputs)


def _expected(shape: tf.TensorShape) -> list[int]:
    if shape.rank is None:
        return []
    return [nominal.SIZE if size is None else size for size in shape.as_list()]


@dataclasses.dataclass(frozen=True)
class Support:
    """Whether a strategy takes a problem, and why not."""

    ok: bool
    reason: str = ""


SUPPORTED = Support(True)


@dataclasses.dataclass(frozen=True)
class Cost:
    """What a strategy expects to spend.

    Args:
      passes: vector-Jacobian or Jacobian-vector products of the whole batch.
      seconds: that one evaluation is expected to take, the target's own among them.
      graph_ops: ops that the graph gains, roughly: what construction is expected to take.
      chunk_size: passes carried at once, None for all of them.
      loops: types of ops on the way that a vectorized map runs once for each pass.
      under_way: how many times `chunk_size` passes may be under way at the same time.
      counted_flops: of what will be built, where that is not a number of passes.
      counted_bytes: held at once, likewise, besides the result.
      order: of multiplication, in words, where there is a choice.
    """

    passes: int | None
    seconds: float
    graph_ops: int
    chunk_size: int | None
    loops: tuple[str, ...] = ()
    under_way: int = 1
    counted_flops: float | None = None
    counted_bytes: float | None = None
    order: str = ""

    @property
    def construction(self) -> float:
        """Seconds that building and optimizing the graph are expected to take."""
        return self.graph_ops * rates.current().built

    def flops(self, problem: Problem) -> float | None:
        """Returns the FLOPs of all passes; None for an unknown number of passes."""
        if self.counted_flops is not None:
            return self.counted_flops
        return None if self.passes is None else self.passes * problem.flops_per_pass

    def memory(self, problem: Problem) -> int:
        """Returns the bytes that are held at once, the result among them.

        The result counts twice, for it is stacked from its rows. A pass is taken to hold all that
        it computes, and so is the forward pass.
        """
        if self.counted_bytes is not None:
            return int(2 * problem.result_bytes + problem.bytes_per_pass + self.counted_bytes)
        passes = problem.expected_rows if self.passes is None else self.passes
        chunk = self.chunk_size if self.chunk_size is not None else passes
        at_once = min(chunk * self.under_way, passes)
        return int(2 * problem.result_bytes + (at_once + 1) * problem.bytes_per_pass)


@dataclasses.dataclass(frozen=True)
class MemoryBudget:
    """A chunk_size told in bytes: as many passes at once as fit, beside the result.

    Args:
      bytes: that may be held at once.
    """

    bytes: int


# Bytes that the tensors of the passes carried at once may take where chunk_size is "auto".
CHUNK_BYTES = 1 << 28

# Passes that are carried at once without a loop where the sizes are not known before it runs.
_WITHOUT_A_LOOP = 100


class Strategy(Protocol):
    """A way to build the Jacobian. Implementations are frozen dataclasses; fields are options.

    One that carries several passes at once has a field `chunk_size` (int, None or "auto").
    """

    name: str

    def supports(self, problem: Problem) -> Support:
        """Says whether `build` can serve `problem`, and if not, why. Adds no op."""

    def cost(self, problem: Problem) -> Cost:
        """Says what `build` would spend. Adds no op; called only where supported."""

    def build(self, problem: Problem) -> list[tf.Tensor | None]:
        """Adds the ops and returns, for each source, its Jacobian or None where unconnected.

        Shape `y.shape + x.shape[problem.apart:]`.
        """


def reverse_units(problem: Problem) -> sweeps.UnitVectors:
    """Returns the cotangents that pick one row of the Jacobian each."""
    return _units(problem, shapes.shape_of(problem.y), problem.y.dtype)


def forward_units(problem: Problem, source: Source) -> sweeps.UnitVectors:
    """Returns the tangents that pick one column of the Jacobian by `source` each."""
    return _units(problem, source.run_time_shape(), source.dtype)


def jacobian_shape(problem: Problem, source: Source) -> shapes.Shape:
    """Returns `y.shape + x.shape[apart:]`."""
    return shapes.join(shapes.shape_of(problem.y), source.run_time_shape()[problem.apart :])


def from_rows(problem: Problem, source: Source, rows: tf.Tensor) -> tf.Tensor:
    """Returns the Jacobian from its `rows`, `[number of rows, *x.shape]`."""
    if problem.apart and problem.rows != 1:
        entries, columns = reverse_units(problem), forward_units(problem, source)
        rows = tf.reshape(rows, [entries.size, shapes.size_of(entries.lead), columns.size])
        rows = tf.transpose(rows, [1, 0, 2])
    return conjugated(problem, source, tf.reshape(rows, jacobian_shape(problem, source)))


def conjugated(problem: Problem, source: Source, rows: tf.Tensor) -> tf.Tensor:
    """Returns the rows of J from those of its adjoint, which is what pullbacks give.

    They differ for holomorphic functions only. Of a real target by a complex source TensorFlow's
    own convention, dy/d Re x + i dy/d Im x, is kept.
    """
    both = problem.y.dtype.is_complex and source.dtype.is_complex
    return tf.math.conj(rows) if both else rows


def from_columns(problem: Problem, source: Source, columns: tf.Tensor) -> tf.Tensor:
    """Returns the Jacobian from its `columns`, `[number of columns, *y.shape]`."""
    entries, units = reverse_units(problem), forward_units(problem, source)
    if problem.apart:
        columns = tf.reshape(columns, [units.size, shapes.size_of(units.lead), entries.size])
        columns = tf.transpose(columns, [1, 2, 0])
    else:
        columns = tf.transpose(tf.reshape(columns, [units.size, entries.size]))
    return tf.reshape(columns, jacobian_shape(problem, source))


def _units(problem: Problem, shape: shapes.Shape, dtype: tf.DType) -> sweeps.UnitVectors:
    lead = shape[: problem.apart] if problem.apart else []
    return sweeps.UnitVectors(lead, shape[problem.apart :], dtype)


def chunk_size_for(problem: Problem, chunk_size: int | str | None) -> int | None:
    """Returns the passes to carry at once, None for all, where `chunk_size` may be "auto".

    Where sizes are unknown, those of nominal ones: `chunk_size_at_run_time` is what is built.
    """
    if chunk_size == "auto":
        wanted = CHUNK_BYTES
    elif isinstance(chunk_size, MemoryBudget):
        wanted = chunk_size.bytes - 2 * problem.result_bytes - problem.bytes_per_pass
    else:
        return chunk_size
    return max(1, int(wanted // max(1.0, problem.bytes_per_pass)))


def chunk_size_at_run_time(
    problem: Problem, chunk_size: int | str | None, passes: shapes.Size
) -> shapes.Size | None:
    """Returns the same as a tensor where it depends on sizes that are unknown."""
    found = chunk_size_for(problem, chunk_size)
    is_guessed = chunk_size == "auto" or isinstance(chunk_size, MemoryBudget)
    if problem.is_sized or not is_guessed:
        return found
    is_small = isinstance(passes, int) and passes <= _WITHOUT_A_LOOP
    if chunk_size == "auto" and (is_small or problem.compiled):
        return None  # nor can XLA compile chunks whose size is not known
    # All tensors are taken to grow as the target does.
    guess = nominal.entries(problem.y)
    grown = tf.cast(tf.maximum(tf.size(problem.y), 1), tf.float32) / guess
    return tf.maximum(1, tf.cast(tf.cast(found, tf.float32) / grown, tf.int32))


def pass_seconds(runs: Sequence[kernels.Run], turns: float = 0.0) -> float:
    """Returns what one product with a vector is expected to take."""
    return kernels.seconds(runs) + turns * rates.current().turn


def value_seconds(problem: Problem) -> float:
    """Returns what a call with one evaluation of the target is expected to take."""
    here = rates.current()
    turns = problem.kernels.turns * here.turn
    found = here.call + kernels.seconds(problem.kernels.value) + turns
    if not problem.spread:
        return found
    lead = math.prod(nominal.shape_of(problem.y)[: problem.apart])
    return found + rates.moving(problem.result_bytes, lead * problem.result_bytes)


def written_seconds(problem: Problem, *, transposed: bool = False) -> float:
    """Returns what it takes to put the result together from its rows or columns."""
    size = problem.result_bytes
    return rates.transposing(size) if transposed else rates.moving(size, size)


def named(op: tf.Operation) -> str:
    """Returns the op as messages name it."""
    return f"op {op.name!r} of type {op.type}"
