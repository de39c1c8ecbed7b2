"""The local Jacobians of ops, with their structure: what cross_country multiplies.

Rules say what kind of map an op is and which axes it keeps apart; here is its value. An op of
which nothing is said here is served by TensorFlow's own gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from tfjac import rules, tf_internals
from tfjac.accumulation import factors as factors_
from tfjac.accumulation import terms
from tfjac.accumulation.factors import Axis, Factor
from tfjac.accumulation.natives import Native
from tfjac.accumulation.terms import Groups, Stack, Term
from tfjac.graph import positions
from tfjac.rules import Kind, Local

# From the output back: a sum of terms, or what a kernel carries.
Steps = tuple[Stack | Native, ...]


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


def derivative(op: tf.Operation, i: int, o: int, dtype: tf.DType) -> tf.Tensor:
    """Returns the diagonal of an elementwise op, `[*output]`; or of a sum, `[*input]`.

    That is TensorFlow's gradient by a cotangent of ones, where each entry of the input goes to one
    entry of the output or the other way round.
    """
    given, out = op.inputs[i], op.outputs[o]
    broadcast = rules.rule_of(op).local(op, i, o).kind is Kind.DIAGONAL and given.shape != out.shape
    if broadcast or sum(t.ref() == given.ref() for t in op.inputs) > 1:
        # By this input alone, entry by entry, where it is broadcast or comes twice.
        given = tf.broadcast_to(given, tf.shape(out)) if broadcast else given
        given = tf.identity(given)
        given.set_shape(out.shape if broadcast else op.inputs[i].shape)
        inputs = [*op.inputs[:i], given, *op.inputs[i + 1 :]]
        out = tf_internals.same_op(op, inputs)[o]
    (found,) = tf.gradients(
        out,
        given,
        tf.ones_like(out),
        stop_gradients=list(out.op.inputs),
        unconnected_gradients="zero",
    )
    return tf.cast(found, dtype)


def _factor(
    tensor: tf.Tensor | Callable[[], tf.Tensor],
    axes: Sequence[tuple[Axis, ...]],
    dtype: tf.DType,
) -> Factor:
    """Returns a tensor of the graph as a factor; `axes` has a group for each of its axes."""
    names = tuple(terms.flat(tuple(axes)))

    def make(order: tuple[Axis, ...]) -> tf.Tensor:
        found = tf.cast(tensor() if callable(tensor) else tensor, dtype)
        sizes = [axis.size for axis in names]
        same = found.shape.as_list() == sizes
        return found if same else tf.reshape(found, factors_.shape_of(names))

    return Factor(names, make, bytes=dtype.size)


def _ends(op: tf.Operation, i: int, o: int, links) -> tuple[Groups, Groups]:
    """Returns the axes of the output and of the input, linked ones the same."""
    rows = list(terms.axes_of(op.outputs[o]))
    entries = list(terms.axes_of(op.inputs[i]))
    for b, a in links:
        if rows[b] and rows[b][0].size is None and entries[a] and entries[a][0].size is not None:
            rows[b] = entries[a]
        else:
            entries[a] = rows[b]
    return tuple(rows), tuple(entries)


def _term(rows: Groups, entries: Groups, factors: Sequence[Factor] = (), scale=1.0) -> Steps:
    return ((Term(rows, entries, tuple(factors), scale),),)


# Elementwise.

# Sums: the derivative by each input is one.
ADDS = frozenset({"Add", "AddN", "AddV2", "BiasAdd", "BiasAddV1", "AccumulateNV2"})


def _pointwise(op: tf.Operation, i: int, o: int, found: Local, dtype: tf.DType) -> Steps | None:
    rows, entries = _ends(op, i, o, found.links)
    if op.type in ADDS or (op.type == "Sub" and i == 0) or _is_cast(op):
        return _term(rows, entries)
    if op.type in ("Sub", "Neg"):
        return _term(rows, entries, scale=-1.0)
    if op.type == "Mul" or (op.type in ("RealDiv", "Div") and i == 0):
        number = _number(op.inputs[1 - i])
        if number is not None:
            return _term(rows, entries, scale=number if op.type == "Mul" else 1.0 / number)
        return _term(rows, entries, [_other(op, 1 - i, o, rows, dtype)])
    if op.type.startswith("FusedBatchNorm"):
        return _normalization(op, i, rows, entries, dtype)
    made = _factor(lambda: derivative(op, i, o, dtype), rows, dtype)
    return _term(rows, entries, [made])


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
    return _factor(lambda: 1.0 / tf.cast(other, dtype) if divides else other, axes, dtype)


def _normalization(op: tf.Operation, i: int, rows: Groups, entries: Groups, dtype) -> Steps | None:
    """Scales each channel, by statistics that are given."""
    channels_first = op.get_attr("data_format").startswith(b"NC")
    place = 1 if channels_first else len(rows) - 1
    shape = [1] * len(rows)
    shape[place] = -1

    def made(factor: Callable[..., tf.Tensor], axes: Groups) -> Steps:
        def make() -> tf.Tensor:
            x, scale, _, mean, variance = (tf.cast(t, dtype) for t in op.inputs[:5])
            channels = [tf.reshape(t, shape) for t in (scale, mean, variance)]
            return factor(x, *channels)

        return _term(rows, entries, [_factor(make, axes, dtype)])

    epsilon = op.get_attr("epsilon")
    channel = tuple(group if k == place else () for k, group in enumerate(rows))
    if i == 0:
        return made(lambda x, scale, mean, var: scale * tf.math.rsqrt(var + epsilon), channel)
    if i == 1:
        return made(lambda x, scale, mean, var: (x - mean) * tf.math.rsqrt(var + epsilon), rows)
    return _term(rows, entries) if i == 2 else None


def _identity(op: tf.Operation, i: int, o: int, found: Local, dtype: tf.DType) -> Steps | None:
    return _term(*_ends(op, i, o, found.links))


# Sums.


def _sum(op: tf.Operation, i: int, o: int, found: Local, dtype: tf.DType) -> Steps | None:
    if op.type != "L2Loss" and rules.constants(op, 1) is None:
        return None
    rows, entries = _ends(op, i, o, found.links)
    gone = [a for a in terms.flat(entries) if a not in terms.flat(rows)]
    if op.type == "Sum":
        return _term(rows, entries)
    if op.type == "Mean" and all(a.size is not None for a in gone):
        return _term(rows, entries, scale=1.0 / math.prod(a.size for a in gone))
    made = _factor(lambda: derivative(op, i, o, dtype), entries, dtype)
    return _term(rows, entries, [made])


def _running_sum(op: tf.Operation, i: int, o: int, found: Local, dtype: tf.DType) -> Steps | None:
    exclusive, reverse = op.get_attr("exclusive"), op.get_attr("reverse")

    def carry(backward: bool):
        return lambda t: tf.cumsum(t, 1, exclusive, reverse != backward)

    return (_native(op, i, o, found.links, carry(True), carry(False), 0.0),)


# Products.


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
    others = [_factor(t, groups(inputs[j], t), dtype) for j, t in enumerate(op.inputs) if j != i]
    return _term(rows, groups(inputs[i], op.inputs[i]), others)


def _axis_of(found) -> Axis:
    known = [size for size, _, _ in found if size not in (None, 1)]
    _, tensor, place = next((f for f in found if f[0] is None), found[0])
    return Axis(known[0] if known else None, lambda: tf.shape(tensor)[place], place)


# Softmax.


def _softmax(op: tf.Operation, i: int, o: int, found: Local, dtype: tf.DType) -> Steps | None:
    """S = (I - s 1^T) diag(s): a diagonal and an outer product along the last axis."""
    rows, entries = _ends(op, i, o, found.links)
    same = Term(rows, rows)
    outer = Term(rows, entries, (_factor(op.outputs[0], rows, dtype),), -1.0)
    scaled = Term(rows, rows, (_factor(op.outputs[0], rows, dtype),))
    return ((same, outer), (scaled,))


def _log_softmax(op: tf.Operation, i: int, o: int, found: Local, dtype: tf.DType) -> Steps | None:
    rows, entries = _ends(op, i, o, found.links)
    shares = _factor(lambda: tf.exp(op.outputs[0]), entries, dtype)
    return ((Term(rows, rows), Term(rows, entries, (shares,), -1.0)),)


# Movements.


def _selection(op: tf.Operation, i: int, o: int, found: Local, dtype: tf.DType) -> Steps | None:
    rows, entries = _ends(op, i, o, found.links)
    linked = [{b for b, _ in found.links}, {a for _, a in found.links}]
    free = [
        [k for k, group in enumerate(groups) if group and k not in known]
        for groups, known in zip((rows, entries), linked)
    ]
    if not free[0] and not free[1]:
        return _term(rows, entries)
    places = _places(op, i, o, found)
    if places is None:
        return None
    if not free[1] and (places == 0).all():
        return _term(rows, entries)  # repeated
    columns = math.prod(op.inputs[i].shape[a] for a in free[1])
    return (
        _native(op, i, o, found.links, _gathered_back(places, columns), _gathered(places), 0.0),
    )


def _places(op: tf.Operation, i: int, o: int, found: Local) -> np.ndarray | None:
    """Returns, for each entry along the axes not linked, that of the input; -1 from elsewhere."""
    sources = positions.sources_of(op, i, o, found)
    if sources is None:
        return None
    if op.inputs[i].shape.rank == 0:
        return np.minimum(sources, 0)
    out, given = op.outputs[o].shape.as_list(), op.inputs[i].shape.as_list()
    linked_out, linked_in = ({link[k] for link in found.links} for k in (0, 1))
    first = tuple(0 if b in linked_out else slice(None) for b in range(len(out)))
    coordinates = np.unravel_index(np.maximum(sources, 0), given)
    free = [a for a in range(len(given)) if a not in linked_in]
    places = np.zeros(len(sources), int)
    if free:
        at = [coordinates[a] for a in free]
        places = np.ravel_multi_index(at, [given[a] for a in free])
    places = np.where(sources >= 0, places, -1).reshape(out)
    found = places[first]
    # The same at each position of the axes that are linked, or it is not one map for all.
    shape = [1 if b in linked_out else n for b, n in enumerate(out)]
    return found.reshape(-1) if (places == found.reshape(shape)).all() else None


def _gathered(places: np.ndarray):
    """Returns how `[n, ...]` goes to `[n, len(places)]` with an entry from each place, or zero."""

    def carry(tensor: tf.Tensor) -> tf.Tensor:
        size = math.prod(tensor.shape[1:])
        flat = tf.reshape(tensor, [-1, size])
        kept = np.nonzero(places >= 0)[0]
        run = places[kept]
        if len(kept) and _is_run(kept) and _is_run(run):
            found = flat[:, run[0] : run[0] + len(run)]
            return _padded(found, kept[0], len(places) - len(kept) - kept[0])
        if len(kept) == len(places):
            return tf.gather(flat, places, axis=1)
        return tf.gather(_padded(flat, 1, 0), places + 1, axis=1)

    return carry


def _gathered_back(places: np.ndarray, columns: int):
    """Returns the adjoint: what goes to one place is added up."""
    kept = np.nonzero(places >= 0)[0]
    counts = np.bincount(places[kept], minlength=columns)
    turns = []
    # The k-th entry that goes to each place, -1 where there are not so many.
    order = kept[np.argsort(places[kept], kind="stable")]
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(int)
    for k in range(int(counts.max(initial=0))):
        turn = np.full(columns, -1)
        having = counts > k
        turn[having] = order[starts[having] + k]
        turns.append(_gathered(turn))

    def carry(tensor: tf.Tensor) -> tf.Tensor:
        parts = [turn(tensor) for turn in turns]
        if not parts:
            return tf.zeros([tf.shape(tensor)[0], columns], tensor.dtype)
        return parts[0] if len(parts) == 1 else tf.add_n(parts)

    return carry


def _is_run(numbers: np.ndarray) -> bool:
    return bool((np.diff(numbers) == 1).all())


def _padded(tensor: tf.Tensor, before: int, after: int) -> tf.Tensor:
    return tf.pad(tensor, [[0, 0], [before, after]]) if before or after else tensor


def _reshape(op: tf.Operation, i: int, o: int, found: Local, dtype: tf.DType) -> Steps | None:
    """Axes are merged and split: all stays apart, by the parts that both shapes share."""
    try:
        rows, entries = _common_parts(op)
    except terms.Refused:
        return _reshape_natively(op, i, o, found)
    return _term(rows, entries)


def _common_parts(op: tf.Operation) -> tuple[Groups, Groups]:
    """Returns, for each axis of a Reshape's output and input, the parts that both share."""
    tensors = (op.outputs[0], op.inputs[0])
    left = [rules.reshaped(op).as_list(), tensors[1].shape.as_list()]
    places = [len(shape) - 1 for shape in left]
    groups: tuple[list, list] = ([[] for _ in left[0]], [[] for _ in left[1]])
    while True:
        for k in (0, 1):
            while places[k] >= 0 and left[k][places[k]] == 1:
                places[k] -= 1
        if places == [-1, -1]:
            return tuple(map(tuple, groups[0])), tuple(map(tuple, groups[1]))
        if -1 in places:
            raise terms.Refused("shapes that have no parts in common")
        sizes = [left[k][places[k]] for k in (0, 1)]
        part = min((n for n in sizes if n is not None), default=None)
        if any(size is not None and size % part for size in sizes):
            raise terms.Refused("shapes that have no parts in common")
        length = _rest_of(tensors[0], places[0], groups[0][places[0]])
        axis = Axis(part, length, places[0])
        for k, size in enumerate(sizes):
            groups[k][places[k]].insert(0, axis)
            if size is not None:
                left[k][places[k]] = size // part
            elif part is None:
                left[k][places[k]] = 1


