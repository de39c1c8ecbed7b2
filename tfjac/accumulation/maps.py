"""The local Jacobians of ops, with their structure: what cross_country multiplies.

Rules say what kind of map an op is and which axes it keeps apart; here is its value. An op of
which nothing is said here is served by TensorFlow's own gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from tfjac import gradients, nominal, rules, shapes
from tfjac.accumulation import movements, terms, windows
from tfjac.accumulation.factors import Axis, Factor
from tfjac.accumulation.local import Steps, derivative, ends, factor, native, term
from tfjac.accumulation.terms import Groups, Term
from tfjac.graph import by_hand, subgraph
from tfjac.rules import Kind, Local

# Sums: the derivative by each input is one.
ADDS = frozenset({"Add", "AddN", "AddV2", "BiasAdd", "BiasAddV1", "AccumulateNV2"})

# What is not chosen has the derivative zero, whatever it would have been.
CHOOSES = frozenset({"Select", "SelectV2"})


def steps_of(op: tf.Operation, i: int, o: int, dtype: tf.DType) -> Steps | None:
    """Returns the local Jacobian of output `o` by input `i`; adds nothing to the graph yet.

    Args:
      op: the op.
      i: the input.
      o: the output.
      dtype: in which to compute.

    Returns:
      Steps whose product it is, empty where it is zero; None where nothing is known of it.
    """
    if subgraph.is_by_hand(op):
        return _by_hand(op, i, o, dtype)
    rule = rules.rule_of(op)
    if rule is None or op.outputs[o].shape.rank is None or op.inputs[i].shape.rank is None:
        return None
    found = rule.local(op, i, o)
    if found.kind is Kind.ZERO:
        return ()
    ends = (op.outputs[o], op.inputs[i])
    if any(t.dtype.is_complex or 0 in t.shape.as_list() for t in ends):
        return None
    read = _BY_TYPE.get(op.type) or _BY_KIND.get(found.kind)
    return None if read is None else read(op, i, o, found, dtype)


def _by_hand(op: tf.Operation, i: int, o: int, dtype: tf.DType) -> Steps | None:
    """A gradient that was written by hand, where it is seen to be linear, entry by entry."""
    if by_hand.is_zero(op.outputs[o], i):
        return ()
    if not by_hand.is_diagonal(op.outputs[o], i):
        return None
    rows, entries = ends(op, i, o, tuple((k, k) for k in range(op.outputs[o].shape.rank)))

    def make() -> tf.Tensor:
        return tf.cast(gradients.of_op(op, i, o, tf.ones_like(op.outputs[o])), dtype)

    return term(rows, entries, [factor(make, rows, dtype)])


def _pointwise(op: tf.Operation, i: int, o: int, found: Local, dtype: tf.DType) -> Steps | None:
    out, given = op.outputs[o].shape, op.inputs[i].shape
    # Of an input without entries and one of unknown size TensorFlow does not tell the output's.
    none_left = shapes.are_empty(*(t.shape for t in op.inputs))
    if any(given[a] is None and (none_left or out[b] is not None) for b, a in found.links):
        raise terms.Refused(f"an input of {op.name!r} may be of size one, and broadcast")
    rows, entries = ends(op, i, o, found.links)
    if op.type in ADDS or (op.type == "Sub" and i == 0) or _is_cast(op):
        return term(rows, entries)
    if op.type in ("Sub", "Neg"):
        return term(rows, entries, scale=-1.0)
    if op.type == "Mul" or (op.type in ("RealDiv", "Div") and i == 0):
        number = _number(op.inputs[1 - i])
        if number is not None:
            return term(rows, entries, scale=number if op.type == "Mul" else 1.0 / number)
        return term(rows, entries, [_other(op, 1 - i, o, rows, dtype)])
    if op.type.startswith("FusedBatchNorm"):
        return _normalization(op, i, rows, entries, dtype)
    made = factor(lambda: derivative(op, i, o, dtype), rows, dtype, is_mask=op.type in CHOOSES)
    return term(rows, entries, [made])


def _number(tensor: tf.Tensor) -> float | None:
    """Returns a scalar that the graph tells, unless it is zero or not finite."""
    if tensor.shape.num_elements() != 1:
        return None
    value = tf.get_static_value(tensor)
    if value is None or not np.isfinite(value).all() or not np.all(value):
        return None
    return float(np.reshape(value, ()))


def _is_cast(op: tf.Operation) -> bool:
    return op.type == "Cast"


def _other(op: tf.Operation, j: int, o: int, rows: Groups, dtype: tf.DType) -> Factor:
    """Returns the other operand with the axes that it has: what all examples share stays shared."""
    other = op.inputs[j]
    lead = len(rows) - other.shape.rank
    axes = [
        () if size == 1 and rows[a + lead] else rows[a + lead]
        for a, size in enumerate(terms.sizes_of(other))
    ]
    divides = op.type != "Mul"
    return factor(lambda: 1.0 / tf.cast(other, dtype) if divides else other, axes, dtype)


def _normalization(op: tf.Operation, i: int, rows: Groups, entries: Groups, dtype) -> Steps | None:
    """Scales each channel, by statistics that are given."""
    channels_first = op.get_attr("data_format").startswith(b"NC")
    place = 1 if channels_first else len(rows) - 1
    shape = [1] * len(rows)
    shape[place] = -1

    def made(value: Callable[..., tf.Tensor], axes: Groups) -> Steps:
        def make() -> tf.Tensor:
            x, scale, _, mean, variance = (tf.cast(t, dtype) for t in op.inputs[:5])
            channels = [tf.reshape(t, shape) for t in (scale, mean, variance)]
            return value(x, *channels)

        return term(rows, entries, [factor(make, axes, dtype)])

    epsilon = op.get_attr("epsilon")
    channel = tuple(group if k == place else () for k, group in enumerate(rows))
    if i == 0:
        return made(lambda x, scale, mean, var: scale * tf.math.rsqrt(var + epsilon), channel)
    if i == 1:
        return made(lambda x, scale, mean, var: (x - mean) * tf.math.rsqrt(var + epsilon), rows)
    return term(rows, entries) if i == 2 else None


def _identity(op: tf.Operation, i: int, o: int, found: Local, dtype: tf.DType) -> Steps | None:
    return term(*ends(op, i, o, found.links))


def _sum(op: tf.Operation, i: int, o: int, found: Local, dtype: tf.DType) -> Steps | None:
    if op.type != "L2Loss" and rules.constants(op, 1) is None:
        return None
    rows, entries = ends(op, i, o, found.links)
    gone = [a for a in terms.flat(entries) if a not in terms.flat(rows)]
    if op.type == "Sum":
        return term(rows, entries)
    if op.type == "Mean" and all(a.size is not None for a in gone):
        return term(rows, entries, scale=1.0 / math.prod(a.size for a in gone))
    made = factor(lambda: derivative(op, i, o, dtype), entries, dtype)
    return term(rows, entries, [made])


def _running_sum(op: tf.Operation, i: int, o: int, found: Local, dtype: tf.DType) -> Steps | None:
    exclusive, reverse = op.get_attr("exclusive"), op.get_attr("reverse")

    def carry(backward: bool):
        return lambda t: tf.cumsum(t, 1, exclusive, reverse != backward)

    return (native(op, i, o, found.links, carry(True), carry(False), 0.0),)


def _matmul(op: tf.Operation, i: int, o: int, found: Local, dtype: tf.DType) -> Steps | None:
    a, b = op.get_attr("transpose_a"), op.get_attr("transpose_b")
    labels = [["k", "m"] if a else ["m", "k"], ["n", "k"] if b else ["k", "n"]]
    return _by_labels(op, i, labels, ["m", "n"], dtype)


def _batch_matmul(op: tf.Operation, i: int, o: int, found: Local, dtype: tf.DType) -> Steps | None:
    a, b = op.get_attr("adj_x"), op.get_attr("adj_y")
    ranks = [t.shape.rank for t in op.inputs]
    lead = [[f"batch {n - k}" for k in range(n)] for n in (r - 2 for r in ranks)]
    labels = [
        [*lead[0], *(["k", "m"] if a else ["m", "k"])],
        [*lead[1], *(["n", "k"] if b else ["k", "n"])],
    ]
    return _by_labels(op, i, labels, [*max(lead, key=len), "m", "n"], dtype)


def _einsum(op: tf.Operation, i: int, o: int, found: Local, dtype: tf.DType) -> Steps | None:
    labels = rules.einsum_labels(op)
    if labels is None or any(len(set(side)) < len(side) for side in (*labels[0], labels[1])):
        return None
    return _by_labels(op, i, *labels, dtype)


def _by_labels(op, i: int, inputs, out, dtype: tf.DType) -> Steps | None:
    """Returns the product with the other operand, if there is one, by the labels of the axes."""
    sizes: dict[str, list[tuple[int | None, tf.Tensor, int]]] = {}
    tensors = [*op.inputs, op.outputs[0]]
    for labels, tensor in zip((*inputs, out), tensors):
        for place, (label, size) in enumerate(zip(labels, terms.sizes_of(tensor))):
            sizes.setdefault(label, []).append((size, tensor, place))
    axes = {label: _axis_of(found) for label, found in sizes.items()}

    def groups(labels, tensor) -> Groups:
        return tuple(
            () if size == 1 else (axes[label],)
            for label, size in zip(labels, terms.sizes_of(tensor))
        )

    rows = groups(out, op.outputs[0])
    others = [factor(t, groups(inputs[j], t), dtype) for j, t in enumerate(op.inputs) if j != i]
    return term(rows, groups(inputs[i], op.inputs[i]), others)


def _axis_of(found) -> Axis:
    known = [size for size, _, _ in found if size not in (None, 1)]
    _, tensor, place = next((f for f in found if f[0] is None), found[0])
    if known:
        return Axis(known[0], None, place)
    return Axis(None, lambda: tf.shape(tensor)[place], place, nominal.shape_of(tensor)[place])


def _softmax(op: tf.Operation, i: int, o: int, found: Local, dtype: tf.DType) -> Steps | None:
    """S = (I - s 1^T) diag(s): a diagonal and an outer product along the last axis."""
    rows, entries = ends(op, i, o, found.links)
    same = Term(rows, rows)
    outer = Term(rows, entries, (factor(op.outputs[0], rows, dtype),), -1.0)
    scaled = Term(rows, rows, (factor(op.outputs[0], rows, dtype),))
    return ((same, outer), (scaled,))


def _log_softmax(op: tf.Operation, i: int, o: int, found: Local, dtype: tf.DType) -> Steps | None:
    rows, entries = ends(op, i, o, found.links)
    shares = factor(lambda: tf.exp(op.outputs[0]), entries, dtype)
    return ((Term(rows, rows), Term(rows, entries, (shares,), -1.0)),)


_BY_KIND = {
    Kind.IDENTITY: _identity,
    Kind.DIAGONAL: _pointwise,
    Kind.SELECTION: movements.selection,
}

_BY_TYPE = {
    **dict.fromkeys(("EuclideanNorm", "L2Loss", "Max", "Mean", "Min", "Prod", "Sum"), _sum),
    "Cumsum": _running_sum,
    "MatMul": _matmul,
    **dict.fromkeys(("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"), _batch_matmul),
    "Einsum": _einsum,
    "Softmax": _softmax,
    "LogSoftmax": _log_softmax,
    **movements.BY_TYPE,
    **windows.BY_TYPE,
}
