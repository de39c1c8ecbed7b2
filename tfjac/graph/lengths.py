"""Sizes of axes that are unknown while the graph is built: which are the same. Reads only."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import tensorflow as tf

from tfjac import graph_memo, rules
from tfjac.rules import Example, Kind, known, sizes
from tfjac.rules.sizes import AxisSize, Size

# Their output has the shape of input 0, though its values may not depend on it.
_SAME_SHAPE = frozenset({"OnesLike", "StopGradient", "ZerosLike"})

# All inputs are broadcast to each other, also those that have no derivative.
_BROADCAST = frozenset(
    {"Equal", "Greater", "GreaterEqual", "Less", "LessEqual", "NotEqual", "SelectV2"}
)

# Fail when they run unless their inputs have the same size there.
_EQUAL = frozenset({"AddN", "ConcatV2", "Pack"})

# Told by another input, which is the number here.
_TOLD = {"BroadcastTo": 1, "Fill": 0, "Reshape": 1, "ScatterNd": 2, "SparseToDense": 1}


def of(tensor: tf.Tensor, axis: int) -> Size:
    """Returns the size of an axis: a number, or the axis of the first tensor that has that size.

    Two axes with equal results have the same size; others may have it too.

    Args:
      tensor: of known rank.
      axis: from 0.
    """
    memo = known.notes()
    if memo is None:
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
    return _first(sizes.named(tensor, entry))


def _first(size: Size) -> Size:
    """Returns a size by the first tensors that have it."""
    if isinstance(size, AxisSize):
        return of(size.tensor, size.axis)
    if isinstance(size, sizes.Extreme):
        found = {of(s.tensor, s.axis) for s in size.among}
        return found.pop() if len(found) == 1 else None
    if isinstance(size, sizes.Product):
        listed = [_first(s) for s, times in size.unknown for _ in range(times)]
        return sizes.simplest(sizes.product([size.number, *listed]))
    return size


def renamed(size: Size, same: Callable[[Size], object]) -> object:
    """Returns a size, with `same` of each unknown one in it."""
    if isinstance(size, sizes.Product):
        listed = [same(s) for s, times in size.unknown for _ in range(times)]
        return sizes.product([size.number, *listed])
    return same(size)


def _key(tensor: tf.Tensor, axis: int) -> tuple:
    return id(tensor.graph), tensor.name, axis


def _step(tensor: tf.Tensor, axis: int) -> tuple[Size, list[tuple[tf.Tensor, int]]]:
    """Returns the size as it stands, and axes that all have to have the size of this one."""
    size, op = sizes.axis_size(tensor, axis), tensor.op
    if not isinstance(size, AxisSize):
        return size, []
    if op.type == "Placeholder":
        outer = known.outside(tensor)
        seen = outer is not None and outer.shape.rank is not None
        return size, [(outer, axis)] if seen else []
    told = _told(op, axis)
    if told is not None:
        if isinstance(told, sizes.Extreme):
            return size, [(s.tensor, s.axis) for s in told.among]
        return (size, [(told.tensor, told.axis)]) if isinstance(told, AxisSize) else (told, [])
    if op.type in _TOLD:
        return size, _linked(op, tensor, axis) if op.type == "Reshape" else []
    if op.type in _SAME_SHAPE or op.type == "IdentityN":
        return size, [(op.inputs[tensor.value_index], axis)]
    if op.type == "Sum":
        kept = kept_by_sum(op, lambda size: False)
        if kept is not None and not op.get_attr("keep_dims"):
            return size, [(op.inputs[0], kept[axis])] if axis < len(kept) else []
        if kept is not None:
            return (size, [(op.inputs[0], axis)]) if axis in kept else (1, [])
    return size, _linked(op, tensor, axis)


def _told(op: tf.Operation, axis: int) -> Size:
    if op.type == "Range" and known.is_range(op.outputs[0]):
        return sizes.named(op.inputs[1])
    if op.type == "Tile":
        times, given = sizes.named(op.inputs[1], axis), sizes.axis_size(op.inputs[0], axis)
        return given if times == 1 else times if given == 1 else None
    if op.type not in _TOLD:
        return None
    told = sizes.named(op.inputs[_TOLD[op.type]], axis)
    return told if told != -1 else None


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
    return found[:1] if op.type in _EQUAL else found


def kept_by_sum(op: tf.Operation, is_count: Callable[[Size], bool]) -> list[int] | None:
    """Returns the axes that a Sum in the gradient of a broadcast keeps, None for any other op.

    Its axes are those along which an operand was broadcast. One of as many entries as there are
    examples was not, unless there is one example, and then a sum over it changes nothing.

    Args:
      op: a Sum.
      is_count: tells whether a size is the number of examples.
    """
    if op.type != "Sum" or op.inputs[0].shape.rank is None:
        return None
    axes, shift = op.inputs[1], 0
    while axes.op.type == "AddV2" and _is_shift(axes.op):
        axes, shift = axes.op.inputs[0], shift + 1
    if axes.op.type != "BroadcastGradientArgs":
        return None
    own, other = (axes.op.inputs[k] for k in (axes.value_index, 1 - axes.value_index))
    counts = [own.shape.num_elements(), other.shape.num_elements()]
    if None in counts:
        return None
    kept = list(range(shift))
    for k in range(max(counts)):
        one, two = (_from_right(shape, max(counts) - k) for shape in (own, other))
        if one == 1:
            continue
        same = one is not None and one == two
        if not (isinstance(one, int) or two == 1 or same or is_count(one)):
            return None
        kept.append(shift + k)
    return kept + list(range(shift + max(counts), op.inputs[0].shape.rank))


def _is_shift(op: tf.Operation) -> bool:
    """Returns whether one is added to axes counted from 0, as a vectorized map does."""
    axes, cast = op.inputs
    if cast.op.type != "Cast" or cast.op.inputs[0].op.type != "GreaterEqual":
        return False
    given, zero = cast.op.inputs[0].op.inputs
    return given.ref() == axes.ref() and known.all_equal(zero, 0)


def _from_right(shape: tf.Tensor, place: int) -> Size:
    count = shape.shape.num_elements()
    return 1 if place > count else named(shape, count - place)


def reshaped(
    op: tf.Operation, example: Example, same: Callable, examples: int | str
) -> Example | None:
    """Returns the example axis after a Reshape whose sizes are known by name at least.

    Args:
      op: a Reshape.
      example: the example axis of its input.
      same: from a size to what is the same for equal sizes.
      examples: the number of examples, or what stands for it.
    """
    given = _sizes_before(op, same)
    count = op.inputs[1].shape.num_elements()
    if given is None or count is None or not 0 <= example.axis < len(given):
        return None
    if example.sized and example.by is None:
        given[example.axis] = sizes.product([example.outer, examples, example.inner])
    wanted = [renamed(named(op.inputs[1], k), same) for k in range(count)]
    own = sizes.product(given[example.axis : example.axis + 1])
    if own is None:
        return None
    if wanted.count(-1) == 1:
        whole, left = sizes.product(given), sizes.product(s for s in wanted if s != -1)
        left = None if whole is None or left is None else whole.over(left)
        wanted = [left if size == -1 else size for size in wanted]
    each = own.over(sizes.Product(example.outer * example.inner))
    outer = sizes.product([*given[: example.axis], example.outer])
    stride = sizes.product([*given[example.axis + 1 :], example.inner])
    if each is None or outer is None:
        return None
    for k in range(count):
        found = _placed(wanted, k, outer, stride, each)
        if found is not None:
            return dataclasses.replace(example, axis=k, outer=found[0], inner=found[1])
    return None


def _sizes_before(op: tf.Operation, same: Callable) -> list | None:
    """Returns the sizes of what a Reshape is given; axes summed over have size one, or are gone."""
    given = op.inputs[0]
    if given.op.type == "Sum" and not given.op.get_attr("keep_dims"):
        kept = kept_by_sum(given.op, lambda size: same(size) is EXAMPLES)
        if kept is not None:
            return [same(of(given.op.inputs[0], a)) for a in kept]
    if given.shape.rank is None:
        return None
    return [same(of(given, a)) for a in range(given.shape.rank)]


# Stands for the size of every axis that numbers the examples.
EXAMPLES = "examples"


def _placed(wanted: list, k: int, outer, stride, each) -> tuple[int, int] | None:
    """Returns how often axis `k` goes through all examples, and how many neighbors are of one.

    What comes before it decides the one and what comes after the other, or else its own size.
    """
    lead, own, rest = (sizes.product(p) for p in (wanted[:k], wanted[k : k + 1], wanted[k + 1 :]))
    times = None if lead is None else outer.over(lead)
    inner = None if rest is None or stride is None else stride.over(rest)
    if own is None or times is None or times.unknown:
        return None
    if inner is None:
        inner = own.over(sizes.product([times, each]))
    if inner is None or inner.unknown or own != sizes.product([times, each, inner]):
        return None
    return times.number, inner.number