def _rest_of(tensor: tf.Tensor, place: int, parts: Sequence[Axis]) -> Callable[[], tf.Tensor]:
    taken = math.prod(axis.size for axis in parts)
    return lambda: tf.shape(tensor)[place] // taken


def _reshape_natively(op: tf.Operation, i: int, o: int, found: Local) -> Steps | None:
    out, given = (t.shape.as_list() for t in (op.outputs[o], op.inputs[i]))
    linked_out, linked_in = ({link[k] for link in found.links} for k in (0, 1))
    sizes = [
        [n for k, n in enumerate(shape) if k not in linked]
        for shape, linked in ((out, linked_out), (given, linked_in))
    ]
    if None in sizes[0] or None in sizes[1]:
        return None

    def carry(to: list[int]):
        return lambda t: tf.reshape(t, [-1, *to])

    return (_native(op, i, o, found.links, carry(sizes[1]), carry(sizes[0]), 0.0),)


def _space_to_batch(op: tf.Operation, i: int, o: int, found: Local, dtype) -> Steps | None:
    """Pads, then the places within a block of space come before the examples."""
    block, pads = rules.constants(op, 1), rules.constants(op, 2)
    return _blocks(op, block, pads, op.inputs[0], op.outputs[0], pull_is_crop=True)


def _batch_to_space(op: tf.Operation, i: int, o: int, found: Local, dtype) -> Steps | None:
    """The other way round: blocks of space are put together, then cropped."""
    block, crops = rules.constants(op, 1), rules.constants(op, 2)
    return _blocks(op, block, crops, op.outputs[0], op.inputs[0], pull_is_crop=False)


