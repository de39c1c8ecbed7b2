"""Ops that mix entries along some axes and keep them apart along the others."""

from __future__ import annotations

import math

import tensorflow as tf

from tfjac import nominal
from tfjac.rules.kinds import (
    OPAQUE,
    ZERO,
    Kind,
    Local,
    Rule,
    aligned,
    axis_of,
    constant,
    family,
    local,
    ranks,
    same_axes,
)


def _per_entry(factor: float):
    def flops(op: tf.Operation) -> float:
        return factor * max(nominal.entries(t) for t in [*op.inputs, *op.outputs])

    return flops


def _matmul(op: tf.Operation, i: int, o: int) -> Local:
    # Of the output's two axes, one comes from each factor; the other of the factor is summed over.
    transposed = op.get_attr("transpose_a" if i == 0 else "transpose_b")
    own = (1 if transposed else 0) if i == 0 else (0 if transposed else 1)
    return Local(Kind.MIXING, ((i, own),))


def _batch_matmul(op: tf.Operation, i: int, o: int) -> Local:
    both = ranks(op, i, o)
    if both is None:
        return OPAQUE
    out, given = both
    transposed = op.get_attr("adj_x" if i == 0 else "adj_y")
    own = (
        (given - 1 if transposed else given - 2)
        if i == 0
        else (given - 2 if transposed else given - 1)
    )
    batch = [(b, a) for b, a in aligned(op, i, o) if b < out - 2]
    return Local(Kind.MIXING, (*batch, (out - 2 + i, own)))


def _matmul_flops(op: tf.Operation) -> float:
    adjoint = "transpose_a" if op.type in ("MatMul", "SparseMatMul") else "adj_x"
    shape = nominal.shape_of(op.inputs[0])
    summed = shape[-2 if op.get_attr(adjoint) else -1] if shape else 1
    return 2.0 * nominal.entries(op.outputs[0]) * summed


def einsum_labels(op: tf.Operation) -> tuple[list[list[str]], list[str]] | None:
    """Returns the labels of each axis of the inputs and the output; None for unknown ranks."""
    given, out = op.get_attr("equation").decode().replace(" ", "").split("->")
    shapes = [t.shape for t in op.inputs]
    if any(shape.rank is None for shape in shapes):
        return None
    found, widest = [], 0
    for text, shape in zip(given.split(","), shapes):
        hidden = shape.rank - len(text.replace("...", ""))
        widest = max(widest, hidden if "..." in text else 0)
        found.append(_expanded(text, hidden))
    return found, _expanded(out, widest)


def _expanded(text: str, hidden: int) -> list[str]:
    # Axes of an ellipsis are numbered from the right, as they are broadcast.
    ellipsis = [f"...{hidden - k}" for k in range(hidden)] if "..." in text else []
    before, _, after = text.partition("...")
    return [*before, *ellipsis, *after]


def _einsum(op: tf.Operation, i: int, o: int) -> Local:
    labels = einsum_labels(op)
    if labels is None:
        return OPAQUE
    given, out = labels[0][i], labels[1]
    links = []
    for a, label in enumerate(given):
        if given.count(label) > 1 or out.count(label) != 1:
            continue
        b = out.index(label)
        sizes = op.inputs[i].shape[a], op.outputs[0].shape[b]
        if sizes[0] is None or sizes[0] == sizes[1]:
            links.append((b, a))
    return Local(Kind.MIXING, tuple(links))


def _einsum_flops(op: tf.Operation) -> float:
    labels = einsum_labels(op)
    if labels is None:
        return 0.0
    sizes = {
        label: size
        for names, tensor in zip(labels[0], op.inputs)
        for label, size in zip(names, nominal.shape_of(tensor))
    }
    return 2.0 * math.prod(sizes.values())


