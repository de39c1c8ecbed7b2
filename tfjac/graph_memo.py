"""What was already built in a graph, kept on that graph and freed with it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar

import tensorflow as tf

from tfjac import tf_internals

T = TypeVar("T")

# An attribute of the graph itself, because a table keyed weakly by graph would never be freed: its
# values are tensors, and a tensor holds its graph.
_ATTRIBUTE = "_tfjac_memo"


def memoized(key: Hashable, build: Callable[[], T]) -> T:
    """Returns what `build()` gave the first time that `key` was asked for in the default graph."""
    graph = tf.compat.v1.get_default_graph()
    return kept_on(graph, (tf_internals.control_flow_scope(graph), key), build)


def kept_on(graph: tf.Graph, key: Hashable, build: Callable[[], T]) -> T:
    """Returns what `build()` gave the first time that `key` was asked for of `graph`."""
    if not hasattr(graph, _ATTRIBUTE):
        setattr(graph, _ATTRIBUTE, {})
    memo = getattr(graph, _ATTRIBUTE)
    if key not in memo:
        memo[key] = build()
    return memo[key]


def memoized_unless_recording(key: Hashable, build: Callable[[], T]) -> T:
    """Like `memoized`, but builds anew under a tape: it sees only ops made while it is active."""
    if tf_internals.is_recording():
        return build()
    return memoized(key, build)
