"""What a strategy is given (a Problem) and what it must answer (the Strategy protocol)."""

from __future__ import annotations

import dataclasses
import functools
from typing import Protocol

import tensorflow as tf

from tfjac import shapes, sweeps, tf_internals
from tfjac.graph import subgraph
from tfjac.graph.sources import Source


@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
    """One target, its sources, and what is wanted: facts about the graph, read when asked for.

    Args:
      y: the target, any shape; `[B, ...]` where `batch`.
      sources: the sources; `[B, ...]` each where `batch`.
      batch: per-example Jacobian, which takes it that example b of y uses example b of x alone.
      compiled: the graph will be compiled by XLA.
    """

    y: tf.Tensor
    sources: tuple[Source, ...]
    batch: bool
    compiled: bool = False

    @functools.cached_property
    def ops(self) -> list[tf.Operation]:
        """The ops on the way from the sources to y, in topological order."""
        return subgraph.ops_between(self.y, [t for s in self.sources for t in s.tensors])

    @functools.cached_property
    def inner_nodes(self) -> list[tuple[tf.Operation, tf.compat.v1.NodeDef]]:
        """The nodes in the bodies of those ops, each with the op that it is in."""
        with_body = [op for op in self.ops if op.type in subgraph.WITH_BODY]
        return [(op, node) for op in with_body for node in tf_internals.nodes_within(op)]

    @property
    def rows(self) -> int | None:
        """Passes that reverse mode needs: entries of y, of one example where batch."""
        return shapes.static_size(self.y.shape[1:] if self.batch else self.y.shape)

    @property
    def columns(self) -> int | None:
        """Passes that forward mode needs: entries of the sources, of one example where batch."""
        sizes = [shapes.static_size(s.shape[1:] if self.batch else s.shape) for s in self.sources]
        return None if None in sizes else sum(sizes)

    @functools.cached_property
    def bytes_per_pass(self) -> int | None:
        """Bytes of the tensors on the way, or None where a size is unknown."""
        sizes = [_bytes(t) for op in self.ops for t in op.outputs]
        return None if None in sizes else sum(sizes)


def _bytes(tensor: tf.Tensor) -> int | None:
    size = shapes.static_size(tensor.shape)
    if tensor.dtype in (tf.resource, tf.variant, tf.string):
        return 0
    return None if size is None else size * tensor.dtype.size


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
      work: time of all passes, in plain vector-Jacobian products run one after the other.
      graph_ops: ops that the graph gains, roughly; they cost construction and optimization.
      chunk_size: passes carried at once.
    """

    passes: int | None
    work: float
    graph_ops: int
    chunk_size: int | None


# Bytes that the tensors of the passes carried at once may take where chunk_size is "auto".
CHUNK_BYTES = 1 << 28

# Work of a turn of a loop, and of a vectorized map to begin with and per pass, in passes written
# out one by one. See BUILD_NOTES.md, "Costs of the four strategies".
LOOP_PASS = 1.3
_VECTORIZED_START = 1.0
_VECTORIZED_PASS = 0.85
_VECTORIZED_WINDOW_PASS = 1.5
_WINDOWS = ("AvgPool", "Conv", "DepthwiseConv", "MaxPool")

# Passes to expect where the shapes do not tell.
_UNKNOWN_PASSES = 100

_BATCHED_PRODUCTS = frozenset({"BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"})
_ONEDNN_TYPES = frozenset(t.as_datatype_enum for t in (tf.bfloat16, tf.float16, tf.float32))
_LOOPS = frozenset({"StatelessWhile", "While"})


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

        Shape `y.shape + x.shape`, or `[B] + y.shape[1:] + x.shape[1:]` where `problem.batch`.
        """


def reverse_units(problem: Problem) -> sweeps.UnitVectors:
    """Returns the cotangents that pick one row of the Jacobian each."""
    return _units(problem, shapes.shape_of(problem.y), problem.y.dtype)


def forward_units(problem: Problem, source: Source) -> sweeps.UnitVectors:
    """Returns the tangents that pick one column of the Jacobian by `source` each."""
    return _units(problem, source.run_time_shape(), source.dtype)


def jacobian_shape(problem: Problem, source: Source) -> shapes.Shape:
    """Returns `y.shape + x.shape`, or `[B] + y.shape[1:] + x.shape[1:]` where batch."""
    x_shape = source.run_time_shape()
    return shapes.join(shapes.shape_of(problem.y), x_shape[1:] if problem.batch else x_shape)


