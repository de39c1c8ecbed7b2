"""What a strategy is given (a Problem) and what it must answer (the Strategy protocol)."""

from __future__ import annotations

import dataclasses
import functools
from typing import Protocol

import tensorflow as tf

from tfjac import graph_memo, shapes, sweeps, tf_internals
from tfjac.graph import counting, paths, subgraph
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
    """

    y: tf.Tensor
    sources: tuple[Source, ...]
    apart: int = 0
    compiled: bool = False
    asked: tf.Tensor | None = None

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
    def flops_per_pass(self) -> float | None:
        """FLOPs of a forward pass, which a product takes about once more; None if unknown."""
        return counting.flops_of(self.ops)

    @property
    def result_bytes(self) -> int | None:
        """Bytes of the Jacobian by all sources, or None where a size is unknown."""
        sizes = [shapes.static_size(s.shape[self.apart :]) for s in self.sources]
        y_size = shapes.static_size(self.y.shape)
        if y_size is None or None in sizes:
            return None
        return y_size * sum(sizes) * self.y.dtype.size

    @functools.cached_property
    def inner_nodes(self) -> list[tuple[tf.Operation, tf.compat.v1.NodeDef]]:
        """The nodes in the bodies of those ops, each with the op that it is in."""
        with_body = [op for op in self.ops if op.type in subgraph.WITH_BODY]
        return [(op, node) for op in with_body for node in tf_internals.nodes_within(op)]

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
      chunk_size: passes carried at once, None for all of them.
      loops: types of ops on the way that a vectorized map runs once for each pass.
      under_way: how many times `chunk_size` passes may be under way at the same time.
      counted_flops: of what will be built, where that is not a number of passes.
      counted_bytes: held at once, likewise, besides the result.
      order: of multiplication, in words, where there is a choice.
    """

    passes: int | None
    work: float
    graph_ops: int
    chunk_size: int | None
    loops: tuple[str, ...] = ()
    under_way: int = 1
    counted_flops: float | None = None
    counted_bytes: float | None = None
    order: str = ""

    def flops(self, problem: Problem) -> float | None:
        """Returns the FLOPs of all passes, None where sizes are unknown."""
        if self.counted_flops is not None:
            return self.counted_flops
        if self.passes is None or problem.flops_per_pass is None:
            return None
        return self.passes * problem.flops_per_pass

    def memory(self, problem: Problem) -> int | None:
        """Returns the bytes that are held at once, the result among them; None if unknown.

        The result counts twice, for it is stacked from its rows. A pass is taken to hold all that
        it computes, and so is the forward pass.
        """
        if problem.result_bytes is None or problem.bytes_per_pass is None:
            return None
        if self.counted_bytes is not None:
            return 2 * problem.result_bytes + problem.bytes_per_pass + int(self.counted_bytes)
        chunk = self.chunk_size if self.chunk_size is not None else count(self.passes)
        at_once = min(chunk * self.under_way, count(self.passes))
        return 2 * problem.result_bytes + (at_once + 1) * problem.bytes_per_pass


@dataclasses.dataclass(frozen=True)
class MemoryBudget:
    """A chunk_size told in bytes: as many passes at once as fit, beside the result.

    Args:
      bytes: that may be held at once.
    """

    bytes: int


# Bytes that the tensors of the passes carried at once may take where chunk_size is "auto".
CHUNK_BYTES = 1 << 28

# Work of a turn of a loop, and of a vectorized map to begin with and per pass, in passes written
# out one by one. See BUILD_NOTES.md, "Costs of the strategies".
LOOP_PASS = 1.3
_VECTORIZED_START = 1.0
_VECTORIZED_PASS = 0.85
_VECTORIZED_WINDOW_PASS = 1.5
_WINDOWS = ("AvgPool", "Conv", "DepthwiseConv", "MaxPool")

# Passes to expect where the shapes do not tell.
_UNKNOWN_PASSES = 100

# Batched products of matrices, and what has them in its gradient.
_BATCHED_PRODUCTS = frozenset(
    {
        "BandedTriangularSolve",
        "BatchMatMul",
        "BatchMatMulV2",
        "BatchMatMulV3",
        "Cholesky",
        "CholeskyGrad",
        "Eig",
        "LogMatrixDeterminant",
        "Lu",
        "MatrixDeterminant",
        "MatrixExponential",
        "MatrixInverse",
        "MatrixLogarithm",
        "MatrixSolve",
        "MatrixSolveLs",
        "MatrixSquareRoot",
        "MatrixTriangularSolve",
        "Qr",
        "SelfAdjointEigV2",
        "Svd",
    }
)
_ONEDNN_TYPES = frozenset(t.as_datatype_enum for t in (tf.bfloat16, tf.float16, tf.float32))
_LOOPS = frozenset({"StatelessWhile", "While"})
# Of which a vectorized map mixes up elements of a list, in TensorFlow 2.21.
_NOT_MAPPED = frozenset(
    {
        "TensorListGather",
        "TensorListScatter",
        "TensorListScatterIntoExistingList",
        "TensorListScatterV2",
    }
)


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


def count(passes: int | None) -> int:
    """Returns the number of passes to plan for."""
    return _UNKNOWN_PASSES if passes is None else passes


def chunk_size_for(problem: Problem, chunk_size: int | str | None) -> int | None:
    """Returns the passes to carry at once, None for all, where `chunk_size` may be "auto"."""
    if chunk_size == "auto":
        wanted = CHUNK_BYTES
    elif isinstance(chunk_size, MemoryBudget):
        wanted = chunk_size.bytes - 2 * (problem.result_bytes or 0) - (problem.bytes_per_pass or 0)
    else:
        return chunk_size
    if problem.bytes_per_pass is None:
        return _UNKNOWN_PASSES
    return max(1, wanted // max(1, problem.bytes_per_pass))


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
        if op.type in _NOT_MAPPED:
            return Support(False, f"a vectorized map mixes up the elements of {named(op)}")
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


def has_no_second_map(problem: Problem) -> bool:
    """Returns whether TensorFlow's second gradient of an op on the way cannot be mapped.

    A vectorized map over that of a tf.cond raises in TensorFlow 2.21 ("Required handle data not
    set"), over that of a loop it takes seconds to construct, and over that of a tf.TensorArray,
    read or gathered, it fails when the graph runs.
    """
    return any(
        op.type in subgraph.WITH_BODY or op.type.startswith("TensorList") for op in problem.ops
    )


def _may_be_one_example(op: tf.Operation) -> bool:
    if op.type not in _BATCHED_PRODUCTS:
        return False
    if op.inputs[0].dtype.as_datatype_enum not in _ONEDNN_TYPES:
        return False
    return any(
        t.shape.rank is None or (t.shape.rank == 3 and t.shape[:1] in ([1], [None]))
        for t in op.inputs
        if t.dtype == op.inputs[0].dtype
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
