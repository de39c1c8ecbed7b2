"""Exception and warning classes. Imports nothing, so every other module may use it."""

from __future__ import annotations


class TfjacError(Exception):
    """Base of every error that tfjac raises on purpose."""


class InvalidValueError(TfjacError, ValueError):
    """An argument has a value that cannot be used.

    Args:
      argument: name of the argument, as the user wrote it.
      required: what was required.
      got: what came (value, shape, dtype or op).
      remedy: what to do about it.
    """

    def __init__(self, argument: str, required: str, got: str, remedy: str):
        super().__init__(f"`{argument}` must be {required}; got {got}. {remedy}")


class InvalidTypeError(TfjacError, TypeError):
    """An argument is of a kind (type, dtype, graph) that cannot be used.

    Args:
      argument: name of the argument, as the user wrote it.
      required: what was required.
      got: what came.
      remedy: what to do about it.
    """

    def __init__(self, argument: str, required: str, got: str, remedy: str):
        super().__init__(f"`{argument}` must be {required}; got {got}. {remedy}")


class UnsupportedError(TfjacError, ValueError):
    """The Jacobian exists, but the strategy or an op on the way cannot give it."""


class NotDifferentiableError(UnsupportedError):
    """An op between x and y has no derivative in TensorFlow; the message names it."""


class LoopFallbackWarning(UserWarning):
    """A vectorized map runs some op once per row, because TensorFlow cannot batch it."""