def from_rows(problem: Problem, source: Source, rows: tf.Tensor) -> tf.Tensor:
    """Returns the Jacobian from its `rows`, `[number of rows, *x.shape]`."""
    if problem.batch and problem.rows != 1:
        entries, columns = reverse_units(problem), forward_units(problem, source)
        rows = tf.reshape(rows, [entries.size, entries.batch, columns.size])
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
    if problem.batch:
        columns = tf.reshape(columns, [units.size, units.batch, entries.size])
        columns = tf.transpose(columns, [1, 2, 0])
    else:
        columns = tf.transpose(tf.reshape(columns, [units.size, entries.size]))
    return tf.reshape(columns, jacobian_shape(problem, source))


def _units(problem: Problem, shape: shapes.Shape, dtype: tf.DType) -> sweeps.UnitVectors:
    if problem.batch:
        return sweeps.UnitVectors(shape[1:], dtype, shape[0])
    return sweeps.UnitVectors(shape, dtype, None)


def count(passes: int | None) -> int:
    """Returns the number of passes to plan for."""
    return _UNKNOWN_PASSES if passes is None else passes


def chunk_size_for(problem: Problem, chunk_size: int | str | None) -> int | None:
    """Returns the passes to carry at once, None for all, where `chunk_size` may be "auto"."""
    if chunk_size != "auto":
        return chunk_size
    if problem.bytes_per_pass is None:
        return _UNKNOWN_PASSES
    return max(1, CHUNK_BYTES // max(1, problem.bytes_per_pass))


def vectorized_work(problem: Problem, passes: int) -> float:
    """Returns the work of a vectorized map over `passes`, in passes written out one by one."""
    windows = any(op.type.startswith(_WINDOWS) for op in problem.ops)
    each = _VECTORIZED_WINDOW_PASS if windows else _VECTORIZED_PASS
    return _VECTORIZED_START + each * passes


def supports_vectorized_map(problem: Problem) -> Support:
    """Says no where a vectorized map would be wrong, or XLA could not compile it."""
    for op in problem.ops:
        if problem.compiled and op.type in _LOOPS:
            return Support(False, f"XLA cannot compile a vectorized map over the loop {named(op)}")
    unsafe = unsafe_when_batched(problem)
    if unsafe:
        return Support(False, unsafe)
    return supports_inner_compilation(problem)


def unsafe_when_batched(problem: Problem) -> str:
    """Returns why a vectorized map could give wrong values, or "" where it could not.

    In TensorFlow 2.21 `[k, 1, m, n]` times a matrix that is broadcast to it reads and writes out of
    bounds (oneDNN; 2.16 does not). A map makes that of a rank-3 operand with one example, so of a
    batch of one or of unknown size. In a body the shapes are not known: any batched product counts.
    """
    if problem.compiled:
        return ""  # XLA has kernels of its own
    suspects = [named(op) for op in problem.ops if _may_be_one_example(op)]
    suspects += [
        f"a {node.op or 'node that cannot be read'} within {named(op)}"
        for op, node in problem.inner_nodes
        if not node.op or (node.op in _BATCHED_PRODUCTS and node.attr["T"].type in _ONEDNN_TYPES)
    ]
    if not suspects:
        return ""
    return (
        f"{suspects[0]} may have a batch of one, for which TensorFlow's kernel gives wrong values "
        "once a vectorized map adds an axis before it"
    )


def _may_be_one_example(op: tf.Operation) -> bool:
    if op.type not in _BATCHED_PRODUCTS:
        return False
    if op.inputs[0].dtype.as_datatype_enum not in _ONEDNN_TYPES:
        return False
    return any(
        t.shape.rank is None or (t.shape.rank == 3 and t.shape[:1] in ([1], [None]))
        for t in op.inputs
    )


def supports_inner_compilation(problem: Problem) -> Support:
    """Says no where a called function asks for XLA, which may not take its batched gradient."""
    nodes = [(op, op.node_def) for op in problem.ops if op.type in subgraph.WITH_BODY]
    for op, node in nodes + problem.inner_nodes:
        # Asked for first: reading an absent attribute would add it to the shared definition.
        if "_XlaMustCompile" in node.attr and node.attr["_XlaMustCompile"].b:
            return Support(
                False,
                f"{named(op)} calls a function with jit_compile=True, whose gradient may have ops "
                "that XLA cannot compile once it is batched or differentiated again",
            )
    return SUPPORTED


def named(op: tf.Operation) -> str:
    """Returns the op as messages name it."""
    return f"op {op.name!r} of type {op.type}"
