"""Sizes of axes that are unknown while the graph is built: which of them are the same. Reads only."""

from __future__ import annotations

import collections
import dataclasses

import tensorflow as tf

from tfjac import graph_memo, rules, tf_internals
from tfjac.rules import Kind, known, sizes
from tfjac.rules.sizes import AxisSize, Size

# Their output has the shape of input 0, though its values may not depend on it.
_SAME_SHAPE = frozenset({"OnesLike", "StopGradient", "ZerosLike"})

# All inputs are broadcast to each other, also those that have no derivative.
_BROADCAST = frozenset(
    {"Equal", "Greater", "GreaterEqual", "Less", "LessEqual", "NotEqual", "SelectV2"}
)

# Told by another input, which is the number here.
_TOLD = {"BroadcastTo": 1, "Fill": 0, "Reshape": 1, "ScatterNd": 2, "SparseToDense": 1}


def of(tensor: tf.Tensor, axis: int) -> Size:
    """Returns the size of an axis: a number, or the axis of the first tensor that has the same size.

    Two axes with equal results have the same size; others may have it too.

    Args:
      tensor: of known rank.
      axis: from 0.
    """
    memo = graph_memo.memoized(("lengths",), dict)
    waiting = [(tensor, axis)]
    while waiting:
        here = waiting[-1]
        if _key(*here) in memo and memo[_key(*here)].done:
            waiting.pop()
            continue
        size, behind = _step(*here)
        if _key(*here) not in memo:
            memo[_key(*here)] = _Found(here[0], size)
            waiting += [b for b in behind if _key(*b) not in memo]
            continue
        found = [memo[_key(*b)] for b in behind]
        if found and all(f.done and f.size == found[0].size for f in found):
            size = found[0].size
        memo[_key(*here)] = _Found(here[0], size, True)
        waiting.pop()
    return memo[_key(tensor, axis)].size


@dataclasses.dataclass(frozen=True, eq=False)
class _Found:
    """What is known of an axis; its tensor is kept, so that no other gets its key."""

    tensor: tf.Tensor
    size: Size
    done: bool = False


def named(tensor: tf.Tensor, entry: int = 0) -> Size:
    """Returns the size that an entry of a list of whole numbers is, None where that is not seen."""
    size = sizes.named(tensor, entry)
    return of(size.tensor, size.axis) if isinstance(size, AxisSize) else size


def _key(tensor: tf.Tensor, axis: int) -> tuple:
    return id(tensor.graph), tensor.name, axis


def _step(tensor: tf.Tensor, axis: int) -> tuple[Size, list[tuple[tf.Tensor, int]]]:
    """Returns the size as it stands, and axes that all have to have the size of this one."""
    size, op = sizes.axis_size(tensor, axis), tensor.op
    if not isinstance(size, AxisSize):
        return size, []
    if op.type == "Placeholder":
        outer = tf_internals.captures(op.graph).get(tensor.name)
        seen = outer is not None and tf.is_symbolic_tensor(outer) and outer.shape.rank is not None
        return size, [(outer, axis)] if seen else []
    told = _told(op, axis)
    if told is not None:
        return (told, []) if isinstance(told, int) else (size, [(told.tensor, told.axis)])
    if op.type in _TOLD:
        return size, _linked(op, tensor, axis) if op.type == "Reshape" else []
    if op.type in _SAME_SHAPE or op.type == "IdentityN":
        return size, [(op.inputs[tensor.value_index], axis)]
    if op.type == "Sum":
        kept = kept_by_sum(op, lambda size: False)
        if kept is not None:
            return (size, [(op.inputs[0], axis)]) if axis in kept else (1, [])
    return size, _linked(op, tensor, axis)


def _told(op: tf.Operation, axis: int) -> Size:
    if op.type == "Range" and known.is_range(op.outputs[0]):
        return sizes.named(op.inputs[1])
    if op.type not in _TOLD:
        return None
    told = sizes.named(op.inputs[_TOLD[op.type]], axis)
    return None if told == -1 else told


def _linked(op: tf.Operation, tensor: tf.Tensor, axis: int) -> list[tuple[tf.Tensor, int]]:
    rule = rules.rule_for("Mul") if op.type in _BROADCAST else rules.rule_of(op)
    if rule is None or op.type.startswith("TensorList"):
        return []
    found = []
    for i, given in enumerate(op.inputs):
        if given.shape.rank is None:
            return []
        local = rule.local(op, i, tensor.value_index)
        if local.kind is not Kind.ZERO:
            found += [(given, a) for b, a in local.links if b == axis]
    return found


def kept_by_sum(op: tf.Operation, is_count) -> list[int] | None:
    """Returns the axes that a Sum in the gradient of a broadcast keeps, None for any other op.

    Its axes are those along which an operand was broadcast. One of as many entries as there are
    examples was not, unless there is one example, and then a sum over it changes nothing.

    Args:
      op: a Sum.
      is_count: tells whether a size is the number of examples.
    """
    axes = op.inputs[1] if op.type == "Sum" else None
    if axes is None or axes.op.type != "BroadcastGradientArgs" or not op.get_attr("keep_dims"):
        return None
    own, other = (axes.op.inputs[k] for k in (axes.value_index, 1 - axes.value_index))
    if None in (own.shape.num_elements(), other.shape.num_elements(), op.inputs[0].shape.rank):
        return None
    rank, kept = op.inputs[0].shape.rank, []
    for k in range(rank):
        sizes_ = [_from_right(shape, rank - k) for shape in (own, other)]
        if sizes_[0] == 1:
            continue
        same = sizes_[0] is not None and sizes_[0] == sizes_[1]
        if not (isinstance(sizes_[0], int) or sizes_[1] == 1 or same or is_count(sizes_[0])):
            return None
        kept.append(k)
    return kept


def _from_right(shape: tf.Tensor, place: int) -> Size:
    count = shape.shape.num_elements()
    return 1 if place > count else named(shape, count - place)


def reshaped(op: tf.Operation, axis: int, same) -> int | None:
    """Returns the axis that a Reshape of unknown sizes leaves an axis as, None where it does not.

    Args:
      op: a Reshape.
      axis: of its input.
      same: tells whether two sizes are equal.
    """
    given, out = op.inputs[0], op.outputs[0]
    count = op.inputs[1].shape.num_elements()
    if op.type != "Reshape" or given.shape.rank is None or count is None:
        return None
    if out.shape.rank is None or axis >= given.shape.rank:
        return None
    before = [same(of(given, a)) for a in range(axis)]
    own = same(of(given, axis))
    wanted = [same(named(op.inputs[1], k)) for k in range(count)]
    for k in range(count):
        if own is not None and wanted[k] == own and _alike(before, wanted[:k]):
            return k
    return None


def _alike(one: list[Size], other: list[Size]) -> bool:
    """Returns whether two lists of sizes have the same product, whatever the unknown ones are."""
    if None in one or None in other or -1 in one or -1 in other or 0 in one or 0 in other:
        return False
    products, unknown = [], []
    for listed in (one, other):
        product = 1
        for size in listed:
            product *= size if isinstance(size, int) else 1
        products.append(product)
        unknown.append(collections.Counter(s for s in listed if not isinstance(s, int)))
    return products[0] == products[1] and unknown[0] == unknown[1]
