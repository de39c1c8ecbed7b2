"""What takes the place of an op whose derivatives in TensorFlow are at fault."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import tensorflow as tf

Build = Callable[[tf.Operation, Sequence[tf.Tensor]], list[tf.Tensor]]


def always(op: tf.Operation, given: Sequence[bool]) -> bool:
    """Says yes to each op of a type."""
    return True


@dataclasses.dataclass(frozen=True)
class Replacement:
    """An expression of the same value whose derivatives are right, to any order.

    Args:
      build: from the op and its inputs in the copy to what replaces its outputs.
      fault: what is wrong in TensorFlow, and where, in words.
      applies: from the op, and which of its inputs depend on the source, to whether it is at fault.
      first: whether the first derivative is at fault, and not only later ones.
    """

    build: Build
    fault: str
    applies: Callable[[tf.Operation, Sequence[bool]], bool] = always
    first: bool = True
