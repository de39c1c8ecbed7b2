"""What to do where what a strategy built fails when it runs."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence

import tensorflow as tf

from tfjac import errors

# What is raised where a kernel, or XLA, cannot serve a graph that was built.
FAILS = (tf.errors.InvalidArgumentError, tf.errors.NotFoundError, tf.errors.UnimplementedError)


def next_strategy(
    tried: Sequence[str], names: Sequence[str], error: tf.errors.OpError, stacklevel: int
) -> str:
    """Returns the name of the strategy to try next, with a warning, or raises.

    Args:
      tried: names of those that failed, the last one with `error`.
      names: of those that could serve, best first.
      error: what came when it ran.
      stacklevel: of the warning.

    Raises:
      UnsupportedError: none is left.
    """
    left = [name for name in names if name not in tried]
    if not left:
        raise errors.UnsupportedError(
            f"the function runs, but its Jacobian by {tried[-1]} fails when it runs: "
            f"{_said(error)}. An op has no kernel for it here, or none at these values. Use "
            "another strategy, dtype or device."
        ) from error
    warnings.warn(
        f"{tried[-1]} fails when it runs ({_said(error)}); {left[0]} is tried",
        errors.StrategyFallbackWarning,
        stacklevel=stacklevel + 1,
    )
    return left[0]


def _said(error: tf.errors.OpError) -> str:
    """Returns what a kernel says, without the stack before it and the node's name after it."""
    lines = itertools.takewhile(
        lambda line: not line.strip().startswith("[["), str(error).strip().splitlines()
    )
    return [line.strip() for line in lines if line.strip()][-1]
