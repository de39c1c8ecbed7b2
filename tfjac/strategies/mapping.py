"""Vectorized maps: what they take, what they make of an op, and where TensorFlow's are wrong."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from tfjac import rates, shapes, sweeps
from tfjac.graph import kernels, subgraph
from tfjac.strategies.base import SUPPORTED, Problem, Support, named

# A vectorized map makes, of each gradient, about so many kernels, that move so many bytes: what is
# the same for all vectors is repeated for each. See BUILD_NOTES.md, "Costs".
_MAPPED_KERNELS = 3.0
_MAPPED_BYTES = 1.1

# Op types for which TensorFlow has no vectorized form of the op or of its gradient, so that the map
# runs them once for each row. `tests/contracts_test.py` checks each.
LOOPS = frozenset(
    {
        "Conv3D",
        "CropAndResize",
        "DepthwiseConv2dNative",
        "Dilation2D",
        "GatherNd",
        "MirrorPad",
        "ResizeBicubic",
        "ResizeBilinear",
        "ResizeNearestNeighbor",
        "ReverseSequence",
        "TopKV2",
    }
)

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


def mapped_seconds(runs: Sequence[kernels.Run], vectors: float, turns: float = 0.0) -> float:
    """Returns what a vectorized map over products with vectors is expected to take.

    Args:
      runs: the kernels of one of them.
      vectors: how many.
      turns: of loops of the graph.
    """
    here, total = rates.current(), turns * rates.current().turn
    for run in runs:
        if run.op.type in LOOPS:
            total += vectors * (run.seconds() + run.times * here.turn)
        else:
            more = (_MAPPED_KERNELS - 1) * run.times * here.op
            total += more + _MAPPED_BYTES * run.seconds(vectors)
    return total


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
    bounds (oneDNN; 2.16 does not). A map makes that of a rank-3 operand with one example. Where
    their number is not known, `mapped` asks when it runs. In a body the shapes are not known: any
    batched product counts.
    """
    if problem.compiled:
        return ""  # XLA has kernels of its own
    suspects = [named(op) for op in problem.ops if any(map(_is_single, _mapped_factors(op)))]
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


def mapped(
    problem: Problem,
    linear_map: sweeps.LinearMap,
    units: sweeps.UnitVectors,
    chunk: shapes.Size | None,
) -> list[tf.Tensor]:
    """Returns each connected output for every unit vector, by a vectorized map.

    At one example by a loop, where that would make a vectorized map unsafe.
    """
    factors = [] if problem.compiled else [t for op in problem.ops for t in _mapped_factors(op)]
    if not factors:
        return sweeps.map_vectorized(linear_map, units, chunk)
    found = tf.cond(
        tf.reduce_any(tf.equal(tf.stack([tf.shape(t)[0] for t in factors]), 1)),
        lambda: sweeps.map_in_loop(linear_map, units),
        lambda: sweeps.map_vectorized(linear_map, units, chunk),
    )
    return tf.nest.flatten(found)


def has_no_second_map(problem: Problem) -> bool:
    """Returns whether TensorFlow's second gradient of an op on the way cannot be mapped.

    A vectorized map over that of a tf.cond raises in TensorFlow 2.21 ("Required handle data not
    set"), over that of a loop it takes seconds to construct, and over that of a tf.TensorArray,
    read or gathered, it fails when the graph runs.
    """
    return any(
        op.type in subgraph.WITH_BODY or op.type.startswith("TensorList") for op in problem.ops
    )


def _mapped_factors(op: tf.Operation) -> list[tf.Tensor]:
    """Returns the factors of a batched product of which there may be one example alone."""
    if op.type not in _BATCHED_PRODUCTS:
        return []
    if op.inputs[0].dtype.as_datatype_enum not in _ONEDNN_TYPES:
        return []
    return [
        t
        for t in op.inputs
        if t.dtype == op.inputs[0].dtype
        and (t.shape.rank is None or (t.shape.rank == 3 and t.shape[:1] in ([1], [None])))
    ]


def _is_single(factor: tf.Tensor) -> bool:
    """Returns whether a factor has one example, or is of unknown rank."""
    return factor.shape.rank is None or factor.shape[0] == 1


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
