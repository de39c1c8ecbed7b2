"""Local Jacobians of movements: selections, reshapes, blocks of space as examples."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from tfjac import rules
from tfjac.accumulation import terms
from tfjac.accumulation.factors import Axis
from tfjac.accumulation.local import Steps, ends, native, term
from tfjac.accumulation.natives import Native
from tfjac.accumulation.terms import Groups, Term
from tfjac.graph import positions
from tfjac.rules import Local

# Ops that repeat all of the input.
_REPEATS = frozenset({"BroadcastTo", "Tile"})


def selection(op: tf.Operation, i: int, o: int, found: Local, dtype: tf.DType) -> Steps | None:
    """Entries are moved: not along axes that are linked, along others from place to place."""
    rows, entries = ends(op, i, o, found.links)
    linked = [{b for b, _ in found.links}, {a for _, a in found.links}]
    free = [
        [k for k, group in enumerate(groups) if group and k not in known]
        for groups, known in zip((rows, entries), linked)
    ]
    if not free[0] and not free[1]:
        return term(rows, entries)
    if op.type in _REPEATS and not free[1]:
        return term(rows, entries)
    places = _places(op, i, o, found)
    if places is None:
        return None
    columns = math.prod(op.inputs[i].shape[a] for a in free[1])
    return (native(op, i, o, found.links, _gathered_back(places, columns), _gathered(places), 0.0),)


def _places(op: tf.Operation, i: int, o: int, found: Local) -> np.ndarray | None:
    """Returns, for each entry along the axes not linked, that of the input; -1 from elsewhere."""
    moved = positions.sources_of_two(op, i, o, found)
    if moved is None:
        return None
    sources, out, given = moved[0].reshape(-1), list(moved[0].shape), moved[1]
    if not given:
        return np.minimum(sources, 0)
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
    return term(rows, entries)


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

    return (native(op, i, o, found.links, carry(sizes[1]), carry(sizes[0]), 0.0),)


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
    wide = [n + sum(edges[k - 1]) if k in space else n for k, n in enumerate(sizes)]
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


BY_TYPE = {
    "Reshape": _reshape,
    "SpaceToBatchND": _space_to_batch,
    "BatchToSpaceND": _batch_to_space,
}
