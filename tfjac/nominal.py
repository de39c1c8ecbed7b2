"""Sizes to reckon with where the graph does not tell them; nothing that is built is by them."""

from __future__ import annotations

import math

import tensorflow as tf

from tfjac import graph_memo

# Of an axis of which nothing is known, such as the number of examples.
SIZE = 32


def shape_of(tensor: tf.Tensor) -> list[int]:
    """Returns the shape, sizes that are not known guessed: one axis of a graph alike everywhere.

    A reshaped tensor has as many entries as before; else an unknown size is that of the input
    that has as many unknown ones. Empty for an unknown rank. Cost: linear in the ops before.

    Args:
      tensor: of a graph.
    """
    if tensor.shape.is_fully_defined():
        return tensor.shape.as_list()
    known = graph_memo.kept_on(tensor.graph, "nominal", dict)
    waiting = [tensor]
    while waiting:
        here = waiting[-1]
        if here.name not in known:
            behind = [t for t in _behind(here) if t.name not in known]
            if behind:
                waiting += behind
                continue
            known[here.name] = _guessed(here, known)
        waiting.pop()
    return known[tensor.name]


def entries(tensor: tf.Tensor) -> float:
    """Returns the number of entries, sizes that are not known guessed."""
    count = tensor.shape.num_elements() if tensor.shape.rank is not None else None
    return float(math.prod(shape_of(tensor)) if count is None else count)


def size_in_bytes(tensor: tf.Tensor) -> float:
    """Returns the bytes of a tensor, sizes that are not known guessed; none for a handle."""
    if tensor.dtype.base_dtype in (tf.resource, tf.variant, tf.string):
        return 0.0
    return entries(tensor) * tensor.dtype.size


def _behind(tensor: tf.Tensor) -> list[tf.Tensor]:
    """Returns the inputs that may tell the unknown sizes of an output."""
    if tensor.shape.rank is None or tensor.op.type in ("While", "StatelessWhile"):
        return []  # whose body may go round in a circle
    inputs = [t for t in tensor.op.inputs if t.dtype == tensor.dtype]
    return [t for t in inputs if not t.shape.is_fully_defined() and t.shape.rank is not None]


def _guessed(tensor: tf.Tensor, known: dict[str, list[int]]) -> list[int]:
    if tensor.shape.rank is None:
        return []
    sizes = tensor.shape.as_list()
    unknown = [k for k, size in enumerate(sizes) if size is None]
    if tensor.op.type == "Reshape" and tensor.op.inputs[0].shape.rank:
        given = tensor.op.inputs[0]
        guesses = _reshaped(known.get(given.name) or given.shape.as_list(), sizes)
    else:
        guesses = _passed_on(tensor, unknown, known)
    for k, guess in zip(unknown, guesses):
        sizes[k] = guess
    return sizes


def _passed_on(tensor: tf.Tensor, unknown: list[int], known: dict[str, list[int]]) -> list[int]:
    """Returns the guesses of an input with as many unknown sizes, else of one of the same rank."""
    inputs = _behind(tensor)
    for t in inputs:
        if len(found := _filled(t, known)) == len(unknown):
            return found
    for t in inputs:
        if t.shape.rank == tensor.shape.rank:
            return [known[t.name][k] for k in unknown]
    return [SIZE] * len(unknown)


def _reshaped(given: list[int], sizes: list[int | None]) -> list[int]:
    """Returns guesses for the unknown sizes that a tensor is reshaped to.

    Where two are unknown, and no other, the tensor is made a matrix, as `tf.tensordot` does by the
    last axis.
    """
    rest = math.prod(size for size in sizes if size is not None)
    count = max(1, math.prod(given) // max(rest, 1))
    if sizes == [None, None]:
        return [max(1, count // max(given[-1], 1)), given[-1]]
    unknown = sizes.count(None)
    return [count] if unknown == 1 else [SIZE] * unknown


def _filled(tensor: tf.Tensor, known: dict[str, list[int]]) -> list[int]:
    """Returns what was guessed for the unknown sizes of a tensor."""
    return [g for g, size in zip(known[tensor.name], tensor.shape.as_list()) if size is None]
