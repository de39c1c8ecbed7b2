"""Ops that change the axes: reshape, transpose, squeeze, and blocks of space put elsewhere."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import tensorflow as tf

from tfjac.rules.kinds import (
    OPAQUE,
    ZERO,
    Example,
    Kind,
    Local,
    Rule,
    axis_of,
    constant,
    family,
    linked,
    moves,
    partly_constant,
    ranks,
)


def _groups(given: Sequence[int], out: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """Returns the groups of axes that a reshape turns into each other, as short as may be."""
    found, i, o = [], 0, 0
    while i < len(given) or o < len(out):
        ins, outs, left, right = [], [], 1, 1
        while True:
            if i < len(given) and (left <= right or o == len(out)):
                left *= given[i]
                ins.append(i)
                i += 1
            elif o < len(out):
                right *= out[o]
                outs.append(o)
                o += 1
            if left == right and ins and outs or (i == len(given) and o == len(out)):
                break
        found.append((ins, outs))
    return found


def _split(shape: tf.TensorShape) -> tuple[list[int], list[int]] | None:
    """Returns the sizes before and after the one unknown size; None where there are others."""
    unknown = [a for a, size in enumerate(shape.as_list()) if size is None]
    if len(unknown) != 1:
        return None
    sizes = shape.as_list()
    return sizes[: unknown[0]], sizes[unknown[0] + 1 :]


def reshaped(op: tf.Operation) -> tf.TensorShape:
    """Returns the output's shape, with sizes that TensorFlow did not fold."""
    static, wanted = op.outputs[0].shape, partly_constant(op, 1)
    if wanted is None or static.rank is None or static.is_fully_defined():
        return static
    told = [None if size in (None, -1) else size for size in wanted]
    return tf.TensorShape([s if s is not None else t for s, t in zip(static.as_list(), told)])


def _reshape(op: tf.Operation, i: int, o: int) -> Local:
    if i > 0:
        return ZERO
    if ranks(op, i, o) is None:
        return OPAQUE
    given, out = op.inputs[0].shape, reshaped(op)
    if given.is_fully_defined() and out.is_fully_defined():
        if 0 in given.as_list():
            return Local(Kind.SELECTION)
        pairs = _groups(given.as_list(), out.as_list())
        offset_in = offset_out = 0
    else:
        halves_in, halves_out = _split(given), _split(out)
        if halves_in is None or halves_out is None:
            return Local(Kind.SELECTION)
        if [math.prod(h) for h in halves_in] != [math.prod(h) for h in halves_out]:
            return Local(Kind.SELECTION)
        if any(0 in half for half in (*halves_in, *halves_out)):
            return Local(Kind.SELECTION)
        before, after = (_groups(a, b) for a, b in zip(halves_in, halves_out))
        offset_in, offset_out = len(halves_in[0]) + 1, len(halves_out[0]) + 1
        pairs = [*before, ([offset_in - 1], [offset_out - 1])]
        pairs += [([a + offset_in for a in p], [a + offset_out for a in q]) for p, q in after]
    one_to_one = [(q[0], p[0]) for p, q in pairs if len(p) == len(q) == 1]
    return Local(Kind.SELECTION, tuple(one_to_one))


def _reshape_example(op: tf.Operation, i: int, example: Example) -> Example | None:
    """Follows example b through merged and split axes: flat position p is b = p // stride % B."""
    given, out = op.inputs[0].shape, reshaped(op)
    if given.rank is None or out.rank is None or example.axis >= given.rank:
        return None
    direct = dict((b, a) for a, b in _reshape(op, 0, 0).links)
    if example.axis in direct:
        return dataclasses.replace(example, axis=direct[example.axis])
    before = _product(given[: example.axis])
    after = _product(given[example.axis + 1 :])
    if before is None or after is None:
        return None
    outer, stride = before * example.outer, after * example.inner
    size = given[example.axis]
    examples = None if size is None else size // (example.outer * example.inner)
    for axis in range(out.rank):
        rest, lead = _product(out[axis + 1 :]), _product(out[:axis])
        if not rest or not lead or stride % rest or outer % lead:
            continue
        found = dataclasses.replace(example, axis=axis, outer=outer // lead, inner=stride // rest)
        if out[axis] is None or examples is None:
            # With one unknown size on each side, what is left over is the number of examples.
            if out[axis] is None and size is None:
                return found
        elif out[axis] == found.outer * examples * found.inner:
            return found
    return None


def _product(shape: tf.TensorShape) -> int | None:
    return shape.num_elements() if shape.rank else 1


def _squeeze(op: tf.Operation, i: int, o: int) -> Local:
    rank = op.inputs[0].shape.rank
    if rank is None or op.outputs[0].shape.rank is None:
        return OPAQUE
    squeezed = {axis_of(a, rank) for a in op.get_attr("squeeze_dims")}
    if not squeezed:
        squeezed = {a for a, size in enumerate(op.inputs[0].shape.as_list()) if size == 1}
    left = [a for a in range(rank) if a not in squeezed]
    if len(left) != op.outputs[0].shape.rank:
        return OPAQUE
    return Local(Kind.SELECTION, tuple(enumerate(left)))


def _expand_dims(op: tf.Operation, i: int, o: int) -> Local:
    rank, where = op.inputs[0].shape.rank, constant(op, 1)
    if i > 0:
        return ZERO
    if rank is None or where is None:
        return OPAQUE
    new = axis_of(where[0], rank + 1)
    return Local(Kind.SELECTION, tuple((a + (a >= new), a) for a in range(rank)))


def _transpose(op: tf.Operation, i: int, o: int) -> Local:
    if i > 0:
        return ZERO
    permutation = constant(op, 1)
    if permutation is None:
        return OPAQUE
    rank = len(permutation)
    return Local(Kind.SELECTION, tuple((a, axis_of(b, rank)) for a, b in enumerate(permutation)))


def _blocks_of_space(op: tf.Operation, i: int, o: int) -> Local:
    """SpaceToDepth and back: examples stay where they are, all else moves."""
    return Local(Kind.SELECTION, ((0, 0),))


def _blocks_of_batch(op: tf.Operation, i: int, o: int) -> Local:
    if i > 0:
        return ZERO
    both, block = ranks(op, 0, o), constant(op, 1)
    if both is None or block is None:
        return OPAQUE
    return Local(Kind.SELECTION, tuple((a, a) for a in range(1 + len(block), both[1])))


def _space_to_batch_example(op: tf.Operation, i: int, example: Example) -> Example | None:
    block = constant(op, 1)
    if block is None or example.axis != 0:
        return linked(_blocks_of_batch(op, i, 0), example)
    # The positions within a block come before the examples.
    return dataclasses.replace(example, outer=example.outer * math.prod(block))


def _batch_to_space_example(op: tf.Operation, i: int, example: Example) -> Example | None:
    block = constant(op, 1)
    if block is None or example.axis != 0:
        return linked(_blocks_of_batch(op, i, 0), example)
    outer, rest = divmod(example.outer, math.prod(block))
    return None if rest else dataclasses.replace(example, outer=outer)


TABLE: dict[str, Rule] = {
    "Reshape": moves(_reshape, _reshape_example),
    "Squeeze": moves(_squeeze),
    "ExpandDims": moves(_expand_dims),
    **family("Transpose ConjugateTranspose", moves(_transpose)),
    **family("SpaceToDepth DepthToSpace", moves(_blocks_of_space)),
    **family("SpaceToBatchND", moves(_blocks_of_batch, _space_to_batch_example)),
    **family("BatchToSpaceND", moves(_blocks_of_batch, _batch_to_space_example)),
}  # fmt: skip
