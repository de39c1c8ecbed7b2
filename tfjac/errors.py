"""Exception and warning classes. Imports nothing, so every other module may use it."""

from __future__ import annotations


class TfjacError(Exception):
    """Base of every error that tfjac raises on purpose."""

    # AutoGraph can raise an error again with the user's line in front only if its class has this
    # very constructor; any other reaches the user as a StagingError.
    __init__ = Exception.__init__


class InvalidValueError(TfjacError, ValueError):
    """An argument has a value that cannot be used."""


class InvalidTypeError(TfjacError, TypeError):
    """An argument is of a kind (type, dtype) that cannot be used."""


class UnsupportedError(TfjacError, ValueError):
    """The Jacobian exists, but the strategy or an op on the way cannot give it."""


class ExamplesMixError(UnsupportedError):
    """Examples mix between x and y, or could not be proved not to; the message names the op."""


class NotDifferentiableError(UnsupportedError):
    """An op between x and y has no derivative in TensorFlow; the message names it."""


class OutOfMemoryWarning(UserWarning):
    """TensorFlow ran out of memory, and half as much is tried at once."""


class StrategyFallbackWarning(UserWarning):
    """The strategy of least cost could not build after all, and the next one does."""


class RatesIgnoredWarning(UserWarning):
    """A file of measured rates is damaged, or of another machine: it is not used."""


class LoopFallbackWarning(UserWarning):
    """A vectorized map runs some op once per row, because TensorFlow cannot batch it."""


def message(argument: str, required: str, got: str, remedy: str) -> str:
    """Returns the text of an error about an argument.

    Args:
      argument: its name, as the user wrote it.
      required: what was required.
      got: what came: value, shape, dtype or op.
      remedy: what to do.
    """
    return f"`{argument}` must be {required}; got {got}. {remedy}"
