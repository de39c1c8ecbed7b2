"""How many floating-point operations a stretch of graph takes."""

from __future__ import annotations

from collections.abc import Iterable

import tensorflow as tf

from tfjac import rules
from tfjac.graph import subgraph


def flops_of(ops: Iterable[tf.Operation]) -> float | None:
    """Returns the FLOPs of `ops`, bodies of called functions included.

    None where a size is unknown, or how often a loop goes round.
    """
    total = 0.0
    for op in ops:
        found = _flops(op)
        if found is None:
            return None
        total += found
    return total


def _flops(op: tf.Operation) -> float | None:
    outputs = [t for t in op.outputs if t.dtype.is_floating or t.dtype.is_complex]
    if any(t.shape.num_elements() is None for t in outputs):
        return None
    bodies = subgraph.bodies(op)
    if bodies is None:
        rule = rules.rule_of(op)
        if rule is not None and rule.flops is not None:
            return rule.flops(op)
        return float(sum(t.shape.num_elements() for t in outputs))
    if bodies.repeats or None in bodies.graphs:
        return None
    found = [flops_of(graph.get_operations()) for graph in bodies.graphs]
    return None if None in found else max(found, default=0.0)
