"""How many floating-point operations a stretch of graph takes."""

from __future__ import annotations

from collections.abc import Iterable

import tensorflow as tf

from tfjac import nominal, rules
from tfjac.graph import kernels, subgraph


def flops_of(ops: Iterable[tf.Operation]) -> float:
    """Returns the FLOPs of `ops`, bodies of called functions and turns of loops included.

    Sizes that are unknown, and how often a loop goes round, are guessed.
    """
    return sum(map(_flops, ops))


def _flops(op: tf.Operation) -> float:
    bodies = subgraph.bodies(op)
    if bodies is None:
        rule = rules.rule_of(op)
        if rule is not None and rule.flops is not None:
            return rule.flops(op)
        outputs = [t for t in op.outputs if t.dtype.is_floating or t.dtype.is_complex]
        return float(sum(nominal.entries(t) for t in outputs))
    graphs = [graph for graph in bodies.graphs if graph is not None]
    once = max((flops_of(graph.get_operations()) for graph in graphs), default=0.0)
    return once * (kernels.turns_of(op) if bodies.repeats else 1.0)
