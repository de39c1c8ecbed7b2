"""What the graph tells of whole-number tensors: shapes, axes, indices; some entries may be unknown.

TensorFlow folds constants too, but not through `Prod`, `GatherV2` or `Range` of a shape of which
one size is unknown, and that is how `tf.tensordot` and others compute the sizes they reshape to.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import tensorflow as tf

from tfjac import tf_internals

# Larger tensors are data, not sizes.
_LARGEST = 4096


# What the inputs of a function stand for, while the body of one call of it is read.
_CALLS: contextvars.ContextVar[tuple[dict, ...]] = contextvars.ContextVar("_CALLS", default=())


@contextlib.contextmanager
def called_with(inputs: Iterable[tf.Tensor], given: Iterable[tf.Tensor]) -> Iterator[None]:
    """A context in which the inputs of a function are known to be what one call gives them."""
    pairs = {(id(i.graph), i.name): g for i, g in zip(inputs, given)}
    token = _CALLS.set((pairs, *_CALLS.get()))
    try:
        yield
    finally:
        _CALLS.reset(token)


def notes() -> dict | None:
    """Returns a place for what holds in the innermost of these contexts; None outside of them."""
    calls = _CALLS.get()
    return calls[0].setdefault("notes", {}) if calls else None


def outside(tensor: tf.Tensor) -> tf.Tensor | None:
    """Returns the tensor around a function that an input of it stands for, None where unknown."""
    if tensor.op.type != "Placeholder":
        return None
    for pairs in _CALLS.get():
        found = pairs.get((id(tensor.graph), tensor.name))
        if found is not None:
            return found
    found = tf_internals.captures(tensor.graph).get(tensor.name)
    return found if found is not None and tf.is_symbolic_tensor(found) else None


def values(tensor: tf.Tensor, seen: dict | None = None) -> np.ndarray | None:
    """Returns the entries of a tensor, as objects: whole numbers, or None where unknown.

    None altogether where not even the shape can be told.

    Args:
      tensor: the tensor.
      seen: what was found of others while the same is known of the inputs of functions; is added
        to.
    """
    seen = {} if seen is None else seen
    waiting: list[tuple[tf.Tensor, list[tf.Tensor]]] = [(tensor, [])]
    while waiting:
        here, behind = waiting.pop()
        if behind:
            seen[_key(here)] = _folded(here, [seen[_key(t)] for t in behind])
        elif _key(here) not in seen:
            static = tf.get_static_value(here)
            # Unknown for now, and so where a loop leads back to it.
            seen[_key(here)] = None if static is None else np.asarray(static).astype(object)
            behind = _behind(here) if static is None else []
            if behind:
                waiting += [(here, behind), *((t, []) for t in behind)]
    return seen[_key(tensor)]


def _key(tensor: tf.Tensor) -> tuple[int, str]:
    return id(tensor.graph), tensor.name


def _behind(tensor: tf.Tensor) -> list[tf.Tensor]:
    """Returns the tensors from whose entries those of a tensor may be told."""
    if tensor.dtype.is_floating:
        return []
    if tensor.op.type == "Placeholder":
        outer = outside(tensor)
        return [] if outer is None else [outer]
    return list(tensor.op.inputs) if tensor.op.type in _FOLD_ONE.keys() | _FOLD.keys() else []


def _folded(tensor: tf.Tensor, given: list) -> np.ndarray | None:
    op = tensor.op
    if op.type == "Placeholder":
        return given[0]
    if op.type in _FOLD:
        return _FOLD[op.type](op, given)
    return _FOLD_ONE[op.type](op, given, tensor.value_index)


def _shape(op: tf.Operation, given: list) -> np.ndarray | None:
    shape = op.inputs[0].shape
    return None if shape.rank is None else np.array(shape.as_list(), object)


def _same(op: tf.Operation, given: list) -> np.ndarray | None:
    return given[0]


def _pack(op: tf.Operation, given: list) -> np.ndarray | None:
    parts = [_blank(t) if g is None else g for g, t in zip(given, op.inputs)]
    return None if any(p is None for p in parts) else np.stack(parts, op.get_attr("axis"))


def _concat(op: tf.Operation, given: list) -> np.ndarray | None:
    *parts, axis = given
    parts = [_blank(t) if p is None else p for p, t in zip(parts, op.inputs)]
    if any(p is None for p in parts) or axis is None:
        return None
    return np.concatenate(parts, int(axis))


def _blank(tensor: tf.Tensor) -> np.ndarray | None:
    """Returns unknown entries of the right number, where that is known and small."""
    size = tensor.shape.num_elements() if tensor.shape.rank is not None else None
    return None if size is None or size > _LARGEST else np.full(tensor.shape.as_list(), None)


def gathered(op: tf.Operation, given: list) -> np.ndarray | None:
    """Returns what a GatherV2 takes, given the entries of its inputs."""
    data, indices, axis = given
    if data is None or indices is None or axis is None or None in indices.reshape(-1).tolist():
        return None
    if op.get_attr("batch_dims"):
        return None
    return np.take(data, indices.astype(int), axis=int(axis))


def strided(op: tf.Operation, given: list) -> np.ndarray | None:
    """Returns what a StridedSlice takes of a list, given the entries of its inputs."""
    data, begin, end, strides = given
    if data is None or data.ndim != 1 or any(g is None for g in (begin, end, strides)):
        return None
    if op.get_attr("ellipsis_mask") or op.get_attr("new_axis_mask"):
        return None
    first, last, step = (g[0] for g in (begin, end, strides))
    if op.get_attr("shrink_axis_mask"):
        return None if first is None else np.array(data[int(first)], object)
    first = None if op.get_attr("begin_mask") else first
    return data[slice(first, None if op.get_attr("end_mask") else last, step)]


def _product(op: tf.Operation, given: list) -> np.ndarray | None:
    data, axes = given
    if data is None or axes is None or data.ndim != 1 or axes.size != 1:
        return None
    entries = data.tolist()
    found = np.array(None if None in entries else int(np.prod(entries)), object)
    return found[np.newaxis] if op.get_attr("keep_dims") else found


def _range(op: tf.Operation, given: list) -> np.ndarray | None:
    ends = [None if g is None else g.item() for g in given]
    if None in ends or abs(ends[1] - ends[0]) > _LARGEST:
        return None
    return np.arange(*ends).astype(object)


def _reshape(op: tf.Operation, given: list) -> np.ndarray | None:
    data, shape = given[0], op.outputs[0].shape
    if data is None or not shape.is_fully_defined():
        return None
    return data.reshape(shape.as_list())


def _of_two(compute: Callable[[int, int], int]) -> Callable:
    def fold(op: tf.Operation, given: list) -> np.ndarray | None:
        if any(g is None for g in given):
            return None
        one, other = np.broadcast_arrays(given[0], given[1])
        found = [
            None if a is None or b is None else compute(a, b)
            for a, b in zip(one.reshape(-1), other.reshape(-1))
        ]
        return np.array(found, object).reshape(one.shape)

    return fold


def _broadcast_axes(op: tf.Operation, given: list, which: int) -> np.ndarray | None:
    """Returns the axes over which the gradient of a broadcast operand is summed.

    Those where it has size one, or no axis, as TensorFlow counts them: both of size one too.
    """
    if any(g is None or None in g.reshape(-1).tolist() for g in given):
        return None
    sizes = [g.reshape(-1).tolist() for g in given]
    if sizes[0] == sizes[1]:
        return np.array([], object)
    rank = max(map(len, sizes))
    sizes = [[1] * (rank - len(shape)) + shape for shape in sizes]
    own = sizes[which]
    return np.array([k for k in range(rank) if own[k] == 1], object)


def _difference(op: tf.Operation, given: list, which: int) -> np.ndarray | None:
    """Returns the entries of one list that the other has not, or their places."""
    if any(g is None or None in g.tolist() for g in given):
        return None
    places = [k for k, entry in enumerate(given[0]) if entry not in given[1].tolist()]
    return np.array(places, object) if which else given[0][places]


def _part(op: tf.Operation, given: list, which: int) -> np.ndarray | None:
    """Returns one of the parts of a list."""
    data = given[1 if op.type == "Split" else 0]
    if data is None or data.ndim != 1:
        return None
    if op.type == "Unpack":
        return np.array(data[which], object)
    if op.type == "Split":
        sizes = [len(data) // len(op.outputs)] * len(op.outputs)
    else:
        sizes = None if given[1] is None else given[1].tolist()
    if sizes is None or None in sizes or -1 in sizes:
        return None
    start = sum(sizes[:which])
    return data[start : start + sizes[which]]


def _fill(op: tf.Operation, given: list) -> np.ndarray | None:
    shape = op.outputs[0].shape
    if given[1] is None or not shape.is_fully_defined() or shape.num_elements() > _LARGEST:
        return None
    return np.full(shape.as_list(), given[1].item(), object)


def _tile(op: tf.Operation, given: list) -> np.ndarray | None:
    data, multiples = given
    if any(g is None for g in given) or None in multiples.tolist():
        return None
    size = data.size * int(np.prod(multiples.astype(int)))
    return np.tile(data, multiples.astype(int)) if size <= _LARGEST else None


def _broadcast(op: tf.Operation, given: list) -> np.ndarray | None:
    shape = op.outputs[0].shape
    if given[0] is None or not shape.is_fully_defined() or shape.num_elements() > _LARGEST:
        return None
    return np.broadcast_to(given[0], shape.as_list())


def _turned(op: tf.Operation, given: list) -> np.ndarray | None:
    if any(g is None for g in given) or None in given[1].tolist():
        return None
    return np.transpose(given[0], given[1].astype(int))


def _inverted(op: tf.Operation, given: list) -> np.ndarray | None:
    if given[0] is None or None in given[0].tolist():
        return None
    return np.argsort(given[0].astype(int)).astype(object)


def all_equal(tensor: tf.Tensor, value: int) -> bool:
    """Returns whether all entries of a tensor are a number, and known."""
    found = values(tensor)
    return found is not None and bool(np.all(found == value))


def is_range(tensor: tf.Tensor) -> bool:
    """Returns whether a tensor is 0, 1, 2, ..., of whatever length."""
    found = values(tensor)
    if found is not None:
        return found.ndim == 1 and found.tolist() == list(range(len(found)))
    while tensor.op.type in ("Identity", "Cast"):
        tensor = tensor.op.inputs[0]
    if tensor.op.type != "Range":
        return False
    start, _, step = (values(t) for t in tensor.op.inputs)
    return start is not None and step is not None and start.item() == 0 and step.item() == 1


def _select(op: tf.Operation, given: list) -> np.ndarray | None:
    condition, one, other = given
    if condition is None or None in condition.reshape(-1).tolist():
        return None
    if condition.ndim == 0:
        return one if condition.item() else other
    if one is None or other is None:
        return None
    chosen = np.where(condition.astype(bool), one, other)
    return chosen if list(chosen.shape) == op.outputs[0].shape.as_list() else None


def sliced(op: tf.Operation, given: list) -> np.ndarray | None:
    """Returns what a Slice takes of a list, given the entries of its inputs."""
    data, begin, size = given
    if any(g is None or g.ndim != 1 or None in g.tolist() for g in (begin, size)):
        return None
    if data is None or data.ndim != 1:
        return None
    return data[begin[0] :] if size[0] == -1 else data[begin[0] : begin[0] + size[0]]


# Those of several outputs are told which one is meant.
_FOLD_ONE: dict[str, Callable] = {
    "BroadcastGradientArgs": _broadcast_axes,
    "ListDiff": _difference,
    **dict.fromkeys(("Split", "SplitV", "Unpack"), _part),
}

_FOLD: dict[str, Callable] = {
    "AddV2": _of_two(lambda a, b: a + b),
    "BroadcastTo": _broadcast,
    "Cast": _same,
    "ConcatV2": _concat,
    "Equal": _of_two(lambda a, b: a == b),
    "ExpandDims": _reshape,
    "Fill": _fill,
    "FloorDiv": _of_two(lambda a, b: a // b if b else None),
    "FloorMod": _of_two(lambda a, b: a % b if b else None),
    "GatherV2": gathered,
    "Greater": _of_two(lambda a, b: a > b),
    "GreaterEqual": _of_two(lambda a, b: a >= b),
    "Identity": _same,
    "InvertPermutation": _inverted,
    "Less": _of_two(lambda a, b: a < b),
    "LessEqual": _of_two(lambda a, b: a <= b),
    "Maximum": _of_two(max),
    "Minimum": _of_two(min),
    "Mul": _of_two(lambda a, b: a * b),
    "NotEqual": _of_two(lambda a, b: a != b),
    "Pack": _pack,
    "Prod": _product,
    "Range": _range,
    "Reshape": _reshape,
    "Select": _select,
    "SelectV2": _select,
    "Shape": _shape,
    "Slice": sliced,
    "Squeeze": _reshape,
    "StridedSlice": strided,
    "Sub": _of_two(lambda a, b: a - b),
    "Tile": _tile,
    "Transpose": _turned,
}
