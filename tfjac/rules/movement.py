"""Ops that move entries about: slices, pads, joins, turns."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import tensorflow as tf

from tfjac.rules import sizes
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
    moves,
    partly_constant,
    ranks,
    same_axes,
)


def _slice(op: tf.Operation, i: int, o: int) -> Local:
    if i > 0:
        return ZERO
    rank = op.inputs[0].shape.rank
    begin, size = partly_constant(op, 1), partly_constant(op, 2)
    if rank is None:
        return OPAQUE
    if begin is None or size is None:
        return Local(Kind.SELECTION, _whole(op, 0, o))
    whole = [a for a in range(rank) if begin[a] == 0 and _takes_all(op, a, size[a])]
    return Local(Kind.SELECTION, tuple((a, a) for a in whole))


def _takes_all(op: tf.Operation, axis: int, size: int | None) -> bool:
    """Returns whether a slice that begins at the beginning has all of an axis."""
    if size is not None:
        return size in (-1, op.inputs[0].shape[axis])
    return sizes.named(op.inputs[2], axis) == sizes.axis_size(op.inputs[0], axis)


def _whole(op: tf.Operation, i: int, o: int) -> tuple:
    """Returns links of axes that kept their known size, where a part of them cannot be meant."""
    if ranks(op, i, o) is None:
        return ()
    given, out = op.inputs[i].shape.as_list(), op.outputs[o].shape.as_list()
    # Beginning elsewhere than at 0, a part would be shorter.
    return tuple((a, a) for a, (g, s) in enumerate(zip(given, out)) if g is not None and g == s)


def _strided_slice(op: tf.Operation, i: int, o: int) -> Local:
    return ZERO if i > 0 else _sliced(op, op.inputs[0].shape)


def _strided_slice_gradient(op: tf.Operation, i: int, o: int) -> Local:
    """The slice put back among zeros; inputs are shape, begin, end, strides, slice."""
    if i < 4:
        return ZERO
    found = _sliced(op, op.outputs[0].shape)
    return dataclasses.replace(found, links=tuple((a, b) for b, a in found.links))


def _sliced(op: tf.Operation, shape: tf.TensorShape) -> Local:
    """Returns how a slice depends on what it is taken from, which has that shape."""
    rank = shape.rank
    begin, end, strides = (partly_constant(op, k) for k in (1, 2, 3))
    if rank is None or strides is None:
        return OPAQUE
    masks = {
        name: op.get_attr(f"{name}_mask")
        for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    }
    links, a, out = [], 0, 0
    count = len(strides)
    for k in range(count):
        if masks["ellipsis"] >> k & 1:
            new_later = sum(masks["new_axis"] >> m & 1 for m in range(k + 1, count))
            stop = rank - (count - k - 1 - new_later)
            links += [(out + n, a + n) for n in range(stop - a)]
            out, a = out + stop - a, stop
        elif masks["new_axis"] >> k & 1:
            out += 1
        elif masks["shrink_axis"] >> k & 1:
            a += 1
        else:
            if strides[k] == 1 and _is_whole(op, shape, a, k, begin, end, masks):
                links.append((out, a))
            out, a = out + 1, a + 1
    links += [(out + n, a + n) for n in range(rank - a)]
    return Local(Kind.SELECTION, tuple(links))


def _is_whole(op, shape: tf.TensorShape, axis: int, k: int, begin, end, masks) -> bool:
    size = shape[axis]
    from_start = masks["begin"] >> k & 1 or (begin is not None and begin[k] == 0)
    stop = None if end is None else end[k]
    to_end = masks["end"] >> k & 1 or (stop is not None and size is not None and stop >= size)
    if not to_end and op.type == "StridedSlice" and size is None:
        to_end = sizes.named(op.inputs[2], k) == sizes.axis_size(op.inputs[0], axis)
    return bool(from_start and to_end)


def _pad(op: tf.Operation, i: int, o: int) -> Local:
    if i == 2:  # the value to pad with
        return Local(Kind.SELECTION)
    if i > 0:
        return ZERO
    rank, paddings = op.inputs[0].shape.rank, partly_constant(op, 1)
    if rank is None:
        return OPAQUE
    if paddings is None:
        return Local(Kind.SELECTION, ())
    whole = [a for a in range(rank) if paddings[2 * a] == paddings[2 * a + 1] == 0]
    return Local(Kind.SELECTION, tuple((a, a) for a in whole))


def _but(axis_of_op: Callable[[tf.Operation], int | None]):
    """Returns how an op depends on data that it moves along one axis, told by that function."""

    def read(op: tf.Operation, i: int, o: int) -> Local:
        axis = axis_of_op(op)
        if axis is None or ranks(op, i, o) is None:
            return OPAQUE
        return Local(Kind.SELECTION, same_axes(op, i, o, but=[axis]))

    return read


def _constant_axis(k: int) -> Callable[[tf.Operation], int | None]:
    def axis(op: tf.Operation) -> int | None:
        value = constant(op, k % len(op.inputs))
        return None if value is None else value[0]

    return axis


def _data(read, *inputs: int):
    """Returns `read` for those inputs, and no derivative by the others."""

    def restricted(op: tf.Operation, i: int, o: int) -> Local:
        return read(op, i, o) if i in inputs else ZERO

    return restricted


def _concat(op: tf.Operation, i: int, o: int) -> Local:
    return _but(_constant_axis(-1))(op, i, o)


def _concat_old(op: tf.Operation, i: int, o: int) -> Local:
    return ZERO if i == 0 else _but(_constant_axis(0))(op, i, o)


def _pack(op: tf.Operation, i: int, o: int) -> Local:
    both = ranks(op, i, o)
    if both is None:
        return OPAQUE
    new = axis_of(op.get_attr("axis"), both[0])
    return Local(Kind.SELECTION, tuple((a + (a >= new), a) for a in range(both[1])))


def _unpack(op: tf.Operation, i: int, o: int) -> Local:
    rank = op.inputs[0].shape.rank
    if rank is None:
        return OPAQUE
    gone = axis_of(op.get_attr("axis"), rank)
    left = [a for a in range(rank) if a != gone]
    return Local(Kind.SELECTION, tuple(enumerate(left)))


def _tile(op: tf.Operation, i: int, o: int) -> Local:
    if i > 0:
        return ZERO
    rank, multiples = op.inputs[0].shape.rank, partly_constant(op, 1)
    if rank is None:
        return OPAQUE
    if multiples is None:
        return Local(Kind.SELECTION, _whole(op, 0, o))
    return Local(Kind.SELECTION, tuple((a, a) for a in range(rank) if multiples[a] == 1))


def _broadcast(op: tf.Operation, i: int, o: int) -> Local:
    return ZERO if i > 0 else local(Kind.SELECTION, aligned(op, i, o))


def _reverse(op: tf.Operation, i: int, o: int) -> Local:
    if i > 0:
        return ZERO
    axes, rank = constant(op, 1), op.inputs[0].shape.rank
    if axes is None or rank is None:
        return OPAQUE
    if op.type == "Reverse":
        axes = [a for a, turned in enumerate(axes) if turned]
    return Local(Kind.SELECTION, same_axes(op, 0, o, but=axes))


def _reverse_sequence(op: tf.Operation, i: int, o: int) -> Local:
    if i > 0:
        return ZERO
    return local(Kind.SELECTION, same_axes(op, 0, o, but=[op.get_attr("seq_dim")]))


def _roll(op: tf.Operation, i: int, o: int) -> Local:
    if i > 0:
        return ZERO
    axes = constant(op, 2)
    return OPAQUE if axes is None else local(Kind.SELECTION, same_axes(op, 0, o, but=axes))


def _of_scalars(op: tf.Operation, i: int, o: int) -> Local:
    """Fill, OneHot: every entry is one of the scalars given."""
    dtype = op.inputs[i].dtype
    return Local(Kind.SELECTION) if dtype.is_floating or dtype.is_complex else ZERO


def _patches(op: tf.Operation, i: int, o: int) -> Local:
    return Local(Kind.SELECTION, ((0, 0),))


def _half(op: tf.Operation, i: int, o: int) -> Local:
    rank = op.inputs[0].shape.rank
    return OPAQUE if rank is None else Local(Kind.SELECTION)


TABLE: dict[str, Rule] = {
    "Slice": moves(_slice),
    "StridedSlice": moves(_strided_slice),
    "StridedSliceGrad": moves(_strided_slice_gradient),
    **family("Pad PadV2 MirrorPad", moves(_pad)),
    "ConcatV2": moves(_concat),
    "Concat": moves(_concat_old),
    "Split": moves(_data(_but(_constant_axis(0)), 1)),
    "SplitV": moves(_data(_but(_constant_axis(2)), 0)),
    "Pack": moves(_pack),
    "Unpack": moves(_unpack),
    "Tile": moves(_tile),
    "BroadcastTo": moves(_broadcast),
    **family("Reverse ReverseV2", moves(_reverse)),
    "ReverseSequence": moves(_reverse_sequence),
    "Roll": moves(_roll),
    **family("Diag DiagPart", moves(_half)),
    **family("Fill OneHot", moves(_of_scalars)),
    **family("ExtractImagePatches ExtractVolumePatches", moves(_patches)),
}  # fmt: skip