def _reduction(op: tf.Operation, i: int, o: int) -> Local:
    if i > 0:
        return ZERO
    rank, axes = op.inputs[0].shape.rank, constant(op, 1)
    if rank is None:
        return OPAQUE
    if axes is None:
        return Local(Kind.MIXING)
    gone = {axis_of(a, rank) for a in axes}
    left = [a for a in range(rank) if a not in gone]
    if op.get_attr("keep_dims"):
        return Local(Kind.MIXING, tuple((a, a) for a in left))
    return Local(Kind.MIXING, tuple(enumerate(left)))


def _along(op: tf.Operation, i: int, o: int) -> Local:
    """A cumulative sum and its like, along the axis that input 1 names."""
    if i > 0:
        return ZERO
    axis = constant(op, 1)
    return OPAQUE if axis is None else local(Kind.MIXING, same_axes(op, 0, o, but=axis))


def _last_axis(op: tf.Operation, i: int, o: int) -> Local:
    return local(Kind.MIXING, same_axes(op, i, o, but=[-1]))


def _leading(drop_out: int, drop_in: int):
    """Returns how an op depends on data of which it mixes the last `drop_in` axes."""

    def read(op: tf.Operation, i: int, o: int) -> Local:
        both = ranks(op, i, o)
        if both is None:
            return OPAQUE
        kept = min(both[0] - drop_out, both[1] - drop_in)
        return Local(Kind.MIXING, tuple((a, a) for a in range(kept)))

    return read


def _leading_of_each(op: tf.Operation, i: int, o: int) -> Local:
    """Decompositions: each output has the leading axes of the matrices, whatever comes after."""
    both = ranks(op, i, o)
    if both is None:
        return OPAQUE
    if _is_left_out(op, o):
        return Local(Kind.MIXING)
    return Local(Kind.MIXING, tuple((a, a) for a in range(both[1] - 2)))


def _is_left_out(op: tf.Operation, o: int) -> bool:
    """Returns whether an output was not asked for, and so is empty."""
    if op.type == "Svd":
        return o > 0 and not op.get_attr("compute_uv")
    return op.type in ("Eig", "SelfAdjointEigV2") and o == 1 and not op.get_attr("compute_v")


def _solve(op: tf.Operation, i: int, o: int) -> Local:
    both = ranks(op, i, o)
    if both is None:
        return OPAQUE
    links = tuple((b, a) for b, a in aligned(op, i, o) if b < both[0] - 2)
    # Each column of the right side gives a column of the solution.
    return Local(Kind.MIXING, (*links, (both[0] - 1, both[1] - 1)) if i == 1 else links)


def _whole(op: tf.Operation, i: int, o: int) -> Local:
    return Local(Kind.MIXING)


def _transform(axes: int):
    def read(op: tf.Operation, i: int, o: int) -> Local:
        return ZERO if i > 0 else _leading(axes, axes)(op, i, o)

    return read


def _batch_norm(op: tf.Operation, i: int, o: int) -> Local:
    rank = op.inputs[0].shape.rank
    if rank is None:
        return OPAQUE
    channels_first = op.get_attr("data_format").startswith(b"NC")
    channel = 1 if channels_first else rank - 1
    trains = op.get_attr("is_training")
    if o > 4:
        return OPAQUE
    if o > 0 or (trains and i > 2):  # statistics, of each channel, or not there at all
        return Local(Kind.MIXING)
    if i > 0:
        return Local(Kind.DIAGONAL, ((channel, 0),))
    if trains:
        return Local(Kind.MIXING, ((channel, channel),))
    return local(Kind.DIAGONAL, same_axes(op, 0, 0))


def _normalized_nearby(op: tf.Operation, i: int, o: int) -> Local:
    return local(Kind.MIXING, same_axes(op, i, o, but=[-1]))


def _cross_entropy(op: tf.Operation, i: int, o: int) -> Local:
    if op.inputs[i].dtype.is_integer:
        return ZERO
    given, out = op.inputs[i].shape, op.outputs[o].shape
    # One example is broadcast to as many as the other input has.
    kept = given.rank and out.rank and (given[0] is None or given[0] == out[0])
    return Local(Kind.MIXING, ((0, 0),) if kept else ())


