"""Gradients that were written by hand: what they do to a cotangent. Reads only."""

from __future__ import annotations

import dataclasses
from collections.abc import Container

import tensorflow as tf

from tfjac import graph_memo, tf_internals
from tfjac.graph import lengths, subgraph

# Linear in each input that depends on the cotangent, entry by entry.
_SUMS = frozenset({"Add", "AddN", "AddV2", "Sub"})
_MOVES = frozenset({"Cast", "Identity", "Neg"})
_DIVISIONS = frozenset({"Div", "RealDiv"})


@dataclasses.dataclass(frozen=True, eq=False)
class Pulled:
    """A gradient by hand, built once to be read.

    Args:
      graph: in which it was built.
      cotangent: of the output that was asked about; the others have zeros.
      back: what arrives at each input of the op; None for nothing.
      inputs: of the op.
    """

    graph: tf.Graph
    cotangent: tf.Tensor
    back: tuple[tf.Tensor | None, ...]
    inputs: tuple[tf.Tensor, ...]

    def arrived(self, given: tf.Tensor) -> list[tf.Tensor]:
        """Returns what arrives at a tensor, which may be the input several times."""
        return [b for t, b in zip(self.inputs, self.back) if t is given and b is not None]


def pulled(output: tf.Tensor) -> Pulled | None:
    """Returns the gradient of an output of an op; None where it was written for other uses."""
    return graph_memo.memoized(("pulled by hand", output.ref()), lambda: _pulled(output))


def _pulled(output: tf.Tensor) -> Pulled | None:
    op, graph = output.op, tf_internals.scratch_graph(output.graph)
    with graph.as_default():
        # Any cotangent would do; this one is known to have the shape of the output.
        cotangent = tf.raw_ops.OnesLike(x=output)
        outs = [cotangent if t is output else tf.zeros_like(t) for t in op.outputs]
        try:
            found = tf_internals.gradient_of(op, outs)
        except (NotImplementedError, TypeError, ValueError, LookupError):
            return None
        back = [None if g is None else tf.convert_to_tensor(g) for g in found]
    return Pulled(graph, cotangent, tuple(back), tuple(op.inputs))


def is_linear(op: tf.Operation, reached: Container[tuple[int, str]]) -> bool:
    """Returns whether the gradient is a diagonal, or zero, by each input among some tensors.

    Args:
      op: with a gradient that was written by hand.
      reached: keys of the tensors.
    """
    if not subgraph.is_by_hand(op):
        return False
    passes = subgraph.gradient_by_hand(op).reached
    given = [i for i, t in enumerate(op.inputs) if passes[i] and subgraph.key_of(t) in reached]
    outputs = [t for t in op.outputs if subgraph.carries_derivative(t)]
    return all(is_zero(t, i) or is_diagonal(t, i) for t in outputs for i in given)


def is_zero(output: tf.Tensor, i: int) -> bool:
    """Returns whether the gradient passes nothing of the cotangent to input `i`.

    So do those of the outputs that `tf.custom_gradient` adds for the inputs.
    """
    built = pulled(output)
    if built is None:
        return False
    end = built.back[i]
    return end is None or not _reaches(built.cotangent.op, end)


def is_diagonal(output: tf.Tensor, i: int) -> bool:
    """Returns whether the gradient by input `i` multiplies each entry of the cotangent by a number.

    Then it is linear, as one that clips is not, and its Jacobian is that diagonal.
    """
    built = pulled(output)
    if built is None or built.back[i] is None or not output.dtype.is_floating:
        return False
    if not _are_alike(output, output.op.inputs[i]):
        return False
    scaled = {subgraph.key_of(built.cotangent)}
    for op in built.graph.get_operations():
        if _scales(op, scaled):
            scaled.add(subgraph.key_of(op.outputs[0]))
        elif any(subgraph.key_of(t) in scaled for t in op.inputs) and _reaches(op, built.back[i]):
            return False
    return subgraph.key_of(built.back[i]) in scaled


def _are_alike(one: tf.Tensor, other: tf.Tensor) -> bool:
    """Returns whether two tensors are seen to have the same shape."""
    if one.shape.rank is None or one.shape != other.shape:
        return False
    unknown = [k for k, size in enumerate(one.shape) if size is None]
    return all(lengths.of(one, k) == lengths.of(other, k) for k in unknown)


def _scales(op: tf.Operation, scaled: set) -> bool:
    """Returns whether an op multiplies each entry of what is a scaled cotangent by a number."""
    given = [subgraph.key_of(t) in scaled for t in op.inputs]
    if not any(given):
        return False
    shapes = [t.shape for t, is_scaled in zip(op.inputs, given) if is_scaled]
    if any(shape != op.outputs[0].shape for shape in shapes):
        return False
    if op.type in _SUMS:
        return all(given)
    if op.type == "Mul":
        return sum(given) == 1
    if op.type in _DIVISIONS:
        return given == [True, False]
    return op.type in _MOVES and op.outputs[0].dtype.is_floating


def _reaches(op: tf.Operation, end: tf.Tensor) -> bool:
    """Returns whether an op lies before a tensor; what the graph captures lies before both."""
    seen: set[str] = set()
    waiting = [end.op]
    while waiting:
        here = waiting.pop()
        if here is op:
            return True
        if here.graph is op.graph and here.name not in seen:
            seen.add(here.name)
            waiting += [t.op for t in here.inputs if subgraph.carries_derivative(t)]
    return False