def _blocks(op, block, edges, image: tf.Tensor, batch: tf.Tensor, *, pull_is_crop: bool):
    """Returns the steps of an op between an image and its blocks as examples."""
    rank = image.shape.rank
    if block is None or edges is None or not image.shape[1:].is_fully_defined():
        return None
    edges = [edges[2 * k : 2 * k + 2] for k in range(len(block))]
    space = range(1, 1 + len(block))
    sizes = image.shape.as_list()
    wide = [n + (sum(edges[k - 1]) if k in space else 0) for k, n in enumerate(sizes)]
    axes = list(terms.axes_of(image))
    within = [(Axis(n, None, k),) if n > 1 else () for k, n in zip(space, block)]
    for k, n in zip(space, block):
        outer = wide[k] // n
        axes[k] = (Axis(outer, None, k),) if outer > 1 else ()
    of_batch = ((*terms.flat(tuple(within)), *axes[0]), *axes[1:])
    of_image = tuple(
        (*group, *within[k - 1]) if k in space else group for k, group in enumerate(axes)
    )
    pads = [[0, 0], *edges]
    links = tuple((k, k) for k in range(rank) if k not in space)
    shapes_ = (tuple(wide), tuple(sizes))

    def pad(tensor: tf.Tensor) -> tf.Tensor:
        return tf.pad(tensor, pads)

    def crop(tensor: tf.Tensor) -> tf.Tensor:
        return tensor[(slice(None), *(slice(a, a + sizes[k]) for k, (a, _) in zip(space, edges)))]

    if pull_is_crop:
        moved = Term(of_batch, of_image)
        return ((moved,), Native(*shapes_, links, crop, pad))
    moved = Term(of_image, of_batch)
    return (Native(*shapes_[::-1], links, pad, crop), (moved,))


