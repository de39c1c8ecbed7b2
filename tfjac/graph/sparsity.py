"""Which entries of a Jacobian may be nonzero: always a superset of those that are.

Reads the graph; evaluates nothing but movements of position numbers, and adds nothing.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence

import numpy as np
import tensorflow as tf

from tfjac import rules
from tfjac.graph import positions, subgraph
from tfjac.rules import Kind, Local

# Larger ones are not followed: their tensor counts as depending on everything that reaches it.
_LARGEST = 2**28


@dataclasses.dataclass(frozen=True, eq=False)
class SparsityPattern:
    """Entries of a Jacobian that may be nonzero.

    Args:
      rows: row of each, y flattened; sorted by rows.
      columns: column of each, x flattened.
      shape: `(rows, columns)` of the Jacobian.
    """

    rows: np.ndarray
    columns: np.ndarray
    shape: tuple[int, int]

    @property
    def count(self) -> int:
        """How many entries may be nonzero."""
        return len(self.rows)

    def to_dense(self) -> np.ndarray:
        """Returns a boolean array of `shape`."""
        dense = np.zeros(self.shape, bool)
        dense[self.rows, self.columns] = True
        return dense


def pattern(y: tf.Tensor, x: tf.Tensor) -> SparsityPattern:
    """Returns the pattern of dy/dx.

    Args:
      y: the target, of known sizes.
      x: the source, of known sizes.
    """
    columns = x.shape.num_elements()
    walk = _Walk(columns)
    walk.found[subgraph.key_of(x)] = np.eye(columns, dtype=bool)
    walk.through(subgraph.ops_between(y, [x]))
    dense = walk.of(y)
    if dense is None:
        dense = np.zeros((y.shape.num_elements(), columns), bool)
    rows, places = np.nonzero(np.broadcast_to(dense, (y.shape.num_elements(), columns)))
    return SparsityPattern(rows, places, (y.shape.num_elements(), columns))


class _Walk:
    """One walk from source to target.

    `found` has, for each tensor reached, a boolean array `[entries, columns]`, or `[1, columns]`
    where all entries may depend on the same.
    """

    def __init__(self, columns: int) -> None:
        self.found: dict[tuple, np.ndarray] = {}
        self._columns = columns
        self._outer = subgraph.OuterTensors()

    def of(self, tensor: tf.Tensor) -> np.ndarray | None:
        """Returns the array of a tensor, None where it depends on nothing."""
        return self.found.get(self._outer.find(tensor, self.found))

    def through(self, ops: Iterable[tf.Operation]) -> None:
        """Follows the ops, which come in topological order."""
        for op in ops:
            given = [self.of(t) for t in op.inputs]
            if any(array is not None for array in given):
                for tensor, array in zip(op.outputs, self._outputs(op, given)):
                    if array is not None:
                        self.found[subgraph.key_of(tensor)] = array

    def _outputs(self, op: tf.Operation, given: Sequence) -> list[np.ndarray | None]:
        bodies = subgraph.bodies(op)
        if bodies is not None:
            return self._bodies(op, bodies, given)
        rule = rules.rule_of(op)
        return [self._output(op, rule, o, given) for o in range(len(op.outputs))]

    def _output(self, op, rule: rules.Rule | None, o: int, given) -> np.ndarray | None:
        if not subgraph.carries_derivative(op.outputs[o]):
            return None
        parts = []
        for i, array in enumerate(given):
            if array is None or not subgraph.carries_derivative(op.inputs[i]):
                continue
            local = rules.OPAQUE if rule is None else rule.local(op, i, o)
            if local.kind is not Kind.ZERO:
                parts.append(self._pulled(op, i, o, local, array))
        return _any(parts)

    def _pulled(self, op, i: int, o: int, local: Local, array: np.ndarray) -> np.ndarray:
        size = op.outputs[o].shape.num_elements() if op.outputs[o].shape.rank is not None else None
        if len(array) == 1 or size is None or size * self._columns > _LARGEST:
            return array.any(axis=0, keepdims=True)
        places = positions.sources_of(op, i, o, local)
        if places is not None:
            return array[places] & (places >= 0)[:, np.newaxis]
        given = op.inputs[i].shape
        if not given.is_fully_defined() or not local.links:
            return array.any(axis=0, keepdims=True)
        return _by_links(local, op.outputs[o].shape.as_list(), given.as_list(), array)

    def _bodies(self, op, bodies: subgraph.Bodies, given: Sequence) -> list[np.ndarray | None]:
        states = list(given)
        while True:
            found = [self._body(body, states[bodies.skip :]) for body in bodies.graphs]
            joined = [_any([a for a in arrays if a is not None]) for arrays in zip(*found)]
            if not bodies.repeats:
                return joined
            after = [_any([a for a in pair if a is not None]) for pair in zip(states, joined)]
            if all(_same(a, b) for a, b in zip(after, states)):
                return after
            states = after

    def _body(self, body: tf.Graph | None, given: Sequence) -> list[np.ndarray | None]:
        whole = _any([a.any(axis=0, keepdims=True) for a in given if a is not None])
        if body is None or len(body.inputs) != len(given):
            return [whole] * (len(given) if body is None else len(body.outputs))
        inner = _Walk(self._columns)
        for tensor, array in zip(body.inputs, given):
            if array is not None:
                inner.found[subgraph.key_of(tensor)] = array
        inner.through(body.get_operations())
        return [inner.of(t) for t in body.outputs]


def _by_links(local: Local, out: list[int], given: list[int], array: np.ndarray) -> np.ndarray:
    """Returns what depends on anything at the same positions of the linked axes."""
    columns = array.shape[-1]
    linked_in = [a for _, a in local.links]
    shaped = array.reshape(*given, columns)
    gathered = shaped.any(axis=tuple(a for a in range(len(given)) if a not in linked_in))
    # What is left are the linked axes in the input's order; they go to their places in the output.
    order = sorted(local.links, key=lambda link: link[1])
    places = [b for b, _ in order]
    sorted_places = sorted(places)
    gathered = np.transpose(gathered, [*(places.index(b) for b in sorted_places), len(places)])
    shape = [out[b] if b in places else 1 for b in range(len(out))]
    return np.broadcast_to(gathered.reshape(*shape, columns), (*out, columns)).reshape(
        math.prod(out), columns
    )


def _any(arrays: Sequence[np.ndarray]) -> np.ndarray | None:
    if not arrays:
        return None
    found = arrays[0]
    for array in arrays[1:]:
        found = found | array
    return found


def _same(one: np.ndarray | None, other: np.ndarray | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.shape == other.shape and bool((one == other).all())
