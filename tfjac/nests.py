"""Nested structures of targets and sources, the fields of extension types among them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from tfjac import blocks, errors
from tfjac.graph import sources


class Nest:
    """A nested structure taken apart into what is differentiated.

    A `tf.experimental.ExtensionType` counts as a structure of its fields: the floating and complex
    tensors in it are leaves, all else goes into the result as it is.

    Args:
      structure: as `tf.nest` understands it.
      argument: its name, for messages.
    """

    def __init__(self, structure: Any, argument: str) -> None:
        self.structure = structure
        self._argument = argument
        self._values = tf.nest.flatten(structure)
        self.leaves: list[Any] = []
        for value in self._values:
            self.leaves += self._parts(value) if is_opened(value) else [value]

    def pack(self, found: Sequence[Any]) -> Any:
        """Returns the structure with `found`, one for each leaf, in it."""
        remaining = iter(found)
        flat = [
            self._packed(value, remaining) if is_opened(value) else next(remaining)
            for value in self._values
        ]
        return tf.nest.pack_sequence_as(self.structure, flat)

    def check_matches(self, other: Nest) -> None:
        """Raises ValueError or TypeError unless `other` has the same structure."""
        tf.nest.assert_same_structure(other.structure, self.structure, check_types=False)
        for mine, given in zip(self._values, other._values):
            kinds = [type(v) if is_opened(v) else None for v in (given, mine)]
            if kinds[0] is not kinds[1]:
                names = [kind.__name__ if kind else "a tensor" for kind in kinds]
                raise TypeError(f"{names[0]} is wanted where {names[1]} is.")
        if len(self.leaves) != len(other.leaves):
            raise ValueError(f"{len(other.leaves)} tensors are wanted, not {len(self.leaves)}.")

    def _parts(self, value: Any) -> list[tf.Tensor]:
        for part in _within(value):
            sources.check_dense(part, self._argument)
        parts = [t for t in _components(value) if _is_differentiable(t)]
        if not parts:
            raise errors.InvalidTypeError(
                errors.message(
                    self._argument,
                    "floating or complex",
                    f"a {type(value).__name__} without such a tensor",
                    "Cast one of its fields first.",
                )
            )
        return parts

    def _packed(self, value: Any, remaining: Iterator[Any]) -> Any:
        parts = [next(remaining) if _is_differentiable(t) else t for t in _components(value)]
        if any(part is None for part in parts):
            raise errors.InvalidValueError(
                errors.message(
                    "unconnected_gradients",
                    f'"zero" where `{self._argument}` has an extension type',
                    f'"none", and a field of {type(value).__name__} is not connected',
                    "Leave it out, or pass the fields in a list or dict.",
                )
            )
        if not all(isinstance(part, tf.Tensor) for part in parts):
            raise errors.InvalidTypeError(
                errors.message(
                    self._argument,
                    "a list, tuple or dict where each of its tensors has several results",
                    f"a {type(value).__name__}, whose fields hold one tensor each",
                    "Pass its fields in a list or dict.",
                )
            )
        return tf.nest.pack_sequence_as(value, parts, expand_composites=True)


def is_opened(value: Any) -> bool:
    """True of what counts as a structure although it is a leaf to `tf.nest`."""
    is_extension = isinstance(value, tf.experimental.ExtensionType)
    return is_extension and not isinstance(value, blocks.BlockDiagonal)


def _components(value: Any) -> list[tf.Tensor]:
    return tf.nest.flatten(value, expand_composites=True)


def _is_differentiable(tensor: tf.Tensor) -> bool:
    return tensor.dtype.is_floating or tensor.dtype.is_complex


def _within(value: Any) -> Iterator[Any]:
    """Yields what the fields of an extension type hold, those of types within it too."""
    names = [name for cls in type(value).__mro__ for name in vars(cls).get("__annotations__", ())]
    for name in names:
        for leaf in tf.nest.flatten(getattr(value, name)):
            if is_opened(leaf):
                yield from _within(leaf)
            else:
                yield leaf
