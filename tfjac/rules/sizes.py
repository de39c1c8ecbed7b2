"""Which axis of which tensor a whole number in the graph is the size of, if it is unknown."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Generator, Hashable, Iterable

import numpy as np
import tensorflow as tf

from tfjac.rules import known


@dataclasses.dataclass(frozen=True)
class AxisSize:
    """The size of an axis of a tensor, unknown while the graph is built.

    Args:
      key: what identifies the tensor.
      axis: from 0.
      tensor: the tensor itself.
    """

    key: tuple[int, str]
    axis: int
    tensor: tf.Tensor = dataclasses.field(compare=False)


@dataclasses.dataclass(frozen=True)
class Product:
    """A product of sizes.

    Args:
      number: of those that are known.
      unknown: each other, and how often it comes.
    """

    number: int
    unknown: frozenset[tuple[Hashable, int]] = frozenset()

    def over(self, other: Product) -> Product | None:
        """Returns the quotient, None where it is no product of sizes."""
        left = collections.Counter(dict(self.unknown))
        left.subtract(dict(other.unknown))
        if not other.number or self.number % other.number or min(left.values(), default=0) < 0:
            return None
        unknown = frozenset((size, n) for size, n in left.items() if n)
        return Product(self.number // other.number, unknown)


@dataclasses.dataclass(frozen=True)
class Extreme:
    """The largest or smallest of several sizes, which is each of them where they are the same.

    Args:
      among: the sizes.
    """

    among: tuple[AxisSize, ...]


Size = AxisSize | Extreme | Product | int | None


def product(listed: Iterable[Hashable]) -> Product | None:
    """Returns the product of sizes, None where some are not known by name."""
    number, unknown = 1, collections.Counter()
    for size in listed:
        if size is None or (isinstance(size, int) and size < 1):
            return None
        if isinstance(size, int):
            number *= size
        elif isinstance(size, Product):
            number *= size.number
            unknown.update(dict(size.unknown))
        else:
            unknown[size] += 1
    return Product(number, frozenset(unknown.items()))


def simplest(size: Product | None) -> Size:
    """Returns a product as a single size where it is one."""
    if size is None or not size.unknown:
        return size and size.number
    ((one, times), *others) = size.unknown
    return one if (size.number, times, others) == (1, 1, []) else size


def axis_size(tensor: tf.Tensor, axis: int) -> Size:
    """Returns the size of an axis: a number where it is known."""
    if tensor.shape.rank is None:
        return None
    size = tensor.shape[axis]
    return AxisSize((id(tensor.graph), tensor.name), axis, tensor) if size is None else size


def named(tensor: tf.Tensor, entry: int = 0) -> Size:
    """Returns the size that an entry of a tensor, flattened, is; None where that is not seen."""
    # Each waits for the sizes that it asks for: a function that called itself for them would go as
    # deep as the arithmetic is long.
    seen: dict = {}
    waiting, answer = [_named(tensor, entry, seen)], None
    while waiting:
        try:
            asked = waiting[-1].send(answer)
        except StopIteration as done:
            waiting.pop()
            answer = done.value
        else:
            waiting.append(_named(*asked, seen))
            answer = None
    return answer


def _named(tensor: tf.Tensor, entry: int, seen: dict) -> _Asking:
    while True:
        values = known.values(tensor, seen)
        if values is not None and values.reshape(-1)[entry] is not None:
            return int(values.reshape(-1)[entry])
        op = tensor.op
        if op.type in ("Shape", "ShapeN"):
            return axis_size(op.inputs[tensor.value_index], entry)
        if op.type == "Size":
            return axis_size(op.inputs[0], 0) if op.inputs[0].shape.rank == 1 else None
        if op.type in _COMPUTED:
            return (yield from _COMPUTED[op.type](op, entry))
        found = _FROM[op.type](op, tensor.value_index, entry) if op.type in _FROM else None
        if found is None:
            return None
        tensor, entry = found


# Yields tensors and entries, is sent the sizes that they are, and returns a size.
_Asking = Generator["tuple[tf.Tensor, int]", "Size", "Size"]


def _common(op: tf.Operation, entry: int) -> _Asking:
    """Returns the largest or smallest of several where all are the same."""
    reduces = op.type in ("Max", "Min")
    given = [op.inputs[0]] if reduces else list(op.inputs)
    counts = [t.shape.num_elements() if t.shape.rank is not None else None for t in given]
    if None in counts or 0 in counts:
        return None
    if reduces:
        found = yield from _each((given[0], k) for k in range(counts[0]))
    else:
        found = yield from _of_each(op, entry)
        if op.type == "Maximum" and 1 in found:
            # No size is less, unless there is nothing at all.
            found = [size for size in found if size != 1] or found
    if all(size == found[0] for size in found):
        return found[0]
    return Extreme(tuple(found)) if all(isinstance(s, AxisSize) for s in found) else None


def _each(asked: Iterable[tuple[tf.Tensor, int]]):
    found = []
    for one in asked:
        found.append((yield one))
    return found


def _of_each(op: tf.Operation, entry: int):
    """Returns the sizes that two inputs, broadcast to each other, have for an entry of both."""
    counts = [t.shape.num_elements() if t.shape.rank is not None else None for t in op.inputs]
    if None in counts or any(count not in (1, max(counts)) for count in counts):
        return [None, None]
    pairs = zip(op.inputs, counts)
    return (yield from _each((t, entry if count > 1 else 0) for t, count in pairs))


def _times(op: tf.Operation, entry: int) -> _Asking:
    return simplest(product((yield from _of_each(op, entry))))


def _all_times(op: tf.Operation, entry: int) -> _Asking:
    count = op.inputs[0].shape.num_elements() if op.inputs[0].shape.rank == 1 else None
    if count is None:
        return None
    return simplest(product((yield from _each((op.inputs[0], k) for k in range(count)))))


def _quotient(op: tf.Operation, entry: int) -> _Asking:
    one, other = (product([size]) for size in (yield from _of_each(op, entry)))
    return None if one is None or other is None else simplest(one.over(other))


_Found = "tuple[tf.Tensor, int] | None"


def _same(op: tf.Operation, o: int, entry: int) -> _Found:
    return op.inputs[0], entry


def _pack(op: tf.Operation, o: int, entry: int) -> _Found:
    count = op.inputs[0].shape.num_elements() if op.inputs[0].shape.rank is not None else None
    if not count or op.get_attr("axis"):
        return None
    return op.inputs[entry // count], entry % count


def _transpose(op: tf.Operation, o: int, entry: int) -> _Found:
    shape, axes = op.inputs[0].shape, known.values(op.inputs[1])
    if not shape.is_fully_defined() or axes is None or None in axes.tolist():
        return None
    places = np.arange(shape.num_elements()).reshape(shape.as_list())
    return op.inputs[0], int(np.transpose(places, axes.astype(int)).reshape(-1)[entry])


def _captured(op: tf.Operation, o: int, entry: int) -> _Found:
    outer = known.outside(op.outputs[0])
    return None if outer is None else (outer, entry)


def _concat(op: tf.Operation, o: int, entry: int) -> _Found:
    for part in list(op.inputs)[:-1]:
        if part.shape.rank != 1 or part.shape[0] is None:
            return None
        if entry < part.shape[0]:
            return part, entry
        entry -= part.shape[0]
    return None


def _by_positions(take: Callable[[tf.Operation, list], np.ndarray | None], first: int):
    """Returns how an op that takes entries of a list by known places is gone back through."""

    def found(op: tf.Operation, o: int, entry: int) -> _Found:
        count = op.inputs[0].shape[0] if op.inputs[0].shape.rank == 1 else None
        if count is None:
            return None
        places = np.arange(count).astype(object)
        taken = take(op, [places, *(known.values(t) for t in list(op.inputs)[first:])])
        return None if taken is None else (op.inputs[0], int(taken.reshape(-1)[entry]))

    return found


def _split(op: tf.Operation, o: int, entry: int) -> _Found:
    if op.type == "Split":
        count = op.inputs[1].shape[0] if op.inputs[1].shape.rank == 1 else None
        return None if count is None else (op.inputs[1], o * (count // len(op.outputs)) + entry)
    sizes = known.values(op.inputs[1])
    if op.inputs[0].shape.rank != 1 or sizes is None or None in sizes.tolist():
        return None
    if -1 in sizes.tolist():
        return None
    return op.inputs[0], int(sum(sizes[:o])) + entry


def _unpack(op: tf.Operation, o: int, entry: int) -> _Found:
    return (op.inputs[0], o) if op.inputs[0].shape.rank == 1 else None


_COMPUTED = {
    **dict.fromkeys(("Max", "Maximum", "Min", "Minimum"), _common),
    "FloorDiv": _quotient,
    "Mul": _times,
    "Prod": _all_times,
}

_FROM: dict[str, Callable] = {
    "Cast": _same,
    "ConcatV2": _concat,
    "ExpandDims": _same,
    "GatherV2": _by_positions(known.gathered, 1),
    "Identity": _same,
    "Pack": _pack,
    "Placeholder": _captured,
    "Reshape": _same,
    "Slice": _by_positions(known.sliced, 1),
    "Split": _split,
    "SplitV": _split,
    "Squeeze": _same,
    "StridedSlice": _by_positions(known.strided, 1),
    "Transpose": _transpose,
    "Unpack": _unpack,
}