# Windows.


def _native(op: tf.Operation, i: int, o: int, links, pull, push, flops: float) -> Native:
    out, given = (tuple(terms.sizes_of(t)) for t in (op.outputs[o], op.inputs[i]))
    return Native(out, given, tuple(links), pull, push, flops)


def _linear(op: tf.Operation, i: int, o: int, found: Local, dtype: tf.DType) -> Steps | None:
    """An op that is linear in one input and does the same for each example."""
    out, given = op.outputs[o].shape, op.inputs[i].shape
    if (0, 0) not in found.links or not (out[1:] + given[1:]).is_fully_defined():
        return None
    own = op.inputs[i].dtype

    def run(tensor: tf.Tensor) -> tf.Tensor:
        inputs = list(op.inputs)
        inputs[i] = tensor
        if op.type in _TRANSPOSED:  # the first input is the shape of the output
            inputs[0] = tf.stack([tf.shape(tensor)[0], *out[1:].as_list()])
        (found_, *_) = tf_internals.same_op(op, inputs)
        return tf.ensure_shape(found_, [tensor.shape[0], *out[1:]])

    def push(tangent: tf.Tensor) -> tf.Tensor:
        return tf.cast(run(tf.cast(tangent, own)), dtype)

    def pull(cotangent: tf.Tensor) -> tf.Tensor:
        # Linear: where it is differentiated does not matter, only what shape it has.
        n = cotangent.shape[0] if cotangent.shape[0] is not None else tf.shape(cotangent)[0]
        where = tf.zeros([n, *given[1:].as_list()], own)
        made = run(where)
        (back,) = tf.gradients(made, where, tf.cast(cotangent, made.dtype))
        return tf.cast(back, dtype)

    each = rules.rule_of(op).flops(op) / factors_.guessed(out[0])
    return (_native(op, i, o, ((0, 0),), pull, push, each),)


