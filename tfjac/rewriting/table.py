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


def replacement_of(op: tf.Operation, given: Sequence[bool]) -> Replacement | None:
    """Returns what is to take the place of an op; None where it is right as it is.

    Args:
      op: the op.
      given: which of its inputs depend on the source.
    """
    found = TABLE.get(op.type)
    if found is None or rules.has_custom_gradient(op) or not found.applies(op, given):
        return None
    return found
