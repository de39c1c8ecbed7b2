"""Which types of ops random programs draw, and why they do not draw others."""

from __future__ import annotations

import fuzz
import fuzz_ops
import tensorflow as tf

from tfjac import rules
from tfjac.rewriting import table


def known_types() -> set[str]:
    """Returns the types that have a rule or a replacement."""
    return set(rules.op_types()) | set(table.TABLE)


def drawn_types() -> set[str]:
    """Returns the types of the graphs of all calls and of their gradients."""
    with tf.Graph().as_default() as graph:
        for call in fuzz_ops.CALLS:
            _trace(call)
    definition = graph.as_graph_def()
    bodies = [node.op for f in definition.library.function for node in f.node_def]
    return {node.op for node in definition.node} | set(bodies)


def _trace(call: fuzz_ops.Call) -> None:
    program = fuzz.Program(
        (fuzz_ops.source_of(call, "", False),), ("x = x0", f"v = {call.code}"), "v"
    )
    x = tf.compat.v1.placeholder(tf.float64, call.shape)
    v = program.function()(x)
    y = tf.math.real(v) + tf.math.imag(v) if v.dtype.is_complex else v
    tf.gradients(tf.gradients(y * y, x)[0] * 2.0 if _is_twice(call) else y * y, x)


def _is_twice(call: fuzz_ops.Call) -> bool:
    return "Conv" in call.code or "conv" in call.code


_PIECEWISE = "constant between its jumps: of values, not of derivatives"
_OLD = "an old form that no public call makes, and that shares the rule of the new one"
_NONE = "no derivative in TensorFlow"
_LIST = "of lists that tf.TensorArray makes only within loops"
NEVER: dict[str, str] = {}