def _tridiagonal_product(op: tf.Operation, i: int, o: int) -> Local:
    both = ranks(op, i, o)
    if both is None:
        return OPAQUE
    links = tuple((a, a) for a in range(both[1] - 2))
    return Local(Kind.MIXING, (*links, (both[0] - 1, both[1] - 1)) if i == 3 else links)


def _aligned_labels(op: tf.Operation, i: int, o: int) -> Local:
    """Connectionist temporal classification: [time, examples, classes], and a loss for each."""
    if i > 0:
        return ZERO
    return Local(Kind.MIXING, ((0, 1),) if o == 0 else ((1, 1),))


def _sparse_product(op: tf.Operation, i: int, o: int) -> Local:
    """A sparse matrix, given by indices, values and shape, times a dense one."""
    if i == 3:
        return Local(Kind.MIXING, ((1, 0 if op.get_attr("adjoint_b") else 1),))
    return Local(Kind.MIXING) if i == 1 else ZERO


def _interval(op: tf.Operation, i: int, o: int) -> Local:
    dtype = op.inputs[i].dtype
    return Local(Kind.MIXING) if dtype.is_floating or dtype.is_complex else ZERO


_PRODUCT = Rule(_matmul, _matmul_flops)
_BATCH_PRODUCT = Rule(_batch_matmul, _matmul_flops)
_DECOMPOSITION = Rule(_leading_of_each, _per_entry(50))

TABLE: dict[str, Rule] = {
    **family("MatMul SparseMatMul", _PRODUCT),
    **family("BatchMatMul BatchMatMulV2 BatchMatMulV3", _BATCH_PRODUCT),
    "Einsum": Rule(_einsum, _einsum_flops),
    **family("EuclideanNorm Max Mean Min Prod Sum", Rule(_reduction, _per_entry(1))),
    **family("Cumprod Cumsum CumulativeLogsumexp", Rule(_along, _per_entry(1))),
    **family("LogSoftmax Softmax", Rule(_last_axis, _per_entry(12))),
    **family("Cross", Rule(_last_axis, _per_entry(3))),
    "L2Loss": Rule(_whole, _per_entry(2)),
    **family("Cholesky MatrixInverse MatrixExponential MatrixLogarithm MatrixSquareRoot Lu Qr "
             "SelfAdjointEigV2 Svd MatrixDeterminant LogMatrixDeterminant BatchMatrixDeterminant "
             "BatchMatrixInverse BatchCholesky CholeskyGrad Eig",
             _DECOMPOSITION),
    **family("MatrixSolve MatrixTriangularSolve BatchMatrixSolve BatchMatrixTriangularSolve "
             "MatrixSolveLs", Rule(_solve, _per_entry(50))),
    **family("BandedTriangularSolve TridiagonalSolve", Rule(_solve, _per_entry(10))),
    "TridiagonalMatMul": Rule(_tridiagonal_product, _per_entry(6)),
    "SparseTensorDenseMatMul": Rule(_sparse_product, _per_entry(10)),
    "IsotonicRegression": Rule(_last_axis, _per_entry(10)),
    **family("CTCLoss CTCLossV2", Rule(_aligned_labels, _per_entry(50))),
    **family("FFT IFFT RFFT IRFFT", Rule(_transform(1), _per_entry(25))),
    **family("FFT2D IFFT2D RFFT2D IRFFT2D", Rule(_transform(2), _per_entry(50))),
    **family("FFT3D IFFT3D RFFT3D IRFFT3D", Rule(_transform(3), _per_entry(75))),
    **family("FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3", Rule(_batch_norm, _per_entry(4))),
    "LRN": Rule(_normalized_nearby, _per_entry(20)),
    **family("SoftmaxCrossEntropyWithLogits SparseSoftmaxCrossEntropyWithLogits",
             Rule(_cross_entropy, _per_entry(15))),
    # Hue, saturation and value of each pixel.
    **family("RGBToHSV HSVToRGB", Rule(_last_axis, _per_entry(10))),
    **family("LinSpace Range", Rule(_interval, _per_entry(2))),
}  # fmt: skip