_TRANSPOSED = frozenset(
    {
        "Conv2DBackpropInput",
        "Conv3DBackpropInputV2",
        "DepthwiseConv2dNativeBackpropInput",
    }
)


def _linear_in_input(op: tf.Operation, i: int, o: int, found: Local, dtype) -> Steps | None:
    if i != (2 if op.type in _TRANSPOSED else 0):
        return None
    return _linear(op, i, o, found, dtype)


def _pool(op: tf.Operation, i: int, o: int, found: Local, dtype: tf.DType) -> Steps | None:
    """Windows side by side: each entry goes to one maximum, or to one mean, at most."""
    tiles = _tiles(op, i, o)
    is_max = op.type.startswith("Max")
    if tiles is None:
        return None if is_max else _linear(op, i, o, found, dtype)
    rows = tuple(terms.axes_of(op.outputs[o]))
    entries = tuple(
        (*group, *((Axis(tile, None, place),) if tile > 1 else ()))
        for place, (group, tile) in enumerate(zip(rows, tiles))
    )
    if not is_max:
        return _term(rows, entries, scale=1.0 / math.prod(tiles))
    # By a cotangent of ones the gradient tells, of each window, the entry that was chosen.
    return _term(rows, entries, [_factor(lambda: derivative(op, i, o, dtype), entries, dtype)])


def _tiles(op: tf.Operation, i: int, o: int) -> list[int] | None:
    """Returns the sizes of the windows where they lie side by side and cover the input."""
    if op.type == "MaxPoolV2":
        return None
    sizes = [int(k) for k in op.get_attr("ksize")]
    out, given = op.outputs[o].shape.as_list(), op.inputs[i].shape.as_list()
    if sizes != [int(s) for s in op.get_attr("strides")] or sizes[0] != 1:
        return None
    pairs = list(zip(sizes, out, given))[1:]
    if any(n is None or m is None or k * n != m for k, n, m in pairs):
        return None
    return sizes


_BY_KIND = {
    Kind.IDENTITY: _identity,
    Kind.DIAGONAL: _pointwise,
    Kind.SELECTION: _selection,
}

_BY_TYPE = {
    **dict.fromkeys(("EuclideanNorm", "L2Loss", "Max", "Mean", "Min", "Prod", "Sum"), _sum),
    "Cumsum": _running_sum,
    "MatMul": _matmul,
    **dict.fromkeys(("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"), _batch_matmul),
    "Einsum": _einsum,
    "Softmax": _softmax,
    "LogSoftmax": _log_softmax,
    "Reshape": _reshape,
    "SpaceToBatchND": _space_to_batch,
    "BatchToSpaceND": _batch_to_space,
    **dict.fromkeys(("AvgPool", "AvgPool3D", "MaxPool", "MaxPool3D"), _pool),
    **dict.fromkeys(
        ("Conv2D", "Conv3D", "DepthwiseConv2dNative", "ResizeBilinear", "ResizeNearestNeighbor",
         "ResizeBicubic", *_TRANSPOSED),
        _linear_in_input,
    ),
}  # fmt: skip
