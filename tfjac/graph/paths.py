"""All ops before one target, read once, and the ways from any source to it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from tfjac import graph_memo
from tfjac.graph import subgraph


@dataclasses.dataclass(frozen=True, eq=False)
class Node:
    """A tensor in a tree, in which all paths from it, or to it, run through those above it.

    Args:
      tensor: the tensor.
      parent: the nearest of those; None where there is none.
      depth: how many there are.
    """

    tensor: tf.Tensor
    parent: Node | None
    depth: int


class Paths:
    """The ops before a target: what lies between it and a source takes no other walk.

    Cost: linear in the ops before the target, whatever the number of sources asked about. Each
    question costs as much as the ops in its answer.

    Args:
      target: the tensor at which all paths end.
    """

    def __init__(self, target: tf.Tensor) -> None:
        self._target = target
        self._ops: list[tf.Operation] = []
        self._inputs: list[list[tuple[int, str]]] = []
        self._number: dict[tuple[int, str], int] = {}
        self._readers: dict[tuple[int, str], list[int]] = {}
        for number, (op, inputs) in enumerate(subgraph.post_order(target, frozenset())):
            keys = [subgraph.key_of(t) for t in inputs]
            self._ops.append(op)
            self._inputs.append(keys)
            self._number.update((subgraph.key_of(t), number) for t in op.outputs)
            for key in dict.fromkeys(keys):
                self._readers.setdefault(key, []).append(number)
        self._nodes = self._common_tensors()

    def ops(self, sources: Sequence[tf.Tensor], end: tf.Tensor | None = None) -> list[tf.Operation]:
        """Returns what `subgraph.ops_between(end, sources)` does, from what was read already.

        Args:
          sources: tensors at which paths begin.
          end: a tensor before the target; the target itself where it is left out.
        """
        end = self._target if end is None else end
        keys = {subgraph.key_of(t) for t in sources}
        last = self._number[subgraph.key_of(end)]
        after = self._after(keys, last)
        if subgraph.key_of(end) in keys or last not in after:
            return []
        needed, found = {last}, []
        for number in sorted(after, reverse=True):
            if number in needed:
                found.append(self._ops[number])
                needed.update(self._number[k] for k in self._inputs[number] if k not in keys)
        return [op for op in reversed(found) if op.type != "Placeholder"]

    def chain(self, sources: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Returns the tensors after all sources through which every path from them runs, in order.

        The target is the last of them; empty where one of the sources does not reach it.
        """
        nodes = [self._nodes.get(subgraph.key_of(t)) for t in sources]
        if not nodes or None in nodes:
            return []
        node, found = common([node.parent for node in nodes]), []
        while node is not None:
            found.append(node.tensor)
            node = node.parent
        return found

    def _after(self, keys: set[tuple[int, str]], last: int) -> set[int]:
        """Returns the ops up to number `last` that depend on any of the tensors."""
        waiting = [n for key in keys for n in self._readers.get(key, ()) if n <= last]
        found = set(waiting)
        while waiting:
            for tensor in self._ops[waiting.pop()].outputs:
                for n in self._readers.get(subgraph.key_of(tensor), ()):
                    if n <= last and n not in found:
                        found.add(n)
                        waiting.append(n)
        return found

    def _common_tensors(self) -> dict[tuple[int, str], Node]:
        """Returns a node for each tensor that reaches the target: post-dominators, as a tree."""
        target = subgraph.key_of(self._target)
        nodes = {target: Node(self._target, None, 0)}
        for op in reversed(self._ops):
            for tensor in op.outputs:
                key = subgraph.key_of(tensor)
                following = [
                    nodes[k]
                    for n in self._readers.get(key, ())
                    for k in map(subgraph.key_of, self._ops[n].outputs)
                    if k in nodes
                ]
                if following and key != target:
                    parent = common(following)
                    depth = 0 if parent is None else parent.depth + 1
                    nodes[key] = Node(tensor, parent, depth)
        return nodes


def common(nodes: Sequence[Node | None]) -> Node | None:
    """Returns the nearest node at or above all of them, None where there is none."""
    found = nodes[0]
    for node in nodes[1:]:
        while found is not node:
            if found is None or node is None:
                return None
            if found.depth >= node.depth:
                found = found.parent
            else:
                node = node.parent
    return found


def to(target: tf.Tensor) -> Paths:
    """Returns the paths to a target, read once in a graph."""
    return graph_memo.memoized(("paths", target.ref()), lambda: Paths(target))
