"""absl flags for any TensorFlow program, and the options that they give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from absl import flags

from tfjac import errors, strategies

# So that --help lists the flags as those of the program that calls `define`.
flags.disclaim_key_flags()


class _ChunkSizeParser(flags.ArgumentParser):
    """Takes a positive integer, "auto" or "none"."""

    syntactic_help = 'a positive integer, "auto" or "none"'

    def parse(self, argument: int | str | None) -> int | str | None:
        text = str(argument).lower()
        if text in ("auto", "none"):
            return None if text == "none" else text
        if not text.isdecimal() or int(text) < 1:
            raise ValueError(f"must be {self.syntactic_help}; got {argument!r}")
        return int(text)


def define(
    prefix: str = "",
    *,
    strategy: str = "auto",
    other_strategies: Sequence[str] = (),
    flag_values: flags.FlagValues = flags.FLAGS,
) -> None:
    """Defines `--strategy`, `--chunk_size`, `--jit_compile`, `--device`, `--unconnected_gradients`.

    Args:
      prefix: put before each name, as "jacobian_", so that nothing collides.
      strategy: the default of `--strategy`.
      other_strategies: further values of `--strategy` that the program itself acts on.
      flag_values: where to define them.

    Raises:
      InvalidValueError: a flag of that name exists.

    Example:
      >>> from absl import flags
      >>> values = flags.FlagValues()
      >>> tfjac.flags.define("jacobian_", flag_values=values)
      >>> _ = values(["program", "--jacobian_strategy=forward", "--jacobian_chunk_size=8"])
      >>> options = tfjac.flags.options("jacobian_", flag_values=values)
      >>> options["strategy"], options["chunk_size"]
      ('forward', 8)
    """
    where: dict[str, Any] = {"flag_values": flag_values}
    try:
        flags.DEFINE_enum(
            prefix + "strategy",
            strategy,
            [*strategies.names(), *other_strategies],
            "How to build the Jacobian.",
            **where,
        )
        flags.DEFINE(
            _ChunkSizeParser(),
            prefix + "chunk_size",
            "auto",
            'Rows or columns per pass: a number, "auto", or "none" for all at once.',
            **where,
        )
        flags.DEFINE_bool(prefix + "jit_compile", False, "Compile with XLA.", **where)
        flags.DEFINE_string(
            prefix + "device",
            None,
            "Where to evaluate, as /CPU:0 or /GPU:0. Default: a GPU where one is visible, else "
            "the CPU.",
            **where,
        )
        flags.DEFINE_enum(
            prefix + "unconnected_gradients",
            "zero",
            ["zero", "none"],
            "What an unconnected pair gives: zeros, or None.",
            **where,
        )
    except flags.DuplicateFlagError as error:
        raise errors.InvalidValueError(
            errors.message(
                "prefix",
                "such that no flag exists twice",
                repr(prefix),
                f"Choose another prefix. {error}",
            )
        ) from None


def options(prefix: str = "", *, flag_values: flags.FlagValues = flags.FLAGS) -> dict[str, Any]:
    """Returns what the flags say, as keyword arguments of `prepare`.

    Args:
      prefix: as in `define`.
      flag_values: as in `define`.

    Returns:
      strategy, chunk_size, jit_compile, device and unconnected_gradients.
    """
    names = ("strategy", "chunk_size", "jit_compile", "device", "unconnected_gradients")
    return {name: flag_values[prefix + name].value for name in names}


def graph_options(
    prefix: str = "", *, flag_values: flags.FlagValues = flags.FLAGS
) -> dict[str, Any]:
    """Returns what the flags say, as keyword arguments of `jacobian` and `batch_jacobian`.

    Args:
      prefix: as in `define`.
      flag_values: as in `define`.

    Returns:
      strategy, chunk_size and unconnected_gradients; where and how to evaluate is up to the graph.
    """
    found = options(prefix, flag_values=flag_values)
    return {name: found[name] for name in ("strategy", "chunk_size", "unconnected_gradients")}
