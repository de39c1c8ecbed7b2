"""The merged table of replacements, and inputs of ops by which a derivative is missing."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from tfjac import rules
from tfjac.rewriting import (
    adjoints,
    convolutions,
    images,
    indices,
    losses,
    matrices,
    normalization,
    pointwise,
    python_functions,
    running,
    segments,
    special,
)
from tfjac.rewriting.replacement import Replacement

TABLE: dict[str, Replacement] = {
    **adjoints.TABLE,
    **convolutions.TABLE,
    **images.TABLE,
    **indices.TABLE,
    **losses.TABLE,
    **matrices.TABLE,
    **normalization.TABLE,
    **pointwise.TABLE,
    **python_functions.TABLE,
    **running.TABLE,
    **segments.TABLE,
    **special.TABLE,
}


def may_be_replaced(op: tf.Operation) -> bool:
    """Returns whether an op may be at fault, for some source."""
    if op.type not in TABLE:
        return False
    count = len(op.inputs)
    some = ([True] * count, [True] + [False] * (count - 1))
    return any(replacement_of(op, given) for given in some)


def replacement_of(op: tf.Operation, given: Sequence[bool]) -> Replacement | None:
    """Returns what is to take the place of an op; None where it is right as it is.

    Args:
      op: the op.
      given: which of its inputs depend on the source.
    """
    found = TABLE.get(op.type)
    if found is None or rules.has_custom_gradient(op) or _is_within(op):
        return None
    return found if found.applies(op, given) else None


def _is_within(op: tf.Operation) -> bool:
    """Returns whether an op gives a value whose gradient was written by hand: none goes through.

    TensorFlow hands the value itself to the op that has the gradient, and arguments as identities.
    """
    readers = [reader for t in op.outputs for reader in t.consumers()]
    return any(map(rules.has_custom_gradient, readers)) and all(map(_is_handing, readers))


def _is_handing(op: tf.Operation) -> bool:
    readers = op.outputs[0].consumers() if op.type == "Identity" else [op]
    return all(map(rules.has_custom_gradient, readers))
