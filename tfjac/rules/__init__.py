"""What is known of each op type, one record for every use: the merged table.

A rule says how each output of an op depends on each input. From that come the axis that numbers
the examples, the pattern of the Jacobian and the cost. An op type without a rule is opaque: it may
depend on everything, and TensorFlow's own gradient serves it.
"""

from __future__ import annotations

import tensorflow as tf

from tfjac import errors
from tfjac.graph import stops
from tfjac.rules import convolution, indexing, lists, mixing, movement, pointwise, reshaping
from tfjac.rules.entries import allowed_entries
from tfjac.rules.kinds import OPAQUE, ZERO, Example, Kind, Local, Rule
from tfjac.rules.kinds import constant as constants
from tfjac.rules.mixing import einsum_labels
from tfjac.rules.reshaping import reshaped

_TABLE: dict[str, Rule] = {
    **pointwise.TABLE,
    **movement.TABLE,
    **reshaping.TABLE,
    **indexing.TABLE,
    **mixing.TABLE,
    **convolution.TABLE,
    **lists.TABLE,
}


def rule_of(op: tf.Operation) -> Rule | None:
    """Returns the rule of an op; None where there is none.

    An op that carries a custom gradient has none whatever its type: its gradient is not its own.
    """
    if has_custom_gradient(op):
        return None
    # What tf.nn.moments stops has a second derivative; see `stops`.
    return _TABLE.get("Identity" if stops.is_of_moments(op) else op.type)


def has_custom_gradient(op: tf.Operation) -> bool:
    """Returns whether the op's gradient was written by hand (`tf.custom_gradient`)."""
    return "_gradient_op_type" in op.node_def.attr


def op_types() -> tuple[str, ...]:
    """Returns the op types that have a rule."""
    return tuple(sorted(_TABLE))


def register_rule(op_type: str, rule: Rule) -> None:
    """Gives an op type a rule.

    Args:
      op_type: as `tf.Operation.type` names it.
      rule: what is known of it; `testing.check_rule` checks it.

    Raises:
      InvalidValueError: the op type has a rule.

    Example:
      >>> tanh = tfjac.rules.rule_for("Tanh")
      >>> tfjac.rules.register_rule("MyOwnTanh", tanh)  # doctest: +SKIP
    """
    if op_type in _TABLE:
        raise errors.InvalidValueError(
            errors.message(
                "op_type", "one without a rule", repr(op_type), "Rules cannot be replaced."
            )
        )
    _TABLE[op_type] = rule


def rule_for(op_type: str) -> Rule:
    """Returns the rule of an op type; raises InvalidValueError where there is none."""
    if op_type not in _TABLE:
        raise errors.InvalidValueError(
            errors.message(
                "op_type",
                "one that has a rule",
                repr(op_type),
                "tfjac.rules.op_types() lists them.",
            )
        )
    return _TABLE[op_type]


__all__ = [
    "OPAQUE",
    "ZERO",
    "Example",
    "Kind",
    "Local",
    "Rule",
    "allowed_entries",
    "constants",
    "einsum_labels",
    "has_custom_gradient",
    "op_types",
    "register_rule",
    "reshaped",
    "rule_for",
    "rule_of",
]
